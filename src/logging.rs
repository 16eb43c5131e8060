//! Log lines on standard error, as the Prometheus exporters print them: `ts`, `level`, `msg`, then
//! the fields of the event, in logfmt or as one JSON object.
//!
//! One event is one line, whatever it holds: names of applications come from strangers, and a line
//! break or an escape sequence in one must not forge a line or move a cursor. What may be logged is
//! for the callers to decide; that secrets are not, is for their types to ensure.

use std::error::Error;
use std::fmt::{self, Write as _};
use std::time::SystemTime;

use tracing::field::{Field, Visit};
use tracing::subscriber::SetGlobalDefaultError;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::{DefaultFields, FormatEvent, FormatFields, Writer};
use tracing_subscriber::fmt::{FmtContext, MakeWriter};
use tracing_subscriber::registry::LookupSpan;

/// The least important events that are still printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum LogLevel {
    /// Every step.
    Debug,
    /// Changes of state.
    #[default]
    Info,
    /// What works, but not as asked.
    Warn,
    /// What does not work.
    Error,
}

/// How a line is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    /// `ts=… level=info msg="…" key=value`
    #[default]
    Logfmt,
    /// `{"ts":"…","level":"info","msg":"…","key":"value"}`
    Json,
}

/// Sends the events of this process to standard error from now on. To be called once.
pub fn init(level: LogLevel, format: LogFormat) -> Result<(), SetGlobalDefaultError> {
    #[expect(
        clippy::disallowed_methods,
        reason = "a log line tells when it was written, and nothing is computed from it"
    )]
    let clock = SystemTime::now;
    tracing::subscriber::set_global_default(subscriber(level, format, clock, std::io::stderr))
}

fn subscriber<W>(
    level: LogLevel,
    format: LogFormat,
    clock: fn() -> SystemTime,
    writer: W,
) -> impl Subscriber
where
    W: for<'writer> MakeWriter<'writer> + Send + Sync + 'static,
{
    let level = match level {
        LogLevel::Debug => Level::DEBUG,
        LogLevel::Info => Level::INFO,
        LogLevel::Warn => Level::WARN,
        LogLevel::Error => Level::ERROR,
    };
    tracing_subscriber::fmt()
        .with_max_level(level)
        .with_writer(writer)
        // A closed standard error would otherwise be reported there, which panics.
        .log_internal_errors(false)
        .fmt_fields(DefaultFields::new())
        .event_format(Line { format, clock })
        .finish()
}

/// Writes one event as one line.
struct Line {
    format: LogFormat,
    clock: fn() -> SystemTime,
}

impl<S, N> FormatEvent<S, N> for Line
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        _: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut fields = Fields::default();
        event.record(&mut fields);
        let time = jiff::Timestamp::try_from((self.clock)())
            .map_or_else(|_| "unknown".to_owned(), |time| format!("{time:.3}"));
        let level = event.metadata().level().as_str().to_ascii_lowercase();
        let head =
            [("ts", Value::Text(time)), ("level", Value::Text(level)), ("msg", fields.message)];
        let mut line = String::new();
        for (name, value) in head.into_iter().chain(fields.rest) {
            match self.format {
                LogFormat::Logfmt => push_logfmt(&mut line, name, &value),
                LogFormat::Json => push_json(&mut line, name, &value),
            }
        }
        match self.format {
            LogFormat::Logfmt => writeln!(writer, "{line}"),
            LogFormat::Json => writeln!(writer, "{{{line}}}"),
        }
    }
}

/// A value as it is to be written, before any quoting.
enum Value {
    /// A number or a truth value, written alike in both formats.
    Bare(String),
    Text(String),
}

/// The fields of one event, in the order of its call.
struct Fields {
    message: Value,
    rest: Vec<(&'static str, Value)>,
}

impl Default for Fields {
    fn default() -> Self {
        Self { message: Value::Text(String::new()), rest: Vec::new() }
    }
}

impl Fields {
    fn push(&mut self, field: &Field, value: Value) {
        match field.name() {
            "message" => self.message = value,
            name => self.rest.push((name, value)),
        }
    }
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.push(field, Value::Text(format!("{value:?}")));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.push(field, Value::Text(value.to_owned()));
    }

