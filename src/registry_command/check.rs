//! `locks registry check`: registry files → what is wrong with them, all of it.
//!
//! The files are parsed together, as the exporter loads them, since names and conflicts cross
//! files. What counts as a fault is the registry's business; here faults, conflicts and files that
//! could not be read are put in order and counted. `main` prints the result and makes the exit
//! code of it.

use std::fmt::Write as _;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::registry::{
    Collision, Conflict, Fault, MAX_FILE_BYTES, MAX_KEYS, Origin, Registry, RegistryError, Source,
};

/// Of the entries that name one key, so many are shown beside the first.
const SHOWN: usize = 5;

/// What the name `-` stands for in messages.
const STANDARD_INPUT: &str = "<stdin>";

/// What is to be said of some registry files.
#[derive(Debug)]
pub struct Report {
    /// How many files were looked at.
    files: usize,
    /// Files that could not be read.
    unreadable: Vec<RegistryError>,
    /// In the order of the files.
    faults: Vec<Fault>,
    /// What the files without a fault name twice.
    conflicts: Vec<Conflict>,
    /// Values of theirs that hash alike: true of the values, so no fault of a file.
    collisions: Vec<Collision>,
    /// The files without a fault, to show where.
    sources: Vec<Source>,
    /// Of the files without a fault.
    entries: usize,
    /// Of the files without a fault.
    keys: usize,
}

/// Reads files; `-` is `stdin`. Those that cannot be read are told beside the others.
pub fn fetch_sources(paths: &[PathBuf], stdin: impl Read) -> (Vec<Source>, Vec<RegistryError>) {
    let (mut sources, mut unreadable) = (Vec::new(), Vec::new());
    let mut stdin = Some(stdin);
    for path in paths {
        let source = if path == Path::new("-") {
            match stdin.take() {
                Some(stdin) => fetch_source(STANDARD_INPUT, stdin),
                // Named twice, it is read once.
                None => continue,
            }
        } else {
            match File::open(path) {
                Ok(file) => fetch_source(&path.display().to_string(), file),
                Err(source) => Err(RegistryError::Read { path: path.clone(), source }),
            }
        };
        match source {
            Ok(source) => sources.push(source),
            Err(error) => unreadable.push(error),
        }
    }
    (sources, unreadable)
}

fn fetch_source(name: &str, from: impl Read) -> Result<Source, RegistryError> {
    let mut bytes = Vec::new();
    let read = from.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes);
    read.map_err(|source| RegistryError::Read { path: name.into(), source })?;
    Source::from_bytes(name, bytes)
}

impl Report {
    /// Parses all files together; `unreadable` are those that never became text.
    pub fn new(mut sources: Vec<Source>, mut unreadable: Vec<RegistryError>) -> Self {
        let files = sources.len() + unreadable.len();
        let mut faults = Vec::new();
        // Without the files that have faults the others can still be held against each other.
        let registry = Arc::new(loop {
            match Registry::load_sources(&sources, MAX_KEYS) {
                Ok(registry) => break registry,
                Err(RegistryError::Refused(found)) => {
                    let before = sources.len();
                    sources.retain(|source| found.iter().all(|fault| *fault.file != *source.name));
                    let is_stuck = sources.len() == before;
                    faults.extend(found);
                    if is_stuck {
                        break Registry::empty();
                    }
                }
                Err(error) => {
                    unreadable.push(error);
                    break Registry::empty();
                }
            }
        });
        let is_of_file = |origin: &Origin| matches!(origin, Origin::File { .. });
        Self {
            files,
            unreadable,
            faults,
            conflicts: registry.conflicts().to_vec(),
            collisions: registry.collisions().to_vec(),
            sources,
            entries: registry.entry_count(),
            keys: registry.keys(None).iter().filter(|key| is_of_file(&key.origin)).count(),
        }
    }

    /// Nothing is wrong.
    pub fn is_clean(&self) -> bool {
        self.unreadable.is_empty() && self.faults.is_empty() && self.conflicts.is_empty()
    }

