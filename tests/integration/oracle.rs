//! Connection strings: on the same string, environment and files the built binary ends up where psql
//! does, as the same role in the same database, or nowhere like psql and at the same step; and
//! whatever goes wrong on the way, no password is told. The table is `oracle/rows.toml`.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde::Deserialize;
use tempfile::TempDir;

use crate::support::files::Files;
use crate::support::port::Port;
use crate::support::process::{Outcome, run, send_signal};
use crate::support::{Exporter, Postgres, Session, eventually, exporter, http, locks, require};

/// Every character that some form takes for something else.
const PASSWORD: &str = "S3cr3t-canary p#s=s@w:o%rd{x/ y'\\&?";
const CANARY: &str = "canary";
/// What a row has in PGPASSWORD that speaks of no password: there is always one to be told.
const UNASKED: &str = "S3cr3t-canary-unasked";

/// The string cannot be read, or asks for what is not done: nobody was asked.
const REFUSED: &str = "refused";
/// It was read, and there is no session all the same.
const FAILED: &str = "failed";

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    row: Vec<Row>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    string: String,
    #[serde(default)]
    env: BTreeMap<String, String>,
    pgpass: Option<String>,
    pgpass_mode: Option<u32>,
    services: Option<String>,
    system_services: Option<String>,
    elsewhere: Option<String>,
    differs: Option<String>,
    manual: Option<String>,
    why: Option<String>,
}

impl Row {
    /// Whether a password is a part of what it says.
    fn speaks_of_passwords(&self) -> bool {
        let files = [&self.pgpass, &self.services, &self.system_services, &self.elsewhere];
        let mut texts = files.into_iter().flatten().chain(self.env.values()).chain([&self.string]);
        let parts = ["scram", "password}", "encoded}", "quoted}", "escaped}", CANARY];
        texts.any(|text| parts.iter().any(|part| text.contains(part)))
    }
}

/// Servers, and what the table calls them.
struct Bed {
    primary: Postgres,
    standby: Postgres,
    plain: Postgres,
    /// Shuts down when its last session ends, and lets nobody in any more.
    leaving: (Postgres, Session),
    dead: Port,
    /// Accepts, and says nothing.
    mute: TcpListener,
}

impl Bed {
    async fn start() -> Bed {
        let logged = || {
            Postgres::builder()
                .setting("log_connections", "on")
                .setting("log_disconnections", "on")
                .setting("password_encryption", "scram-sha-256")
                .hba("host all scram 127.0.0.1/32 scram-sha-256")
                .hba("local all scram scram-sha-256")
                .hba("host all denied all reject")
        };
        let mut primary = logged().start().await;
        let session = primary.session_in("postgres", "roles").await;
        let me = me();
        for statement in [
            "CREATE ROLE monitor LOGIN".to_owned(),
            "CREATE ROLE denied LOGIN".to_owned(),
            "CREATE ROLE crowded LOGIN CONNECTION LIMIT 0".to_owned(),
            "CREATE ROLE readonly LOGIN".to_owned(),
            "ALTER ROLE readonly SET default_transaction_read_only = on".to_owned(),
            format!("CREATE ROLE scram LOGIN PASSWORD '{}'", PASSWORD.replace('\'', "''")),
            format!(
                "DO $$ BEGIN IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = '{me}') THEN CREATE ROLE \"{me}\" LOGIN; END IF; END $$"
            ),
            "CREATE DATABASE monitor".to_owned(),
        ] {
            session.run(&statement).await;
        }
        if me != "postgres" {
            session.run(&format!("CREATE DATABASE \"{me}\"")).await;
        }
        drop(session);
        let standby = primary.start_standby().await;
        let plain = logged().start().await;
        let session = plain.session_in("postgres", "roles").await;
        session.run("DROP DATABASE app").await;
        session.run("CREATE ROLE monitor LOGIN").await;
        let mute = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let leaving = Postgres::start().await;
        let last = leaving.session("last").await;
        send_signal("TERM", leaving.process_id());
        eventually("it lets nobody in any more", async || {
            assert!(leaving.log().contains("received smart shutdown request"), "{}", leaving.log());
        })
        .await;
        Bed { primary, standby, plain, leaving: (leaving, last), dead: Port::reserve(), mute }
    }

