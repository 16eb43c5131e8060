//! Started as systemd starts it: with a socket that listens already, and told where to report.

use std::fs::File;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixDatagram, UnixListener};
use std::process::{Child, Command, ExitStatus, Stdio};

use crate::support::files::Files;
use crate::support::http::get;
use crate::support::process::{Outcome, run, send_signal};
use crate::support::{DEADLINE, eventually, locks};

/// What systemd does after it made a socket its child's standard input: passes it as the third, and
/// says to whom.
const ACTIVATE: &str =
    "exec 3<&0 </dev/null; export LISTEN_FDS=1 LISTEN_PID=$$; exec \"$0\" \"$@\"";

const NOWHERE: &str = "postgresql://nobody@127.0.0.1:1/nothing?connect_timeout=1";

/// `locks serve --web.systemd-socket` with this socket passed.
fn activated(socket: impl Into<OwnedFd>, arguments: &[&str]) -> Command {
    let serve = locks(&["serve", "--dsn", NOWHERE, "--web.systemd-socket"]);
    let mut command = Command::new("sh");
    command.args(["-c", ACTIVATE]).arg(serve.get_program()).args(serve.get_args()).args(arguments);
    for (name, value) in serve.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command.stdin(Stdio::from(socket.into()));
    command
}

/// Ends with the test.
struct Running(Child);

impl Running {
    async fn stop(&mut self) -> ExitStatus {
        send_signal("TERM", self.0.id());
        eventually("it stops", async || {
            self.0.try_wait().expect("it can be waited for").expect("it ended")
        })
        .await
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn listen() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = listener.local_addr().expect("it has an address");
    (listener, address)
}

#[tokio::test]
async fn it_serves_on_the_socket_that_was_passed_and_reports_when_it_is_ready_alive_and_stopping() {
    let files = Files::new();
    let report = UnixDatagram::bind(files.path("notify")).expect("the folder is ours");
    report.set_read_timeout(Some(DEADLINE)).expect("it is above zero");
    let (listener, address) = listen();
    // Ignored, so that packages may set it beside the socket.
    let mut command = activated(listener, &["--web.listen-address", "127.0.0.1:1"]);
    command.env("NOTIFY_SOCKET", files.path("notify")).env("WATCHDOG_USEC", "200000");
    let log = File::create(files.path("log")).expect("the folder is ours");
    let mut running = Running(command.stderr(log).spawn().expect("it can be started"));

    // In the order they come, without repetitions.
    let mut said = Vec::new();
    let mut hear = |last: &str| {
        while said.last().is_none_or(|said: &String| said != last) {
            let mut message = [0; 100];
            let length = report.recv(&mut message).expect("something is reported");
            let message = String::from_utf8_lossy(&message[..length]).trim().to_owned();
            if !said.contains(&message) {
                said.push(message);
            }
        }
    };
    hear("READY=1");
    assert_eq!(get(address, "/-/healthy", &[]).await.status, 200);
    hear("WATCHDOG=1");
    assert!(running.stop().await.success());
    hear("STOPPING=1");
    assert_eq!(said, ["READY=1", "WATCHDOG=1", "STOPPING=1"]);
    let log = std::fs::read_to_string(files.path("log")).expect("it was written");
    assert!(log.contains(&format!("address={address}")), "{log}");
}

#[tokio::test]
async fn without_a_socket_of_tcp_it_says_what_is_missing() {
    let outcome: Outcome = run(locks(&["serve", "--dsn", NOWHERE, "--web.systemd-socket"])).await;
    assert_eq!(outcome.code, Some(2), "{}", outcome.stderr);
    assert!(outcome.stderr.contains("no socket was passed to this process (LISTEN_FDS)"));

    let files = Files::new();
    let unix = UnixListener::bind(files.path("socket")).expect("the folder is ours");
    let outcome = run(activated(unix, &[])).await;
    assert_eq!(outcome.code, Some(2), "{}", outcome.stderr);
    let told = "socket 1 of those passed does not listen for TCP: write a port into ListenStream=";
    assert!(outcome.stderr.contains(told), "{}", outcome.stderr);
}
