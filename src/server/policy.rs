//! The web configuration in use: who may ask, over what, how often, and with which headers he is
//! answered.
//!
//! An edge: it reads the file and those that it names, at the start and again when they change, so
//! that certificates and users rotate without a restart. A change is found by reading them every two
//! seconds, and taken when two readings in a row found the same, so that nothing is taken half
//! written. What is broken changes nothing: the policy read before stays in use, and the log says so
//! once. Nor does a file take protection away while the program runs, since one that was emptied by
//! accident would: that needs a restart.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::error::Error;
use std::fs;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use tokio::sync::watch;
use tokio::task::spawn_blocking;
use tokio::time::sleep;

use super::authentication::{Hash, Turns, Users};
use super::encryption::{ClientAuth, Encryption};
use super::rate::{Bucket, Rate};
use super::web_config::{Entry, Fault, Place, WebConfig, WebConfigError};
use crate::duration::parse_duration;

const LOOK_EVERY: Duration = Duration::from_secs(2);

/// What has changed is looked at again after this time, and taken when it stayed as it was.
const SETTLE: Duration = Duration::from_millis(500);

/// What the web configuration comes to. The default asks for nothing.
#[derive(Default)]
pub struct Policy {
    pub(super) encryption: Option<Encryption>,
    pub(super) users: Option<Users>,
    pub(super) headers: HeaderMap,
    pub(super) bucket: Option<Arc<Bucket>>,
}

impl std::fmt::Debug for Policy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Policy")
            .field("is_encrypted", &self.encryption.is_some())
            .field("authenticates", &self.authenticates())
            .finish_non_exhaustive()
    }
}

impl Policy {
    /// Whether clients have to say who they are, and prove it: with a password, or with a
    /// certificate that is checked.
    pub fn authenticates(&self) -> bool {
        self.users.is_some() || self.requires_certificate()
    }

    /// Whether connections are encrypted.
    pub fn is_encrypted(&self) -> bool {
        self.encryption.is_some()
    }

    /// Whether nobody gets through the handshake without a certificate that is checked.
    pub(super) fn requires_certificate(&self) -> bool {
        self.client_auth() == ClientAuth::RequireAndVerifyClientCert
    }

    fn client_auth(&self) -> ClientAuth {
        self.encryption.as_ref().map_or(ClientAuth::NoClientCert, |tls| tls.client_auth)
    }

    fn new(
        config: &WebConfig,
        read: &mut dyn FnMut(&Path) -> io::Result<Vec<u8>>,
        turns: &Arc<Turns>,
    ) -> Result<Self, WebConfigError> {
        let users = parse_users(config)?;
        Ok(Self {
            encryption: Encryption::new(config, read)?,
            users: (!users.is_empty()).then(|| Users::new(users, turns.clone())),
            headers: parse_headers(config)?,
            bucket: parse_rate(config)?.map(|rate| Arc::new(Bucket::new(rate))),
        })
    }

    /// What a successor would take away of what protects.
    fn loosened_by(&self, next: &Self) -> Option<&'static str> {
        let has_names = |policy: &Self| {
            policy.encryption.as_ref().is_some_and(|encryption| encryption.has_allowed_names)
        };
        if self.encryption.is_some() && next.encryption.is_none() {
            Some("TLS")
        } else if self.users.is_some() && next.users.is_none() {
            Some("all users")
        } else if next.client_auth() < self.client_auth() {
            Some("certificates of clients")
        } else if has_names(self) && !has_names(next) {
            Some("the names of clients")
        } else {
            None
        }
    }

    /// A limit that stays as it was goes on counting.
    fn take_over(&mut self, previous: &Self) {
        let rate = |policy: &Self| policy.bucket.as_ref().map(|bucket| bucket.rate());
        if rate(self) == rate(previous) {
            self.bucket.clone_from(&previous.bucket);
        }
    }
}

fn parse_users(config: &WebConfig) -> Result<BTreeMap<String, Hash>, WebConfigError> {
    let parse = |(name, entry): (&String, &Entry<String>)| {
        let place = config.place(entry);
        if name.is_empty() || name.contains(':') {
            return Err(place.fault(Fault::UserName));
        }
        let hash = Hash::parse(&entry.value).map_err(|error| place.fault(error))?;
        Ok((name.clone(), hash))
    };
    config.users.iter().map(parse).collect()
}

/// The headers that may be set, as the format has them, and the values that some are bound to.
const HEADERS: [(&str, HeaderName, &[&str]); 5] = [
    ("Content-Security-Policy", header::CONTENT_SECURITY_POLICY, &[]),
    ("X-Frame-Options", header::X_FRAME_OPTIONS, &["deny", "sameorigin"]),
    ("X-Content-Type-Options", header::X_CONTENT_TYPE_OPTIONS, &["nosniff"]),
    ("X-XSS-Protection", header::X_XSS_PROTECTION, &[]),
    ("Strict-Transport-Security", header::STRICT_TRANSPORT_SECURITY, &[]),
];

fn parse_headers(config: &WebConfig) -> Result<HeaderMap, WebConfigError> {
    let mut headers = HeaderMap::new();
    for (name, entry) in config.http.headers.iter().flatten() {
        let place = config.place(entry);
        let known = HEADERS.iter().find(|(known, ..)| known == name);
        let Some((_, header, values)) = known else {
            let known = HEADERS.map(|(known, ..)| known).join(", ");
            return Err(place.fault(Fault::Header { name: name.clone(), known }));
        };
        if entry.value.is_empty() {
            continue;
        }
        if !values.is_empty() && !values.contains(&entry.value.as_str()) {
            return Err(place.fault(Fault::HeaderValue(values.join(" or "))));
        }
        let value = HeaderValue::from_str(&entry.value).map_err(|_| {
            place.fault(Fault::HeaderValue("printable ASCII text on one line".to_owned()))
        })?;
        headers.insert(header.clone(), value);
    }
    Ok(headers)
}

