//! The built binary as users run it. It finds where the exporter listens from its own log, and
//! keeps the log for the test to read; what is served is read with [`Scrape`].

use std::ffi::OsStr;
use std::net::SocketAddr;
use std::process::{Command, ExitStatus};

use tempfile::TempDir;

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

    /// Starts a command made by [`serve`] or [`locks`], perhaps with an environment of its own,
    /// and waits until it listens.
    pub async fn start(command: Command) -> Exporter {
        let home = tempfile::tempdir().expect("a folder can be made");
        let mut process = Process::start(command, &home.path().join("exporter.log"), "TERM");
        process.until_ready(async |process| !listening(&process.log()).is_empty()).await;
        let addresses = listening(&process.log());
        Exporter { process, addresses, _home: home }
    }

    /// The address it bound first.
    pub fn address(&self) -> SocketAddr {
        self.addresses[0]
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

    /// Sends a signal by its short name, as `HUP`.
    pub fn signal(&self, signal: &str) {
        self.process.signal(signal);
    }

    /// Waits for its end.
    pub async fn exit_status(&mut self) -> ExitStatus {
        self.process.until_ended().await
    }
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
