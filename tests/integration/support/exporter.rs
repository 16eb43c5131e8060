//! The built binary as users run it, with its files. It finds where the exporter listens from its
//! own log, and keeps the log for the test to read; what is served is read with [`Scrape`].

use std::ffi::OsStr;
use std::fs;
use std::net::SocketAddr;
use std::process::{Command, ExitStatus};
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::Value;
use tempfile::TempDir;

use super::eventually;
use super::http::{self, Response};
use super::process::Process;
use super::scrape::Scrape;

/// The binary with these arguments, and with none of the surroundings that choose a server.
pub fn locks(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_locks"));
    command.args(arguments);
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if ["PG", "DATA_SOURCE_", "LOCKS_"].iter().any(|prefix| text.starts_with(prefix)) {
            command.env_remove(&name);
        }
    }
    command
}

/// A running `locks serve`.
pub struct Exporter {
    process: Process,
    addresses: Vec<SocketAddr>,
    /// Holds the log; after the process, which writes to it.
    _home: TempDir,
}

impl Exporter {
    /// Starts `locks serve` with these arguments on a free port.
    pub async fn serve(arguments: &[&str]) -> Exporter {
        Exporter::start(serve(arguments)).await
    }

    /// Begins an exporter that looks ten times a second, however long that takes, at what its
    /// configuration names.
    pub fn builder() -> Builder {
        let home = tempfile::tempdir().expect("a folder can be made");
        let config = "poll: { interval: 100ms, max_share: 1 }\n".to_owned();
        Builder { arguments: Vec::new(), config, home }
    }

    /// [`Exporter::builder`] for one server.
    pub fn watching(dsn: &str) -> Builder {
        Exporter::builder().argument("--dsn").argument(dsn)
    }

    /// Starts a command made by [`serve`] or [`locks`], perhaps with an environment of its own,
    /// and waits until it listens.
    pub async fn start(command: Command) -> Exporter {
        let home = tempfile::tempdir().expect("a folder can be made");
        Exporter::start_in(home, command).await
    }

    async fn start_in(home: TempDir, command: Command) -> Exporter {
        let mut process = Process::start(command, &home.path().join("exporter.log"), "TERM");
        process.until_ready(async |process| !listening(&process.log()).is_empty()).await;
        let addresses = listening(&process.log());
        Exporter { process, addresses, _home: home }
    }

    /// The address it bound first.
    pub fn address(&self) -> SocketAddr {
        self.addresses[0]
    }

    /// The id of its process.
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// As users give it to `--from`.
    pub fn url(&self) -> String {
        format!("http://{}", self.address())
    }

    /// All that it logged so far.
    pub fn log(&self) -> String {
        self.process.log()
    }

    /// Gets a path from it.
    pub async fn get(&self, path: &str, headers: &[(&str, &str)]) -> Response {
        http::get(self.address(), path, headers).await
    }

    /// What `/metrics` says now.
    pub async fn scrape(&self) -> Scrape {
        let response = self.get("/metrics", &[]).await;
        assert_eq!(response.status, 200, "{}", response.text());
        Scrape::parse(response.text())
    }

    /// What polls saw that began after this call, one for each server: whatever is so now is in it,
    /// and whatever is over is not.
    pub async fn scrape_fresh(&self) -> Scrape {
        let called = unix_seconds(now());
        eventually("every server is polled successfully", async || {
            let scrape = self.scrape().await;
            let up = scrape.sample("pg_advisory_up").values();
            let polled = scrape.sample("pg_advisory_last_poll_timestamp_seconds").values();
            assert!(up.iter().all(|&up| up == 1.0), "up: {up:?}");
            assert!(polled.iter().all(|&poll| poll > called), "polled {polled:?}, not {called}");
            scrape
        })
        .await
    }

    /// What `/api/v1/locks` says now of the only server watched.
    pub async fn snapshot(&self) -> Value {
        let response = self.get("/api/v1/locks", &[]).await;
        assert_eq!(response.status, 200, "{}", response.text());
        let mut snapshot: Value = serde_json::from_slice(&response.body).expect("it is JSON");
        let servers = snapshot["servers"].as_array_mut().expect("servers are listed");
        assert_eq!(servers.len(), 1, "not one server: {servers:?}");
        servers.remove(0)
    }

