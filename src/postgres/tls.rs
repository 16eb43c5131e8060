//! Encryption of connections to servers, with libpq's meaning of `sslmode`.
//!
//! | `sslmode` | encrypts | chain of certificates | name in the certificate |
//! | --- | --- | --- | --- |
//! | `disable` | never | | |
//! | `allow` | if the server wants it | where a root file exists | |
//! | `prefer` | if the server offers it | where a root file exists | |
//! | `require` | always | where a root file exists | |
//! | `verify-ca` | always | always | |
//! | `verify-full` | always | always | always |
//!
//! Certificates and keys are read from their files at every connect, since they rotate. How
//! certificates are judged is in [`verifier`]; when to encrypt is `connect`'s business.

mod chain;
mod handshake;
mod name;
mod verifier;

use std::error::Error;
use std::fmt;
use std::io;
use std::net::Ipv4Addr;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::danger::ServerCertVerifier;
use rustls::pki_types::pem::{self, PemObject as _};
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer, ServerName};
use rustls::{AlertDescription, ClientConfig, SupportedProtocolVersion, crypto};

use handshake::{Handshake, PROTOCOL, Unconfirmed};
use verifier::{Rejection, Roots, Verifier};

/// When to encrypt and what to check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SslMode {
    Disable,
    Allow,
    Prefer,
    Require,
    VerifyCa,
    VerifyFull,
}

/// Whose certificates are trusted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum RootCert {
    /// Those of `~/.postgresql/root.crt`, where it exists.
    Default,
    /// Those of a file.
    File(PathBuf),
    /// Those that this machine trusts.
    System,
}

/// How encryption begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Negotiation {
    /// The server is asked whether it offers TLS.
    Postgres,
    /// TLS comes first, which servers take from 17 on.
    Direct,
}

/// Versions of TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Version {
    Tls12,
    Tls13,
}

/// What a connection string says of encryption.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Tls {
    pub mode: SslMode,
    pub root: RootCert,
    /// The client's certificate, else `~/.postgresql/postgresql.crt`.
    pub cert: Option<PathBuf>,
    /// Its key, else `~/.postgresql/postgresql.key`.
    pub key: Option<PathBuf>,
    /// Certificates that were revoked, else `~/.postgresql/root.crl`.
    pub crl: Option<PathBuf>,
    /// Whether the server is told by which name it was called.
    pub sni: bool,
    pub min_version: Option<Version>,
    pub max_version: Option<Version>,
    pub negotiation: Negotiation,
    /// The folder in which `.postgresql` is looked for.
    pub home: Option<PathBuf>,
}

/// Why there is no encrypted connection.
#[derive(Clone, Debug, thiserror::Error)]
pub enum TlsError {
    /// A file that cannot be read.
    #[error("cannot read {what} {}: {source}", path.display())]
    Read {
        /// What is in it.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: Arc<io::Error>,
    },
    /// A file whose content is not what it should be.
    #[error("{} holds no {what} in PEM that can be used", path.display())]
    Content {
        /// What should be in it.
        what: &'static str,
        /// The file.
        path: PathBuf,
    },
    /// Nobody to trust, where somebody must be.
    #[error(
        "there is no root certificate {}, and sslmode={mode} checks with it: name the certificate of \
         the server's CA with sslrootcert, or encrypt without a check with sslmode=require",
        path.display()
    )]
    NoRoot {
        /// Where it was looked for.
        path: PathBuf,
        /// What asks for it.
        mode: &'static str,
    },
    /// The system has no certificates.
    #[error(
        "this machine trusts no certificate: install its package of certificates (ca-certificates)"
    )]
    NoSystemRoots,
    /// A certificate without its key.
    #[error("there is the client certificate {}, and no key {}: name it with sslkey", cert.display(), key.display())]
    NoKey {
        /// The certificate.
        cert: PathBuf,
        /// Where the key was looked for.
        key: PathBuf,
    },
    /// A key that others may read.
    #[error("others may read the key {}: chmod 600 it, or 640 where it is root's", .0.display())]
    Permissions(PathBuf),
    /// A key behind a password.
    #[error(
        "the key {} is encrypted, which is not supported: decrypt it (openssl pkey) into a file that \
         nobody else may read", .0.display()
    )]
    EncryptedKey(PathBuf),
    /// A certificate and a key that do not belong together, or cannot be used.
    #[error("the client certificate {} and its key cannot be used: {reason}", path.display())]
    ClientCert {
        /// The certificate.
        path: PathBuf,
        /// What is wrong with them.
        reason: String,
    },
    /// The server's certificate was refused.
    #[error(transparent)]
    Rejected(#[from] Rejection),
    /// The server refused to go on.
    #[error("the server ended the TLS handshake ({alert}): {mend}")]
    Alert {
        /// Its reason, in the words of TLS.
        alert: String,
        /// What that may come from.
        mend: &'static str,
    },
    /// Perhaps another service behind the same certificate.
    #[error(
        "the server does not say that it is PostgreSQL, which sslnegotiation=direct asks for: connect \
         to a server from 17 on itself, or say sslnegotiation=postgres"
    )]
    Unconfirmed,
    /// Anything else.
    #[error("the TLS handshake failed: {0}")]
    Handshake(String),
}

