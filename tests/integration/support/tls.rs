//! TLS before a server that speaks clear text, as a proxy on the same machine does it, with
//! certificates of an issuer that lives for one test.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::pki_types::PrivateKeyDer;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{AbortHandle, JoinSet};
use tokio_rustls::TlsAcceptor;

/// A running proxy. It goes on until dropped.
pub struct TlsProxy {
    port: u16,
    issuer: String,
    handshakes: Arc<AtomicUsize>,
    accepting: AbortHandle,
}

impl TlsProxy {
    /// Listens on a free port of loopback, proves to be `localhost`, and passes everything on.
    pub async fn start(server: SocketAddr) -> TlsProxy {
        let (config, issuer) = certify("localhost");
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a port is free");
        let port = listener.local_addr().expect("a listener has an address").port();
        let handshakes = Arc::<AtomicUsize>::default();
        let counted = Arc::clone(&handshakes);
        let accepting = tokio::spawn(async move {
            // Dropped with this task, and every connection with it.
            let mut connections = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                let (acceptor, counted) = (acceptor.clone(), Arc::clone(&counted));
                connections.spawn(async move {
                    let mut client = acceptor.accept(client).await?;
                    counted.fetch_add(1, Ordering::Relaxed);
                    let mut server = TcpStream::connect(server).await?;
                    copy_bidirectional(&mut client, &mut server).await
                });
            }
        });
        TlsProxy { port, issuer, handshakes, accepting: accepting.abort_handle() }
    }

    /// Its address by the name that it proves.
    pub fn url(&self) -> String {
        format!("https://localhost:{}", self.port)
    }

    /// Its address by a name that it does not prove.
    pub fn misnamed_url(&self) -> String {
        format!("https://127.0.0.1:{}", self.port)
    }

    /// The certificate of the issuer of its own, in PEM.
    pub fn issuer(&self) -> &str {
        &self.issuer
    }

    /// How many clients trusted it so far.
    pub fn handshakes(&self) -> usize {
        self.handshakes.load(Ordering::Relaxed)
    }
}

impl Drop for TlsProxy {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

/// What a server of this name needs, and whom to trust for it.
fn certify(name: &str) -> (ServerConfig, String) {
    const MADE: &str = "a certificate can be made";
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().expect(MADE));
    let issuer = issuer.expect(MADE);
    let key = KeyPair::generate().expect(MADE);
    let params = CertificateParams::new([name.to_owned()]).expect(MADE);
    let certificate = params.signed_by(&key, &issuer).expect(MADE);
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("ring speaks both")
        .with_no_client_auth()
        .with_single_cert(
            vec![certificate.der().clone()],
            PrivateKeyDer::Pkcs8(key.serialize_der().into()),
        );
    (config.expect("the key is of the certificate"), issuer.pem())
}
