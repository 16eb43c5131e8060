//! How the certificate of a server is judged, as libpq judges it.
//!
//! rustls verifies chains for the web, where every certificate has a version 3 and a name. Servers of
//! PostgreSQL often have certificates that were made by hand: of version 1, signed by themselves, or
//! for another name, which only `verify-full` minds. So chains are given to rustls where it takes
//! them, else to [`chain`](super::chain), and the rest is decided here. It reads no file; the clock
//! comes with the question.

use std::error::Error;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use jiff::Timestamp;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls13_signature_with_raw_key};
use rustls::pki_types::{
    CertificateDer, CertificateRevocationListDer, ServerName, SignatureVerificationAlgorithm,
    SubjectPublicKeyInfoDer, UnixTime,
};
use rustls::{CertificateError, DigitallySignedStruct, OtherError, RootCertStore, SignatureScheme};
use x509_cert::der::Encode as _;
use x509_cert::der::oid::db::rfc4519::CN;
use x509_cert::ext::pkix::SubjectAltName;
use x509_cert::ext::pkix::name::GeneralName;

use super::chain::{Cert, Ways};
use super::name::Names;

/// Whom to trust.
#[derive(Debug)]
pub(super) struct Roots {
    /// What a person calls them: a file, or the system's.
    place: String,
    /// Certificates that are signed by themselves, which alone are trusted.
    anchors: Vec<Cert<'static>>,
    /// Certificates beside them, which may stand between.
    others: Vec<Cert<'static>>,
    crls: Vec<CertificateRevocationListDer<'static>>,
}

impl Roots {
    /// `None` if none of them can be trusted.
    pub(super) fn new(
        place: String,
        certs: Vec<CertificateDer<'static>>,
        crls: Vec<CertificateRevocationListDer<'static>>,
    ) -> Option<Self> {
        // What cannot be parsed cannot be the end of a chain either.
        let certs = certs.into_iter().filter_map(|cert| Cert::parse(cert).ok());
        let (anchors, others): (Vec<_>, Vec<_>) = certs.partition(Cert::is_own_issuer);
        (!anchors.is_empty()).then_some(Self { place, anchors, others, crls })
    }

    /// What rustls trusts now. By itself it never asks how old a root is, which OpenSSL does.
    fn store_at(&self, now: UnixTime) -> RootCertStore {
        let mut store = RootCertStore::empty();
        let anchors = self.anchors.iter().filter(|anchor| anchor.is_valid_at(now));
        store.add_parsable_certificates(anchors.map(|anchor| anchor.sent().clone()));
        store
    }
}

/// Why the certificate of a server is not accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    fault: Fault,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Fault {
    Issuer { issuer: String, place: String },
    RootExpired { issuer: String, place: String, at: String },
    Purpose,
    Name { names: String, host: String },
    Expired(String),
    NotYetValid(String),
    Revoked,
    NoList,
    ListExpired,
    Unlistable,
    Other(String),
}

impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.fault {
            Fault::Issuer { issuer, place } => write!(
                f,
                "the server's certificate is not trusted: its issuer ({issuer}) is not in {place}; \
                 name the certificate of that issuer with sslrootcert"
            ),
            Fault::RootExpired { issuer, place, at } => write!(
                f,
                "the server's certificate is not trusted: the certificate of its issuer ({issuer}) in \
                 {place} expired at {at}; put the one that took its place there"
            ),
            Fault::Purpose => f.write_str(
                "the server's certificate says that it is not for servers: make one whose key usage \
                 has digitalSignature, and its extended key usage serverAuth",
            ),
            Fault::Name { names, host } => write!(
                f,
                "the server's certificate is for another name: for {names}, not for {host}; connect by \
                 a name that it has, or check no name with sslmode=verify-ca"
            ),
            Fault::Expired(at) => write!(
                f,
                "the server's certificate expired at {at}, or the clock of this machine is wrong"
            ),
            Fault::NotYetValid(at) => write!(
                f,
                "the server's certificate is not valid before {at}, or the clock of this machine is wrong"
            ),
            Fault::Revoked => f.write_str("the server's certificate was revoked"),
            Fault::NoList => f.write_str(
                "nobody says whether the server's certificate was revoked: the file of sslcrl needs a \
                 list of every issuer in its chain",
            ),
            Fault::ListExpired => f.write_str(
                "a revocation list of sslcrl is out of date: get the current one from its issuer",
            ),
            Fault::Unlistable => f.write_str(
                "the server's certificate is of version 1 or of a CA, and cannot be looked up in a \
                 revocation list: make another one, or give no sslcrl",
            ),
            Fault::Other(reason) => write!(f, "the server's certificate is not accepted: {reason}"),
        }
    }
}