impl fmt::Display for SslMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl SslMode {
    fn as_str(self) -> &'static str {
        match self {
            Self::Disable => "disable",
            Self::Allow => "allow",
            Self::Prefer => "prefer",
            Self::Require => "require",
            Self::VerifyCa => "verify-ca",
            Self::VerifyFull => "verify-full",
        }
    }
}

/// Files as they were at one connect.
#[derive(Clone)]
pub(super) struct Connector {
    tls: Arc<Tls>,
    roots: Option<Arc<Roots>>,
    identity: Option<Arc<Identity>>,
}

struct Identity {
    cert: PathBuf,
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
}

impl Tls {
    /// Reads certificates and keys.
    pub(super) fn connector(&self) -> Result<Connector, TlsError> {
        Ok(Connector {
            roots: self.fetch_roots()?.map(Arc::new),
            identity: self.fetch_identity()?.map(Arc::new),
            tls: Arc::new(self.clone()),
        })
    }

    fn checks_always(&self) -> bool {
        matches!(self.mode, SslMode::VerifyCa | SslMode::VerifyFull)
    }

    fn default_file(&self, name: &str) -> PathBuf {
        self.home.as_deref().unwrap_or(Path::new("~")).join(".postgresql").join(name)
    }

    /// Nothing where there is nobody to trust and nobody has to be.
    fn fetch_roots(&self) -> Result<Option<Roots>, TlsError> {
        let (path, certs) = match &self.root {
            RootCert::System => {
                let certs = rustls_native_certs::load_native_certs().certs;
                if certs.is_empty() {
                    return Err(TlsError::NoSystemRoots);
                }
                ("the certificates of this machine".to_owned(), certs)
            }
            RootCert::Default | RootCert::File(_) => {
                let path = match &self.root {
                    RootCert::File(path) => path.clone(),
                    RootCert::Default | RootCert::System => self.default_file("root.crt"),
                };
                // As libpq has it, a file that is not there checks nothing, unless checking is asked for.
                if !path.exists() {
                    if self.checks_always() {
                        return Err(TlsError::NoRoot { path, mode: self.mode.as_str() });
                    }
                    return Ok(None);
                }
                let certs = read_certificates(&path, "root certificate")?;
                (path.display().to_string(), certs)
            }
        };
        let crl = self.crl.clone().unwrap_or_else(|| self.default_file("root.crl"));
        // libpq overlooks sslcrl beside the system's certificates; who names one wants it asked.
        let asks_crl = self.root != RootCert::System || self.crl.is_some();
        let crls = if asks_crl && crl.exists() { read_crls(&crl)? } else { Vec::new() };
        Roots::new(path.clone(), certs, crls)
            .map(Some)
            .ok_or_else(|| TlsError::Content { what: "root certificate", path: path.into() })
    }

    fn fetch_identity(&self) -> Result<Option<Identity>, TlsError> {
        let cert = self.cert.clone().unwrap_or_else(|| self.default_file("postgresql.crt"));
        if !cert.exists() {
            return Ok(None);
        }
        let chain = read_certificates(&cert, "client certificate")?;
        let path = self.key.clone().unwrap_or_else(|| self.default_file("postgresql.key"));
        let what = "the key of the client certificate";
        let unreadable = |source: io::Error| TlsError::Read {
            what,
            path: path.clone(),
            source: Arc::new(source),
        };
        let file = match std::fs::metadata(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(TlsError::NoKey { cert, key: path });
            }
            Err(error) => return Err(unreadable(error)),
        };
        let forbidden = if file.uid() == 0 { 0o037 } else { 0o077 };
        if file.mode() & forbidden != 0 {
            return Err(TlsError::Permissions(path));
        }
        let text = std::fs::read(&path).map_err(unreadable)?;
        let key = PrivateKeyDer::from_pem_slice(&text).map_err(|_| {
            let is_encrypted = String::from_utf8_lossy(&text).contains("ENCRYPTED");
            if is_encrypted {
                TlsError::EncryptedKey(path.clone())
            } else {
                TlsError::Content { what: "private key", path: path.clone() }
            }
        })?;
        Ok(Some(Identity { cert, chain, key }))
    }

    fn versions(&self) -> Vec<&'static SupportedProtocolVersion> {
        let mut versions = Vec::new();
        if self.min_version != Some(Version::Tls13) {
            versions.push(&rustls::version::TLS12);
        }
        if self.max_version != Some(Version::Tls12) {
            versions.push(&rustls::version::TLS13);
        }
        versions
    }
}

