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

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, CertifiedIssuer, KeyPair};
    use tempfile::TempDir;

    const HASH: &str = "$2y$04$mDwo.lAisC94iLAyP81MCesa29IzH37oigHC/42V2pdJlUprsJPze";

    /// A folder with a web configuration, and with a certificate of its own that can be its issuer.
    struct Folder(TempDir);

    impl Folder {
        fn new() -> Self {
            let folder = Self(tempfile::tempdir().unwrap());
            folder.renew();
            folder
        }

        fn renew(&self) {
            let params = CertificateParams::new(["localhost".to_owned()]).unwrap();
            let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap());
            let issuer = issuer.unwrap();
            self.write("tls.crt", &issuer.pem());
            self.write("tls.key", &issuer.key().serialize_pem());
        }

        fn write(&self, name: &str, text: &str) {
            fs::write(self.0.path().join(name), text).unwrap();
        }

        fn load(&self, text: &str) -> WebConfigFile {
            self.write("web.yml", text);
            WebConfigFile::load(self.0.path().join("web.yml")).unwrap()
        }
    }

    /// Looks until what is there now is judged; whether it was taken.
    fn is_taken(file: &mut WebConfigFile) -> bool {
        let before = file.policy.borrow().clone();
        assert_eq!(file.look(), SETTLE, "a change is looked at once more");
        assert_eq!(file.look(), LOOK_EVERY);
        assert_eq!(file.look(), LOOK_EVERY, "and judged once");
        !Arc::ptr_eq(&before, &file.policy.borrow())
    }

    fn tls(more: &str) -> String {
        format!("tls_server_config: {{ cert_file: tls.crt, key_file: tls.key{more} }}\n")
    }

    fn users() -> String {
        format!("basic_auth_users: {{ alice: {HASH} }}\n")
    }

    #[test]
    fn nothing_that_protects_is_taken_away_while_the_program_runs() {
        let asked =
            |auth: &str| tls(&format!(", client_ca_file: tls.crt, client_auth_type: {auth}"));
        let verified = asked("RequireAndVerifyClientCert");
        let named = verified.replace(" }", ", client_allowed_sans: [a.example] }");
        for (first, next, is_expected) in [
            (String::new(), users(), true),
            (String::new(), tls(""), true),
            (users(), String::new(), false),
            (users(), tls(""), false),
            (users(), users().replace("alice", "bob"), true),
            (users(), users() + &tls(""), true),
            (users() + &tls(""), users(), false),
            (users() + &tls(""), tls(""), false),
            (users() + &tls(""), String::new(), false),
            (verified.clone(), tls(""), false),
            (verified.clone(), asked("VerifyClientCertIfGiven"), false),
            (verified.clone(), asked("RequireAnyClientCert"), false),
            (asked("VerifyClientCertIfGiven"), verified.clone(), true),
            (verified.clone(), named.clone(), true),
            (named.clone(), named.replace("a.example", "b.example"), true),
            (named, verified, false),
            ("rate_limit: { interval: 1s, burst: 1 }".to_owned(), users(), true),
        ] {
            let folder = Folder::new();
            let mut file = folder.load(&first);
            folder.write("web.yml", &next);
            assert_eq!(is_taken(&mut file), is_expected, "{first}\nthen\n{next}");
        }
    }

    #[test]
    fn what_is_broken_or_half_written_is_not_taken_and_what_mends_it_is() {
        let folder = Folder::new();
        let mut file = folder.load(&tls(""));
        assert_eq!(file.look(), LOOK_EVERY, "nothing changed");
        // A pair is renewed one file after the other.
        let key = fs::read_to_string(folder.0.path().join("tls.key")).unwrap();
        folder.renew();
        let renewed = fs::read_to_string(folder.0.path().join("tls.key")).unwrap();
        folder.write("tls.key", &key);
        assert_eq!(file.look(), SETTLE);
        folder.write("tls.key", &renewed);
        assert!(is_taken(&mut file), "what is seen in the middle is not judged");

        for text in ["tls_server_config: [", "nothing: {}", &tls(", key: x"), "\u{0}"] {
            folder.write("web.yml", text);
            assert!(!is_taken(&mut file), "{text}");
        }
        fs::remove_file(folder.0.path().join("web.yml")).unwrap();
        assert!(!is_taken(&mut file));
        fs::create_dir(folder.0.path().join("web.yml")).unwrap();
        assert!(!is_taken(&mut file));
        fs::remove_dir(folder.0.path().join("web.yml")).unwrap();
        folder.write("web.yml", &tls(""));
        assert!(is_taken(&mut file));
    }

    #[test]
    fn a_limit_that_stays_as_it_was_goes_on_counting() {
        let folder = Folder::new();
        let rate = "rate_limit: { interval: 1s, burst: 9 }\n";
        let mut file = folder.load(rate);
        let bucket = |file: &WebConfigFile| file.policy.borrow().bucket.clone().unwrap();
        let first = bucket(&file);
        folder.write("web.yml", &(rate.to_owned() + &users()));
        assert!(is_taken(&mut file));
        assert!(Arc::ptr_eq(&first, &bucket(&file)));
        folder.write("web.yml", &(rate.replace('9', "8") + &users()));
        assert!(is_taken(&mut file));
        assert!(!Arc::ptr_eq(&first, &bucket(&file)));
    }

    #[test]
    fn a_pipe_is_read_at_the_start_and_not_again() {
        let folder = Folder::new();
        let path = folder.0.path().join("pipe");
        let made = std::process::Command::new("mkfifo").arg(&path).status().unwrap();
        assert!(made.success());
        let writer = std::thread::spawn({
            let path = path.clone();
            move || fs::write(path, users())
        });
        let file = WebConfigFile::load(path).unwrap();
        writer.join().unwrap().unwrap();
        assert!(file.policy.borrow().authenticates() && !file.is_watched);
    }
}