impl Error for Rejection {}

impl From<Rejection> for rustls::Error {
    fn from(rejection: Rejection) -> Self {
        Self::InvalidCertificate(CertificateError::Other(OtherError(Arc::new(rejection))))
    }
}

fn reject(fault: Fault) -> Rejection {
    Rejection { fault }
}

/// Judges one server.
#[derive(Debug)]
pub(super) struct Verifier {
    roots: Option<Arc<Roots>>,
    /// The name that has to be in the certificate, if one has to.
    host: Option<String>,
    provider: Arc<CryptoProvider>,
}

impl Verifier {
    /// Without roots every certificate will do: then it encrypts and proves nothing.
    pub(super) fn new(
        roots: Option<Arc<Roots>>,
        host: Option<String>,
        provider: Arc<CryptoProvider>,
    ) -> Self {
        Self { roots, host, provider }
    }

    fn verify_chain(
        &self,
        roots: &Roots,
        end: &Cert<'_>,
        between: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<(), Rejection> {
        check_validity(end, now)?;
        if !end.may_serve() {
            return Err(reject(Fault::Purpose));
        }
        // What is in the root file itself and signed by itself is trusted as it is, also where it
        // says that it is a CA.
        if roots.anchors.iter().any(|anchor| anchor.sent() == end.sent()) {
            return Ok(());
        }
        let sent: Vec<Cert<'_>> =
            between.iter().filter_map(|cert| Cert::parse(cert.clone()).ok()).collect();
        let unknown = || distrust(roots, end, &sent, now);
        if end.is_foreign_to_rustls() {
            // A list that is there wants to be asked.
            if !roots.crls.is_empty() {
                return Err(reject(Fault::Unlistable));
            }
            let between = sent.iter().chain(&roots.others).collect();
            let algorithms = self.provider.signature_verification_algorithms.all;
            let ways = Ways::new(&roots.anchors, between, algorithms, now);
            return if ways.lead_from(end) { Ok(()) } else { Err(unknown()) };
        }
        match self.verify_by_rustls(roots, end, between, now) {
            Ok(_) => Ok(()),
            Err(rustls::Error::InvalidCertificate(fault)) => judge(fault, unknown),
            Err(error) => Err(reject(Fault::Other(error.to_string()))),
        }
    }

    fn verify_by_rustls(
        &self,
        roots: &Roots,
        end: &Cert<'_>,
        between: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let store = roots.store_at(now);
        if store.is_empty() {
            return Err(CertificateError::UnknownIssuer.into());
        }
        let others = roots.others.iter().map(|cert| cert.sent().clone());
        let between: Vec<CertificateDer<'_>> = between.iter().cloned().chain(others).collect();
        let builder =
            WebPkiServerVerifier::builder_with_provider(store.into(), self.provider.clone());
        let webpki = builder
            .with_crls(roots.crls.iter().cloned())
            .enforce_revocation_expiration()
            .build()
            .map_err(|error| rustls::Error::General(error.to_string()))?;
        // The chain is looked at before the name, which is compared elsewhere.
        let any_name = ServerName::try_from("localhost")
            .map_err(|error| rustls::Error::General(error.to_string()))?;
        webpki.verify_server_cert(end.sent(), &between, &any_name, &[], now)
    }
}

/// Why no trusted issuer was found.
fn distrust(roots: &Roots, end: &Cert<'_>, between: &[Cert<'_>], now: UnixTime) -> Rejection {
    let place = roots.place.clone();
    let mut chain = [end].into_iter().chain(between).chain(&roots.others);
    let old = |cert: &Cert<'_>| {
        let issuers = roots.anchors.iter().filter(|anchor| anchor.subject() == cert.issuer());
        issuers.into_iter().find(|issuer| !issuer.is_valid_at(now))
    };
    reject(match chain.find_map(old) {
        Some(root) => {
            let at = render_moment(root.validity().1);
            Fault::RootExpired { issuer: root.subject().to_string(), place, at }
        }
        None => Fault::Issuer { issuer: end.issuer().to_string(), place },
    })
}

