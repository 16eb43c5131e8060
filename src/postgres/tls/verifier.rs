//! How the certificate of a server is judged, as libpq judges it.
//!
//! rustls verifies chains for the web, where every certificate has a version 3 and a name. Servers of
//! PostgreSQL often have certificates that were made by hand: of version 1, signed by themselves, or
//! for another name, which only `verify-full` minds. So chains are given to rustls where it takes
//! them, and the rest is decided here. It reads no file; the clock comes with the question.

use std::error::Error;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use jiff::Timestamp;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{
    CertificateDer, CertificateRevocationListDer, ServerName, SignatureVerificationAlgorithm,
    UnixTime,
};
use rustls::{CertificateError, DigitallySignedStruct, OtherError, RootCertStore, SignatureScheme};
use x509_cert::Certificate;
use x509_cert::der::oid::db::rfc4519::CN;
use x509_cert::der::{Decode as _, Encode as _, Reader as _, SliceReader};
use x509_cert::ext::pkix::SubjectAltName;
use x509_cert::ext::pkix::name::GeneralName;

use super::name::Names;

/// Whom to trust.
#[derive(Debug)]
pub(super) struct Roots {
    /// What a person calls them: a file, or the system's.
    place: String,
    /// Certificates that are signed by themselves, which alone are trusted.
    anchors: Vec<CertificateDer<'static>>,
    /// Certificates beside them, which may stand between.
    others: Vec<CertificateDer<'static>>,
    crls: Vec<CertificateRevocationListDer<'static>>,
    store: Arc<RootCertStore>,
}

impl Roots {
    /// `None` if none of them can be trusted.
    pub(super) fn new(
        place: String,
        certs: Vec<CertificateDer<'static>>,
        crls: Vec<CertificateRevocationListDer<'static>>,
    ) -> Option<Self> {
        let is_anchor = |cert: &CertificateDer<'static>| {
            Certificate::from_der(cert).is_ok_and(|cert| {
                let cert = cert.tbs_certificate();
                cert.subject() == cert.issuer()
            })
        };
        let (anchors, others): (Vec<_>, Vec<_>) = certs.into_iter().partition(is_anchor);
        let mut store = RootCertStore::empty();
        // What cannot be parsed cannot be the end of a chain either.
        store.add_parsable_certificates(anchors.iter().cloned());
        (!anchors.is_empty()).then(|| Self { place, anchors, others, crls, store: Arc::new(store) })
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
    Name { names: String, host: String },
    Expired(String),
    NotYetValid(String),
    Revoked,
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
    /// Where there are anchors that rustls can use.
    webpki: Option<Arc<WebPkiServerVerifier>>,
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
    ) -> Result<Self, rustls::Error> {
        let webpki = match &roots {
            Some(roots) if !roots.store.is_empty() => {
                let builder = WebPkiServerVerifier::builder_with_provider(
                    roots.store.clone(),
                    provider.clone(),
                );
                let built = builder.with_crls(roots.crls.iter().cloned()).build();
                Some(built.map_err(|error| rustls::Error::General(error.to_string()))?)
            }
            Some(_) | None => None,
        };
        Ok(Self { roots, webpki, host, provider })
    }

    fn verify_chain(
        &self,
        roots: &Roots,
        end: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<(), Rejection> {
        let cert = parse(end)?;
        check_validity(&cert, now)?;
        // What is in the root file itself and signed by itself is trusted as it is, also where it
        // says that it is a CA.
        if roots.anchors.iter().any(|anchor| anchor.as_ref() == end.as_ref()) {
            return Ok(());
        }
        let unknown = || {
            reject(Fault::Issuer {
                issuer: cert.tbs_certificate().issuer().to_string(),
                place: roots.place.clone(),
            })
        };
        if cert.tbs_certificate().version() != x509_cert::certificate::Version::V3 {
            return self.verify_old(roots, end, &cert).ok_or_else(unknown);
        }
        let Some(webpki) = &self.webpki else { return Err(unknown()) };
        let between: Vec<CertificateDer<'_>> =
            between.iter().cloned().chain(roots.others.iter().cloned()).collect();
        // The chain is looked at before the name, which is compared elsewhere.
        let any_name = ServerName::try_from("localhost")
            .map_err(|error| reject(Fault::Other(error.to_string())))?;
        match webpki.verify_server_cert(end, &between, &any_name, &[], now) {
            Ok(_) => Ok(()),
            Err(rustls::Error::InvalidCertificate(fault)) => judge(fault, unknown),
            Err(error) => Err(reject(Fault::Other(error.to_string()))),
        }
    }

    /// A certificate of version 1 has nothing but a name, a key and a signature: it is good if one of
    /// the trusted signed it.
    fn verify_old(
        &self,
        roots: &Roots,
        end: &CertificateDer<'_>,
        cert: &Certificate,
    ) -> Option<()> {
        // A revocation list that is there wants to be asked.
        if !roots.crls.is_empty() {
            return None;
        }
        let signed = signed_part(end)?;
        let signature = cert.signature().as_bytes()?;
        let scheme = cert.signature_algorithm().to_der().ok()?;
        let algorithms = self.provider.signature_verification_algorithms.all;
        let issuers = roots.anchors.iter().filter_map(|anchor| Certificate::from_der(anchor).ok());
        issuers
            .filter(|issuer| issuer.tbs_certificate().subject() == cert.tbs_certificate().issuer())
            .any(|issuer| {
                let Some((key_algorithm, key)) = public_key(&issuer) else { return false };
                algorithms
                    .iter()
                    .filter(|algorithm| {
                        algorithm.public_key_alg_id().as_ref() == key_algorithm
                            && is_sequence_of(&scheme, algorithm.signature_alg_id().as_ref())
                    })
                    .any(|algorithm| algorithm.verify_signature(&key, signed, signature).is_ok())
            })
            .then_some(())
    }

    /// That the server has the key of the certificate, which is also asked where nothing else is.
    fn verify_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let broken = || rustls::Error::InvalidCertificate(CertificateError::BadSignature);
        let cert = parse(cert)?;
        let (key_algorithm, key) = public_key(&cert).ok_or_else(broken)?;
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
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            reject(Fault::Other("a certificate of its chain has expired".to_owned()))
        }
        fault => reject(Fault::Other(fault.to_string())),
    })
}