    /// The line that ends the output.
    pub fn render_summary(&self) -> String {
        let files = count(self.files, "file");
        if self.is_clean() {
            let (entries, keys) = (entries(self.entries), count(self.keys, "key"));
            return format!("{files}: {entries}, {keys}, no conflicts\n");
        }
        let mut wrong = Vec::new();
        for (number, word) in [
            (self.unreadable.len(), "unreadable file"),
            (self.faults.len(), "fault"),
            (self.conflicts.len(), "conflict"),
        ] {
            if number > 0 {
                wrong.push(count(number, word));
            }
        }
        format!("{files}: {}\n", wrong.join(", "))
    }

    /// What is no fault of a file, and worth knowing: values that hash alike.
    pub fn render_warnings(&self) -> String {
        let mut text = String::new();
        for collision in &self.collisions {
            if let Some(first) = collision.0.candidates.first() {
                let message = format!("warning: {collision}");
                let _ = writeln!(text, "{}", self.place(&first.origin, message));
            }
        }
        text
    }

    /// Everything that is wrong, each on a line that begins with its place.
    pub fn render_problems(&self) -> String {
        let mut text = String::new();
        for error in &self.unreadable {
            let _ = write!(text, "{error}");
            if let Some(cause) = std::error::Error::source(error) {
                let _ = write!(text, ": {cause}");
            }
            text.push('\n');
        }
        for fault in &self.faults {
            let _ = writeln!(text, "{fault}");
        }
        for conflict in &self.conflicts {
            let message = format!(
                "{conflict}: keep one, or let databases or servers say where each of them holds"
            );
            let Some((first, others)) = conflict.candidates.split_first() else { continue };
            let _ = writeln!(text, "{}", self.place(&first.origin, message));
            for other in others.iter().take(SHOWN) {
                let message = format!("and here it is {:?}", other.display_name());
                let _ = writeln!(text, "{}", self.place(&other.origin, message));
            }
        }
        text
    }

    /// A message with the line it is about.
    fn place(&self, origin: &Origin, message: String) -> Fault {
        match origin {
            Origin::File { file, line, column } => {
                let source = self.sources.iter().find(|source| *source.name == **file);
                let index = usize::try_from(*line).unwrap_or(usize::MAX).saturating_sub(1);
                let excerpt = source.and_then(|source| source.text.lines().nth(index));
                Fault {
                    file: file.clone(),
                    line: *line,
                    column: *column,
                    message,
                    excerpt: excerpt.unwrap_or_default().to_owned(),
                }
            }
            Origin::Preset(name) => Fault {
                file: format!("preset {name}").into(),
                line: 1,
                column: 1,
                message,
                excerpt: String::new(),
            },
        }
    }
}

fn count(number: usize, word: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {word}{plural}")
}

