//! Whose certificates an exporter's is checked against, and what is said when it fails the check.
//!
//! The check is never left out. It owns the rustls configuration; sockets are the client's.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{AlertDescription, CertificateError, ClientConfig, RootCertStore, crypto};

/// Certificates that are trusted.
#[derive(Clone)]
pub struct Trust(pub(super) Arc<ClientConfig>);

/// Why there is nobody to trust.
#[derive(Debug, thiserror::Error)]
pub enum TrustError {
    /// A file that cannot be read, or whose PEM is broken.
    #[error("cannot read certificates as PEM from {0}", file.display())]
    File {
        /// Its path.
        file: PathBuf,
        /// What is wrong.
        source: rustls::pki_types::pem::Error,
    },
    /// A file without certificates.
    #[error("there is no certificate in {0}: it begins with -----BEGIN CERTIFICATE-----", file.display())]
    Empty {
        /// Its path.
        file: PathBuf,
    },
    /// A certificate that is broken.
    #[error("a certificate in {0} cannot be used", file.display())]
    Certificate {
        /// Its path.
        file: PathBuf,
        /// What is wrong with it.
        source: rustls::Error,
    },
    /// The system has no certificates.
    #[error(
        "this machine trusts no certificate: install its package of certificates (ca-certificates), \
         or name a file with --from.ca-file or SSL_CERT_FILE"
    )]
    System,
    /// TLS cannot be set up at all.
    #[error("cannot set TLS up")]
    Setup(#[source] rustls::Error),
}

impl Trust {
    /// Those of a file alone, else those that this machine trusts.
    pub fn load(file: Option<&Path>) -> Result<Self, TrustError> {
        let roots = match file {
            Some(file) => load_file(file)?,
            None => load_system()?,
        };
        let provider = Arc::new(crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(TrustError::Setup)?;
        let mut config = config.with_root_certificates(roots).with_no_client_auth();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self(Arc::new(config)))
    }
}

fn load_file(path: &Path) -> Result<RootCertStore, TrustError> {
    let file = || path.to_owned();
    let broken = |source| TrustError::File { file: file(), source };
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(path).map_err(broken)? {
        let certificate = certificate.map_err(broken)?;
        roots
            .add(certificate)
            .map_err(|source| TrustError::Certificate { file: file(), source })?;
    }
    if roots.is_empty() { Err(TrustError::Empty { file: file() }) } else { Ok(roots) }
}

/// What of it cannot be read is left out, as every program does: hundreds are there.
fn load_system() -> Result<RootCertStore, TrustError> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if roots.is_empty() { Err(TrustError::System) } else { Ok(roots) }
}

/// What may be done about a handshake that failed.
#[expect(clippy::wildcard_enum_match_arm, reason = "what else may be wrong is told by the cause")]
pub(super) fn remedy(error: &io::Error) -> &'static str {
    const NO_TLS: &str = "is there a server without TLS at this port, for http://?";
    let cause = error.get_ref().and_then(|cause| cause.downcast_ref::<rustls::Error>());
    // Who hung up in the middle of it may never have understood it.
    let Some(cause) = cause else { return NO_TLS };
    match cause {
        rustls::Error::InvalidCertificate(fault) => match fault {
            // The second where an issuer was made anew under the name of the one before.
            CertificateError::UnknownIssuer | CertificateError::BadSignature => {
                "its certificate is of nobody that is trusted here: name its issuer's with \
                 --from.ca-file or SSL_CERT_FILE"
            }
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
                "its certificate has expired, or the clock of this machine is wrong"
            }
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
                "its certificate is not valid yet, or the clock of this machine is wrong"
            }
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                "its certificate is for another name: use that name in the address"
            }
            // What `openssl req -x509` makes unless it is told otherwise.
            CertificateError::Other(other) if other.to_string() == "CaUsedAsEndEntity" => {
                "its certificate is one for issuing others (CA:TRUE), which is not accepted of a \
                 server: make one with CA:FALSE"
            }
            _ => "its certificate is not accepted",
        },
        rustls::Error::InvalidMessage(_) => NO_TLS,
        rustls::Error::PeerIncompatible(_)
        | rustls::Error::AlertReceived(
            AlertDescription::ProtocolVersion
            | AlertDescription::HandshakeFailure
            | AlertDescription::InsufficientSecurity,
        ) => "it has to speak TLS 1.2 or 1.3",
        rustls::Error::AlertReceived(AlertDescription::NoApplicationProtocol) => {
            "it has to speak HTTP/1.1"
        }
        rustls::Error::AlertReceived(AlertDescription::UnrecognisedName) => {
            "it does not know the name in the address"
        }
        _ => "look into its log",
    }
}

#[cfg(test)]
mod tests;
