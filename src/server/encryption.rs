//! TLS of the server: what the web configuration says of it, made a configuration of rustls.
//!
//! It owns the names of versions, cipher suites and curves, which are those of Go, and the check of
//! clients' certificates. A name that rustls does not have is refused: who lists ciphers relies on
//! the list. It reads no file by itself, and what is served inside is `server`'s business.

use std::fmt;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{
    CryptoProvider, WebPkiSupportedAlgorithms, ring, verify_tls12_signature, verify_tls13_signature,
};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, NamedGroup, RootCertStore,
    ServerConfig, SignatureScheme, SupportedProtocolVersion,
};
use tokio_rustls::TlsAcceptor;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer as _, X509Certificate};

use super::web_config::{Entry, Fault, Place, TlsSection, WebConfig, WebConfigError};

/// Why TLS cannot be served as the file says.
#[derive(Debug, thiserror::Error)]
pub(super) enum EncryptionError {
    #[error("{0} and {1} are both given; drop one of the two")]
    Both(&'static str, &'static str),
    #[error("tls_server_config has no {0} and no {1}; add one of the two")]
    Missing(&'static str, &'static str),
    #[error("there is no certificate in PEM here, which begins with -----BEGIN CERTIFICATE-----")]
    NoCertificate,
    #[error(
        "there is no private key in PEM here, which begins with -----BEGIN PRIVATE KEY-----; one \
         with a passphrase cannot be used"
    )]
    NoKey,
    #[error("certificate or key cannot be used; they must be a pair, and of RSA, ECDSA or Ed25519")]
    Pair(#[source] rustls::Error),
    #[error("a certificate for checking those of clients cannot be used")]
    ClientCa(#[source] Box<dyn std::error::Error + Send + Sync>),
    #[error("{0:?} is not served here; write TLS12 or TLS13")]
    Version(String),
    #[error("min_version is above max_version; raise the latter or leave it out")]
    Versions,
    #[error("the cipher suite {name:?} is not served here; those that are: {known}")]
    Suite { name: String, known: String },
    #[error("lists no cipher suite of TLS 1.2; add one, or set min_version to TLS13")]
    NoSuite,
    #[error("the curve {0:?} is not served here; those that are: X25519, CurveP256, CurveP384")]
    Curve(String),
    #[error("is an empty list; add to it or leave it out")]
    Empty,
    #[error(
        "{0:?} is no way to ask for certificates of clients; write NoClientCert, \
         RequestClientCert, RequireAnyClientCert, VerifyClientCertIfGiven or \
         RequireAndVerifyClientCert"
    )]
    ClientAuth(String),
    #[error("{0} needs client_ca or client_ca_file to check against; add one of the two")]
    NoClientCa(&'static str),
    #[error(
        "without client_auth_type nobody is asked for a certificate; add RequireAndVerifyClientCert"
    )]
    NobodyAsked,
    #[error(
        "needs client_auth_type RequireAndVerifyClientCert or RequireAnyClientCert: others let \
         clients in without any certificate"
    )]
    NamesOfNobody,
    #[error("cannot set TLS up")]
    Setup(#[source] rustls::Error),
}

/// How much is asked of a client, least first. The names are those of Go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ClientAuth {
    #[default]
    NoClientCert,
    RequestClientCert,
    VerifyClientCertIfGiven,
    RequireAnyClientCert,
    RequireAndVerifyClientCert,
}

/// TLS as it is served.
pub(super) struct Encryption {
    pub(super) acceptor: TlsAcceptor,
    pub(super) client_auth: ClientAuth,
    /// Whether only some names may come.
    pub(super) has_allowed_names: bool,
}

/// Reads a file that the configuration names.
pub(super) type Read<'a> = &'a mut dyn FnMut(&Path) -> io::Result<Vec<u8>>;

