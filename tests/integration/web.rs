//! An exporter with a web configuration, as its clients meet it: over TLS, with passwords and
//! certificates, limited, and while its files change.

use std::net::SocketAddr;

use rcgen::SanType;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::support::authority::{Authority, Client};
use crate::support::exporter::serve;
use crate::support::files::Files;
use crate::support::http::{Response, exchange};
use crate::support::process::{Outcome, run};
use crate::support::{Exporter, Postgres, Prometheus, eventually, locks, require};

/// Nobody is there, which an exporter bears.
const NOWHERE: &str = "postgresql://nobody@127.0.0.1:1/nothing?connect_timeout=1";

/// As curl -u writes it.
fn basic(credentials: &str) -> String {
    use base64::Engine as _;
    format!("Basic {}", base64::prelude::BASE64_STANDARD.encode(credentials))
}

/// A hash of a password, cheap.
fn hash(password: &str) -> String {
    bcrypt::hash(password, 4).expect("it can be hashed")
}

/// An exporter of nothing with this web configuration.
async fn start(path: &str) -> Exporter {
    Exporter::serve(&["--dsn", NOWHERE, "--web.config.file", path]).await
}

/// Asks over TLS; an error is the connection's.
async fn ask(
    client: &Client,
    address: SocketAddr,
    path: &str,
    headers: &str,
) -> std::io::Result<Response> {
    let request =
        format!("GET {path} HTTP/1.1\r\nHost: x.example\r\nConnection: close\r\n{headers}\r\n");
    exchange(client.connect(address).await?, request.as_bytes()).await
}

/// The certificate of a server in a folder, and who issued it.
fn certified(files: &Files) -> Authority {
    let authority = Authority::new();
    let server = authority.issue(&["localhost", "127.0.0.1"]);
    files.write("ca.crt", &authority.pem());
    files.write("server.crt", &server.certificate);
    files.write("server.key", &server.key);
    authority
}

const TLS: &str = "tls_server_config: { cert_file: server.crt, key_file: server.key }\n";

#[tokio::test]
async fn whoever_does_not_log_in_gets_nothing_but_the_probes() {
    let files = Files::new();
    let path = files.write("web.yml", &format!("basic_auth_users: {{ alice: '{}' }}", hash("s:3")));
    let exporter = start(&path).await;
    for path in ["/", "/metrics", "/api/v1/locks", "/api/v1/events", "/nowhere", "/metrics/../x"] {
        for credentials in [None, Some("alice:wrong"), Some("bob:s:3"), Some("alice"), Some("")] {
            let authorization = credentials.map(basic);
            let headers: Vec<_> =
                authorization.iter().map(|value| ("Authorization", value.as_str())).collect();
            let response = exporter.get(path, &headers).await;
            assert_eq!(response.status, 401, "{path} {credentials:?}");
            let challenge = response.header("www-authenticate").expect("there is a challenge");
            assert!(challenge.starts_with("Basic realm="), "{challenge}");
            assert_eq!(response.text(), "log in with a name and a password\n");
        }
    }
    for path in ["/-/healthy", "/-/ready"] {
        assert_ne!(exporter.get(path, &[]).await.status, 401, "{path}");
    }
    let right = basic("alice:s:3");
    for path in ["/", "/metrics", "/api/v1/locks", "/api/v1/events"] {
        assert_eq!(exporter.get(path, &[("Authorization", &right)]).await.status, 200, "{path}");
    }
    let twice = [("Authorization", right.as_str()), ("Authorization", right.as_str())];
    assert_eq!(exporter.get("/metrics", &twice).await.status, 401, "which of them counts?");
    for secret in ["s:3", "wrong", "$2"] {
        assert!(!exporter.log().contains(secret), "{}", exporter.log());
    }
}

