//! What a certificate says, and chains that rustls does not take.
//!
//! The recipe in PostgreSQL's manual makes certificates of version 1 with openssl before 3.2, also
//! below an issuer that is no root, and many a server has one that says it is a CA. OpenSSL takes both
//! and rustls neither, so their chains are followed here, by OpenSSL's rules and more narrowly where
//! one of them is not known here. It reads no file and no clock; the verifier asks.

use std::cell::Cell;

use rustls::pki_types::{CertificateDer, SignatureVerificationAlgorithm, UnixTime};
use x509_cert::certificate::{CertificateInner, Raw, TbsCertificateInner, Version};
use x509_cert::der::oid::db::rfc5280::ID_KP_SERVER_AUTH;
use x509_cert::der::oid::{AssociatedOid, ObjectIdentifier};
use x509_cert::der::{self, Decode as _, Encode as _, Reader as _, SliceReader};
use x509_cert::ext::pkix::{
    BasicConstraints, ExtendedKeyUsage, KeyUsage, NameConstraints, SubjectAltName,
};
use x509_cert::name::Name;

/// How many may stand between a server's certificate and a root.
const MOST_BETWEEN: usize = 8;

/// How many signatures are looked at for one server, which chooses how many it sends.
const MOST_CHECKS: u32 = 64;

/// A certificate as it was sent and as it is read. Numbers and lengths that the standard forbids are
/// taken, as OpenSSL takes them.
#[derive(Debug)]
pub(super) struct Cert<'a> {
    sent: CertificateDer<'a>,
    read: CertificateInner<Raw>,
}

impl<'a> Cert<'a> {
    pub(super) fn parse(sent: CertificateDer<'a>) -> Result<Self, der::Error> {
        let read = CertificateInner::from_der(&sent)?;
        Ok(Self { sent, read })
    }

    pub(super) fn sent(&self) -> &CertificateDer<'a> {
        &self.sent
    }

    pub(super) fn content(&self) -> &TbsCertificateInner<Raw> {
        self.read.tbs_certificate()
    }

    pub(super) fn subject(&self) -> &Name {
        self.content().subject()
    }

    pub(super) fn issuer(&self) -> &Name {
        self.content().issuer()
    }

    /// How its issuer signed it.
    pub(super) fn signature_algorithm(&self) -> ObjectIdentifier {
        self.read.signature_algorithm().oid
    }

    /// Whether a chain may end with it.
    pub(super) fn is_own_issuer(&self) -> bool {
        self.subject() == self.issuer()
    }

    /// Whether rustls refuses it of a server whoever signed it.
    pub(super) fn is_foreign_to_rustls(&self) -> bool {
        let says_ca = self.content().get_extension::<BasicConstraints>();
        self.is_old() || matches!(says_ca, Ok(Some((_, BasicConstraints { ca: true, .. }))))
    }

    fn is_old(&self) -> bool {
        self.content().version() != Version::V3
    }

    /// From and until when it is good, in seconds since 1970.
    pub(super) fn validity(&self) -> (u64, u64) {
        let validity = self.content().validity();
        (
            validity.not_before.to_unix_duration().as_secs(),
            validity.not_after.to_unix_duration().as_secs(),
        )
    }

    pub(super) fn is_valid_at(&self, now: UnixTime) -> bool {
        let (from, until) = self.validity();
        (from..=until).contains(&now.as_secs())
    }

    /// Whether its key may be used as a server's.
    pub(super) fn may_serve(&self) -> bool {
        let key = match self.content().get_extension::<KeyUsage>() {
            Ok(Some((_, usage))) => {
                usage.digital_signature() || usage.key_encipherment() || usage.key_agreement()
            }
            Ok(None) => true,
            Err(_) => false,
        };
        key && self.is_for_servers()
    }

    fn is_for_servers(&self) -> bool {
        match self.content().get_extension::<ExtendedKeyUsage>() {
            Ok(Some((_, usages))) => usages.0.contains(&ID_KP_SERVER_AUTH),
            Ok(None) => true,
            Err(_) => false,
        }
    }

    /// Whether it may issue others, above so many between it and the server's.
    fn may_issue(&self, between: usize) -> bool {
        let is_ca = match self.content().get_extension::<BasicConstraints>() {
            Ok(Some((_, constraints))) => {
                let most = constraints.path_len_constraint;
                constraints.ca && most.is_none_or(|most| between <= usize::from(most))
            }
            // Version 1 cannot say it, and is believed of roots.
            Ok(None) => self.is_old() && self.is_own_issuer(),
            Err(_) => false,
        };
        let signs = match self.content().get_extension::<KeyUsage>() {
            Ok(Some((_, usage))) => usage.key_cert_sign(),
            Ok(None) => true,
            Err(_) => false,
        };
        is_ca && signs && self.is_for_servers() && self.is_understood()
    }

    /// Whether it makes no condition that is not looked at here.
    fn is_understood(&self) -> bool {
        let known =
            [BasicConstraints::OID, KeyUsage::OID, ExtendedKeyUsage::OID, SubjectAltName::OID];
        let mut extensions = self.content().extensions().into_iter().flatten();
        extensions.all(|extension| {
            let is_known = !extension.critical || known.contains(&extension.extn_id);
            is_known && extension.extn_id != NameConstraints::OID
        })
    }

    /// The inside of the algorithm's identifier, and the key.
    pub(super) fn public_key(&self) -> Option<(Vec<u8>, Vec<u8>)> {
        let key = self.content().subject_public_key_info();
        let algorithm = key.algorithm.to_der().ok()?;
        Some((inside(&algorithm)?.to_vec(), key.subject_public_key.as_bytes()?.to_vec()))
    }

    fn signed(&self, other: &Cert<'_>, algorithms: &[&dyn SignatureVerificationAlgorithm]) -> bool {
        self.try_signed(other, algorithms).unwrap_or(false)
    }

    fn try_signed(
        &self,
        other: &Cert<'_>,
        algorithms: &[&dyn SignatureVerificationAlgorithm],
    ) -> Option<bool> {
        let scheme = other.read.signature_algorithm();
        if scheme != other.content().signature() {
            return None;
        }
        let scheme = scheme.to_der().ok()?;
        // Its first part, as it was sent.
        let signed = SliceReader::new(inside(&other.sent)?).ok()?.tlv_bytes().ok()?;
        let signature = other.read.signature().as_bytes()?;
        let (key_algorithm, key) = self.public_key()?;
        let mut fitting = algorithms.iter().filter(|algorithm| {
            algorithm.public_key_alg_id().as_ref() == key_algorithm
                && inside(&scheme) == Some(algorithm.signature_alg_id().as_ref())
        });
        Some(fitting.any(|algorithm| algorithm.verify_signature(&key, signed, signature).is_ok()))
    }
}