impl Encryption {
    /// What the section says; `None` where it says nothing.
    pub(super) fn new(config: &WebConfig, read: Read<'_>) -> Result<Option<Self>, WebConfigError> {
        let tls = &config.tls;
        if !tls.says_something() {
            return Ok(None);
        }
        let mut pem = |inline: &Option<Entry<String>>, file: &Option<Entry<PathBuf>>, names| {
            fetch_pem(config, read, (inline, file), names)
        };
        let certificate = pem(&tls.cert, &tls.cert_file, ("cert", "cert_file"))?;
        let key = pem(&tls.key, &tls.key_file, ("key", "key_file"))?;
        let authority = pem(&tls.client_ca, &tls.client_ca_file, ("client_ca", "client_ca_file"))?;
        let missing = |inline, file| config.file().fault(EncryptionError::Missing(inline, file));
        let (place, certificate) = certificate.ok_or_else(|| missing("cert", "cert_file"))?;
        let (key_place, key) = key.ok_or_else(|| missing("key", "key_file"))?;

        let chain: Vec<_> = CertificateDer::pem_slice_iter(&certificate)
            .collect::<Result<_, _>>()
            .unwrap_or_default();
        if chain.is_empty() {
            return Err(place.fault(EncryptionError::NoCertificate));
        }
        let key = PrivateKeyDer::from_pem_slice(&key)
            .map_err(|_| key_place.fault(EncryptionError::NoKey))?;

        let versions = parse_versions(config)?;
        let provider = Arc::new(provider(config, &versions)?);
        let (client_auth, verifier) = client_verifier(config, authority, &provider)?;
        let builder = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&versions)
            .map_err(|error| config.file().fault(EncryptionError::Setup(error)))?;
        let builder = match verifier {
            Some(verifier) => builder.with_client_cert_verifier(verifier),
            None => builder.with_no_client_auth(),
        };
        let mut server = builder
            .with_single_cert(chain, key)
            .map_err(|error| place.fault(EncryptionError::Pair(error)))?;
        server.ignore_client_order = tls.prefer_server_cipher_suites.unwrap_or(true);
        server.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Some(Self {
            acceptor: TlsAcceptor::from(Arc::new(server)),
            client_auth,
            has_allowed_names: tls.client_allowed_sans.is_some(),
        }))
    }
}

impl TlsSection {
    /// Whether anything of it is written, so that a section without a certificate is a mistake and
    /// never clear text.
    fn says_something(&self) -> bool {
        let Self {
            cert,
            key,
            client_ca,
            cert_file,
            key_file,
            client_ca_file,
            client_auth_type,
            client_allowed_sans,
            min_version,
            max_version,
            cipher_suites,
            prefer_server_cipher_suites,
            curve_preferences,
        } = self;
        let is_text = [cert, key, client_ca, client_auth_type, min_version, max_version]
            .into_iter()
            .any(Option::is_some);
        let is_path = [cert_file, key_file, client_ca_file].into_iter().any(Option::is_some);
        let is_list = [cipher_suites, curve_preferences].into_iter().any(Option::is_some);
        is_text
            || is_path
            || is_list
            || client_allowed_sans.is_some()
            || prefer_server_cipher_suites.is_some()
    }
}

/// What stands in the file itself or in one that it names, and where.
fn fetch_pem(
    config: &WebConfig,
    read: Read<'_>,
    (inline, file): (&Option<Entry<String>>, &Option<Entry<PathBuf>>),
    (inline_name, file_name): (&'static str, &'static str),
) -> Result<Option<(Place, Vec<u8>)>, WebConfigError> {
    match (inline, file) {
        (Some(inline), Some(_)) => {
            let both = EncryptionError::Both(inline_name, file_name);
            Err(config.place(inline).fault(both))
        }
        (Some(inline), None) => Ok(Some((config.place(inline), inline.value.clone().into_bytes()))),
        (None, Some(file)) => {
            let path = config.beside(&file.value);
            let place = Place::File(path.clone());
            match read(&path) {
                Ok(bytes) => Ok(Some((place, bytes))),
                Err(error) => Err(place.fault(Fault::Read(error))),
            }
        }
        (None, None) => Ok(None),
    }
}

fn parse_versions(
    config: &WebConfig,
) -> Result<Vec<&'static SupportedProtocolVersion>, WebConfigError> {
    // As numbers, so that they compare.
    let parse = |entry: &Option<Entry<String>>, default: u8| match entry {
        None => Ok(default),
        Some(entry) => match entry.value.as_str() {
            "TLS12" => Ok(12),
            "TLS13" => Ok(13),
            other => Err(config.place(entry).fault(EncryptionError::Version(other.to_owned()))),
        },
    };
    let min = parse(&config.tls.min_version, 12)?;
    let max = parse(&config.tls.max_version, 13)?;
    let served: Vec<_> = [(12, &rustls::version::TLS12), (13, &rustls::version::TLS13)]
        .into_iter()
        .filter(|(number, _)| (min..=max).contains(number))
        .map(|(_, version)| version)
        .collect();
    match (&config.tls.min_version, served.is_empty()) {
        (Some(entry), true) => Err(config.place(entry).fault(EncryptionError::Versions)),
        (_, _) => Ok(served),
    }
}