#[tokio::test]
async fn who_logged_in_sees_details_under_any_name_of_the_server() {
    require!(Postgres);
    let postgres = Postgres::start().await;
    let _holder = postgres.holds("pod-a", "42").await;
    let files = Files::new();
    let path = files.write("web.yml", &format!("basic_auth_users: {{ alice: '{}' }}", hash("s")));
    let dsn = postgres.dsn("postgres");
    let open = Exporter::watching(&dsn).start().await;
    let guarded =
        Exporter::watching(&dsn).argument("--web.config.file").argument(&path).start().await;
    let right = basic("alice:s");
    // As from another machine, by a name that was never configured.
    let strange = [("X-Forwarded-For", "203.0.113.9"), ("Host", "db-1.example")];
    assert_eq!(open.get("/api/v1/locks", &strange).await.status, 403);
    let headers = [&strange[..], &[("Authorization", right.as_str())]].concat();
    eventually("a poll", async || {
        let open = open.get("/api/v1/locks", &strange[..1]).await;
        let guarded = guarded.get("/api/v1/locks", &headers).await;
        assert!(open.text().contains("pod-a") && !open.text().contains("\"usename\":\"postgres\""));
        assert!(guarded.text().contains("\"usename\":\"postgres\""), "{}", guarded.text());
    })
    .await;
}

#[tokio::test]
async fn over_tls_everything_is_as_in_clear_text_and_clear_text_is_not_answered() {
    let files = Files::new();
    let authority = certified(&files);
    let more = "http_server_config: { headers: { Strict-Transport-Security: max-age=60, \
                X-Frame-Options: deny, Content-Security-Policy: '' } }\n";
    let exporter = start(&files.write("web.yml", &format!("{TLS}{more}"))).await;
    assert_eq!(exporter.logged(&["listening", "tls=true"]).len(), 1, "{}", exporter.log());
    let client = authority.client(None);
    for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
        let client = authority.client(None).speaking(version);
        let response = ask(&client, exporter.address(), "/-/healthy", "").await.unwrap();
        assert_eq!(response.status, 200);
        assert_eq!(response.header("strict-transport-security"), Some("max-age=60"));
        assert_eq!(response.header("x-frame-options"), Some("deny"));
    }
    // Encryption alone proves nobody, so names are checked as before.
    let response = ask(&client, exporter.address(), "/metrics", "").await.unwrap();
    assert_eq!(response.status, 403);
    assert_eq!(response.header("x-frame-options"), Some("deny"), "on every answer");

    let mut clear = TcpStream::connect(exporter.address()).await.unwrap();
    clear.write_all(b"GET /-/healthy HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
    let mut answer = Vec::new();
    let _ = clear.read_to_end(&mut answer).await;
    assert!(!answer.windows(4).any(|window| window == b"HTTP"), "{answer:?}");
}

#[tokio::test]
async fn the_lowest_version_and_the_suites_are_those_of_the_file() {
    let files = Files::new();
    let authority = certified(&files);
    let tls = TLS.replace(" }", ", min_version: TLS13 }");
    let exporter = start(&files.write("web.yml", &tls)).await;
    let old = authority.client(None).speaking(&rustls::version::TLS12);
    assert!(ask(&old, exporter.address(), "/-/healthy", "").await.is_err());
    let client = authority.client(None);
    assert_eq!(ask(&client, exporter.address(), "/-/healthy", "").await.unwrap().status, 200);

    let suite = "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256";
    let more = format!(
        ", max_version: TLS12, cipher_suites: [{suite}], curve_preferences: [CurveP384] }}"
    );
    let exporter = start(&files.write("web.yml", &TLS.replace(" }", &more))).await;
    let stream = client.connect(exporter.address()).await.unwrap();
    let (_, session) = stream.get_ref();
    assert_eq!(format!("{:?}", session.negotiated_cipher_suite().unwrap().suite()), suite);
    let group = session.negotiated_key_exchange_group().unwrap().name();
    assert_eq!(group, rustls::NamedGroup::secp384r1);
    assert_eq!(session.alpn_protocol(), None, "a client that offers none is served");
}