    /// With its causes: the client's errors do not name theirs.
    fn record_error(&mut self, field: &Field, value: &(dyn Error + 'static)) {
        let mut text = value.to_string();
        let mut cause = value.source();
        while let Some(error) = cause {
            text.push_str(": ");
            text.push_str(&error.to_string());
            cause = error.source();
        }
        self.push(field, Value::Text(text));
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.push(field, Value::Bare(value.to_string()));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.push(field, Value::Bare(value.to_string()));
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.push(field, Value::Bare(value.to_string()));
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        let text = value.to_string();
        // JSON has no infinities.
        self.push(field, if value.is_finite() { Value::Bare(text) } else { Value::Text(text) });
    }
}

fn push_logfmt(line: &mut String, name: &str, value: &Value) {
    if !line.is_empty() {
        line.push(' ');
    }
    line.push_str(name);
    line.push('=');
    match value {
        Value::Bare(text) => line.push_str(text),
        Value::Text(text) if is_plain(text) => line.push_str(text),
        Value::Text(text) => push_quoted(line, text),
    }
}

fn push_json(line: &mut String, name: &str, value: &Value) {
    if !line.is_empty() {
        line.push(',');
    }
    push_quoted(line, name);
    line.push(':');
    match value {
        Value::Bare(text) => line.push_str(text),
        Value::Text(text) => push_quoted(line, text),
    }
}

/// Whether a reader of logfmt takes the text for one value without quotes.
fn is_plain(text: &str) -> bool {
    !text.is_empty()
        && text.chars().all(|c| !c.is_whitespace() && !is_hidden(c) && !"=\"\\".contains(c))
}

/// A string of JSON, which logfmt reads too.
fn push_quoted(line: &mut String, text: &str) {
    line.push('"');
    for c in text.chars() {
        match c {
            '"' => line.push_str("\\\""),
            '\\' => line.push_str("\\\\"),
            '\n' => line.push_str("\\n"),
            '\r' => line.push_str("\\r"),
            '\t' => line.push_str("\\t"),
            c if is_hidden(c) => {
                // All of them lie in the plane that four digits reach; a String takes any text.
                let _ = write!(line, "\\u{:04x}", u32::from(c));
            }
            c => line.push(c),
        }
    }
    line.push('"');
}

/// Control characters, and what breaks lines or turns the direction of writing.
fn is_hidden(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{061c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::{Arc, Mutex};
    use std::time::{Duration, UNIX_EPOCH};

    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Default)]
    struct Buffer(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Buffer {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// What is printed while `events` runs.
    fn printed(level: LogLevel, format: LogFormat, events: impl FnOnce()) -> String {
        let buffer = Buffer::default();
        let writer = buffer.clone();
        let clock = || UNIX_EPOCH + Duration::from_millis(1_796_054_400_007);
        let subscriber = subscriber(level, format, clock, move || writer.clone());
        tracing::subscriber::with_default(subscriber, events);
        let bytes = buffer.0.lock().unwrap().clone();
        String::from_utf8(bytes).unwrap()
    }

    #[derive(Debug, thiserror::Error)]
    #[error("cannot connect")]
    struct CannotConnect(#[source] io::Error);

    fn events() {
        let error = CannotConnect(io::Error::other("no route"));
        tracing::info!(server = "db-1:5432", port = 10187, up = true, "listening");
        tracing::warn!(
            error = &error as &(dyn Error + 'static),
            after = ?Duration::from_secs(2),
            load = 0.5,
            share = f64::INFINITY,
            "server is \"down\"",
        );
        tracing::debug!(empty = "", path = %"/a=b", "step");
    }

    #[test]
    fn logfmt_has_time_level_and_message_first() {
        let expected = concat!(
            "ts=2026-11-30T16:00:00.007Z level=info msg=listening ",
            "server=db-1:5432 port=10187 up=true\n",
            "ts=2026-11-30T16:00:00.007Z level=warn msg=\"server is \\\"down\\\"\" ",
            "error=\"cannot connect: no route\" after=2s load=0.5 share=inf\n",
            "ts=2026-11-30T16:00:00.007Z level=debug msg=step empty=\"\" path=\"/a=b\"\n",
        );
        assert_eq!(printed(LogLevel::Debug, LogFormat::Logfmt, events), expected);
    }

    #[test]
    fn json_has_the_same_fields_one_object_per_line() {
        let expected = concat!(
            r#"{"ts":"2026-11-30T16:00:00.007Z","level":"info","msg":"listening","#,
            r#""server":"db-1:5432","port":10187,"up":true}"#,
            "\n",
            r#"{"ts":"2026-11-30T16:00:00.007Z","level":"warn","msg":"server is \"down\"","#,
            r#""error":"cannot connect: no route","after":"2s","load":0.5,"share":"inf"}"#,
            "\n",
            r#"{"ts":"2026-11-30T16:00:00.007Z","level":"debug","msg":"step","empty":"","#,
            r#""path":"/a=b"}"#,
            "\n",
        );
        assert_eq!(printed(LogLevel::Debug, LogFormat::Json, events), expected);
    }

    #[test]
    fn what_is_less_important_than_the_level_is_not_printed() {
        let lines = |level| printed(level, LogFormat::Logfmt, events).lines().count();
        assert_eq!(
            [LogLevel::Debug, LogLevel::Info, LogLevel::Warn, LogLevel::Error].map(lines),
            [3, 2, 1, 0]
        );
    }

    #[test]
    fn a_hostile_value_stays_on_its_line() {
        let hostile = "x\nts=now level=error\r\u{1b}[2J\u{9b}1m\u{2028}\u{202e}\0";
        let line = printed(LogLevel::Info, LogFormat::Logfmt, || {
            tracing::info!(application = hostile, "seen");
        });
        let quoted = r#"application="x\nts=now level=error\r\u001b[2J\u009b1m\u2028\u202e\u0000""#;
        assert!(line.ends_with(&format!("{quoted}\n")), "{line}");
    }

    proptest! {
        #[test]
        fn any_value_is_one_line_and_comes_back_from_json(value: String) {
            let event = || tracing::info!(value, "seen");
            let line = printed(LogLevel::Info, LogFormat::Json, event);
            let object: serde_json::Value = serde_json::from_str(&line).unwrap();
            prop_assert_eq!(object["value"].as_str(), Some(value.as_str()));
            for line in [line, printed(LogLevel::Info, LogFormat::Logfmt, event)] {
                let line = line.strip_suffix('\n').unwrap();
                prop_assert!(!line.contains(is_hidden), "{:?}", line);
            }
        }
    }
}