/// Suites and curves. As with Go, those of TLS 1.3 cannot be chosen: all of them are good.
fn provider(
    config: &WebConfig,
    versions: &[&SupportedProtocolVersion],
) -> Result<CryptoProvider, WebConfigError> {
    let mut provider = ring::default_provider();
    if let Some(list) = &config.tls.cipher_suites {
        let all = std::mem::take(&mut provider.cipher_suites);
        let is_tls13 = |suite: &rustls::SupportedCipherSuite| suite.tls13().is_some();
        provider.cipher_suites = all.iter().copied().filter(is_tls13).collect();
        for entry in &list.value {
            let suite = all.iter().find(|suite| go_name(**suite) == entry.value);
            let suite = suite.ok_or_else(|| {
                let known: Vec<_> = all.iter().map(|suite| go_name(*suite)).collect();
                let name = entry.value.clone();
                config.place(entry).fault(EncryptionError::Suite { name, known: known.join(", ") })
            })?;
            if !is_tls13(suite) {
                provider.cipher_suites.push(*suite);
            }
        }
        let serves_tls12 = versions.contains(&&rustls::version::TLS12);
        if serves_tls12 && provider.cipher_suites.iter().all(is_tls13) {
            return Err(config.place(list).fault(EncryptionError::NoSuite));
        }
    }
    if let Some(list) = &config.tls.curve_preferences {
        let all = std::mem::take(&mut provider.kx_groups);
        for entry in &list.value {
            let name = match entry.value.as_str() {
                "X25519" => Some(NamedGroup::X25519),
                "CurveP256" => Some(NamedGroup::secp256r1),
                "CurveP384" => Some(NamedGroup::secp384r1),
                _ => None,
            };
            let group = all.iter().find(|group| Some(group.name()) == name);
            let unknown = || EncryptionError::Curve(entry.value.clone());
            let group = group.ok_or_else(|| config.place(entry).fault(unknown()))?;
            provider.kx_groups.push(*group);
        }
        if provider.kx_groups.is_empty() {
            return Err(config.place(list).fault(EncryptionError::Empty));
        }
    }
    Ok(provider)
}

/// As Go calls a suite: with the prefix `TLS_` for every version.
fn go_name(suite: rustls::SupportedCipherSuite) -> String {
    let name = format!("{:?}", suite.suite());
    match name.strip_prefix("TLS13_") {
        Some(rest) => format!("TLS_{rest}"),
        None => name,
    }
}

/// How clients are asked for certificates, and who checks them.
fn client_verifier(
    config: &WebConfig,
    authority: Option<(Place, Vec<u8>)>,
    provider: &Arc<CryptoProvider>,
) -> Result<(ClientAuth, Option<Arc<dyn ClientCertVerifier>>), WebConfigError> {
    let tls = &config.tls;
    let client_auth = match &tls.client_auth_type {
        None => ClientAuth::NoClientCert,
        Some(entry) => ClientAuth::parse(&entry.value).ok_or_else(|| {
            config.place(entry).fault(EncryptionError::ClientAuth(entry.value.clone()))
        })?,
    };
    if client_auth == ClientAuth::NoClientCert
        && let Some((place, _)) = authority
    {
        return Err(place.fault(EncryptionError::NobodyAsked));
    }
    if client_auth < ClientAuth::RequireAnyClientCert
        && let Some(names) = &tls.client_allowed_sans
    {
        return Err(config.place(names).fault(EncryptionError::NamesOfNobody));
    }
    let roots = match authority {
        Some((place, pem)) => parse_roots(&pem).map_err(|error| place.fault(error))?,
        None => RootCertStore::empty(),
    };
    let checked = |name| match (roots.is_empty(), &tls.client_auth_type) {
        (true, Some(entry)) => Err(config.place(entry).fault(EncryptionError::NoClientCa(name))),
        (_, _) => Ok(WebPkiClientVerifier::builder_with_provider(
            Arc::new(roots.clone()),
            provider.clone(),
        )),
    };
    let built = |error: rustls::server::VerifierBuilderError| {
        config.file().fault(EncryptionError::ClientCa(error.into()))
    };
    let unchecked = |is_mandatory| {
        let algorithms = provider.signature_verification_algorithms;
        let issuers = roots.subjects();
        Arc::new(AnyCertificate { is_mandatory, algorithms, issuers })
    };
    let verifier: Arc<dyn ClientCertVerifier> = match client_auth {
        ClientAuth::NoClientCert => return Ok((client_auth, None)),
        ClientAuth::RequestClientCert => unchecked(false),
        ClientAuth::RequireAnyClientCert => unchecked(true),
        ClientAuth::VerifyClientCertIfGiven => {
            checked("VerifyClientCertIfGiven")?.allow_unauthenticated().build().map_err(built)?
        }
        ClientAuth::RequireAndVerifyClientCert => {
            checked("RequireAndVerifyClientCert")?.build().map_err(built)?
        }
    };
    let Some(names) = &tls.client_allowed_sans else { return Ok((client_auth, Some(verifier))) };
    if names.value.is_empty() {
        return Err(config.place(names).fault(EncryptionError::Empty));
    }
    let allowed = names.value.clone();
    Ok((client_auth, Some(Arc::new(AllowedNames { certificate: verifier, allowed }))))
}

