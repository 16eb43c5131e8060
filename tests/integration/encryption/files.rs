//! The files that a connection reads: when, in which forms, and whose certificates the system's are.

use std::ffi::OsString;

use super::*;
use crate::support::tls::TlsProxy;

/// One key in the forms that openssl writes.
const KEY: &str = include_str!("recipe-server.key");
const PKCS1_KEY: &str = include_str!("recipe-server.pkcs1.key");
const ENCRYPTED_KEY: &str = include_str!("recipe-server.encrypted.key");
const SEC1_KEY: &str = "-----BEGIN EC PARAMETERS-----
BggqhkjOPQMBBw==
-----END EC PARAMETERS-----
";

struct Asked {
    code: Option<i32>,
    said: String,
}

/// One look of the binary's.
async fn look(conninfo: &str, environment: &[(&str, OsString)]) -> Asked {
    let mut command = locks(&["top", "--once", "--json", "--exporter", "none", "--dsn", conninfo]);
    command.env_remove("SSL_CERT_FILE").env_remove("SSL_CERT_DIR").env("HOME", "/nowhere");
    command.envs(environment.iter().cloned()).stdin(Stdio::null());
    let outcome = run(command).await;
    Asked { code: outcome.code, said: outcome.stderr }
}

#[tokio::test]
async fn keys_are_read_in_every_form_without_a_password() {
    require!(Postgres);
    let (ca, clients) = (Ca::new("ca"), Ca::new("ca of the clients"));
    let postgres = serve(&ca.certify(&["localhost"]), &clients.pem()).await;
    let files = Files::new();
    let certify = |key: &KeyPair| {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, "certified");
        params.signed_by(key, &clients.0).unwrap().pem()
    };
    let of_rsa = certify(&KeyPair::from_pem(KEY).unwrap());
    let curve = KeyPair::generate().unwrap();
    let of_curve = certify(&curve);
    let sec1 = SEC1_KEY.to_owned() + &sec1_of(&curve);
    let stranger = KeyPair::generate().unwrap().serialize_pem();
    for (name, cert, key, said) in [
        ("pkcs8", &of_rsa, KEY, None),
        ("pkcs1", &of_rsa, PKCS1_KEY, None),
        ("sec1", &of_curve, &*sec1, None),
        ("encrypted", &of_rsa, ENCRYPTED_KEY, Some("is encrypted, which is not supported")),
        ("another", &of_rsa, &*stranger, Some("and its key cannot be used: ")),
        ("none", &of_rsa, "no key", Some("holds no private key in PEM that can be used")),
    ] {
        let cert = files.write(&format!("{name}.crt"), cert);
        let path = files.path(&format!("{name}.key"));
        write_private(&path, key);
        let asked = look(
            &format!(
                "host=localhost port={} dbname=app user=certified sslmode=require sslcert={cert} \
                 sslkey={}",
                postgres.port(),
                path.display()
            ),
            &[],
        )
        .await;
        match said {
            None => assert_eq!(asked.code, Some(0), "{name}: {}", asked.said),
            Some(said) => {
                assert_ne!(asked.code, Some(0), "{name}");
                assert!(asked.said.contains(said), "{name}: {}", asked.said);
            }
        }
    }
}

/// The same key in the form of SEC 1, which is inside of PKCS #8.
fn sec1_of(key: &KeyPair) -> String {
    use base64::prelude::{BASE64_STANDARD, Engine as _};
    let der = key.serialize_der();
    // ECPrivateKey begins with its version, 1; the outer one begins with 0.
    let start = der.windows(5).position(|bytes| bytes[0] == 0x30 && bytes[2..] == [2, 1, 1]);
    let start = start.expect("a key of a curve holds an ECPrivateKey");
    let end = start + 2 + usize::from(der[start + 1]);
    let text = BASE64_STANDARD.encode(&der[start..end]);
    format!("-----BEGIN EC PRIVATE KEY-----\n{text}\n-----END EC PRIVATE KEY-----\n")
}