fn parse(cert: &CertificateDer<'_>) -> Result<Certificate, Rejection> {
    Certificate::from_der(cert).map_err(|error| reject(Fault::Other(error.to_string())))
}

fn check_validity(cert: &Certificate, now: UnixTime) -> Result<(), Rejection> {
    let validity = cert.tbs_certificate().validity();
    let (from, until) = (
        validity.not_before.to_unix_duration().as_secs(),
        validity.not_after.to_unix_duration().as_secs(),
    );
    let at = |seconds: u64| {
        let moment = i64::try_from(seconds).ok().and_then(|n| Timestamp::from_second(n).ok());
        moment.map_or_else(|| "an unknown time".to_owned(), |moment| moment.to_string())
    };
    if now.as_secs() > until {
        Err(reject(Fault::Expired(at(until))))
    } else if now.as_secs() < from {
        Err(reject(Fault::NotYetValid(at(from))))
    } else {
        Ok(())
    }
}

/// The inside of the algorithm's identifier, and the key.
fn public_key(cert: &Certificate) -> Option<(Vec<u8>, Vec<u8>)> {
    let key = cert.tbs_certificate().subject_public_key_info();
    let algorithm = key.algorithm.to_der().ok()?;
    Some((sequence_inside(&algorithm)?.to_vec(), key.subject_public_key.as_bytes()?.to_vec()))
}

fn is_sequence_of(sequence: &[u8], inside: &[u8]) -> bool {
    sequence_inside(sequence) == Some(inside)
}

/// What a DER sequence holds.
fn sequence_inside(der: &[u8]) -> Option<&[u8]> {
    let mut reader = SliceReader::new(der).ok()?;
    let header = x509_cert::der::Header::decode(&mut reader).ok()?;
    reader.read_slice(header.length()).ok()
}

/// What of a certificate is signed: its first part, as it was sent.
fn signed_part<'a>(cert: &'a CertificateDer<'_>) -> Option<&'a [u8]> {
    let mut reader = SliceReader::new(sequence_inside(cert)?).ok()?;
    reader.tlv_bytes().ok()
}

fn names(cert: &Certificate) -> Names {
    let cert = cert.tbs_certificate();
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
        if let Some(roots) = &self.roots {
            self.verify_chain(roots, end, between, now)?;
        }
        if let Some(host) = &self.host {
            let names = names(&parse(end)?);
            if !names.include(host) {
                let names = names.render();
                return Err(reject(Fault::Name { names, host: host.clone() }).into());
            }
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.verify_signature(message, cert, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.verify_signature(message, cert, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
