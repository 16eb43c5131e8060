//! Clients that mean harm or know no better, against a real process: what they hold is bounded, and
//! whoever scrapes is answered meanwhile.

use std::fs;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::support::authority::Authority;
use crate::support::files::Files;
use crate::support::http::{exchange, get};
use crate::support::{DEADLINE, Exporter, Postgres, eventually, require};

const NOWHERE: &str = "postgresql://nobody@127.0.0.1:1/nothing?connect_timeout=1";

/// As long as Prometheus waits for a scrape, unless it is told otherwise.
const SCRAPE_TIMEOUT: Duration = Duration::from_secs(10);

/// More than any exporter is asked by those who mean well.
const CROWD: usize = 1000;

/// Before it reads nothing more.
const LIMIT: usize = 100;

/// Holds this many connections open, and opens each again that is cut. Each says `sent` and then
/// nothing, and reads nothing.
fn besiege(address: SocketAddr, sent: &'static str) -> JoinSet<()> {
    // One for each connection, beside those of the test.
    let limits = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let raised = rustix::process::Rlimit { current: limits.maximum, ..limits };
    rustix::process::setrlimit(rustix::process::Resource::Nofile, raised)
        .expect("a soft limit may be raised to the hard one");
    let mut crowd = JoinSet::new();
    for _ in 0..CROWD {
        crowd.spawn(async move {
            loop {
                let Ok(mut stream) = TcpStream::connect(address).await else { continue };
                let _ = stream.write_all(sent.as_bytes()).await;
                if sent.ends_with("\r\n\r\n") {
                    // Its answer is left where it is; only the end of the connection is waited for.
                    let _ = stream.ready(tokio::io::Interest::ERROR).await;
                } else {
                    let _ = stream.read_to_end(&mut Vec::new()).await;
                }
                // Whoever lays siege has time.
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        });
    }
    crowd
}

/// The memory of a process that is in use, in bytes.
fn resident(id: u32) -> usize {
    let status = fs::read_to_string(format!("/proc/{id}/status")).expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("it has some");
    let kilobytes: usize = line.trim().trim_end_matches(" kB").parse().expect("a number");
    kilobytes * 1024
}

fn sockets(id: u32) -> usize {
    let files = fs::read_dir(format!("/proc/{id}/fd")).expect("it runs").filter_map(Result::ok);
    let links = files.filter_map(|file| fs::read_link(file.path()).ok());
    links.filter(|link| link.to_string_lossy().starts_with("socket:")).count()
}

/// Scrapes some times while the crowd is there, and looks at what it costs.
async fn assert_answers_besieged(exporter: &Exporter, sent: &'static str) {
    let before = resident(exporter.id());
    let crowd = besiege(exporter.address(), sent);
    eventually("all places are taken", async || {
        assert!(sockets(exporter.id()) >= LIMIT, "{}", sockets(exporter.id()));
    })
    .await;
    for scrape in 0..10 {
        let asked = tokio::time::timeout(SCRAPE_TIMEOUT, exporter.get("/metrics", &[])).await;
        let response = asked.unwrap_or_else(|_| panic!("scrape {scrape} was not answered in time"));
        assert_eq!(response.status, 200);
        assert!(sockets(exporter.id()) <= LIMIT + 10, "{} sockets", sockets(exporter.id()));
    }
    let grown = resident(exporter.id()).saturating_sub(before);
    assert!(grown < 32 << 20, "{grown} bytes more");
    assert_eq!(crowd.len(), CROWD);
}

#[tokio::test]
async fn a_thousand_connections_that_say_nothing_keep_no_scrape_out() {
    let exporter = Exporter::serve(&["--dsn", NOWHERE]).await;
    assert_answers_besieged(&exporter, "").await;
}

#[tokio::test]
async fn a_thousand_connections_in_the_middle_of_a_head_keep_no_scrape_out() {
    let exporter = Exporter::serve(&["--dsn", NOWHERE]).await;
    assert_answers_besieged(&exporter, "GET /metrics HTTP/1.1\r\nHost: x\r\n").await;
}

#[tokio::test]
async fn a_thousand_connections_that_never_read_keep_no_scrape_out() {
    let exporter = Exporter::serve(&["--dsn", NOWHERE]).await;
    let asked = "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n";
    assert_answers_besieged(&exporter, asked).await;
}

#[tokio::test]
async fn a_thousand_handshakes_that_never_end_keep_no_scrape_out() {
    let files = Files::new();
    let authority = Authority::new();
    let server = authority.issue(&["localhost"]);
    files.write("server.crt", &server.certificate);
    files.write("server.key", &server.key);
    let text = "tls_server_config: { cert_file: server.crt, key_file: server.key }";
    let path = files.write("web.yml", text);
    let exporter = Exporter::serve(&["--dsn", NOWHERE, "--web.config.file", &path]).await;
    let crowd = besiege(exporter.address(), "\x16\x03\x01\x02\x00\x01");
    eventually("all places are taken", async || {
        assert!(sockets(exporter.id()) >= LIMIT, "{}", sockets(exporter.id()));
    })
    .await;
    let client = authority.client(None);
    for scrape in 0..10 {
        let asking = async {
            let stream = client.connect(exporter.address()).await?;
            let request = "GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
            exchange(stream, request.as_bytes()).await
        };
        let asked = tokio::time::timeout(SCRAPE_TIMEOUT, asking).await;
        let response = asked.unwrap_or_else(|_| panic!("scrape {scrape} was not answered in time"));
        assert_eq!(response.unwrap().status, 200);
        assert!(sockets(exporter.id()) <= LIMIT + 10, "{} sockets", sockets(exporter.id()));
    }
    drop(crowd);

    let mut silent = TcpStream::connect(exporter.address()).await.unwrap();
    let ended = tokio::time::timeout(DEADLINE, silent.read_to_end(&mut Vec::new())).await;
    assert!(ended.is_ok(), "a handshake that never begins is cut");
}

/// Sends these bytes and reads until the server ends the connection, or has answered so often.
async fn say(address: SocketAddr, bytes: &[u8], answers: usize) -> String {
    let mut stream = TcpStream::connect(address).await.expect("it listens");
    let _ = stream.write_all(bytes).await;
    let mut heard = Vec::new();
    let listening = async {
        let mut piece = [0; 4096];
        while let Ok(length) = stream.read(&mut piece).await {
            heard.extend_from_slice(&piece[..length]);
            let heard = String::from_utf8_lossy(&heard);
            if length == 0 || heard.matches("HTTP/1.1 ").count() >= answers {
                break;
            }
        }
    };
    tokio::time::timeout(DEADLINE, listening).await.expect("it answers, or ends the connection");
    String::from_utf8_lossy(&heard).into_owned()
}

#[tokio::test]
async fn what_is_no_proper_request_is_refused_and_harms_nobody() {
    let exporter = Exporter::serve(&["--dsn", NOWHERE]).await;
    let address = exporter.address();
    let long = "x".repeat(64 << 10);
    let many: String = (0..200).map(|number| format!("X-{number}: x\r\n")).collect();
    let head = |more: &str| format!("GET /-/healthy HTTP/1.1\r\nHost: localhost\r\n{more}\r\n");
    for (what, sent, status) in [
        ("a long header", head(&format!("X-Long: {long}\r\n")), "431"),
        ("many headers", head(&many), "431"),
        ("a long line", format!("GET /{long} HTTP/1.1\r\nHost: localhost\r\n\r\n"), "4"),
        ("no HTTP", "\x00\x01\x02 garbage\r\n\r\n".to_owned(), "400"),
        ("TLS", "\x16\x03\x01\x02\x00\x01\r\n\r\n".to_owned(), "400"),
        ("another protocol", "SSH-2.0-client\r\n\r\n".to_owned(), "400"),
        ("two lengths", head("Content-Length: 1\r\nContent-Length: 2\r\n"), "400"),
        ("a header without a name", head(": x\r\n"), "400"),
        ("a folded header", head("X-A: b\r\n c\r\n"), "400"),
        ("an upgrade", head("Connection: Upgrade\r\nUpgrade: h2c\r\n"), "200"),
        ("a body that was not asked for", head("Content-Length: 4\r\n") + "body", "200"),
        ("a body that never comes", head("Content-Length: 9000000\r\n"), "200"),
        ("a tunnel", "CONNECT db:5432 HTTP/1.1\r\nHost: localhost\r\n\r\n".to_owned(), "405"),
    ] {
        let heard = say(address, sent.as_bytes(), 1).await;
        assert!(heard.starts_with(&format!("HTTP/1.1 {status}")), "{what}: {heard}");
        assert_eq!(get(address, "/-/healthy", &[]).await.status, 200, "after {what}");
    }
}

#[tokio::test]
async fn requests_in_a_row_are_answered_in_their_order_without_waiting() {
    let exporter = Exporter::serve(&["--dsn", NOWHERE]).await;
    let paths = ["/-/healthy", "/nowhere", "/-/healthy", "/-/healthy"];
    let sent: String = paths
        .iter()
        .map(|path| format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n"))
        .collect();
    let heard = say(exporter.address(), sent.as_bytes(), 4).await;
    let statuses: Vec<&str> = heard.split("HTTP/1.1 ").skip(1).map(|answer| &answer[..3]).collect();
    assert_eq!(statuses, ["200", "404", "200", "200"], "{heard}");
    // What is behind a body is no request of its own.
    let smuggled = "GET /nowhere HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let sent = format!(
        "GET /-/healthy HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{smuggled}",
        smuggled.len()
    );
    let heard = say(exporter.address(), sent.as_bytes(), 2).await;
    assert_eq!(heard.matches("HTTP/1.1 ").count(), 1, "{heard}");
}

#[tokio::test]
async fn a_flood_of_wrong_passwords_holds_up_neither_polls_nor_who_is_known() {
    require!(Postgres);
    let postgres = Postgres::start().await;
    let files = Files::new();
    // As costly as htpasswd -C 10 makes it.
    let hash = bcrypt::hash("right", 10).unwrap();
    let path = files.write("web.yml", &format!("basic_auth_users: {{ alice: '{hash}' }}"));
    let exporter = Exporter::watching(&postgres.dsn("app"))
        .argument("--web.config.file")
        .argument(&path)
        .start()
        .await;
    let address = exporter.address();
    let header = |credentials: &str| {
        use base64::Engine as _;
        format!("Basic {}", base64::prelude::BASE64_STANDARD.encode(credentials))
    };
    let right = header("alice:right");
    let scrape = async || {
        let headers = [("Authorization", right.as_str())];
        let asking = exporter.get("/metrics", &headers);
        let response = tokio::time::timeout(SCRAPE_TIMEOUT, asking).await.expect("it is answered");
        assert_eq!(response.status, 200);
        crate::support::Scrape::parse(response.text())
    };
    let polls = async || scrape().await.sample("pg_advisory_polls_total").value();
    scrape().await;

    let mut flood = JoinSet::new();
    for number in 0..50 {
        let wrong = header(&format!("{}:{number}", if number % 2 == 0 { "alice" } else { "bob" }));
        flood.spawn(async move {
            loop {
                let headers = [("Authorization", wrong.as_str())];
                let asked = crate::support::http::request("GET", address, "/metrics", &headers);
                if let Ok(response) = asked.await {
                    assert_eq!(response.status, 401);
                }
            }
        });
    }
    let before = polls().await;
    eventually("polls go on during the flood", async || {
        let now = polls().await;
        assert!(now >= before + 20.0, "{before} polls, now {now}");
    })
    .await;
    assert_eq!(flood.len(), 50);
    assert!(flood.try_join_next().is_none(), "the flood went on, and nobody of it came in");
}