fn parse_roots(pem: &[u8]) -> Result<RootCertStore, EncryptionError> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem) {
        let certificate = certificate.map_err(|_| EncryptionError::NoCertificate)?;
        roots.add(certificate).map_err(|error| EncryptionError::ClientCa(error.into()))?;
    }
    if roots.is_empty() { Err(EncryptionError::NoCertificate) } else { Ok(roots) }
}

impl ClientAuth {
    fn parse(name: &str) -> Option<Self> {
        Some(match name {
            "" | "NoClientCert" => Self::NoClientCert,
            "RequestClientCert" => Self::RequestClientCert,
            // The second is how the format spelt it at first.
            "RequireAnyClientCert" | "RequireClientCert" => Self::RequireAnyClientCert,
            "VerifyClientCertIfGiven" => Self::VerifyClientCertIfGiven,
            "RequireAndVerifyClientCert" => Self::RequireAndVerifyClientCert,
            _ => return None,
        })
    }
}

/// Takes any certificate of a client who has its key, whoever issued it.
#[derive(Debug)]
struct AnyCertificate {
    is_mandatory: bool,
    algorithms: WebPkiSupportedAlgorithms,
    issuers: Vec<DistinguishedName>,
}

impl ClientCertVerifier for AnyCertificate {
    fn client_auth_mandatory(&self) -> bool {
        self.is_mandatory
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &self.issuers
    }

    fn verify_client_cert(
        &self,
        _certificate: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signature, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signature, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

/// Of the certificates that another check accepts, takes those with one of these names.
struct AllowedNames {
    certificate: Arc<dyn ClientCertVerifier>,
    allowed: Vec<String>,
}

impl fmt::Debug for AllowedNames {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AllowedNames").field("allowed", &self.allowed).finish_non_exhaustive()
    }
}

impl ClientCertVerifier for AllowedNames {
    fn client_auth_mandatory(&self) -> bool {
        self.certificate.client_auth_mandatory()
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.certificate.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        let verified = self.certificate.verify_client_cert(certificate, intermediates, now)?;
        if names_of(certificate).iter().any(|name| self.allowed.contains(name)) {
            return Ok(verified);
        }
        Err(CertificateError::ApplicationVerificationFailure.into())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.certificate.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.certificate.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.certificate.supported_verify_schemes()
    }
}

/// DNS names, e-mail addresses, URIs and IP addresses of a certificate; none if it is not
/// understood.
fn names_of(certificate: &[u8]) -> Vec<String> {
    let Ok((_, certificate)) = X509Certificate::from_der(certificate) else { return Vec::new() };
    let Ok(Some(names)) = certificate.subject_alternative_name() else { return Vec::new() };
    let name_of = |name: &GeneralName<'_>| match *name {
        GeneralName::DNSName(name) | GeneralName::RFC822Name(name) | GeneralName::URI(name) => {
            Some(name.to_owned())
        }
        GeneralName::IPAddress(bytes) => <[u8; 4]>::try_from(bytes)
            .map(IpAddr::from)
            .or_else(|_| <[u8; 16]>::try_from(bytes).map(IpAddr::from))
            .ok()
            .map(|address| address.to_string()),
        GeneralName::OtherName(..)
        | GeneralName::X400Address(_)
        | GeneralName::DirectoryName(_)
        | GeneralName::EDIPartyName(_)
        | GeneralName::RegisteredID(_)
        | GeneralName::Invalid(..) => None,
    };
    names.value.general_names.iter().filter_map(name_of).collect()
}