    fn servers(&self) -> [(&'static str, &Postgres); 3] {
        [("primary", &self.primary), ("standby", &self.standby), ("plain", &self.plain)]
    }

    fn fill(&self, text: &str, home: &Path) -> String {
        let encoded: String = PASSWORD.bytes().map(|byte| format!("%{byte:02X}")).collect();
        let quoted = PASSWORD.replace('\\', "\\\\").replace('\'', "\\'");
        let escaped = PASSWORD.replace('\\', "\\\\").replace(':', "\\:");
        let mute = self.mute.local_addr().expect("it listens").port();
        [
            ("primary", self.primary.port().to_string()),
            ("standby", self.standby.port().to_string()),
            ("plain", self.plain.port().to_string()),
            ("leaving", self.leaving.0.port().to_string()),
            ("dead", self.dead.number().to_string()),
            ("mute", mute.to_string()),
            ("socket", self.primary.socket_folder().display().to_string()),
            ("home", home.display().to_string()),
            ("me", me()),
            ("server_user", owner(self.primary.socket_folder())),
            ("encoded", encoded),
            ("quoted", quoted),
            ("escaped", escaped),
            ("password", PASSWORD.to_owned()),
        ]
        .iter()
        .fold(text.to_owned(), |text, (name, value)| text.replace(&format!("{{{name}}}"), value))
    }

    /// Where the last of the sessions is that began since a moment of each log, and as whom:
    /// `SERVER ROLE DATABASE APPLICATION`. Waits until each has ended.
    async fn last_session(&self, since: [usize; 3]) -> String {
        eventually("the servers' logs tell of a session and of its end", async || {
            let mut last = None;
            for ((name, postgres), since) in self.servers().into_iter().zip(since) {
                let log = postgres.log();
                let log = &log[since..];
                let sessions = log.lines().filter(|line| line.contains("connection authorized"));
                for line in sessions {
                    let (_, rest) = line.split_once('[').expect("a line has its process");
                    let (pid, _) = rest.split_once(']').expect("a line has its process");
                    let is_end = |line: &str| {
                        line.contains("disconnection:") && line.contains(&format!("[{pid}]"))
                    };
                    assert!(log.lines().any(is_end), "{log}");
                }
                let line = log.lines().rfind(|line| line.contains("connection authorized"));
                let line = line.map(|line| (line.to_owned(), name));
                last = last.max(line);
            }
            let (line, server) = last.expect("there was a session");
            let value = |key: &str, end: &str| {
                let (_, rest) = line.split_once(key)?;
                Some(rest.split(end).next().unwrap_or(rest))
            };
            let told = |key| value(key, " ").unwrap_or_else(|| panic!("no {key} in {line}"));
            let (role, database) = (told("user="), told("database="));
            // A session without a name of its own tells none.
            let application = value("application_name=", " identity=").unwrap_or_default();
            let application = application.split(" SSL enabled").next().unwrap_or_default();
            format!("{server} {role} {database} {application}")
        })
        .await
    }

    fn moments(&self) -> [usize; 3] {
        self.servers().map(|(_, postgres)| postgres.log().len())
    }
}

fn me() -> String {
    let output = Command::new("id").arg("-un").output().expect("id can be run");
    String::from_utf8(output.stdout).expect("it says text").trim().to_owned()
}

fn owner(folder: &Path) -> String {
    let output = Command::new("stat").args(["-c", "%U"]).arg(folder).output();
    String::from_utf8(output.expect("stat can be run").stdout).expect("text").trim().to_owned()
}

/// What a row's programs find at home.
fn furnish(row: &Row, bed: &Bed) -> TempDir {
    let home = tempfile::tempdir().expect("a folder can be made");
    fs::create_dir(home.path().join("system")).expect("it is ours");
    let files = [
        (".pgpass", &row.pgpass),
        (".pg_service.conf", &row.services),
        ("system/pg_service.conf", &row.system_services),
        ("elsewhere", &row.elsewhere),
    ];
    for (name, text) in files {
        let Some(text) = text else { continue };
        let path = home.path().join(name);
        fs::write(&path, bed.fill(text, home.path())).expect("it is ours");
        let mode = row.pgpass_mode.filter(|_| name == ".pgpass").unwrap_or(0o600);
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("it is ours");
    }
    home
}

/// The same surroundings for both.
fn surround(command: &mut Command, row: &Row, bed: &Bed, home: &Path) {
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("PG") {
            command.env_remove(&name);
        }
    }
    command.env("HOME", home).env("PGSYSCONFDIR", home.join("nowhere")).stdin(Stdio::null());
    if !row.speaks_of_passwords() {
        command.env("PGPASSWORD", UNASKED);
    }
    for (name, value) in &row.env {
        command.env(name, bed.fill(value, home));
    }
}

