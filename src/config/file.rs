//! The configuration file as it is written: its keys, and the place of every value.
//!
//! Only the form is judged here, what the values may be is `config`'s business. The parser's own
//! messages are put into our words, since they quote values, and a value may be a password.

use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_saphyr::{Error, Location, Spanned};

use super::{ConfigError, Place};

/// A value and where it stands.
pub(super) type Entry<T> = Spanned<T>;

/// A configuration file; one that says nothing is like none.
#[derive(Default)]
pub(super) struct ConfigFile {
    pub(super) path: PathBuf,
    pub(super) poll: PollSection,
    pub(super) registry: Vec<Entry<PathBuf>>,
    pub(super) state_file: Option<PathBuf>,
    pub(super) servers: Vec<Entry<ServerEntry>>,
    pub(super) applications: Vec<ApplicationEntry>,
    pub(super) limits: LimitsSection,
    pub(super) thresholds: ThresholdsSection,
}

/// The top of the file. An empty section is written like one left out.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Top {
    poll: Option<PollSection>,
    registry: Option<Vec<Entry<PathBuf>>>,
    state_file: Option<PathBuf>,
    servers: Option<Vec<Entry<ServerEntry>>>,
    applications: Option<Vec<ApplicationEntry>>,
    limits: Option<LimitsSection>,
    thresholds: Option<ThresholdsSection>,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct PollSection {
    pub(super) interval: Option<Entry<String>>,
    pub(super) timeout: Option<Entry<String>>,
    pub(super) max_share: Option<Entry<f64>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ServerEntry {
    pub(super) name: Option<Entry<String>>,
    pub(super) dsn: Option<Entry<String>>,
    pub(super) password_file: Option<Entry<PathBuf>>,
    pub(super) inspect: Option<Vec<Entry<String>>>,
    pub(super) poolers: Option<Vec<Entry<String>>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ApplicationEntry {
    #[serde(rename = "match")]
    pub(super) pattern: Entry<String>,
    pub(super) name: Entry<String>,
    #[serde(default)]
    pub(super) renames_itself: bool,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct LimitsSection {
    pub(super) keys: Option<Entry<usize>>,
    pub(super) applications: Option<Entry<usize>>,
    pub(super) databases: Option<Entry<usize>>,
    pub(super) registered_keys: Option<Entry<usize>>,
    pub(super) values: Option<Entry<usize>>,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct ThresholdsSection {
    pub(super) idle_in_transaction: Option<Entry<String>>,
    pub(super) prepared: Option<Entry<String>>,
    pub(super) snapshot_age: Option<Entry<u32>>,
    pub(super) keys_per_session: Option<Entry<usize>>,
    pub(super) holder_changes: HolderChangesSection,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct HolderChangesSection {
    pub(super) count: Option<Entry<u32>>,
    pub(super) within: Option<Entry<String>>,
}

/// What is wrong with the form of a file. Holds keys, never values.
#[derive(Debug, thiserror::Error)]
pub(crate) enum YamlError {
    #[error("unknown key {key}; known are {known}")]
    UnknownKey { key: String, known: String },
    #[error("the key `{0}` is missing; add it")]
    MissingKey(&'static str),
    #[error("the same key stands twice in one mapping; remove one of them")]
    DuplicateKey,
    #[error("expected {0}")]
    Type(String),
    #[error("not YAML: {0}")]
    Syntax(String),
    #[error("not valid here; text with special characters belongs in quotes")]
    Other,
}

impl ConfigFile {
    pub(super) fn parse(path: &Path, text: &str) -> Result<Self, ConfigError> {
        // Snippets would show the lines around a mistake, and whatever secret is in them.
        let options = serde_saphyr::options! { with_snippet: false };
        let top: Option<Top> =
            serde_saphyr::from_str_with_options(text, options).map_err(|error| {
                let error = error.without_snippet();
                let place = match error.location() {
                    Some(location) => line(path, location),
                    None => Place::File(path.to_owned()),
                };
                place.fault(describe(error))
            })?;
        let top = top.unwrap_or_default();
        Ok(Self {
            path: path.to_owned(),
            poll: top.poll.unwrap_or_default(),
            registry: top.registry.unwrap_or_default(),
            state_file: top.state_file,
            servers: top.servers.unwrap_or_default(),
            applications: top.applications.unwrap_or_default(),
            limits: top.limits.unwrap_or_default(),
            thresholds: top.thresholds.unwrap_or_default(),
        })
    }

    /// Where a value stands.
    pub(super) fn place<T>(&self, entry: &Entry<T>) -> Place {
        line(&self.path, entry.referenced)
    }

    /// A path in the file is relative to the folder of the file.
    pub(super) fn beside(&self, path: &Path) -> PathBuf {
        self.path.parent().map_or_else(|| path.to_owned(), |folder| folder.join(path))
    }
}

fn line(path: &Path, location: Location) -> Place {
    Place::Line { file: path.to_owned(), line: location.line(), column: location.column() }
}

#[expect(clippy::wildcard_enum_match_arm, reason = "a foreign list that will grow")]
pub(crate) fn describe(error: &Error) -> YamlError {
    match error {
        Error::SerdeUnknownField { field, expected, .. } => {
            // Beside a `dsn` it may be what a comma cut off from a password.
            let is_beside_dsn = expected.contains(&"dsn");
            let is_key = !is_beside_dsn
                && field.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
            YamlError::UnknownKey {
                key: if is_key {
                    format!("`{field}`")
                } else if is_beside_dsn {
                    "here (not shown beside a `dsn`)".to_owned()
                } else {
                    "here (not shown)".to_owned()
                },
                known: expected.join(", "),
            }
        }
        Error::SerdeMissingField { field, .. } => YamlError::MissingKey(field),
        Error::DuplicateMappingKey { .. } => YamlError::DuplicateKey,
        Error::SerdeInvalidType { expected, .. } | Error::SerdeInvalidValue { expected, .. } => {
            YamlError::Type(type_in_words(expected))
        }
        Error::InvalidScalar { ty, .. } => YamlError::Type(type_in_words(ty)),
        Error::Unexpected { expected, .. } => YamlError::Type(type_in_words(expected)),
        Error::NullIntoString { .. } => YamlError::Type("text, not nothing".to_owned()),
        // The parser quotes one character at most.
        Error::ExternalMessage { msg, .. } => YamlError::Syntax(msg.clone()),
        Error::AliasError { error, .. } => describe(error),
        _ => YamlError::Other,
    }
}

fn type_in_words(ty: &str) -> String {
    match ty {
        "usize" | "u64" | "u32" | "unsigned integer" => "a whole number, 0 or more",
        "floating point" => "a number, as in 0.02",
        "bool" | "a boolean" | "boolean" => "true or false",
        "a sequence" | "sequence start" => "a list, as in `[a, b]`",
        "mapping start" => "a mapping, as in `{ key: value }`",
        "string scalar" | "a string" => "text",
        other => other,
    }
    .to_owned()
}