#[expect(clippy::wildcard_enum_match_arm, reason = "what else may be wrong is told by rustls")]
fn judge(fault: CertificateError, unknown: impl Fn() -> Rejection) -> Result<(), Rejection> {
    Err(match fault {
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            return Ok(());
        }
        // The second where an issuer was made anew under the name of the one before.
        CertificateError::UnknownIssuer | CertificateError::BadSignature => unknown(),
        CertificateError::Revoked => reject(Fault::Revoked),
        CertificateError::UnknownRevocationStatus => reject(Fault::NoList),
        CertificateError::ExpiredRevocationList
        | CertificateError::ExpiredRevocationListContext { .. } => reject(Fault::ListExpired),
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            reject(Fault::Other("a certificate of its chain has expired".to_owned()))
        }
        CertificateError::Other(other) => reject(Fault::Other(other.0.to_string())),
        fault => reject(Fault::Other(fault.to_string())),
    })
}

fn parse<'a>(cert: &'a CertificateDer<'a>) -> Result<Cert<'a>, Rejection> {
    // Borrowed again, so that nothing is copied.
    Cert::parse(CertificateDer::from(cert.as_ref()))
        .map_err(|error| reject(Fault::Other(error.to_string())))
}

fn check_validity(cert: &Cert<'_>, now: UnixTime) -> Result<(), Rejection> {
    let (from, until) = cert.validity();
    if now.as_secs() > until {
        Err(reject(Fault::Expired(render_moment(until))))
    } else if now.as_secs() < from {
        Err(reject(Fault::NotYetValid(render_moment(from))))
    } else {
        Ok(())
    }
}

fn render_moment(seconds: u64) -> String {
    let moment = i64::try_from(seconds).ok().and_then(|n| Timestamp::from_second(n).ok());
    moment.map_or_else(|| "an unknown time".to_owned(), |moment| moment.to_string())
}

fn names(cert: &Cert<'_>) -> Names {
    let cert = cert.content();
    let mut names = Names::default();
    if let Ok(Some((_, alternatives))) = cert.get_extension::<SubjectAltName>() {
        for name in alternatives.0 {
            #[expect(clippy::wildcard_enum_match_arm, reason = "the other kinds name no host")]
            match name {
                GeneralName::DnsName(name) => names.dns.push(name.to_string()),
                GeneralName::IpAddress(octets) => {
                    names.addresses.extend(address(octets.as_bytes()))
                }
                _ => {}
            }
        }
    }
    names.common = common_name(cert.subject());
    names
}

fn address(octets: &[u8]) -> Option<IpAddr> {
    let four = <[u8; 4]>::try_from(octets).map(IpAddr::from);
    four.or_else(|_| <[u8; 16]>::try_from(octets).map(IpAddr::from)).ok()
}

fn common_name(subject: &x509_cert::name::Name) -> Option<String> {
    subject
        .iter()
        .find(|attribute| attribute.oid == CN)
        .map(|attribute| String::from_utf8_lossy(attribute.value.value()).into_owned())
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let end = parse(end)?;
        if let Some(roots) = &self.roots {
            self.verify_chain(roots, &end, between, now)?;
        }
        if let Some(host) = &self.host {
            let names = names(&end);
            if !names.include(host) {
                let names = names.render();
                return Err(reject(Fault::Name { names, host: host.clone() }).into());
            }
        }
        Ok(ServerCertVerified::assertion())
    }

    // That the server has the key of its certificate is asked in every mode. What rustls offers for
    // this refuses certificates of version 1.

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let broken = || rustls::Error::InvalidCertificate(CertificateError::BadSignature);
        let (key_algorithm, key) = parse(cert)?.public_key().ok_or_else(broken)?;
        let mapping = self.provider.signature_verification_algorithms.mapping;
        let algorithms = mapping.iter().filter(|(scheme, _)| *scheme == signed.scheme);
        let is_valid = algorithms.flat_map(|(_, algorithms)| algorithms.iter()).any(
            |algorithm: &&dyn SignatureVerificationAlgorithm| {
                algorithm.public_key_alg_id().as_ref() == key_algorithm
                    && algorithm.verify_signature(&key, message, signed.signature()).is_ok()
            },
        );
        if is_valid { Ok(HandshakeSignatureValid::assertion()) } else { Err(broken()) }
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let cert = parse(cert)?;
        let key = cert.content().subject_public_key_info().to_der();
        let key = key.map_err(|error| reject(Fault::Other(error.to_string())))?;
        verify_tls13_signature_with_raw_key(
            message,
            &SubjectPublicKeyInfoDer::from(key),
            signed,
            &self.provider.signature_verification_algorithms,
        )
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