#[tokio::test]
async fn certificates_of_clients_are_asked_for_and_checked_as_the_file_says() {
    let files = Files::new();
    let authority = certified(&files);
    let stranger = Authority::new();
    let scraper = authority.issue_with(
        &["scraper.example", "10.0.0.7"],
        vec![
            SanType::Rfc822Name("ops@example.com".try_into().unwrap()),
            SanType::URI("spiffe://example/scraper".try_into().unwrap()),
        ],
    );
    let forged = stranger.issue(&["scraper.example"]);
    let (nobody, known, unknown) =
        (authority.client(None), authority.client(Some(&scraper)), authority.client(Some(&forged)));
    let ca = "client_ca_file: ca.crt, ";
    // Whether nobody, a known and an unknown certificate come through, and whether that is a login.
    for (more, expected, is_login) in [
        ("client_auth_type: NoClientCert".to_owned(), [true, true, true], false),
        ("client_auth_type: RequestClientCert".to_owned(), [true, true, true], false),
        ("client_auth_type: RequireAnyClientCert".to_owned(), [false, true, true], false),
        (format!("{ca}client_auth_type: VerifyClientCertIfGiven"), [true, true, false], false),
        (format!("{ca}client_auth_type: RequireAndVerifyClientCert"), [false, true, false], true),
        (names(ca, "scraper.example"), [false, true, false], true),
        (names(ca, "10.0.0.7"), [false, true, false], true),
        (names(ca, "ops@example.com"), [false, true, false], true),
        (names(ca, "spiffe://example/scraper"), [false, true, false], true),
        (names(ca, "other.example"), [false, false, false], true),
    ] {
        let tls = TLS.replace(" }", &format!(", {more} }}"));
        let exporter = start(&files.write("web.yml", &tls)).await;
        for (client, expected) in [&nobody, &known, &unknown].into_iter().zip(expected) {
            let healthy = ask(client, exporter.address(), "/-/healthy", "").await;
            assert_eq!(healthy.is_ok(), expected, "{more}: {healthy:?}");
            if expected {
                // By a name that is refused to strangers.
                let metrics = ask(client, exporter.address(), "/metrics", "").await.unwrap();
                assert_eq!(metrics.status == 200, is_login, "{more}: {}", metrics.text());
            }
        }
    }
}

fn names(ca: &str, name: &str) -> String {
    format!("{ca}client_auth_type: RequireAndVerifyClientCert, client_allowed_sans: ['{name}']")
}

#[tokio::test]
async fn what_is_over_the_rate_is_told_when_to_come_again_and_probes_are_not_counted() {
    let files = Files::new();
    let path = files.write("web.yml", "rate_limit: { interval: 1h, burst: 3 }");
    let exporter = start(&path).await;
    for _ in 0..5 {
        assert_eq!(exporter.get("/-/healthy", &[]).await.status, 200);
    }
    for _ in 0..3 {
        assert_eq!(exporter.get("/metrics", &[]).await.status, 200);
    }
    let response = exporter.get("/metrics", &[]).await;
    assert_eq!(response.status, 429);
    let seconds: u64 = response.header("retry-after").unwrap().parse().unwrap();
    assert!((3500..=3600).contains(&seconds), "{seconds}");
    assert_eq!(exporter.get("/-/healthy", &[]).await.status, 200);
}