    /// The lines of its log that have all these pieces in them.
    pub fn logged(&self, pieces: &[&str]) -> Vec<String> {
        let log = self.log();
        let is_meant = |line: &&str| pieces.iter().all(|piece| line.contains(piece));
        log.lines().filter(is_meant).map(str::to_owned).collect()
    }

    /// Sends a signal by its short name, as `HUP`.
    pub fn signal(&self, signal: &str) {
        self.process.signal(signal);
    }

    /// Waits for its end.
    pub async fn exit_status(&mut self) -> ExitStatus {
        self.process.until_ended().await
    }
}

/// An exporter about to start.
pub struct Builder {
    arguments: Vec<String>,
    config: String,
    home: TempDir,
}

impl Builder {
    /// Adds an argument.
    pub fn argument(mut self, argument: &str) -> Builder {
        self.arguments.push(argument.to_owned());
        self
    }

    /// Adds lines to the configuration file.
    pub fn config(mut self, yaml: &str) -> Builder {
        self.config.push_str(yaml);
        self.config.push('\n');
        self
    }

    /// Names keys by a registry file with this text.
    pub fn registry(self, yaml: &str) -> Builder {
        let path = self.home.path().join("registry.yaml");
        fs::write(&path, yaml).expect("the folder is ours");
        self.argument("--registry.file").argument(&path.to_string_lossy())
    }

    /// Starts it and waits until it listens.
    pub async fn start(self) -> Exporter {
        let path = self.home.path().join("locks.yaml");
        fs::write(&path, self.config).expect("the folder is ours");
        let mut command = serve(&["--config.file", &path.to_string_lossy()]);
        command.args(self.arguments);
        Exporter::start_in(self.home, command).await
    }
}

/// The clock of this machine, which the exporter and the servers of the tests share.
#[expect(clippy::disallowed_methods, reason = "a test compares what it did with what was seen")]
pub fn now() -> SystemTime {
    SystemTime::now()
}

/// As timestamp metrics are written.
pub fn unix_seconds(time: SystemTime) -> f64 {
    time.duration_since(UNIX_EPOCH).expect("it is later than 1970").as_secs_f64()
}

/// `locks serve` on a free port, not started yet.
pub fn serve(arguments: &[&str]) -> Command {
    let mut command = locks(&["serve", "--web.listen-address", "127.0.0.1:0"]);
    command.args(arguments.iter().map(OsStr::new));
    command
}

/// The addresses that the log says are listened on.
fn listening(log: &str) -> Vec<SocketAddr> {
    log.lines()
        .filter(|line| logfmt_value(line, "msg") == Some("listening"))
        .filter_map(|line| logfmt_value(line, "address")?.parse().ok())
        .collect()
}

/// A field of a logfmt line whose value needs no unescaping.
fn logfmt_value<'a>(line: &'a str, field: &str) -> Option<&'a str> {
    let start = line
        .match_indices(field)
        .map(|(start, _)| start)
        .find(|&start| start == 0 || line[..start].ends_with(' '))?;
    let value = line[start + field.len()..].strip_prefix('=')?;
    match value.strip_prefix('"') {
        Some(quoted) => quoted.split('"').next(),
        None => value.split(' ').next(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_is_read_from_the_log() {
        let log = "ts=2026-01-01T00:00:00Z level=info msg=\"polling the server\" address=db:5432\n\
                   ts=2026-01-01T00:00:00Z level=info msg=\"listening\" address=127.0.0.1:40001\n\
                   ts=2026-01-01T00:00:00Z level=info msg=listening address=\"[::1]:40002\" tls=false\n";
        let addresses = listening(log).iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(addresses, ["127.0.0.1:40001", "[::1]:40002"]);
    }

    #[tokio::test]
    async fn an_exporter_is_found_signalled_and_waited_for() {
        let mut stand_in = Command::new("sh");
        stand_in.args([
            "-c",
            "trap 'exit 3' TERM; echo 'msg=listening address=127.0.0.1:9' >&2; \
             while :; do sleep 0.05; done",
        ]);
        let mut exporter = Exporter::start(stand_in).await;
        assert_eq!(exporter.url(), "http://127.0.0.1:9");
        exporter.signal("TERM");
        assert_eq!(exporter.exit_status().await.code(), Some(3));
    }
}
