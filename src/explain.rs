//! `locks explain`: what is this key? It asks no server.
//!
//! Arguments become keys, texts or log text in `what`; `key` and `text` say all that is known of
//! one, `log` copies a log and names the locks in it. Names come from the registry through
//! [`Names`]. What a person needs first stands first, in the words of the other commands; the same
//! values are JSON for scripts, one object on a line.

use std::io::{self, Read, Write};

use serde::Serialize;

use crate::cli::ExplainArgs;
use key::KeyReport;
use log::{LogError, copy_log};
use naming::title;
pub use naming::{Names, Naming};
use text::TextReport;
use what::{What, parse_whats};

mod key;
pub mod log;
mod naming;
mod text;
mod what;

/// Why something was not explained.
#[derive(Debug, thiserror::Error)]
pub enum ExplainError {
    /// The log was not copied to its end.
    #[error(transparent)]
    Log(#[from] LogError),
    /// Whoever reads the output may be gone.
    #[error("cannot write the explanation")]
    Write(#[from] io::Error),
}

impl ExplainError {
    /// Whether the reader of the output left, as `head` does when it has seen enough.
    pub fn is_broken_pipe(&self) -> bool {
        match self {
            Self::Log(LogError::Write(error)) | Self::Write(error) => {
                error.kind() == io::ErrorKind::BrokenPipe
            }
            Self::Log(LogError::Read(_)) => false,
        }
    }
}

/// Explains all that was asked for, in its order; log text is read from `input`.
pub fn explain(
    args: &ExplainArgs,
    names: &dyn Names,
    input: &mut dyn Read,
    output: &mut dyn Write,
) -> Result<(), ExplainError> {
    let whats = parse_whats(&args.what, args.string);
    if whats.is_empty() {
        return explain_log(args, names, input, output);
    }
    let database = args.database.as_deref();
    for (index, what) in whats.into_iter().enumerate() {
        if index > 0 && !args.json {
            writeln!(output)?;
        }
        match what {
            What::Key(asked) => {
                let report = KeyReport::new(asked, names, database);
                write_report(args.json, &report, output, KeyReport::render)?;
            }
            What::Text(text) => {
                let report = TextReport::new(&text, names, database);
                write_report(args.json, &report, output, TextReport::render)?;
            }
            What::Log(text) => explain_log(args, names, &mut text.as_bytes(), output)?,
            What::Input => explain_log(args, names, input, output)?,
        }
    }
    output.flush()?;
    Ok(())
}

fn write_report<T: Serialize>(
    json: bool,
    report: &T,
    output: &mut dyn Write,
    render: impl FnOnce(&T, &mut dyn Write) -> io::Result<()>,
) -> io::Result<()> {
    if !json {
        return render(report, output);
    }
    serde_json::to_writer(&mut *output, report)?;
    writeln!(output)
}

/// The log with its locks named, and what it tells of them below; in JSON only the latter.
fn explain_log(
    args: &ExplainArgs,
    names: &dyn Names,
    input: &mut dyn Read,
    output: &mut dyn Write,
) -> Result<(), ExplainError> {
    let named = |key| names.explain(args.database.as_deref(), key);
    if args.json {
        let summary = copy_log(input, io::sink(), |_, _| String::new())?;
        serde_json::to_writer(&mut *output, &summary.report(&mut |_, key| named(key)))
            .map_err(io::Error::from)?;
        writeln!(output)?;
    } else {
        let mut copied = LineEnd { inner: &mut *output, is_open: false };
        let summary = copy_log(input, &mut copied, |_, key| title(key, &named(key)))?;
        if copied.is_open {
            writeln!(output)?;
        }
        writeln!(output)?;
        summary.render(output, &mut |_, key| title(key, &named(key)))?;
    }
    output.flush()?;
    Ok(())
}

/// Knows whether the last line that went through has ended.
struct LineEnd<W> {
    inner: W,
    is_open: bool,
}

impl<W: Write> Write for LineEnd<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.inner.write(bytes)?;
        if let Some(last) = bytes[..written].last() {
            self.is_open = *last != b'\n';
        }
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}