fn read_certificates(
    path: &Path,
    what: &'static str,
) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let certs =
        CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let certs: Vec<CertificateDer<'static>> = certs.map_err(|error| broken(error, path, what))?;
    if certs.is_empty() {
        Err(TlsError::Content { what, path: path.to_owned() })
    } else {
        Ok(certs)
    }
}

fn read_crls(path: &Path) -> Result<Vec<CertificateRevocationListDer<'static>>, TlsError> {
    let crls = CertificateRevocationListDer::pem_file_iter(path)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>);
    crls.map_err(|error| broken(error, path, "revocation list"))
}

#[expect(clippy::wildcard_enum_match_arm, reason = "the other kinds are of content")]
fn broken(error: pem::Error, path: &Path, what: &'static str) -> TlsError {
    match error {
        pem::Error::Io(source) => {
            TlsError::Read { what, path: path.to_owned(), source: Arc::new(source) }
        }
        _ => TlsError::Content { what, path: path.to_owned() },
    }
}

impl Connector {
    /// The handshake with the server of this name.
    pub(super) fn for_host(&self, name: &str) -> Result<Handshake, TlsError> {
        // What is no name of DNS cannot be told to a server; what must be in its certificate is
        // compared by the verifier, with the name as it was written.
        let server_name = ServerName::try_from(name.to_owned()).ok();
        let mut config = self.config(name)?;
        config.enable_sni = self.tls.sni && server_name.is_some();
        let wants_protocol = self.tls.negotiation == Negotiation::Direct;
        if wants_protocol {
            config.alpn_protocols = vec![PROTOCOL.to_vec()];
        }
        let nobody = || ServerName::IpAddress(Ipv4Addr::UNSPECIFIED.into());
        Ok(Handshake {
            connector: Arc::new(config).into(),
            name: server_name.unwrap_or_else(nobody),
            wants_protocol,
        })
    }

    fn config(&self, name: &str) -> Result<ClientConfig, TlsError> {
        let handshake = |error: rustls::Error| TlsError::Handshake(error.to_string());
        let provider = Arc::new(crypto::ring::default_provider());
        let expected = (self.tls.mode == SslMode::VerifyFull).then(|| name.to_owned());
        let verifier = Verifier::new(self.roots.clone(), expected, provider.clone());
        let verifier: Arc<dyn ServerCertVerifier> = Arc::new(verifier);
        let config = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&self.tls.versions())
            .map_err(handshake)?
            .dangerous()
            .with_custom_certificate_verifier(verifier);
        match &self.identity {
            None => Ok(config.with_no_client_auth()),
            Some(identity) => {
                let config =
                    config.with_client_auth_cert(identity.chain.clone(), identity.key.clone_key());
                config.map_err(|error| TlsError::ClientCert {
                    path: identity.cert.clone(),
                    reason: error.to_string(),
                })
            }
        }
    }
}

impl TlsError {
    /// What of an error of the client is about TLS, if it is.
    pub(super) fn of(error: &(dyn Error + 'static)) -> Option<Self> {
        let mut cause = Some(error);
        while let Some(error) = cause {
            if let Some(error) = error.downcast_ref::<rustls::Error>() {
                return Some(Self::of_handshake(error));
            }
            if error.is::<Unconfirmed>() {
                return Some(Self::Unconfirmed);
            }
            // What an I/O error wraps is not what it calls its source.
            let wrapped = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
            cause = match wrapped {
                Some(inner) => Some(inner as &(dyn Error + 'static)),
                None => error.source(),
            };
        }
        None
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "what else may be wrong is told by rustls")]
    fn of_handshake(error: &rustls::Error) -> Self {
        match error {
            rustls::Error::InvalidCertificate(rustls::CertificateError::Other(other)) => {
                match other.0.downcast_ref::<Rejection>() {
                    Some(rejection) => Self::Rejected(rejection.clone()),
                    None => Self::Handshake(other.to_string()),
                }
            }
            rustls::Error::AlertReceived(alert) => {
                Self::Alert { alert: format!("{alert:?}"), mend: mend(*alert) }
            }
            error => Self::Handshake(error.to_string()),
        }
    }
}

#[expect(clippy::wildcard_enum_match_arm, reason = "most alerts say nothing to a person")]
fn mend(alert: AlertDescription) -> &'static str {
    match alert {
        AlertDescription::UnknownCA | AlertDescription::BadCertificate => {
            "it does not trust the client certificate: sslcert has to be signed by a CA of its ssl_ca_file"
        }
        AlertDescription::CertificateRequired => {
            "it demands a client certificate: name one with sslcert and sslkey"
        }
        AlertDescription::CertificateExpired | AlertDescription::CertificateRevoked => {
            "the client certificate has expired or was revoked: make a new one"
        }
        AlertDescription::ProtocolVersion => {
            "it speaks no version of TLS between ssl_min_protocol_version and ssl_max_protocol_version"
        }
        AlertDescription::NoApplicationProtocol => {
            "it does not know sslnegotiation=direct: say sslnegotiation=postgres"
        }
        _ => "its log says more",
    }
}