/// The program itself. What Debian puts into the path is a wrapper around it, which sets PGHOST where
/// nobody has, and so is no oracle for what a string leaves open.
fn psql_program() -> PathBuf {
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let programs = versions.map(|version| version.path().join("bin/psql"));
    programs.filter(|program| program.is_file()).max().unwrap_or_else(|| "psql".into())
}

fn psql(string: &str) -> Command {
    let mut psql = Command::new(psql_program());
    psql.args(["-X", "-w", "-A", "-t", "-c", "SELECT 1"]);
    if !string.is_empty() {
        // Given as the database it is read as a connection string.
        psql.args(["-d", string]);
    }
    psql
}

fn ask_locks(string: &str) -> Command {
    let mut command = locks(&["top", "--once", "--json", "--exporter", "none"]);
    if !string.is_empty() {
        command.args(["--dsn", string]);
    }
    command
}

/// Where psql gave up. It names the server once it has tried to reach one.
fn psql_step(outcome: &Outcome) -> &'static str {
    let asked = ["connection to server ", "could not translate host name "];
    if asked.iter().any(|begin| outcome.stderr.contains(begin)) { FAILED } else { REFUSED }
}

/// Where locks gave up: a mistake of the user's has an exit code of its own.
fn locks_step(outcome: &Outcome) -> &'static str {
    if outcome.code == Some(2) { REFUSED } else { FAILED }
}

fn assert_no_secret(text: &str, row: &Row) {
    // The string itself may name it, the programs may not.
    assert!(!text.contains(CANARY), "{}: {text}", row.string);
}

#[tokio::test]
async fn every_connection_string_leads_where_psql_goes() {
    require!(Postgres);
    let table: Table = toml::from_str(include_str!("oracle/rows.toml")).expect("the table is TOML");
    assert!(table.row.len() >= 200, "{} rows", table.row.len());
    let bed = Bed::start().await;
    let mut differences = String::new();
    let mut connected = 0;
    for row in &table.row {
        let home = furnish(row, &bed);
        let string = bed.fill(&row.string, home.path());
        let run_one = async |mut command: Command, step: fn(&Outcome) -> &'static str| {
            surround(&mut command, row, &bed, home.path());
            let before = bed.moments();
            let outcome: Outcome = run(command).await;
            let place = match outcome.code {
                Some(0) => bed.last_session(before).await,
                _ => step(&outcome).to_owned(),
            };
            (place, outcome)
        };
        let (mut expected, told) = run_one(psql(&string), psql_step).await;
        // Each calls itself by its own name.
        if let Some(place) = expected.strip_suffix(" psql") {
            expected = format!("{place} locks");
        }
        if let Some(manual) = &row.manual {
            let error = &told.stderr;
            assert!(
                error.contains("invalid connection option"),
                "{string}: psql knows it: {error}"
            );
            expected.clone_from(manual);
        }
        if let Some(differs) = &row.differs {
            assert_ne!(*differs, expected, "{string}: there is no difference any more");
            expected.clone_from(differs);
        }
        assert_eq!(
            row.why.is_some(),
            row.manual.is_some() || row.differs.is_some(),
            "{string}: a difference has a reason"
        );
        let (place, said) = run_one(ask_locks(&string), locks_step).await;
        assert_no_secret(&(said.stdout.clone() + &said.stderr), row);
        connected += usize::from(place != REFUSED && place != FAILED);
        if place != expected {
            writeln!(
                differences,
                "{} {:?}: psql {expected} ({}), locks {place} ({})",
                row.string,
                row.env,
                told.stderr.trim(),
                said.stderr.trim()
            )
            .unwrap();
        }
    }
    assert!(differences.is_empty(), "\n{differences}");
    assert!(connected > 40 && connected < table.row.len() - 30, "{connected} connected");
}