#[tokio::test]
async fn users_and_certificates_change_without_a_restart() {
    let files = Files::new();
    let authority = certified(&files);
    let users = |name: &str| format!("{TLS}basic_auth_users: {{ {name}: '{}' }}\n", hash("s"));
    let exporter = start(&files.write("web.yml", &users("alice"))).await;
    let address = exporter.address();
    let client = authority.client(None);
    let login = |name: &str| format!("Authorization: {}\r\n", basic(&format!("{name}:s")));
    let status =
        async |name: &str| ask(&client, address, "/metrics", &login(name)).await.unwrap().status;
    assert_eq!((status("alice").await, status("bob").await), (200, 401));
    // A connection that lasts, over the change.
    let mut lasting = client.connect(address).await.unwrap();

    files.write("web.yml", &users("bob"));
    eventually("bob replaces alice", async || {
        assert_eq!((status("alice").await, status("bob").await), (401, 200));
    })
    .await;
    let request = format!("GET /metrics HTTP/1.1\r\nHost: localhost\r\n{}\r\n", login("alice"));
    // Unless it was idle for so long that it was cut.
    if lasting.write_all(request.as_bytes()).await.is_ok() {
        let mut answer = Vec::new();
        let _ = lasting.read_to_end(&mut answer).await;
        let answer = String::from_utf8_lossy(&answer);
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 401"), "{answer}");
    }

    let before = client.connect(address).await.unwrap();
    let certificate_of = |stream: &tokio_rustls::client::TlsStream<TcpStream>| {
        stream.get_ref().1.peer_certificates().unwrap()[0].to_vec()
    };
    let renewed = authority.issue(&["localhost"]);
    files.write("server.key", &renewed.key);
    files.write("server.crt", &renewed.certificate);
    eventually("the new certificate is served", async || {
        let after = client.connect(address).await.unwrap();
        assert_ne!(certificate_of(&before), certificate_of(&after));
    })
    .await;
    assert_eq!(status("bob").await, 200);
    let reread = exporter.logged(&["the web configuration was read again", "users=1", "tls=true"]);
    assert_eq!(reread.len(), 2, "{}", exporter.log());
}

#[tokio::test]
async fn a_file_that_is_broken_or_takes_protection_away_changes_nothing_and_is_told_once() {
    let files = Files::new();
    let authority = certified(&files);
    let good = format!("{TLS}basic_auth_users: {{ alice: '{}' }}\n", hash("s"));
    let path = files.write("web.yml", &good);
    let exporter = start(&path).await;
    let client = authority.client(None);
    let right = format!("Authorization: {}\r\n", basic("alice:s"));
    let statuses = async || {
        let with = ask(&client, exporter.address(), "/metrics", &right).await.unwrap();
        let without = ask(&client, exporter.address(), "/metrics", "").await.unwrap();
        (with.status, without.status)
    };
    let back = "the web configuration was read again";
    for (round, (text, fault)) in [
        ("", "takes TLS away, which needs a restart; what was read before stays in use"),
        ("basic_auth_users: { alice: canary }", "not a bcrypt hash"),
    ]
    .into_iter()
    .enumerate()
    {
        files.write("web.yml", text);
        eventually("the mistake is told", async || {
            let told = exporter.logged(&[&path, fault, "stays in use", "level=error"]);
            assert_eq!(told.len(), 1, "{text}\n{}", exporter.log());
        })
        .await;
        assert_eq!(statuses().await, (200, 401), "{text}");
        files.write("web.yml", &good);
        eventually("what was good is read again", async || {
            assert_eq!(exporter.logged(&[back]).len(), round + 1, "{}", exporter.log());
        })
        .await;
    }
    assert!(!exporter.log().contains("canary"), "{}", exporter.log());
}

#[tokio::test]
async fn a_mistake_at_the_start_is_told_before_a_port_is_bound() {
    let files = Files::new();
    let path = files.write("web.yml", "basic_auth_users:\n  alice: canary\n");
    for flags in [
        &["--web.config.file", path.as_str()][..],
        &["--web.config.file", path.as_str(), "--web.systemd-socket"],
    ] {
        let outcome: Outcome = run(serve(&[&["--dsn", NOWHERE], flags].concat())).await;
        assert_eq!(outcome.code, Some(2), "{}", outcome.stderr);
        let told = format!("locks: {path}:2:10: not a bcrypt hash");
        assert!(outcome.stderr.contains(&told), "{}", outcome.stderr);
        assert!(!outcome.stderr.contains("listening") && !outcome.stderr.contains("canary"));
    }
}

