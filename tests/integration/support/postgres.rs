//! A PostgreSQL server that lives for one test. `initdb` runs once per version and recipe; each
//! test gets a copy of the result, on a port and in a folder of its own, with trust authentication
//! and the databases `app` and `app2`. Nothing here is durable: the folder goes with the value.

use std::env;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io::{self, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use tempfile::TempDir;

use super::clock::Clock;
use super::eventually;
use super::port::Port;
use super::process::{Process, give_away, make_home, unprivileged_command};
use super::session::{Session, Waiter};

/// Names the folder with `initdb` and `postgres`, for trying another version.
pub const BINARIES_VARIABLE: &str = "LOCKS_TEST_POSTGRES_BIN";

/// A server of one's own.
pub struct Postgres {
    // Dropped in this order: the server ends before its folder goes.
    process: Option<Process>,
    port: Port,
    binaries: PathBuf,
    environment: Vec<(&'static str, String)>,
    home: TempDir,
}

impl Postgres {
    /// Starts a server with the settings of the test bed.
    pub async fn start() -> Postgres {
        Postgres::builder().start().await
    }

    /// Begins a server with settings of its own.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// A connection string over loopback.
    pub fn dsn(&self, database: &str) -> String {
        format!("postgresql://postgres@127.0.0.1:{}/{database}", self.port())
    }

    /// A connection string over the Unix socket.
    pub fn socket_dsn(&self, database: &str) -> String {
        let folder = self.socket_folder().display();
        format!("postgresql://postgres@/{database}?host={folder}&port={}", self.port())
    }

    /// The port on 127.0.0.1, the same for the life of the value.
    pub fn port(&self) -> u16 {
        self.port.number()
    }

    /// Where the Unix socket is.
    pub fn socket_folder(&self) -> &Path {
        self.home.path()
    }

    /// The major version, as 15.
    pub fn major_version(&self) -> u32 {
        let version = fs::read_to_string(self.data().join("PG_VERSION")).unwrap_or_default();
        version.trim().parse().expect("a cluster knows its version")
    }

    /// The server's log, of all its lives.
    pub fn log(&self) -> String {
        fs::read_to_string(self.log_file()).unwrap_or_default()
    }

    /// A session in database `app` under this application name.
    pub async fn session(&self, application: &str) -> Session {
        self.session_in("app", application).await
    }

    /// A session in another database.
    pub async fn session_in(&self, database: &str, application: &str) -> Session {
        Session::connect(&self.dsn(database), application).await
    }

    /// A session in `app` that holds a key at session level. The key is the argument of
    /// `pg_advisory_lock`: `42`, `7, 9`, or an expression.
    pub async fn holds(&self, application: &str, key: &str) -> Session {
        let session = self.session(application).await;
        session.run(&format!("SELECT pg_advisory_lock({key})")).await;
        session
    }

    /// A session in `app` that waits for a key, which the server confirms.
    pub async fn waits(&self, application: &str, key: &str) -> Waiter {
        let session = self.session(application).await;
        let statement = session.start(&format!("SELECT pg_advisory_lock({key})"));
        self.until_waiting(&session).await;
        Waiter { session, statement }
    }

    /// Waits until the server says that the session waits for a lock.
    pub async fn until_waiting(&self, session: &Session) {
        let observer = self.session("test bed").await;
        let waits =
            format!("SELECT count(*) FROM pg_locks WHERE pid = {} AND NOT granted", session.pid());
        eventually("the session waits for a lock", async || {
            assert_eq!(observer.value(&waits).await.as_deref(), Some("1"));
        })
        .await;
    }

    /// Ends the server as a restart by its operator does: sessions are told and closed.
    pub async fn stop(&mut self) {
        self.end("INT").await;
    }

    /// Ends the server as a crash does: no goodbye, and recovery at the next start.
    pub async fn kill(&mut self) {
        self.end("QUIT").await;
    }

    /// Starts a stopped server again, on the same port and data.
    pub async fn start_again(&mut self) {
        assert!(self.process.is_none(), "the server runs already");
        let mut command = unprivileged_command(&self.binaries.join("postgres"), self.home.path());
        command.arg("-D").arg(self.data()).envs(self.environment.iter().cloned());
        let mut process = Process::start(command, &self.log_file(), "QUIT");
        let status_file = self.data().join("postmaster.pid");
        process
            .until_ready(async |process| {
                // The eighth line says `ready` once sessions are welcome; the first tells this
                // life's file from one that a killed server left behind.
                let status = fs::read_to_string(&status_file).unwrap_or_default();
                let mut lines = status.lines();
                lines.next() == Some(process.id().to_string().as_str())
                    && lines.nth(6).is_some_and(|line| line.trim() == "ready")
            })
            .await;
        self.process = Some(process);
    }

    /// Starts a standby that streams from this server, which is restarted for its data to be copied.
    /// A standby lacks nothing that was committed before, and needs no tool but the server.
    pub async fn start_standby(&mut self) -> Postgres {
        self.stop().await;
        let home = make_home();
        copy_folder(&self.data(), &home.path().join("data")).expect("the data can be copied");
        self.start_again().await;
        let port = Port::reserve();
        let binaries = self.binaries.clone();
        let environment = self.environment.clone();
        let mut standby = Postgres { process: None, port, binaries, environment, home };
        let own = format!(
            "port = {}\nunix_socket_directories = '{}'\nprimary_conninfo = \
             'host=127.0.0.1 port={} user=postgres'\nhot_standby = on\n",
            standby.port(),
            standby.home.path().display(),
            self.port()
        );
        let configuration = standby.data().join("postgresql.conf");
        let settings = fs::read_to_string(&configuration).expect("the copy has its settings");
        write_private(&configuration, &(settings + &own));
        write_private(&standby.data().join("standby.signal"), "");
        standby.start_again().await;
        standby
    }

    /// [`Postgres::stop`], then [`Postgres::start_again`].
    pub async fn restart(&mut self) {
        self.stop().await;
        self.start_again().await;
    }

    /// The process that accepts connections.
    pub fn process_id(&self) -> u32 {
        self.process.as_ref().expect("the server runs").id()
    }

    /// Exchanges the lines of `pg_hba.conf` before those that trust everybody, and has the server
    /// read them, which it does soon.
    pub fn set_hba(&self, lines: &[&str]) {
        self.write_hba(&render_hba(lines));
    }

    /// [`Postgres::set_hba`] without any line behind these.
    pub fn set_hba_alone(&self, lines: &[&str]) {
        self.write_hba(&(lines.join("\n") + "\n"));
    }

    fn write_hba(&self, text: &str) {
        write_private(&self.data().join("pg_hba.conf"), text);
        self.process.as_ref().expect("the server runs").signal("HUP");
    }

    async fn end(&mut self, signal: &str) {
        let mut process = self.process.take().expect("the server runs");
        process.signal(signal);
        process.until_ended().await;
    }

    fn data(&self) -> PathBuf {
        self.home.path().join("data")
    }

    fn log_file(&self) -> PathBuf {
        self.home.path().join("postgres.log")
    }
}

/// A server about to start.
#[derive(Default)]
pub struct Builder {
    is_another_cluster: bool,
    settings: Vec<(String, String)>,
    hba: Vec<String>,
    files: Vec<(String, String)>,
    environment: Vec<(&'static str, String)>,
}

impl Builder {
    /// Sets a parameter of `postgresql.conf`; the last of one name counts.
    pub fn setting(mut self, name: &str, value: impl ToString) -> Builder {
        self.settings.push((name.to_owned(), value.to_string()));
        self
    }

    /// Puts a line into `pg_hba.conf`, before those that trust everybody.
    pub fn hba(mut self, line: &str) -> Builder {
        self.hba.push(line.to_owned());
        self
    }

    /// Puts a file into the data folder that only the server may read, as a TLS key must be.
    pub fn file(mut self, name: &str, contents: &str) -> Builder {
        self.files.push((name.to_owned(), contents.to_owned()));
        self
    }

    /// Lends the server a clock.
    pub fn clock(mut self, clock: &Clock) -> Builder {
        self.environment = clock.variables().into();
        self
    }

    /// Sets up a cluster with an identifier of its own. All others of a version are copies of one.
    pub fn another_cluster(mut self) -> Builder {
        self.is_another_cluster = true;
        self
    }

    /// Starts the server and waits until it welcomes sessions.
    pub async fn start(self) -> Postgres {
        let binaries = find_binaries()
            .unwrap_or_else(|| panic!("PostgreSQL is not installed: begin the test with require!"));
        let home = make_home();
        let data = home.path().join("data");
        if self.is_another_cluster {
            set_up_cluster(&binaries, home.path(), &data);
        } else {
            copy_folder(&make_template(&binaries), &data).expect("the template can be copied");
        }
        let port = Port::reserve();
        self.configure(&data, home.path(), port.number());
        let environment = self.environment;
        let mut postgres = Postgres { process: None, port, binaries, environment, home };
        postgres.start_again().await;
        postgres
    }

    fn configure(&self, data: &Path, socket_folder: &Path, port: u16) {
        let port = port.to_string();
        let own = [
            ("listen_addresses", "127.0.0.1"),
            ("port", &port),
            ("unix_socket_directories", &socket_folder.to_string_lossy()),
            ("fsync", "off"),
            ("full_page_writes", "off"),
            ("synchronous_commit", "off"),
            ("shared_buffers", "16MB"),
            // Workers that come and go by themselves would make counts of backends tremble.
            ("autovacuum", "off"),
            ("log_line_prefix", "%m [%p] %q%a "),
            ("log_timezone", "UTC"),
            ("timezone", "UTC"),
        ];
        let own = own.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let mut settings = String::new();
        for (name, value) in own.iter().chain(&self.settings) {
            let value = value.replace('\'', "''");
            writeln!(settings, "{name} = '{value}'").expect("text can be written to a string");
        }
        let hba = render_hba(&self.hba);
        let files = self.files.iter().map(|(name, contents)| (name.as_str(), contents.as_str()));
        let files = files.chain([("postgresql.conf", &*settings), ("pg_hba.conf", &*hba)]);
        for (name, contents) in files {
            write_private(&data.join(name), contents);
        }
    }
}

fn render_hba(lines: &[impl AsRef<str>]) -> String {
    let own = [
        "local all all trust",
        "local replication all trust",
        "host all all 127.0.0.1/32 trust",
        "host replication all 127.0.0.1/32 trust",
    ];
    lines.iter().map(AsRef::as_ref).chain(own).map(|line| format!("{line}\n")).collect()
}

fn write_private(file: &Path, contents: &str) {
    fs::write(file, contents).expect("the data folder can be written");
    fs::set_permissions(file, fs::Permissions::from_mode(0o600)).expect("it is ours");
    give_away(file);
}

/// The folder with `initdb` and `postgres`: where [`BINARIES_VARIABLE`] says, or in `PATH`, or the
/// newest of Debian's.
pub fn find_binaries() -> Option<PathBuf> {
    if let Some(folder) = env::var_os(BINARIES_VARIABLE) {
        let folder = PathBuf::from(folder);
        assert!(has_server(&folder), "{BINARIES_VARIABLE}: no initdb in {}", folder.display());
        return Some(folder);
    }
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path).find(|folder| has_server(folder)).or_else(|| {
        let versions = fs::read_dir("/usr/lib/postgresql").ok()?;
        let number = |name: OsString| name.to_str()?.parse::<u32>().ok();
        versions
            .filter_map(|version| version.ok())
            .filter_map(|version| Some((number(version.file_name())?, version.path().join("bin"))))
            .filter(|(_, folder)| has_server(folder))
            .max()
            .map(|(_, folder)| folder)
    })
}

fn has_server(folder: &Path) -> bool {
    ["initdb", "postgres"].iter().all(|program| folder.join(program).is_file())
}

/// The cluster that tests copy, made by whichever test process comes first.
fn make_template(binaries: &Path) -> PathBuf {
    let version = run(Command::new(binaries.join("postgres")).arg("--version"), "");
    let mut recipe = DefaultHasher::new();
    // This file is the recipe: a change to it makes a new template.
    (version.stdout, include_str!("postgres.rs")).hash(&mut recipe);
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let template = folder.join(format!("postgres-{:016x}", recipe.finish()));

    let turn = File::create(folder.join("postgres.lock")).expect("the target folder is ours");
    turn.lock().expect("files can be locked");
    if template.exists() {
        return template;
    }
    // Made where the unprivileged user may enter, then copied to where `cargo clean` finds it.
    let home = make_home();
    let data = home.path().join("data");
    set_up_cluster(binaries, home.path(), &data);
    let unfinished = template.with_extension("unfinished");
    let _ = fs::remove_dir_all(&unfinished);
    copy_folder(&data, &unfinished).expect("the target folder can be written");
    fs::rename(&unfinished, &template).expect("a name beside it is free");
    template
}

/// Makes a cluster with the databases of the test bed.
fn set_up_cluster(binaries: &Path, home: &Path, data: &Path) {
    let mut initdb = unprivileged_command(&binaries.join("initdb"), home);
    initdb.args(["--username=postgres", "--auth=trust", "--encoding=UTF8", "--locale=C"]);
    // The smallest log segments: they are most of what a test would copy.
    initdb.args(["--no-sync", "--wal-segsize=1", "-D"]).arg(data);
    run(&mut initdb, "");
    let mut single = unprivileged_command(&binaries.join("postgres"), home);
    single.args(["--single", "-F", "-D"]).arg(data).arg("postgres");
    run(&mut single, "CREATE DATABASE app\nCREATE DATABASE app2\n");
}

fn run(command: &mut Command, input: &str) -> Output {
    let output = (|| {
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        child.stdin.take().map(|mut stdin| stdin.write_all(input.as_bytes())).transpose()?;
        child.wait_with_output()
    })();
    let output = output.unwrap_or_else(|error| panic!("cannot run {command:?}: {error}"));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?} ended with {}:\n{said}", output.status);
    output
}

/// Copies a folder with its permissions, for the user who will run the server.
fn copy_folder(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir(to)?;
    fs::set_permissions(to, fs::metadata(from)?.permissions())?;
    give_away(to);
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy_folder(&entry.path(), &target)?;
        } else {
            fs::copy(entry.path(), &target)?;
            give_away(&target);
        }
    }
    Ok(())
}
