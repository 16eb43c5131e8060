//! Certificates of an issuer that lives for one test, as files would hold them, and a client that
//! trusts it.

use std::net::SocketAddr;
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, SanType};
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore, SupportedProtocolVersion};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

const MADE: &str = "a certificate can be made";

/// An issuer of certificates.
pub struct Authority(CertifiedIssuer<'static, KeyPair>);

/// A certificate and its key, in PEM.
#[derive(Clone)]
pub struct Identity {
    pub certificate: String,
    pub key: String,
}

impl Authority {
    /// Nobody else knows it.
    pub fn new() -> Authority {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect(MADE);
        Authority(CertifiedIssuer::self_signed(params, key).expect(MADE))
    }

    /// Its own certificate, in PEM.
    pub fn pem(&self) -> String {
        self.0.pem()
    }

    /// A certificate for hosts or addresses.
    pub fn issue(&self, names: &[&str]) -> Identity {
        self.issue_with(names, Vec::new())
    }

    /// A certificate that has other names too.
    pub fn issue_with(&self, names: &[&str], others: Vec<SanType>) -> Identity {
        let names = names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
        let mut params = CertificateParams::new(names).expect(MADE);
        params.subject_alt_names.extend(others);
        let key = KeyPair::generate().expect(MADE);
        let certificate = params.signed_by(&key, &self.0).expect(MADE);
        Identity { certificate: certificate.pem(), key: key.serialize_pem() }
    }

    /// Who trusts this issuer, and proves to be somebody where that is asked.
    pub fn client(&self, identity: Option<&Identity>) -> Client {
        Client {
            roots: self.pem(),
            identity: identity.cloned(),
            versions: rustls::ALL_VERSIONS.to_vec(),
        }
    }
}

/// A client of TLS.
pub struct Client {
    roots: String,
    identity: Option<Identity>,
    versions: Vec<&'static SupportedProtocolVersion>,
}

impl Client {
    /// Speaks this version only.
    pub fn speaking(self, version: &'static SupportedProtocolVersion) -> Client {
        Client { versions: vec![version], ..self }
    }

    /// Connects to whoever proves to be `localhost`.
    pub async fn connect(&self, address: SocketAddr) -> std::io::Result<TlsStream<TcpStream>> {
        const PEM: &str = "it is PEM";
        let mut roots = RootCertStore::empty();
        let root = CertificateDer::from_pem_slice(self.roots.as_bytes()).expect(PEM);
        roots.add(root).expect("it issues");
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_protocol_versions(&self.versions)
            .expect("ring speaks both")
            .with_root_certificates(roots);
        let config = match &self.identity {
            None => builder.with_no_client_auth(),
            Some(identity) => {
                let certificate = CertificateDer::from_pem_slice(identity.certificate.as_bytes());
                let key = PrivateKeyDer::from_pem_slice(identity.key.as_bytes()).expect(PEM);
                let chain = vec![certificate.expect(PEM)];
                builder.with_client_auth_cert(chain, key).expect("they are a pair")
            }
        };
        let name = ServerName::try_from("localhost").expect("it is a name");
        let stream = TcpStream::connect(address).await?;
        TlsConnector::from(Arc::new(config)).connect(name, stream).await
    }
}