/// The exporter goes on where a connection fails, and whoever reads what it says, shows or counts
/// reads no password. Every row has one, asked for or not.
#[tokio::test]
async fn a_password_is_found_nowhere_whatever_fails() {
    require!(Postgres);
    let table: Table = toml::from_str(include_str!("oracle/rows.toml")).expect("the table is TOML");
    let bed = Bed::start().await;
    let (mut refused, mut served) = (0, 0);
    for row in &table.row {
        let home = furnish(row, &bed);
        let file = home.path().join("dsn");
        fs::write(&file, bed.fill(&row.string, home.path())).expect("it is ours");
        let file = file.to_string_lossy();
        let ask = |mut command: Command| {
            surround(&mut command, row, &bed, home.path());
            run(command)
        };
        let checked = ask(locks(&["check", "--dsn-file", &file, "--samples", "1"])).await;
        assert_no_secret(&(checked.stdout.clone() + &checked.stderr), row);
        // Of a string that cannot be read `check` tells the file, not the server.
        let is_refused = checked.stdout.contains(&*file);
        if checked.code != Some(3) && !row.speaks_of_passwords() {
            continue;
        }
        let mut command = exporter::serve(&["--dsn-file", &file, "--log.level", "debug"]);
        if is_refused {
            let outcome = ask(command).await;
            assert_eq!(outcome.code, Some(2), "{}: {}", row.string, outcome.stderr);
            assert_no_secret(&(outcome.stdout + &outcome.stderr), row);
            refused += 1;
            continue;
        }
        surround(&mut command, row, &bed, home.path());
        let exporter = Exporter::start(command).await;
        eventually("it has tried", async || {
            let scrape = exporter.scrape().await;
            assert!(scrape.sample("pg_advisory_polls_total").value() > 0.0);
        })
        .await;
        let mut told = exporter.log();
        for path in ["/metrics", "/", "/api/v1/locks", "/api/v1/events"] {
            told += http::get(exporter.address(), path, &[]).await.text();
        }
        let arguments = fs::read(format!("/proc/{}/cmdline", exporter.id())).unwrap_or_default();
        assert!(!arguments.is_empty(), "the arguments of the process can be read");
        told += &String::from_utf8_lossy(&arguments);
        assert_no_secret(&told, row);
        served += 1;
    }
    assert!(refused > 30 && served > 30, "{refused} were refused, {served} served");
}

