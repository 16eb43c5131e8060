//! The network between a client and a server, which behaves as it is told: it passes everything on,
//! swallows it, lets it drip, breaks off in the middle of an answer, or leads to another server. It
//! reads nothing of what passes; `relay` does.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{AbortHandle, JoinSet};

use super::Postgres;

/// What becomes of bytes on their way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Conduct {
    /// They arrive.
    Pass,
    /// They are accepted and never arrive, and neither side is told.
    Swallow,
    /// They arrive one by one.
    Drip,
    /// Half of the server's next answer arrives, and then the client's connection is reset.
    BreakOff,
}

const CONDUCTS: [Conduct; 4] = [Conduct::Pass, Conduct::Swallow, Conduct::Drip, Conduct::BreakOff];

/// Between two bytes that drip.
const DRIP: Duration = Duration::from_millis(5);

/// A running network. It goes on until dropped.
pub struct Network {
    address: SocketAddr,
    state: Arc<State>,
    accepting: AbortHandle,
}

struct State {
    conduct: AtomicU8,
    server: AtomicU16,
    open: AtomicUsize,
    accepted: AtomicUsize,
    answered: AtomicU64,
}

impl State {
    fn conduct(&self) -> Conduct {
        CONDUCTS[usize::from(self.conduct.load(Ordering::Relaxed))]
    }
}

impl Network {
    /// Listens on a free port of loopback and passes everything on to the server.
    pub async fn start(postgres: &Postgres) -> Network {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
        let address = listener.local_addr().expect("a listener has an address");
        let state = Arc::new(State {
            conduct: AtomicU8::new(0),
            server: AtomicU16::new(postgres.port()),
            open: AtomicUsize::new(0),
            accepted: AtomicUsize::new(0),
            answered: AtomicU64::new(0),
        });
        let shared = Arc::clone(&state);
        let accepting = tokio::spawn(async move {
            // Dropped with this task, and every connection with it.
            let mut connections = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                let state = Arc::clone(&shared);
                state.accepted.fetch_add(1, Ordering::Relaxed);
                connections.spawn(async move {
                    state.open.fetch_add(1, Ordering::Relaxed);
                    // A connection that ends is what the tests are about.
                    let _ = pass_connection(client, &state).await;
                    state.open.fetch_sub(1, Ordering::Relaxed);
                });
            }
        });
        Network { address, state, accepting: accepting.abort_handle() }
    }

    /// A connection string through it.
    pub fn dsn(&self, database: &str) -> String {
        format!("postgresql://postgres@{}/{database}?connect_timeout=2", self.address)
    }

    /// Behaves so from now on, towards connections that are open as well.
    pub fn behave(&self, conduct: Conduct) {
        let index = CONDUCTS.iter().position(|it| *it == conduct).expect("all are listed");
        self.state.conduct.store(u8::try_from(index).expect("there are few"), Ordering::Relaxed);
    }

    /// Leads connections to this server from now on.
    pub fn lead_to(&self, postgres: &Postgres) {
        self.state.server.store(postgres.port(), Ordering::Relaxed);
    }

    /// How many connections are open.
    pub fn open(&self) -> usize {
        self.state.open.load(Ordering::Relaxed)
    }

    /// How many bytes servers have sent.
    pub fn answered(&self) -> u64 {
        self.state.answered.load(Ordering::Relaxed)
    }

    /// How many there ever were.
    pub fn accepted(&self) -> usize {
        self.state.accepted.load(Ordering::Relaxed)
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

/// Passes one connection on until either side closes it or it is broken off.
async fn pass_connection(mut client: TcpStream, state: &State) -> io::Result<()> {
    let server = state.server.load(Ordering::Relaxed);
    let mut server = TcpStream::connect(("127.0.0.1", server)).await?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let ended = {
        let (client_in, client_out) = client.split();
        let (server_in, server_out) = server.split();
        tokio::select! {
            ended = pass(client_in, server_out, state, false) => ended,
            ended = pass(server_in, client_out, state, true) => ended,
        }
    };
    if ended.is_err() {
        client.set_zero_linger()?;
    }
    ended
}

async fn pass(
    mut from: ReadHalf<'_>,
    mut to: WriteHalf<'_>,
    state: &State,
    is_answer: bool,
) -> io::Result<()> {
    let mut buffer = [0; 8192];
    loop {
        let length = from.read(&mut buffer).await?;
        if length == 0 {
            return Ok(());
        }
        if is_answer {
            state.answered.fetch_add(length as u64, Ordering::Relaxed);
        }
        let mut bytes = &buffer[..length];
        while let Some((first, rest)) = bytes.split_first() {
            match state.conduct() {
                Conduct::Pass => {
                    to.write_all(bytes).await?;
                    break;
                }
                Conduct::Swallow => break,
                Conduct::Drip => {
                    to.write_all(&[*first]).await?;
                    tokio::time::sleep(DRIP).await;
                    bytes = rest;
                }
                Conduct::BreakOff if is_answer => {
                    to.write_all(&bytes[..bytes.len() / 2]).await?;
                    return Err(io::ErrorKind::ConnectionReset.into());
                }
                Conduct::BreakOff => {
                    to.write_all(bytes).await?;
                    break;
                }
            }
        }
    }
}