#[tokio::test]
async fn it_listens_on_loopback_unless_told_otherwise_and_says_who_can_read() {
    let outcome = run(locks(&["serve", "--help"])).await;
    assert!(outcome.stdout.contains("[default: 127.0.0.1:10187]"), "{}", outcome.stdout);

    let open = "whoever reaches this address can read";
    let local = Exporter::serve(&["--dsn", NOWHERE]).await;
    assert_eq!(local.logged(&[open]).len(), 0, "{}", local.log());
    let mut command = locks(&["serve", "--dsn", NOWHERE, "--web.listen-address", "0.0.0.0:0"]);
    let public = Exporter::start(command).await;
    assert_eq!(public.logged(&[open, "level=info"]).len(), 1, "{}", public.log());

    let files = Files::new();
    let path = files.write("web.yml", &format!("basic_auth_users: {{ alice: '{}' }}", hash("s")));
    command = locks(&["serve", "--dsn", NOWHERE, "--web.listen-address", ":0"]);
    command.env("LOCKS_WEB_CONFIG_FILE", &path);
    let guarded = Exporter::start(command).await;
    assert_eq!(guarded.logged(&[open]).len(), 0, "{}", guarded.log());
}

#[tokio::test]
async fn our_own_commands_log_in_over_tls() {
    require!(Postgres);
    let postgres = Postgres::start().await;
    let _holder = postgres.holds("pod-a", "42").await;
    let files = Files::new();
    let _authority = certified(&files);
    let text = format!("{TLS}basic_auth_users: {{ alice: '{}' }}\n", hash("p@ss"));
    let path = files.write("web.yml", &text);
    let exporter = Exporter::watching(&postgres.dsn("postgres"))
        .argument("--web.config.file")
        .argument(&path)
        .start()
        .await;
    let at =
        |credentials: &str| format!("https://{credentials}localhost:{}", exporter.address().port());
    let ca = files.path("ca.crt").display().to_string();
    let check = async |url: &str| {
        let arguments = ["check", "--interval", "20ms", "--from", url, "--from.ca-file", &ca];
        run(locks(&arguments)).await
    };
    let outcome = eventually("a poll", async || {
        let outcome = check(&at("alice:p%40ss@")).await;
        assert_eq!(outcome.code, Some(0), "{}", outcome.stdout);
        outcome
    })
    .await;
    assert!(outcome.stdout.starts_with("LOCKS OK - no findings"), "{}", outcome.stdout);
    let top = ["top", "--once", "--from", &at("alice:p%40ss@"), "--from.ca-file", &ca];
    let outcome = run(locks(&top)).await;
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    assert!(outcome.stdout.contains("pod-a"), "{}", outcome.stdout);
    for credentials in ["", "alice:wrong@"] {
        let outcome = check(&at(credentials)).await;
        assert_eq!(outcome.code, Some(3), "{}", outcome.stdout);
        assert!(outcome.stdout.contains("401"), "{}", outcome.stdout);
        assert!(!outcome.stdout.contains("wrong"), "{}", outcome.stdout);
    }
}

#[tokio::test]
async fn prometheus_scrapes_over_tls_with_a_password_as_documented() {
    require!(Prometheus);
    let files = Files::new();
    let _authority = certified(&files);
    let text = format!("{TLS}basic_auth_users: {{ prometheus: '{}' }}\n", hash("secret"));
    let exporter = start(&files.write("web.yml", &text)).await;
    let ca = std::fs::read_to_string(files.path("ca.crt")).expect("it is there");
    let documented = include_str!("../../docs/web.md");
    let block =
        documented.split("```yaml scrape\n").nth(1).and_then(|rest| rest.split("```").next());
    let mut jobs: serde_json::Value =
        serde_saphyr::from_str(block.expect("there is an example")).expect("it is YAML");
    let job = &mut jobs["scrape_configs"][0];
    let targets = [exporter.address()];
    job["static_configs"] = serde_json::json!([{ "targets": targets }]);
    let beside = [("ca.crt", ca.as_str()), ("password", "secret")];
    let prometheus = Prometheus::start_with_job(&targets, job, &beside).await;
    eventually("a scrape", async || {
        let up = prometheus.query("up{job=\"locks\"}").await;
        assert_eq!(up.iter().map(|(_, value)| *value).collect::<Vec<_>>(), [1.0]);
        assert!(!prometheus.query("pg_advisory_up").await.is_empty());
    })
    .await;
}
