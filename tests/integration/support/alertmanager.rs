//! An Alertmanager that lives for one test, and a receiver that keeps what it is told. Neither knows
//! what the alerts are about.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};

use serde_json::Value;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use super::port::Port;
use super::process::{Process, make_home, unprivileged_command};
use super::{Tool, http};

/// A server that routes, groups and inhibits alerts.
pub struct Alertmanager {
    // Dropped in this order: the server ends before its folder goes.
    _process: Process,
    port: Port,
    _home: TempDir,
}

impl Alertmanager {
    /// Starts a server with this configuration, alone and on loopback.
    pub async fn start(configuration: &str) -> Alertmanager {
        let home = make_home();
        let port = Port::reserve();
        let file = home.path().join("alertmanager.yml");
        fs::write(&file, configuration).expect("the folder is ours");
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port.number()));
        let mut command = unprivileged_command(&Tool::Alertmanager.path(), home.path());
        command
            .arg(format!("--config.file={}", file.display()))
            .arg(format!("--storage.path={}", home.path().join("data").display()))
            .arg(format!("--web.listen-address={address}"))
            // It would look for others like it on every interface.
            .arg("--cluster.listen-address=")
            .arg("--log.level=warn");
        let mut process = Process::start(command, &home.path().join("alertmanager.log"), "KILL");
        process
            .until_ready(async |_| {
                let ready = http::request("GET", address, "/-/ready", &[]).await;
                ready.is_ok_and(|response| response.status == 200)
            })
            .await;
        Alertmanager { _process: process, port, _home: home }
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.port.number()))
    }

    /// All alerts that fire now, the inhibited ones too, as its API tells them.
    pub async fn alerts(&self) -> Vec<Value> {
        let response = http::get(self.address(), "/api/v2/alerts", &[]).await;
        assert_eq!(response.status, 200, "{}", response.text());
        serde_json::from_slice(&response.body).expect("the answer is JSON")
    }
}

/// A webhook on loopback: it accepts every notification and remembers the alerts in it.
pub struct Catcher {
    address: SocketAddr,
    caught: Arc<Mutex<Vec<Value>>>,
    serving: JoinHandle<()>,
}

impl Catcher {
    /// Begins to listen.
    pub async fn start() -> Catcher {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
        let address = listener.local_addr().expect("a listener has an address");
        let caught: Arc<Mutex<Vec<Value>>> = Arc::default();
        let kept = Arc::clone(&caught);
        let serving = tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                let notification = receive(socket).await.expect("a request with a body");
                let notification: Value = serde_json::from_slice(&notification).expect("JSON");
                let alerts = notification["alerts"].as_array().expect("it has alerts").clone();
                kept.lock().expect("nobody panics with it").extend(alerts);
            }
        });
        Catcher { address, caught, serving }
    }

    /// Where notifications go.
    pub fn url(&self) -> String {
        format!("http://{}/", self.address)
    }

    /// The alerts of this name that it was told of, the oldest first, with the `status` they had.
    pub fn caught(&self, alert: &str) -> Vec<Value> {
        let all = self.caught.lock().expect("nobody panics with it");
        all.iter().filter(|it| it["labels"]["alertname"] == alert).cloned().collect()
    }
}

impl Drop for Catcher {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

/// Reads one request, answers that it is well, and returns its body.
async fn receive(socket: TcpStream) -> std::io::Result<Vec<u8>> {
    let mut reader = BufReader::new(socket);
    let mut length = 0;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).await?;
        if line.trim().is_empty() {
            break;
        }
        if let Some((name, value)) = line.split_once(':')
            && name.eq_ignore_ascii_case("content-length")
        {
            length = value.trim().parse().map_err(std::io::Error::other)?;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).await?;
    let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    reader.get_mut().write_all(answer).await?;
    Ok(body)
}
