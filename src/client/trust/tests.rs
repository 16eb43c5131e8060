//! Against real servers of TLS, each with a certificate made for the test.

use std::error::Error as _;
use std::fs;
use std::iter::successors;
use std::path::PathBuf;
use std::sync::Arc;

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, date_time_ymd,
};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::ServerConfig;
use rustls::{SupportedProtocolVersion, crypto, version};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio_rustls::TlsAcceptor;

use super::super::{Exporter, ReadError};
use super::TrustError;

const ALL: &[&SupportedProtocolVersion] = &[&version::TLS12, &version::TLS13];

const EMPTY: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 25\r\n\r\n{\"schema\":1,\"servers\":[]}";

/// What a server came to know.
#[derive(Debug, PartialEq, Eq)]
enum Seen {
    /// Of a handshake that was completed: the name asked for, and the protocol agreed upon.
    Client(Option<String>, Option<Vec<u8>>),
    /// The head of a request.
    Request(String),
    /// A handshake or a connection came to an end.
    End,
}

/// Who signs certificates, and the file to trust them by.
struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    files: TempDir,
}

impl Authority {
    fn new(name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        Self { issuer, files: tempfile::tempdir().unwrap() }
    }

    fn file(&self, text: &str) -> PathBuf {
        let path = self.files.path().join("ca.pem");
        fs::write(&path, text).unwrap();
        path
    }

    /// A certificate for these names.
    fn sign(&self, names: &[&str], change: fn(&mut CertificateParams)) -> Certified {
        let key = KeyPair::generate().unwrap();
        let certificate = params(names, change).signed_by(&key, &self.issuer).unwrap();
        Certified::of(certificate.der(), &key)
    }
}

struct Certified(CertificateDer<'static>, PrivateKeyDer<'static>);

impl Certified {
    fn of(certificate: &CertificateDer<'static>, key: &KeyPair) -> Self {
        Self(certificate.clone(), PrivateKeyDer::Pkcs8(key.serialize_der().into()))
    }

    fn signed_by_itself(change: fn(&mut CertificateParams)) -> Self {
        let key = KeyPair::generate().unwrap();
        let certificate = params(&["localhost"], change).self_signed(&key).unwrap();
        Self::of(certificate.der(), &key)
    }
}

fn params(names: &[&str], change: fn(&mut CertificateParams)) -> CertificateParams {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let mut params = CertificateParams::new(names).unwrap();
    change(&mut params);
    params
}

/// Answers every request on every connection with no locks at all. Gives its port and what it sees.
async fn serve(
    Certified(certificate, key): Certified,
    versions: &[&'static SupportedProtocolVersion],
) -> (u16, mpsc::UnboundedReceiver<Seen>) {
    let provider = Arc::new(crypto::ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(versions)
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .unwrap();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let (seen, told) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(answer(acceptor.clone(), stream, seen.clone()));
        }
    });
    (port, told)
}

async fn answer(acceptor: TlsAcceptor, stream: TcpStream, seen: mpsc::UnboundedSender<Seen>) {
    let Ok(mut stream) = acceptor.accept(stream).await else {
        let _ = seen.send(Seen::End);
        return;
    };
    let (_, connection) = stream.get_ref();
    let name = connection.server_name().map(str::to_owned);
    let protocol = connection.alpn_protocol().map(<[u8]>::to_vec);
    let _ = seen.send(Seen::Client(name, protocol));
    let mut head = Vec::new();
    while let Ok(byte) = stream.read_u8().await {
        head.push(byte);
        if head.ends_with(b"\r\n\r\n") {
            let request = String::from_utf8(std::mem::take(&mut head)).unwrap();
            let _ = seen.send(Seen::Request(request));
            if stream.write_all(EMPTY).await.is_err() {
                break;
            }
        }
    }
    let _ = seen.send(Seen::End);
}

