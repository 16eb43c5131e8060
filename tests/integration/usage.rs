//! The user's mistakes and wishes, through the built binary: what it says and with which exit code,
//! and that nothing was asked of a server before; how it stops; and that no secret gets out.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write as _;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::process::Command;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::support::exporter::serve;
use crate::support::files::Files;
use crate::support::process::{Process, make_home, unprivileged_command};
use crate::support::{Exporter, Postgres, eventually, locks, require};

/// A server that nobody is meant to reach.
struct Untouched(TcpListener);

impl Untouched {
    fn listen() -> Untouched {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port is free");
        listener.set_nonblocking(true).expect("a listener can be told not to wait");
        Untouched(listener)
    }

    fn address(&self) -> SocketAddr {
        self.0.local_addr().expect("a listener has an address")
    }

    fn dsn(&self) -> String {
        format!("postgresql://postgres@{}/app", self.address())
    }

    #[track_caller]
    fn is_untouched(&self) {
        let accepted = self.0.accept();
        assert!(accepted.is_err(), "a connection was made: {accepted:?}");
    }
}

/// How a command ends by itself: its exit code and all that it says.
async fn outcome(command: Command) -> (Option<i32>, String) {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let mut process = Process::start(command, &folder.path().join("log"), "TERM");
    let status = process.until_ended().await;
    (status.code(), process.log())
}

/// What `locks serve` says when it refuses these arguments, which it does before it connects.
async fn refusal(arguments: &[&str]) -> String {
    let server = Untouched::listen();
    let dsn = server.dsn();
    let mut command = serve(arguments);
    // An argument would come before a connection string under test.
    command.env("DATA_SOURCE_NAME", dsn);
    let (code, said) = outcome(command).await;
    assert_eq!(code, Some(2), "{arguments:?}: {said}");
    server.is_untouched();
    said
}

/// What is said of a registry file with this text; `FILE` stands for its path.
async fn registry_refusal(text: &str) -> String {
    let files = Files::new();
    let file = files.write("registry.yaml", text);
    refusal(&["--registry.file", &file]).await.replace(&file, "FILE")
}

#[tokio::test]
async fn a_state_file_that_is_something_else_is_refused_and_left_alone() {
    let files = Files::new();
    let path = files.write("registry.yaml", "locks: []\n");
    let said = refusal(&["--state.file", &path]).await;
    assert!(said.contains("registry.yaml holds something else than the state"), "{said}");
    assert_eq!(fs::read_to_string(&path).expect("it is there"), "locks: []\n");
    let folder = tempfile::tempdir().expect("a folder can be made");
    let said = refusal(&["--state.file", &folder.path().to_string_lossy()]).await;
    assert!(said.contains("is not a regular file: name a file"), "{said}");
}