#[tokio::test]
async fn the_certificates_of_the_system_are_checked_with_the_name() {
    require!(Postgres);
    let (ca, other) = (Ca::new("ca of everybody"), Ca::new("another ca"));
    let postgres = serve(&ca.certify(&["localhost"]), &ca.pem()).await;
    let files = Files::new();
    let ours = files.write("ours.crt", &ca.pem());
    let others = files.write("others.crt", &other.pem());
    let port = postgres.port();
    let system = |host: &str, rest: &str| {
        format!("host={host} port={port} dbname=app user=postgres sslrootcert=system{rest}")
    };
    let strong = system("localhost", "");
    let trusting = |file: &str| [("SSL_CERT_FILE", OsString::from(file))];
    let cases = [
        (strong.clone(), &*ours, None),
        (strong, &*others, Some("is not in the certificates of this machine")),
        (system("127.0.0.1", ""), &*ours, Some("for localhost, not for 127.0.0.1")),
        (system("localhost", " sslmode=verify-ca"), &*ours, Some("wants sslmode=verify-full")),
        (system("localhost", " sslmode=prefer"), &*ours, Some("wants sslmode=verify-full")),
    ];
    for (conninfo, file, said) in cases {
        let asked = look(&conninfo, &trusting(file)).await;
        match said {
            None => assert_eq!(asked.code, Some(0), "{conninfo}: {}", asked.said),
            Some(said) => {
                assert_ne!(asked.code, Some(0), "{conninfo}");
                assert!(asked.said.contains(said), "{conninfo}: {}", asked.said);
            }
        }
    }
}

#[tokio::test]
async fn certificates_and_keys_are_read_again_at_every_connect() {
    require!(Postgres);
    let (ca, clients, stranger) = (Ca::new("ca"), Ca::new("clients"), Ca::new("strangers"));
    let postgres = serve(&ca.certify(&["localhost"]), &clients.pem()).await;
    let files = Files::new();
    let (good, bad) = (clients.certify(&["certified"]), stranger.certify(&["certified"]));
    let root = files.write("root.crt", &stranger.pem());
    let cert = files.write("client.crt", &bad.cert);
    let key = files.path("client.key");
    write_private(&key, &bad.key);
    let dsn = format!(
        "host=localhost port={} dbname=app user=certified sslmode=verify-full sslrootcert={root} \
         sslcert={cert} sslkey={}",
        postgres.port(),
        key.display()
    );
    let exporter = Exporter::watching(&dsn).start().await;
    eventually("the log says why", async || {
        assert!(exporter.log().contains("its issuer (CN=ca) is not in "), "{}", exporter.log());
    })
    .await;
    files.write("root.crt", &ca.pem());
    files.write("client.crt", &good.cert);
    write_private(&key, &good.key);
    eventually("it is connected", async || {
        exporter.scrape().await.sample("pg_advisory_up").is(1.0);
    })
    .await;

    files.write("root.crt", &stranger.pem());
    let session = postgres.session("operator").await;
    session
        .run("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'certified'")
        .await;
    eventually("it is not let in again", async || {
        exporter.scrape().await.sample("pg_advisory_up").is(0.0);
    })
    .await;
}

#[tokio::test]
async fn tls_that_comes_first_is_only_for_servers_that_say_they_are_postgresql() {
    require!(Postgres);
    let ca = Ca::new("ca");
    let postgres = serve(&ca.certify(&["localhost"]), &ca.pem()).await;
    let files = Files::new();
    let root = files.write("root.crt", &ca.pem());
    let rest = "dbname=app user=postgres sslmode=verify-full sslnegotiation=direct";
    let direct = format!("host=localhost port={} {rest} sslrootcert={root}", postgres.port());
    let asked = look(&direct, &[]).await;
    if postgres.major_version() >= 17 {
        assert_eq!(asked.code, Some(0), "{}", asked.said);
        assert!(postgres.log().contains("SSL enabled"), "{}", postgres.log());
    } else {
        assert_ne!(asked.code, Some(0), "a server before 17 reads the handshake as something else");
    }

    // It has a certificate that is trusted, and passes on whatever it is told.
    let proxy = TlsProxy::start(([127, 0, 0, 1], postgres.port()).into()).await;
    let port = proxy.url().rsplit_once(':').unwrap().1.to_owned();
    let root = files.write("proxy.crt", proxy.issuer());
    let asked = look(&format!("host=localhost port={port} {rest} sslrootcert={root}"), &[]).await;
    assert_ne!(asked.code, Some(0));
    assert!(asked.said.contains("the server does not say that it is PostgreSQL"), "{}", asked.said);
}