fn entries(number: usize) -> String {
    format!("{number} {}", if number == 1 { "entry" } else { "entries" })
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    fn source(name: &str, text: &str) -> Source {
        Source { name: name.into(), text: text.into() }
    }

    fn report(sources: &[(&str, &str)]) -> Report {
        Report::new(sources.iter().map(|(name, text)| source(name, text)).collect(), Vec::new())
    }

    #[test]
    fn files_without_a_fault_are_counted() {
        let report = report(&[
            ("a.yaml", "locks: [{ name: a, keys: [1, 2] }]"),
            ("b.yaml", "locks: [{ name: b, key: 3 }]"),
        ]);
        assert!(report.is_clean());
        assert_eq!(report.render_problems(), "");
        assert_eq!(report.render_summary(), "2 files: 2 entries, 3 keys, no conflicts\n");
        let empty = Report::new(vec![source("a", "")], Vec::new());
        assert_eq!(empty.render_summary(), "1 file: 0 entries, 0 keys, no conflicts\n");
    }

    #[test]
    fn values_that_hash_alike_are_a_warning_and_no_fault() {
        let report = report(&[(
            "a.yaml",
            "locks:\n- name: account\n  key: { hashtext: 'account:{id}' }\n  \
             values: { id: ['63575', '68747', '1'] }\n",
        )]);
        assert!(report.is_clean());
        assert_eq!(
            report.render_warnings(),
            "\
a.yaml:3:8: warning: key -1054191989 is that of several values, which keep each other out: \
\"account (id 63575)\" (hashtext(\"account:{id}\") at a.yaml:3), \"account (id 68747)\" \
(hashtext(\"account:{id}\") at a.yaml:3)
  3 |   key: { hashtext: 'account:{id}' }
    |        ^
"
        );
    }

    #[test]
    fn values_that_are_labels_and_hash_alike_are_told_once_as_a_conflict() {
        let report = report(&[(
            "a.yaml",
            "locks:\n- name: account\n  key: { hashtext: 'account:{id}' }\n  \
             values: { id: ['63575', '68747'] }\n  label: value\n",
        )]);
        assert_eq!(report.render_summary(), "1 file: 1 conflict\n");
        assert_eq!(report.render_warnings(), "");
    }

    #[test]
    fn a_conflict_across_files_is_told_with_both_places() {
        let report = report(&[
            ("a.yaml", "locks:\n- { name: a, key: 1 }\n"),
            ("b.yaml", "locks:\n- { name: b, key: 1 }\n"),
        ]);
        assert!(!report.is_clean());
        assert_eq!(
            report.render_problems(),
            "\
a.yaml:2:19: key 1 has more than one name: \"a\" (1 at a.yaml:2), \"b\" (1 at b.yaml:2): keep one, \
or let databases or servers say where each of them holds
  2 | - { name: a, key: 1 }
    |                   ^
b.yaml:2:19: and here it is \"b\"
  2 | - { name: b, key: 1 }
    |                   ^
"
        );
        assert_eq!(report.render_summary(), "2 files: 1 conflict\n");
    }

    #[test]
    fn a_file_with_a_fault_does_not_hide_the_conflicts_of_others() {
        let report = report(&[
            ("a.yaml", "locks:\n- { name: a, key: 1 }\n"),
            ("bad.yaml", "locks:\n- { name: b, key: 010 }\n- { nam: c }\n"),
            ("c.yaml", "locks:\n- { name: c, key: 1 }\n"),
        ]);
        let problems = report.render_problems();
        assert!(problems.starts_with("bad.yaml:2:19: 010 begins with a zero"), "{problems}");
        assert!(problems.contains("\na.yaml:2:19: key 1 has more than one name"), "{problems}");
        assert_eq!(report.render_summary(), "3 files: 2 faults, 1 conflict\n");
    }

    #[test]
    fn files_that_cannot_be_read_are_told_beside_the_others() {
        let folder = tempfile::tempdir().unwrap();
        let good = folder.path().join("good.yaml");
        std::fs::write(&good, "locks: [{ name: a, key: 1 }]").unwrap();
        let paths = [PathBuf::from("/nowhere/locks.yaml"), folder.path().into(), good, "-".into()];
        let (sources, unreadable) = fetch_sources(&paths, &b"locks: [\xff]"[..]);
        assert_eq!(sources.len(), 1);
        let report = Report::new(sources, unreadable);
        let problems = report.render_problems();
        let lines: Vec<&str> = problems.lines().collect();
        assert_eq!(lines.len(), 3, "{problems}");
        assert!(lines[0].starts_with("cannot read registry file /nowhere/locks.yaml: No such"));
        assert!(
            lines[1].starts_with("cannot read registry file ") && lines[1].contains("director")
        );
        assert_eq!(lines[2], "registry file <stdin> is not UTF-8 on line 1: save it as UTF-8");
        assert_eq!(report.render_summary(), "4 files: 3 unreadable files\n");
    }

    #[test]
    fn standard_input_is_read_once() {
        let paths = ["-", "-"].map(PathBuf::from);
        let (sources, unreadable) = fetch_sources(&paths, &b"locks: []"[..]);
        assert_eq!((sources.len(), unreadable.len()), (1, 0));
        assert_eq!(sources[0].name, "<stdin>");
    }

    #[test]
    fn a_reader_that_fails_is_named() {
        struct Broken;
        impl Read for Broken {
            fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
                Err(io::ErrorKind::BrokenPipe.into())
            }
        }
        let (_, unreadable) = fetch_sources(&["-".into()], Broken);
        assert_eq!(
            Report::new(Vec::new(), unreadable).render_problems(),
            "cannot read registry file <stdin>: broken pipe\n"
        );
    }
}