fn parse_rate(config: &WebConfig) -> Result<Option<Rate>, WebConfigError> {
    let Some(section) = &config.rate else { return Ok(None) };
    let place = config.place(&section.interval);
    let interval = match parse_duration(&section.interval.value) {
        Ok(interval) => interval,
        Err(error) => return Err(place.fault(error)),
    };
    let burst = section.burst.as_ref().map_or(0, |burst| burst.value);
    let place = section.burst.as_ref().map_or(place, |burst| config.place(burst));
    Rate::new(interval, burst).map_err(|error| place.fault(error))
}

/// The file of the web configuration.
pub struct WebConfigFile {
    path: PathBuf,
    policy: watch::Sender<Arc<Policy>>,
    turns: Arc<Turns>,
    /// Whether it can be read again.
    is_watched: bool,
    /// What the last reading found that was taken or refused.
    judged: u64,
    /// What the last look found, where that was a change.
    unsettled: Option<u64>,
}

/// The text of all files, and what it comes to.
struct Reading {
    fingerprint: u64,
    outcome: Result<Policy, WebConfigError>,
}

impl WebConfigFile {
    /// Reads the file for the first time. A mistake in it is the caller's to tell.
    pub fn load(path: PathBuf) -> Result<Self, WebConfigError> {
        let turns = Arc::default();
        let mut is_watched = true;
        let reading = fetch(&path, &turns, &mut |path| {
            is_watched &= fs::metadata(path)?.is_file();
            fs::read(path)
        });
        let policy = watch::Sender::new(Arc::new(reading.outcome?));
        let judged = reading.fingerprint;
        Ok(Self { path, policy, turns, is_watched, judged, unsettled: None })
    }

    /// The policy in use, now and after each reading.
    pub fn subscribe(&self) -> watch::Receiver<Arc<Policy>> {
        self.policy.subscribe()
    }

    /// Watches the files, and reads them again when they changed. Never returns.
    pub async fn run(mut self) -> Infallible {
        if !self.is_watched {
            tracing::info!(
                file = %self.path.display(),
                "the web configuration is not a regular file, so it is not read again"
            );
            return std::future::pending().await;
        }
        let mut pause = LOOK_EVERY;
        loop {
            sleep(pause).await;
            let looking = spawn_blocking(move || {
                let pause = self.look();
                (self, pause)
            });
            match looking.await {
                Ok(looked) => (self, pause) = looked,
                Err(error) => std::panic::resume_unwind(error.into_panic()),
            }
        }
    }

    /// Reads, and takes what has settled. Returns when to look next.
    fn look(&mut self) -> Duration {
        let reading = fetch(&self.path, &self.turns, &mut |path| {
            if !fs::metadata(path)?.is_file() {
                return Err(io::Error::other("it is not a regular file any more"));
            }
            fs::read(path)
        });
        if reading.fingerprint == self.judged {
            self.unsettled = None;
            return LOOK_EVERY;
        }
        if self.unsettled != Some(reading.fingerprint) {
            self.unsettled = Some(reading.fingerprint);
            return SETTLE;
        }
        self.unsettled = None;
        self.judged = reading.fingerprint;
        let previous = self.policy.borrow().clone();
        let outcome = reading.outcome.and_then(|next| match previous.loosened_by(&next) {
            Some(what) => Err(Place::File(self.path.clone()).fault(Fault::Loosens(what))),
            None => Ok(next),
        });
        match outcome {
            Ok(mut next) => {
                next.take_over(&previous);
                tracing::info!(
                    file = %self.path.display(),
                    tls = next.is_encrypted(),
                    users = next.users.as_ref().map_or(0, Users::count),
                    "the web configuration was read again"
                );
                self.policy.send_replace(Arc::new(next));
            }
            Err(error) => {
                tracing::error!(
                    error = &error as &(dyn Error + 'static),
                    "cannot use the new web configuration; the one read before stays in use"
                );
            }
        }
        LOOK_EVERY
    }
}

/// Reads everything, and judges it.
fn fetch(
    path: &Path,
    turns: &Arc<Turns>,
    read: &mut dyn FnMut(&Path) -> io::Result<Vec<u8>>,
) -> Reading {
    let mut hasher = DefaultHasher::new();
    let mut read = |path: &Path| {
        let bytes = read(path);
        match &bytes {
            Ok(bytes) => bytes.hash(&mut hasher),
            Err(error) => error.kind().hash(&mut hasher),
        }
        bytes
    };
    let outcome = read_text(path, &mut read)
        .and_then(|text| WebConfig::parse(path, &text))
        .and_then(|config| Policy::new(&config, &mut read, turns));
    Reading { fingerprint: hasher.finish(), outcome }
}

fn read_text(
    path: &Path,
    read: &mut dyn FnMut(&Path) -> io::Result<Vec<u8>>,
) -> Result<String, WebConfigError> {
    let text = read(path).and_then(|bytes| {
        String::from_utf8(bytes).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
    });
    text.map_err(|error| Place::File(path.to_owned()).fault(Fault::Read(error)))
}