/// The error and its causes, as `main` prints them. No password is in any form of it.
fn render_chain(error: &ReadError) -> String {
    let debug = format!("{error:?}");
    let mut chain = error.to_string();
    for cause in successors(error.source(), |&cause| cause.source()) {
        chain.push_str(&format!(": {cause}"));
    }
    assert!(!debug.contains("S3cr3t") && !chain.contains("S3cr3t"), "{debug} {chain}");
    chain
}

fn exporter(host: &str, port: u16, authority: &Authority) -> Exporter {
    let file = authority.file(&authority.issuer.pem());
    let url = format!("https://me:S3cr3t@{host}:{port}");
    Exporter::parse(&url).unwrap().with_trust(Some(&file)).unwrap()
}

#[tokio::test]
async fn who_proves_a_name_or_an_address_is_read_in_either_version_on_one_connection() {
    let authority = Authority::new("ours");
    for (host, name) in [("localhost", Some("localhost".to_owned())), ("127.0.0.1", None)] {
        for version in ALL {
            let certified = authority.sign(&["localhost", "127.0.0.1"], |_| {});
            let (port, mut seen) = serve(certified, &[version]).await;
            let exporter = exporter(host, port, &authority);
            for _ in 0..2 {
                assert!(exporter.fetch_snapshot().await.unwrap().servers.is_empty());
            }
            let client = seen.recv().await.unwrap();
            assert_eq!(client, Seen::Client(name.clone(), Some(b"http/1.1".to_vec())));
            for _ in 0..2 {
                let Some(Seen::Request(request)) = seen.recv().await else { panic!("{host}") };
                assert!(request.contains("authorization: Basic bWU6UzNjcjN0\r\n"), "{request}");
                assert!(request.contains(&format!("host: {host}:{port}\r\n")), "{request}");
            }
            drop(exporter);
            assert_eq!(seen.recv().await, Some(Seen::End));
        }
    }
}

#[tokio::test]
async fn who_does_not_prove_the_name_gets_no_request_and_the_step_and_the_mend_are_told() {
    let ours = Authority::new("ours");
    let cases: [(Certified, &str, &[&str]); 8] = [
        (
            Authority::new("ours").sign(&["localhost"], |_| {}),
            "its certificate is of nobody that is trusted here: ",
            &["BadSignature"],
        ),
        (
            Authority::new("another").sign(&["localhost"], |_| {}),
            "its certificate is of nobody that is trusted here: name its issuer's with \
             --from.ca-file or SSL_CERT_FILE: ",
            &["UnknownIssuer"],
        ),
        (
            Certified::signed_by_itself(|_| {}),
            "its certificate is of nobody that is trusted here: ",
            &["UnknownIssuer"],
        ),
        (
            Certified::signed_by_itself(|params| {
                params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            }),
            "its certificate is one for issuing others (CA:TRUE), which is not accepted",
            &["CaUsedAsEndEntity"],
        ),
        (
            ours.sign(&["db-1.example", "10.0.0.1"], |_| {}),
            "its certificate is for another name: use that name in the address: ",
            &["db-1.example", "10.0.0.1"],
        ),
        (
            ours.sign(&[], |_| {}),
            "its certificate is for another name: use that name in the address: ",
            &["not valid for any names"],
        ),
        (
            ours.sign(&["localhost"], |params| {
                params.not_before = date_time_ymd(2001, 1, 1);
                params.not_after = date_time_ymd(2002, 1, 1);
            }),
            "its certificate has expired, or the clock of this machine is wrong: ",
            &["expired"],
        ),
        (
            ours.sign(&["localhost"], |params| {
                params.not_before = date_time_ymd(4001, 1, 1);
                params.not_after = date_time_ymd(4002, 1, 1);
            }),
            "its certificate is not valid yet, or the clock of this machine is wrong: ",
            &["not valid yet"],
        ),
    ];
    for (certified, mend, causes) in cases {
        let (port, mut seen) = serve(certified, ALL).await;
        let error = exporter("localhost", port, &ours).fetch_snapshot().await.unwrap_err();
        let said = render_chain(&error);
        assert!(said.starts_with(&format!("the TLS handshake failed: {mend}")), "{said}");
        assert!(causes.iter().all(|cause| said.contains(cause)), "{said}");
        // The server may take its part of the handshake for done: no request follows in any case.
        while let Some(seen) = seen.recv().await {
            assert!(!matches!(seen, Seen::Request(_)), "{seen:?}");
            if seen == Seen::End {
                break;
            }
        }
    }
}

