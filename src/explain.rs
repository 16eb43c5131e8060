//! `locks explain`: what is this key? It asks no server.
//!
//! Arguments become keys, texts or log text in `what`; `key` and `text` say all that is known of
//! one, `log` copies a log and names the locks in it. Names come from the registry's [`Explainer`].
//! What a person needs first stands first, in the words of the other commands; the same values are
//! JSON for scripts, one object on a line.

use std::io::{self, Read, Write};

use serde::Serialize;

use crate::cli::ExplainArgs;
use crate::registry::Explainer;
use key::KeyReport;
use log::{LogError, copy_log};
use naming::title;
use text::TextReport;
use what::{What, parse_whats};

mod call;
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
    explainer: &Explainer,
    input: &mut dyn Read,
    output: &mut dyn Write,
) -> Result<(), ExplainError> {
    let whats = parse_whats(&args.what, args.string);
    if whats.is_empty() {
        return explain_log(args, explainer, input, output);
    }
    for (index, what) in whats.into_iter().enumerate() {
        if index > 0 && !args.json {
            writeln!(output)?;
        }
        match what {
            What::Key(asked) => {
                let report = KeyReport::new(asked, explainer);
                write_report(args.json, &report, output, KeyReport::render)?;
            }
            What::Text(text) => {
                let report = TextReport::new(&text, explainer, args.database.as_deref());
                write_report(args.json, &report, output, TextReport::render)?;
            }
            What::Log(text) => explain_log(args, explainer, &mut text.as_bytes(), output)?,
            What::Input => explain_log(args, explainer, input, output)?,
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
    explainer: &Explainer,
    input: &mut dyn Read,
    output: &mut dyn Write,
) -> Result<(), ExplainError> {
    if args.json {
        let summary = copy_log(input, io::sink(), |_, _| String::new())?;
        serde_json::to_writer(&mut *output, &summary.report(&mut |_, key| explainer.names(key)))
            .map_err(io::Error::from)?;
        writeln!(output)?;
    } else {
        let mut copied = LineEnd { inner: &mut *output, is_open: false };
        let summary = copy_log(input, &mut copied, |_, key| title(key, &explainer.names(key)))?;
        if copied.is_open {
            writeln!(output)?;
        }
        writeln!(output)?;
        summary.render(output, &mut |_, key| title(key, &explainer.names(key)))?;
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

#[cfg(test)]
mod tests {
    use std::ffi::OsString;
    use std::path::Path;
    use std::sync::{Arc, LazyLock};

    use proptest::prelude::*;

    use super::*;
    use crate::cli::{self, Command};
    use crate::registry::{Registry, Source};

    /// What `locks explain` prints for these arguments and this input, with the registry of the
    /// goldens.
    fn explained(arguments: &[&str], mut input: &[u8]) -> String {
        static REGISTRY: LazyLock<Arc<Registry>> = LazyLock::new(|| {
            let text = include_str!("../tests/golden/explain/registry.yaml").to_owned();
            let source = Source { name: "registry.yaml".to_owned(), text };
            Arc::new(Registry::parse(&[source]).unwrap())
        });
        let line = ["locks", "explain"].iter().chain(arguments).map(OsString::from);
        let Command::Explain(args) = cli::parse(line).unwrap().command else {
            panic!("explain was asked for");
        };
        let explainer = Explainer::new(REGISTRY.clone(), args.database.as_deref());
        let mut output = Vec::new();
        explain(&args, &explainer, &mut input, &mut output).unwrap();
        String::from_utf8(output).unwrap()
    }

    /// After a change: `UPDATE_GOLDEN=1 cargo test --lib explain`, then review the diff.
    #[test]
    fn explanations_are_the_ones_reviewed() {
        let log = include_bytes!("../tests/golden/explain/log/stderr.log");
        let deadlock = include_bytes!("../tests/golden/explain/log/deadlock.log");
        let cases: [(&str, &[&str], &[u8]); 10] = [
            ("known-constant", &["72707369"], b""),
            ("all-ones", &["-1"], b""),
            ("columns", &["18028/1462734915/1"], b""),
            ("pair", &["(7,9)"], b""),
            ("text", &["cron:recalc-reward-points"], b""),
            ("several", &["42", "advisory lock [16384,0,42,1]", "class 5: 0/102747"], b""),
            ("misread", &["2615192107", "2615192801", "18446744073709551615"], b""),
            ("deadlock", &[], deadlock),
            ("log", &["-"], log),
            ("json", &["--json", "42", "-"], deadlock),
        ];
        for (name, arguments, input) in cases {
            let output = explained(arguments, input);
            let golden = Path::new(env!("CARGO_MANIFEST_DIR"))
                .join(format!("tests/golden/explain/{name}.txt"));
            if std::env::var_os("UPDATE_GOLDEN").is_some() {
                std::fs::write(&golden, &output).unwrap();
            }
            assert_eq!(output, std::fs::read_to_string(&golden).unwrap(), "{name}");
        }
    }

    #[test]
    fn a_database_decides_which_entries_name_a_key() {
        let first_line = |arguments: &[&str]| {
            explained(arguments, b"").lines().next().unwrap_or_default().to_owned()
        };
        assert_eq!(first_line(&["42"]), "bigint 42: nightly-billing in app");
        assert!(first_line(&["42", "--database", "app"]).contains("nightly-billing"));
        assert!(!first_line(&["42", "--database", "app2"]).contains("nightly-billing"));
    }

    #[test]
    fn a_number_is_a_text_when_it_is_said_to_be_one() {
        let first_line = |text: String| text.lines().next().unwrap_or_default().to_owned();
        assert!(first_line(explained(&["--string", "42"], b"")).starts_with("\"42\": no name"));
    }

    #[test]
    fn another_reading_is_told_only_where_it_has_a_name_or_is_short() {
        // The unsigned form of hashtext('jobs').
        let misread = explained(&["2615192801"], b"");
        assert!(misread.contains(
            "is not       bigint -1679774495: jobs, the same 32 bits taken as a signed number"
        ));
        let bytes = explained(&["3026418949592973312"], b"");
        assert!(bytes.contains("bigint 42: nightly-billing in app, the same bytes in the other"));
        assert!(!explained(&["2615192107"], b"").contains("same 32 bits"));
    }

    #[test]
    fn bytes_that_are_text_are_shown_as_text() {
        assert!(explained(&["0x4a4f4253"], b"").contains("as ASCII     \"JOBS\""));
        assert!(!explained(&["42"], b"").contains("ASCII"));
    }

    #[test]
    fn a_log_that_ends_within_a_line_has_its_summary_below() {
        let output = explained(&[], b"on advisory lock [1,0,987654321,1]");
        let copied = "on advisory lock [1,0,987654321,1] (bigint 987654321)\n\n== no deadlock";
        assert!(output.starts_with(copied), "{output}");
        let nothing = explained(&[], b"nothing\n");
        assert_eq!(nothing, "nothing\n\n== no advisory lock is named in 1 line ==\n");
    }

    proptest! {
        // Each is read by the registry in every way.
        #![proptest_config(ProptestConfig::with_cases(40))]

        #[test]
        fn any_argument_is_explained(what: String, json: bool) {
            let mut arguments = vec!["--", &what];
            if json {
                arguments.insert(0, "--json");
            }
            let output = explained(&arguments, b"");
            prop_assert!(!output.is_empty());
            if json {
                for line in output.lines() {
                    let _: serde_json::Value = serde_json::from_str(line).unwrap();
                }
            }
        }
    }
}