/// The roads of exporters, which no psql goes. What is read from a file comes from an editor, with a
/// line's end of one kind or the other, and may be another the next time.
#[tokio::test]
async fn a_password_of_any_characters_logs_in_by_every_road_of_an_exporter() {
    require!(Postgres);
    let postgres = Postgres::builder()
        .setting("password_encryption", "scram-sha-256")
        .hba("host all scram 127.0.0.1/32 scram-sha-256")
        .start()
        .await;
    let operator = postgres.session("operator").await;
    let role = |verb: &str, password: &str| {
        format!("{verb} ROLE scram LOGIN PASSWORD '{}'", password.replace('\'', "''"))
    };
    operator.run(&role("CREATE", PASSWORD)).await;
    let files = Files::new();
    let place = format!("127.0.0.1:{}/app", postgres.port());
    let bare = format!("postgresql://scram@{place}");
    let encoded: String = PASSWORD.bytes().map(|byte| format!("%{byte:02X}")).collect();
    let uri = format!("postgresql://scram:{encoded}@{place}");
    let pairs = format!(
        "host=127.0.0.1 port={} user=scram dbname=app password='{}'\n",
        postgres.port(),
        PASSWORD.replace('\\', "\\\\").replace('\'', "\\'")
    );
    let password = files.write("password", &format!("{PASSWORD}\n"));
    let foreign = files.write("password.crlf", &format!("{PASSWORD}\r\n"));
    let config = |password: &str| {
        format!("servers: [{{ name: a, dsn: '{bare}', password_file: {password} }}]\n")
    };
    let by_config = files.write("locks.yaml", &config(&password));
    let user = ("DATA_SOURCE_USER", "scram");
    // Arguments, and variables.
    type Road<'a> = (&'a [&'a str], &'a [(&'a str, &'a str)]);
    let roads: [Road; 8] = [
        (&[], &[("DATA_SOURCE_URI", &place), user, ("DATA_SOURCE_PASS", PASSWORD)]),
        (&[], &[("DATA_SOURCE_URI", &place), user, ("DATA_SOURCE_PASS_FILE", &password)]),
        (&[], &[("DATA_SOURCE_NAME", &uri)]),
        (&[], &[("DATA_SOURCE_NAME", &bare), ("PGPASSWORD", PASSWORD)]),
        (&["--dsn", &uri], &[]),
        (&["--dsn-file", &files.write("dsn", &pairs)], &[]),
        (&["--config.file", &files.write("crlf.yaml", &config(&foreign))], &[]),
        (&["--config.file", &by_config], &[]),
    ];
    let mut last = None;
    for (arguments, variables) in roads {
        let mut command = exporter::serve(arguments);
        command.args(["--poll.interval", "100ms"]).envs(variables.iter().copied());
        let exporter = Exporter::start(command).await;
        exporter.scrape_fresh().await.sample("pg_advisory_up").is(1.0);
        assert!(!exporter.log().contains(CANARY), "{}", exporter.log());
        last = Some(exporter);
    }

    let exporter = last.expect("there are roads");
    operator.run(&role("ALTER", "another{one}")).await;
    files.write("password", "another{one}\n");
    let ours = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'scram'";
    operator.run(ours).await;
    exporter.scrape_fresh().await;
    exporter.scrape_fresh().await;
    assert!(exporter.logged(&["reason=login"]).is_empty(), "{}", exporter.log());
}

#[tokio::test]
async fn help_and_mistakes_on_the_command_line_show_no_variable() {
    for arguments in [&["serve", "--help"][..], &["check", "-h"], &["top", "--help"], &["--wrong"]]
    {
        let mut command = locks(arguments);
        for name in ["DATA_SOURCE_NAME", "DATA_SOURCE_URI", "DATA_SOURCE_PASS", "PGPASSWORD"] {
            command.env(name, PASSWORD);
        }
        let Outcome { stdout, stderr, .. } = run(command).await;
        assert!(!(stdout + &stderr).contains(CANARY), "{arguments:?}");
    }
}

/// A bug shows what it was given. None is at hand, so the process is left no memory for another
/// thread, and panics in the middle of a connect.
#[tokio::test]
async fn the_last_words_of_a_panic_tell_no_password() {
    require!(Postgres, Prlimit);
    let postgres = Postgres::builder().hba("host all all 127.0.0.1/32 scram-sha-256").start().await;
    let home = tempfile::tempdir().expect("a folder can be made");
    let file = home.path().join("dsn");
    let string = format!("postgresql://nobody:{UNASKED}@127.0.0.1:{}/app", postgres.port());
    fs::write(&file, string).expect("it is ours");
    // Now and then it is the stack that cannot grow, and it dies without a word.
    for _ in 0..20 {
        let mut command =
            exporter::serve(&["--dsn-file", &file.to_string_lossy(), "--log.level", "debug"]);
        command.env("RUST_BACKTRACE", "full").env("HOME", home.path());
        let mut exporter = Exporter::start(command).await;
        let id = exporter.id().to_string();
        let limited = Command::new("prlimit").args(["--pid", &id, "--as=1048576:1048576"]).status();
        assert!(limited.expect("prlimit can be run").success());
        exporter.exit_status().await;
        let log = exporter.log();
        assert!(!log.contains(CANARY), "{log}");
        if log.contains("panicked at") {
            return;
        }
    }
    panic!("it never panicked");
}