/// What a DER sequence holds.
fn inside(der: &[u8]) -> Option<&[u8]> {
    let mut reader = SliceReader::new(der).ok()?;
    let header = der::Header::decode(&mut reader).ok()?;
    reader.read_slice(header.length()).ok()
}

/// Where chains may end, and by way of what.
pub(super) struct Ways<'a> {
    anchors: &'a [Cert<'static>],
    between: Vec<&'a Cert<'a>>,
    algorithms: &'a [&'a dyn SignatureVerificationAlgorithm],
    now: UnixTime,
    checks: Cell<u32>,
}

impl<'a> Ways<'a> {
    pub(super) fn new(
        anchors: &'a [Cert<'static>],
        between: Vec<&'a Cert<'a>>,
        algorithms: &'a [&'a dyn SignatureVerificationAlgorithm],
        now: UnixTime,
    ) -> Self {
        Self { anchors, between, algorithms, now, checks: Cell::new(0) }
    }

    /// Whether the certificate of a server is one that a trusted issuer vouches for.
    pub(super) fn lead_from(&self, end: &Cert<'_>) -> bool {
        end.is_understood() && self.lead_on(end, 0)
    }

    fn lead_on(&self, cert: &Cert<'_>, between: usize) -> bool {
        self.anchors.iter().any(|anchor| self.is_issuer(anchor, cert, between))
            || (between < MOST_BETWEEN
                && self.between.iter().any(|issuer| {
                    self.is_issuer(issuer, cert, between) && self.lead_on(issuer, between + 1)
                }))
    }

    fn is_issuer(&self, issuer: &Cert<'_>, cert: &Cert<'_>, between: usize) -> bool {
        if issuer.subject() != cert.issuer()
            || !issuer.is_valid_at(self.now)
            || !issuer.may_issue(between)
            || self.checks.get() >= MOST_CHECKS
        {
            return false;
        }
        self.checks.set(self.checks.get() + 1);
        issuer.signed(cert, self.algorithms)
    }
}
