//! The web configuration as it is written: the format that the exporters of Prometheus share, and
//! the place of every value.
//!
//! Only the form is judged here. What a certificate, a hash or a limit may be is judged where it is
//! used, by `encryption`, `authentication` and `policy`, which tell mistakes as [`WebConfigError`].
//! A file may hold a key, so no error quotes a piece of it that could be one.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_saphyr::{Location, Spanned};

use super::authentication::HashError;
use super::encryption::EncryptionError;
use super::rate::RateError;
use crate::config::file::{YamlError, describe};
use crate::duration::ParseDurationError;

/// A value and where it stands.
pub(super) type Entry<T> = Spanned<T>;

/// A web configuration; one that says nothing is like none.
pub(super) struct WebConfig {
    path: PathBuf,
    pub(super) tls: TlsSection,
    pub(super) http: HttpSection,
    pub(super) users: BTreeMap<String, Entry<String>>,
    pub(super) rate: Option<RateSection>,
}

/// The top of the file. An empty section is written like one left out.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Top {
    tls_server_config: Option<TlsSection>,
    http_server_config: Option<HttpSection>,
    basic_auth_users: Option<BTreeMap<String, Entry<String>>>,
    rate_limit: Option<RateSection>,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct TlsSection {
    pub(super) cert: Option<Entry<String>>,
    pub(super) key: Option<Entry<String>>,
    pub(super) client_ca: Option<Entry<String>>,
    pub(super) cert_file: Option<Entry<PathBuf>>,
    pub(super) key_file: Option<Entry<PathBuf>>,
    pub(super) client_ca_file: Option<Entry<PathBuf>>,
    pub(super) client_auth_type: Option<Entry<String>>,
    pub(super) client_allowed_sans: Option<Entry<Vec<String>>>,
    pub(super) min_version: Option<Entry<String>>,
    pub(super) max_version: Option<Entry<String>>,
    pub(super) cipher_suites: Option<Entry<Vec<Entry<String>>>>,
    pub(super) prefer_server_cipher_suites: Option<bool>,
    pub(super) curve_preferences: Option<Entry<Vec<Entry<String>>>>,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct HttpSection {
    /// A permission that is not used: this server speaks HTTP/1.1.
    #[serde(rename = "http2")]
    _http2: Option<bool>,
    pub(super) headers: Option<BTreeMap<String, Entry<String>>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RateSection {
    pub(super) interval: Entry<String>,
    pub(super) burst: Option<Entry<u32>>,
}

/// A mistake in the web configuration or in a file that it names: where it is and how to mend it.
#[derive(Debug)]
pub struct WebConfigError {
    place: Place,
    fault: Fault,
}

/// A file, or a place in it that is counted from 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Place {
    File(PathBuf),
    Line { file: PathBuf, line: u64, column: u64 },
}

/// What is wrong, with the mend.
#[derive(Debug, thiserror::Error)]
pub(super) enum Fault {
    #[error("cannot read the file")]
    Read(#[source] io::Error),
    #[error(transparent)]
    Yaml(#[from] YamlError),
    #[error(transparent)]
    Encryption(#[from] EncryptionError),
    #[error("the name of a user is empty or has a colon in it, and nobody could log in by it")]
    UserName,
    #[error(transparent)]
    Hash(#[from] HashError),
    #[error("the header {name:?} cannot be set; {known} can")]
    Header { name: String, known: String },
    #[error("must be {0}, or empty")]
    HeaderValue(String),
    #[error(transparent)]
    Duration(#[from] ParseDurationError),
    #[error(transparent)]
    Rate(#[from] RateError),
    #[error("takes {0} away, which needs a restart; what was read before stays in use")]
    Loosens(&'static str),
}

impl fmt::Display for WebConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.fault)
    }
}

impl std::error::Error for WebConfigError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.fault.source()
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(file) => write!(f, "{}", file.display()),
            Self::Line { file, line, column } => write!(f, "{}:{line}:{column}", file.display()),
        }
    }
}

impl Place {
    pub(super) fn fault(self, fault: impl Into<Fault>) -> WebConfigError {
        WebConfigError { place: self, fault: fault.into() }
    }
}

impl WebConfig {
    pub(super) fn parse(path: &Path, text: &str) -> Result<Self, WebConfigError> {
        // Snippets would show the lines around a mistake, and whatever key is in them.
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
            tls: top.tls_server_config.unwrap_or_default(),
            http: top.http_server_config.unwrap_or_default(),
            users: top.basic_auth_users.unwrap_or_default(),
            rate: top.rate_limit,
        })
    }

    /// The file as a whole.
    pub(super) fn file(&self) -> Place {
        Place::File(self.path.clone())
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

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(text: &str) -> String {
        match WebConfig::parse(Path::new("web.yml"), text) {
            Ok(_) => panic!("{text} is accepted"),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn a_file_that_says_nothing_is_a_configuration_of_nothing() {
        for text in ["", "# nothing yet\n", "tls_server_config:\nbasic_auth_users:\n", "{}"] {
            let config = WebConfig::parse(Path::new("web.yml"), text).unwrap();
            assert!(config.users.is_empty() && config.rate.is_none() && config.tls.cert.is_none());
        }
    }

    #[test]
    fn what_has_no_place_in_the_format_is_told_with_its_line_and_column() {
        for (text, expected) in [
            (
                "tls_config: {}",
                "web.yml:1:1: unknown key `tls_config`; known are tls_server_config, \
                 http_server_config, basic_auth_users, rate_limit",
            ),
            (
                "http_server_config:\n  header: {}",
                "web.yml:2:3: unknown key `header`; known are http2, headers",
            ),
            ("rate_limit:\n  burst: 20\n", "web.yml:2:3: the key `interval` is missing; add it"),
            (
                "rate_limit:\n  interval: 1s\n  burst: many",
                "web.yml:3:10: expected a whole number, 0 or more",
            ),
            (
                "basic_auth_users:\n  alice: a\n  alice: b",
                "web.yml:3:3: the same key stands twice in one mapping; remove one of them",
            ),
            (
                "basic_auth_users: [alice]",
                "web.yml:1:19: expected a mapping, as in `{ key: value }`",
            ),
        ] {
            assert_eq!(fault(text), expected, "{text}");
        }
    }

    #[test]
    fn no_error_quotes_what_may_be_a_piece_of_a_key() {
        for text in [
            "tls_server_config:\n  key: |\n    -----BEGIN PRIVATE KEY-----\n  MIIEv+canary: x\n",
            "tls_server_config:\n  key: -----BEGIN\n  MIIEvCANARY\n",
            "tls_server_config:\n  MIIEvCanary: 1\n",
            "basic_auth_users: $2y$10$canary",
            "basic_auth_users:\n  alice: {canary: 1}\n",
        ] {
            assert!(!fault(text).to_lowercase().contains("canary"), "{}", fault(text));
        }
    }

    #[test]
    fn paths_are_relative_to_the_folder_of_the_file() {
        let config = WebConfig::parse(Path::new("/etc/locks/web.yml"), "").unwrap();
        assert_eq!(config.beside(Path::new("tls.crt")), Path::new("/etc/locks/tls.crt"));
        assert_eq!(config.beside(Path::new("/run/tls.crt")), Path::new("/run/tls.crt"));
    }
}