#[tokio::test]
async fn a_registry_that_is_not_yaml_is_refused_where_it_breaks() {
    let said = registry_refusal("locks:\n  - { name: jobs, key: [42 }\n").await;
    let expected = "\
locks: FILE:2:24: not valid YAML: mismatched bracket '[' closed by '}'
  2 |   - { name: jobs, key: [42 }
    |                        ^
";
    assert_eq!(said, expected);
}

#[tokio::test]
async fn an_unknown_field_of_the_registry_is_refused_with_the_one_that_was_meant() {
    let said = registry_refusal("locks:\n  - name: jobs\n    kay: 42\n").await;
    let expected = "\
locks: FILE:3:5: unknown field \"kay\" in an entry: did you mean key?
  3 |     kay: 42
    |     ^
";
    assert_eq!(said, expected);
}

#[tokio::test]
async fn a_key_that_fits_no_lock_is_refused_with_the_number_that_was_meant() {
    let cases = [
        (
            "18446744073709551615",
            "2:21: 18446744073709551615 is above 9223372036854775807, the largest bigint: write \
             its signed form -1",
        ),
        (
            "99999999999999999999",
            "2:21: 99999999999999999999 does not fit a bigint (-9223372036854775808 to \
             9223372036854775807)",
        ),
        (
            "{ pair: [3048471620, '*'] }",
            "2:30: 3048471620 is above 2147483647, the largest int4: write its signed form \
             -1246495676 (OIDs and the columns of pg_locks are unsigned)",
        ),
        (
            "{ pair: [99999999999, 1] }",
            "2:30: 99999999999 does not fit an int4 (-2147483648 to 2147483647): a bigint key is \
             written without pair",
        ),
    ];
    for (key, message) in cases {
        let line = format!("  - {{ name: t, key: {key} }}");
        let said = registry_refusal(&format!("locks:\n{line}\n")).await;
        let message = format!("locks: FILE:{message}\n  2 | {line}\n");
        let marker = said.strip_prefix(&message).unwrap_or_else(|| panic!("{said}"));
        assert_eq!(marker.trim_start_matches([' ', '|']), "^\n", "{said}");
    }
}

#[tokio::test]
async fn all_faults_of_all_registry_files_are_told_at_once() {
    let files = Files::new();
    let one =
        files.write("one.yaml", "locks:\n  - { name: a, kay: 1 }\n  - { name: b, key: 010 }\n");
    let two = files.write("two.yaml", "locks:\n  - { key: 1 }\n");
    let said = refusal(&["--registry.file", &one, "--registry.file", &two]).await;
    let said = said.replace(&one, "ONE").replace(&two, "TWO");
    let expected = "\
locks: ONE:2:16: unknown field \"kay\" in an entry: did you mean key?
  2 |   - { name: a, kay: 1 }
    |                ^
ONE:3:21: 010 begins with a zero, which some read as octal: write 10, or 8 if octal was meant
  3 |   - { name: b, key: 010 }
    |                     ^
TWO:2:5: this entry has no name: add name: and what people call the lock
  2 |   - { key: 1 }
    |     ^
";
    assert_eq!(said, expected);
}

#[tokio::test]
async fn a_registry_file_that_is_not_there_is_refused() {
    let said = refusal(&["--registry.file", "/nowhere/registry.yaml"]).await;
    let expected = "locks: cannot read registry file /nowhere/registry.yaml: No such file or \
                    directory (os error 2)\n";
    assert_eq!(said, expected);
}

#[tokio::test]
async fn flags_that_make_no_sense_are_refused() {
    let cases = [
        (["--poll.interval", "0"], "locks: --poll.interval: must be at least 10ms\n"),
        (
            ["--poll.interval", "5"],
            "error: invalid value '5' for '--poll.interval <DURATION>': \"5\" has no unit: write 5s \
             for seconds, or another of ms, s, m, h, d, w, y\n\n\
             For more information, try '--help'.\n",
        ),
        (
            ["--web.listen-address", "nonsense"],
            "error: invalid value 'nonsense' for '--web.listen-address <ADDRESS>': write HOST:PORT, \
             [IPV6]:PORT, or :PORT for all interfaces, as in 127.0.0.1:10187\n\n\
             For more information, try '--help'.\n",
        ),
        (
            ["--poll.intervall", "5s"],
            "error: unexpected argument '--poll.intervall' found\n\n  \
             tip: a similar argument exists: '--poll.interval'\n\n\
             Usage: locks serve --web.listen-address <ADDRESS> --poll.interval <DURATION>\n\n\
             For more information, try '--help'.\n",
        ),
    ];
    for (arguments, expected) in cases {
        assert_eq!(refusal(&arguments).await, expected);
    }
}

const CANARY: &str = "S3cr3t-canary";

#[tokio::test]
async fn a_connection_string_that_does_not_parse_is_refused_by_its_place_and_not_its_text() {
    const ESCAPE: &str = "URL-encode the password or use a password file";
    const KEYS: &str = "host, hostaddr, port, user, password, passfile, dbname, service, \
                        application_name, fallback_application_name, client_encoding, options, \
                        connect_timeout, sslmode, sslnegotiation, sslrootcert, sslcert, sslkey, \
                        sslpassword, sslcrl, sslsni, sslcompression, sslcertmode, \
                        ssl_min_protocol_version, ssl_max_protocol_version, gssencmode, \
                        channel_binding, requirepeer, target_session_attrs, load_balance_hosts, \
                        keepalives, keepalives_idle, keepalives_interval, keepalives_count, \
                        tcp_user_timeout, replication, max_protocol_version, min_protocol_version";
    let cases = [
        (
            "user:S3cr3t-canary@127.0.0.1/app",
            "neither a URI nor key=value: write postgresql://USER@HOST:PORT/DBNAME or host=HOST \
             port=PORT user=USER dbname=DBNAME"
                .to_owned(),
        ),
        (
            "mysql://u:S3cr3t-canary@127.0.0.1/app",
            "unknown scheme: the URI of a PostgreSQL server begins with postgresql:// or \
             postgres://"
                .to_owned(),
        ),
        (
            "postgresql://u:S3cr3t-canary@h@127.0.0.1/app",
            format!(
                "the @ at position 31 is out of place: it, or a / or ? before it, is not escaped; \
                 {ESCAPE}"
            ),
        ),
        (
            "postgresql://u:S3cr3t-canary%zz@127.0.0.1/app",
            format!("bad percent escape at position 29: a % itself is %25; {ESCAPE}"),
        ),
        (
            "postgresql://u:S3cr3t-canary@127.0.0.1:543x/app",
            "port must be a number from 1 to 65535".to_owned(),
        ),
        (
            "postgresql://u:S3cr3t-canary@[::1/app",
            "the host at position 30 is not an IPv6 address in brackets, as in [::1]:5432"
                .to_owned(),
        ),
        (
            "postgresql://127.0.0.1/app?user=u&passwort=S3cr3t-canary",
            format!(
                "unknown key at position 35, not shown since it may be part of a password; known \
                 are {KEYS}; {ESCAPE}"
            ),
        ),
        (
            "host=127.0.0.1 user=u password=S3cr3t-canary x",
            format!(
                "a key without a value at position 46: a value with spaces is written \
                 password='with spaces'; {ESCAPE}"
            ),
        ),
        (
            "host=127.0.0.1 user=u password='S3cr3t-canary",
            format!(
                "the quote at position 32 has no end: a quote within a value is written \\'; {ESCAPE}"
            ),
        ),
        (
            "host=127.0.0.1 user=u password=S3cr3t-canary gssencmode=require",
            "gssencmode is not supported; leave it out".to_owned(),
        ),
    ];
    for (dsn, part) in cases {
        let mut by_variable = serve(&[]);
        by_variable.env("DATA_SOURCE_NAME", dsn);
        let files = Files::new();
        let file = files.write("dsn", dsn);
        for (place, command) in [
            ("--dsn", serve(&["--dsn", dsn])),
            ("DATA_SOURCE_NAME", by_variable),
            (file.as_str(), serve(&["--dsn-file", &file])),
        ] {
            let (code, said) = outcome(command).await;
            assert_eq!(code, Some(2), "{said}");
            assert_eq!(said, format!("locks: {place}: {part}\n"));
            assert!(!said.contains(CANARY), "{said}");
        }
    }
}

#[tokio::test]
async fn an_address_that_is_taken_is_refused() {
    let taken = Untouched::listen();
    let address = taken.address().to_string();
    let server = Untouched::listen();
    let mut command = locks(&["serve", "--web.listen-address", &address]);
    command.env("DATA_SOURCE_NAME", server.dsn());
    let (code, said) = outcome(command).await;
    assert_eq!(code, Some(2));
    let expected = format!(
        "locks: cannot listen on {address}: address already in use: stop what listens there or \
         choose another port with --web.listen-address\n"
    );
    assert_eq!(said, expected);
    server.is_untouched();
}

#[tokio::test]
async fn a_port_that_needs_a_right_is_refused_without_it() {
    const PORT: u16 = 81;
    let first_free = fs::read_to_string("/proc/sys/net/ipv4/ip_unprivileged_port_start");
    let first_free = first_free.ok().and_then(|text| text.trim().parse::<u16>().ok());
    if first_free.is_none_or(|first| first <= PORT) {
        // So it is in many containers. Said past the capture of test output.
        let _ = writeln!(std::io::stderr(), "SKIPPED: here nobody needs a right to port {PORT}");
        return;
    }
    // The user who runs it may not enter the folder it was built in.
    let home = make_home();
    let program = home.path().join("locks");
    fs::copy(env!("CARGO_BIN_EXE_locks"), &program).expect("the binary can be copied");
    let server = Untouched::listen();
    let mut command = unprivileged_command(&program, home.path());
    let address = format!("127.0.0.1:{PORT}");
    command.args(["serve", "--dsn", &server.dsn(), "--web.listen-address", &address]);
    let (code, said) = outcome(command).await;
    assert_eq!(code, Some(2));
    let expected = format!(
        "locks: cannot listen on {address}: permission denied; ports below 1024 need \
         CAP_NET_BIND_SERVICE: choose a higher port with --web.listen-address\n"
    );
    assert_eq!(said, expected);
    server.is_untouched();
}

#[tokio::test]
async fn two_entries_for_one_key_are_told_shown_and_counted() {
    require!(Postgres);
    let postgres = Postgres::start().await;
    let files = Files::new();
    let one = files.write("one.yaml", "locks:\n  - { name: mails, key: 42 }\n");
    let two = files.write(
        "two.yaml",
        "locks:\n  - { name: other-jobs, key: 43 }\n  - { name: jobs, key: 42 }\n",
    );
    let dsn = postgres.dsn("app");
    let exporter = Exporter::serve(&[
        "--dsn",
        &dsn,
        "--registry.file",
        &one,
        "--registry.file",
        &two,
        "--poll.interval",
        "100ms",
    ])
    .await;
    let _holder = postgres.holds("pod-a", "42").await;
    eventually("the label shows both", async || {
        let scrape = exporter.scrape().await;
        scrape.sample("pg_advisory_registry_conflicts").is(1.0);
        scrape
            .sample("pg_advisory_lock_holders")
            .with("key", "42")
            .with("lock", "jobs | mails")
            .with("application_name", "pod-a")
            .is(1.0);
    })
    .await;
    let log = exporter.log().replace(&one, "ONE").replace(&two, "TWO");
    let lines: Vec<&str> =
        log.lines().filter(|line| line.contains("jobs") || line.contains("mails")).collect();
    let expected = "level=warn msg=\"a key of the registry has several names; its label shows all\" \
                    conflict=\"key 42 has more than one name: \\\"jobs\\\" (42 at TWO:3), \
                    \\\"mails\\\" (42 at ONE:2)\"";
    assert!(lines.len() == 1 && lines[0].ends_with(expected), "{log}");
}

#[tokio::test]
async fn a_stop_answers_the_scrape_that_is_on_its_way_and_is_no_failure() {
    for signal in ["TERM", "INT"] {
        let server = Untouched::listen();
        let mut exporter = Exporter::serve(&["--dsn", &server.dsn()]).await;
        let mut on_its_way = TcpStream::connect(exporter.address()).await.expect("it listens");
        on_its_way.write_all(b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\n").await.expect("sent");
        // Connections are taken in turn, so that this one's answer shows the first was taken too.
        exporter.scrape().await;

        exporter.signal(signal);
        eventually("nobody is let in any more", async || {
            assert!(TcpStream::connect(exporter.address()).await.is_err());
        })
        .await;
        on_its_way.write_all(b"\r\n").await.expect("it still listens to this one");
        let mut answer = String::new();
        on_its_way.read_to_string(&mut answer).await.expect("an answer");
        assert!(answer.starts_with("HTTP/1.1 200"), "{signal}: {answer:?}");
        assert!(answer.contains("\npg_advisory_up{"), "{signal}: {answer}");
        let status = exporter.exit_status().await;
        assert_eq!(status.code(), Some(0), "{signal}: {}", exporter.log());
        assert!(exporter.log().contains("msg=stopping"), "{}", exporter.log());
    }
}

#[tokio::test]
async fn a_password_appears_nowhere_when_the_login_fails_or_nobody_answers() {
    require!(Postgres);
    let postgres =
        Postgres::builder().hba("host all canary 127.0.0.1/32 scram-sha-256").start().await;
    let admin = postgres.session("admin").await;
    admin.run("CREATE ROLE canary LOGIN PASSWORD 'another one'").await;
    let closed = Untouched::listen().address().port();
    let files = Files::new();
    for (port, reason) in [(postgres.port(), "login"), (closed, "unreachable")] {
        let uri = format!("postgresql://canary:{CANARY}@127.0.0.1:{port}/app");
        let query = format!("postgresql://127.0.0.1:{port}/app?user=canary&password={CANARY}");
        let pairs =
            format!("host=127.0.0.1 port={port} user=canary password='{CANARY}' dbname=app");
        let file = files.write("dsn", &uri);
        let bare = format!("postgresql://canary@127.0.0.1:{port}/app");
        let debug = ["--poll.interval", "50ms", "--log.level", "debug"];
        let mut commands = vec![serve(&[&["--dsn-file", &file], &debug[..]].concat())];
        for dsn in [&uri, &query, &pairs] {
            commands.push(serve(&[&["--dsn", dsn.as_str()], &debug[..]].concat()));
        }
        let mut by_variable = serve(&[&["--dsn", bare.as_str()], &debug[..]].concat());
        by_variable.env("PGPASSWORD", CANARY);
        commands.push(by_variable);
        for command in commands {
            let exporter = Exporter::start(command).await;
            eventually("it fails for the reason expected", async || {
                let scrape = exporter.scrape().await;
                scrape.sample("pg_advisory_up").is(0.0);
                let failures = scrape.sample("pg_advisory_poll_failures_total");
                assert!(failures.with("reason", reason).value() >= 1.0);
            })
            .await;
            for path in ["/metrics", "/api/v1/locks", "/api/v1/targets", "/", "/nowhere"] {
                let response = exporter.get(path, &[]).await;
                assert!(!response.text().contains(CANARY), "{path}: {}", response.text());
            }
            let server = format!("127.0.0.1:{port}");
            let scrape = exporter.scrape().await;
            let labels = scrape.samples().iter().filter_map(|it| it.labels.get("server"));
            let labels: BTreeSet<_> = labels.map(String::as_str).collect();
            assert_eq!(labels, BTreeSet::from([&*server]), "neither user nor database");
            let log = exporter.log();
            assert!(!log.contains(CANARY), "{log}");
            // It is not silence that keeps the secret.
            let reason = format!("reason={reason}");
            let says = [&server, "user=canary", "database=app", &reason];
            assert_eq!(exporter.logged(&says).len(), 1, "{log}");
        }
    }
}
