//! What is wrong with a registry file, where, and how to mend it.
//!
//! A file is read to its end before it is refused, so that one look at the output mends all of it.
//! The parsers note [`Fault`]s here by position only; file name and excerpt are added once, at the
//! end. `registry check` and the start-up error print them.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use super::document::Position;
use super::{MAX_FILE_BYTES, Source};

/// Why a registry was not loaded.
#[derive(Debug, thiserror::Error)]
pub enum RegistryError {
    /// A file that is missing, not readable, or no file.
    #[error("cannot read registry file {}", path.display())]
    Read {
        /// As it was given.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
    /// A file of more than [`MAX_FILE_BYTES`].
    #[error("registry file {file} is larger than {} MiB: split it into several files", MAX_FILE_BYTES >> 20)]
    TooLarge {
        /// As it was given.
        file: String,
    },
    /// A file in another encoding, or no text at all.
    #[error("registry file {file} is not UTF-8 on line {line}: save it as UTF-8")]
    NotUtf8 {
        /// As it was given.
        file: String,
        /// The first line with a byte that does not belong there.
        line: usize,
    },
    /// Files that were read but are not in the registry's language: all faults of all files.
    #[error("{}", render_faults(.0))]
    Refused(Vec<Fault>),
}

/// One fault in a registry file. Its text is `file:line:column: what is wrong: the mend` with the
/// line itself below.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The file, as it was given.
    pub file: Arc<str>,
    /// Counted from 1.
    pub line: u32,
    /// Counted from 1, in characters.
    pub column: u32,
    /// What is wrong and how to mend it.
    pub message: String,
    /// The line of the file.
    pub excerpt: String,
}

/// Longer lines are cut around the column in the excerpt.
const EXCERPT_WIDTH: usize = 100;

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, line, column, message, excerpt } = self;
        write!(f, "{file}:{line}:{column}: {message}")?;
        let before = usize::try_from(column.saturating_sub(1)).unwrap_or(usize::MAX);
        let skipped = before.saturating_sub(EXCERPT_WIDTH / 2);
        let visible: String = excerpt
            .chars()
            .skip(skipped)
            .take(EXCERPT_WIDTH)
            .map(|c| if c.is_control() { ' ' } else { c })
            .collect();
        if visible.trim().is_empty() {
            return Ok(());
        }
        let gutter = line.to_string();
        let width = gutter.len();
        write!(f, "\n  {gutter} | {}", visible.trim_end())?;
        write!(f, "\n  {:width$} | {:indent$}^", "", "", indent = before - skipped)
    }
}

fn render_faults(faults: &[Fault]) -> String {
    faults.iter().map(Fault::to_string).collect::<Vec<_>>().join("\n")
}

/// Collects the faults of one file while it is parsed.
pub(super) struct Faults<'a> {
    source: &'a Source,
    found: Vec<(Position, String)>,
}

impl<'a> Faults<'a> {
    pub(super) fn new(source: &'a Source) -> Self {
        Self { source, found: Vec::new() }
    }

    pub(super) fn add(&mut self, at: Position, message: impl Into<String>) {
        self.found.push((at, message.into()));
    }

    /// What the file is called.
    pub(super) fn file(&self) -> &'a str {
        &self.source.name
    }

    pub(super) fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    /// All faults in the order of the file.
    pub(super) fn finish(mut self) -> Vec<Fault> {
        if self.found.is_empty() {
            return Vec::new();
        }
        self.found.sort_by_key(|(at, _)| *at);
        let file: Arc<str> = self.source.name.as_str().into();
        let lines: Vec<&str> = self.source.text.lines().collect();
        let excerpt = |line: u32| {
            let index = usize::try_from(line).ok()?.checked_sub(1)?;
            lines.get(index).map(|line| line.trim_start_matches('\u{feff}').to_owned())
        };
        self.found
            .into_iter()
            .map(|(Position { line, column }, message)| Fault {
                file: file.clone(),
                line,
                column,
                message,
                excerpt: excerpt(line).unwrap_or_default(),
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_shows_its_place_and_its_line() {
        let source = Source { name: "locks.yaml".into(), text: "locks:\n\t- key: 010\n".into() };
        let mut faults = Faults::new(&source);
        faults.add(Position { line: 2, column: 9 }, "what: mend");
        assert_eq!(
            faults.finish()[0].to_string(),
            "locks.yaml:2:9: what: mend\n  2 |  - key: 010\n    |         ^"
        );
    }

    #[test]
    fn a_long_line_is_cut_around_the_column() {
        let source = Source { name: "a".into(), text: format!("{}x{}", "é".repeat(300), "z") };
        let mut faults = Faults::new(&source);
        faults.add(Position { line: 1, column: 301 }, "m");
        let text = faults.finish()[0].to_string();
        assert_eq!(
            text,
            format!("a:1:301: m\n  1 | {}xz\n    | {}^", "é".repeat(50), " ".repeat(50))
        );
    }

    #[test]
    fn faults_come_in_the_order_of_the_file() {
        let source = Source { name: "a".into(), text: String::new() };
        let mut faults = Faults::new(&source);
        faults.add(Position { line: 9, column: 1 }, "second");
        faults.add(Position { line: 2, column: 7 }, "first");
        let messages: Vec<_> = faults.finish().into_iter().map(|fault| fault.message).collect();
        assert_eq!(messages, ["first", "second"]);
    }
}