#[tokio::test]
async fn who_does_not_speak_tls_is_not_asked_and_http_is_suggested() {
    let authority = Authority::new("ours");
    for answer in ["HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n", "SSH-2.0-x\r\n", ""] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let asked = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut asked = vec![0; 1024];
            let length = stream.read(&mut asked).await.unwrap();
            stream.write_all(answer.as_bytes()).await.unwrap();
            stream.shutdown().await.unwrap();
            asked.truncate(length);
            // The rest of what comes.
            let _ = stream.read_to_end(&mut asked).await;
            asked
        });
        let error = exporter("localhost", port, &authority).fetch_snapshot().await.unwrap_err();
        let said = render_chain(&error);
        let expected = "the TLS handshake failed: is there a server without TLS at this port, for \
                        http://?: ";
        assert!(said.starts_with(expected), "{answer:?}: {said}");
        let asked = String::from_utf8_lossy(&asked.await.unwrap()).into_owned();
        assert!(!asked.contains("GET") && !asked.contains("Basic"), "{asked:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn who_hangs_in_the_handshake_is_not_waited_for() {
    let authority = Authority::new("ours");
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let error = exporter("127.0.0.1", port, &authority).fetch_snapshot().await.unwrap_err();
    assert_eq!(render_chain(&error), "the TLS handshake failed: no answer to it within 10 s");
}

#[tokio::test]
async fn all_certificates_of_the_file_are_trusted_and_no_others() {
    let [one, two, other] = ["one", "two", "other"].map(Authority::new);
    let file = one.file(&format!("# ours\n{}\n{}", one.issuer.pem(), two.issuer.pem()));
    for (authority, is_trusted) in [(&one, true), (&two, true), (&other, false)] {
        let (port, _seen) = serve(authority.sign(&["localhost"], |_| {}), ALL).await;
        let exporter = Exporter::parse(&format!("https://localhost:{port}")).unwrap();
        let exporter = exporter.with_trust(Some(&file)).unwrap();
        assert_eq!(exporter.fetch_snapshot().await.is_ok(), is_trusted);
    }
}

#[test]
fn a_file_that_names_nobody_is_refused_with_its_path() {
    let authority = Authority::new("ours");
    let pem = authority.issuer.pem();
    let key = KeyPair::generate().unwrap().serialize_pem();
    let garbage = "-----BEGIN CERTIFICATE-----\naGVsbG8=\n-----END CERTIFICATE-----\n";
    let exporter = Exporter::parse("https://db-1").unwrap();
    for (text, said) in [
        ("", "there is no certificate in "),
        ("not PEM at all\n", "there is no certificate in "),
        (&key, "there is no certificate in "),
        (&pem[..pem.len() / 2], "cannot read certificates as PEM from "),
        (&pem.replace("MII", "M*I"), "cannot read certificates as PEM from "),
        (garbage, "a certificate in "),
        (&format!("{pem}{garbage}"), "a certificate in "),
    ] {
        let file = authority.file(text);
        let error = exporter.clone().with_trust(Some(&file)).unwrap_err();
        let expected = format!("{said}{}", file.display());
        assert!(error.to_string().starts_with(&expected), "{text:?}: {error}");
    }
    let nowhere = authority.files.path().join("nowhere.pem");
    let error = exporter.clone().with_trust(Some(&nowhere)).unwrap_err();
    assert!(matches!(error, TrustError::File { .. }), "{error:?}");
    // A mistake is one however little depends on it.
    let plain = Exporter::parse("http://db-1").unwrap();
    assert!(plain.with_trust(Some(&nowhere)).is_err());
}
