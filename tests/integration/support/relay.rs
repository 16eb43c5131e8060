//! A relay between a client and a server that reads the protocol as it passes: what the client
//! sends in one burst, in how many writes, and which prepared statements it names. It shows what a
//! poll costs the server in round trips, which no answer of the server could.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{AbortHandle, JoinSet};

use super::Postgres;

/// What a client sent from the moment all its earlier requests were answered until the server had
/// answered these: one round trip, however many requests it carries.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Burst {
    /// The types of the messages, as `PBDESPBDES`; `Q` is a simple query.
    pub messages: String,
    /// In how many pieces the bytes came. Two quick writes may come as one, so this is the least
    /// number of writes. A client that waits for an answer in between (`Flush`) needs two.
    pub reads: usize,
    /// The names of the statements that `Parse` gave a name to.
    pub named_statements: Vec<String>,
    /// The texts of all statements, of either protocol.
    pub statements: Vec<String>,
    /// How many `ReadyForQuery` the server owed for it: `Sync` and simple queries.
    pub answers: usize,
}

/// What becomes of the server's end of a connection whose client is gone.
#[derive(Clone, Copy, PartialEq, Eq)]
enum WhenClientLeaves {
    Tell,
    KeepSilent,
}

/// A running relay. It goes on until dropped.
pub struct Relay {
    address: SocketAddr,
    bursts: Arc<Mutex<Vec<Burst>>>,
    accepting: AbortHandle,
}

impl Relay {
    /// Listens on a free port of loopback and passes everything on to the server.
    pub async fn start(postgres: &Postgres) -> Relay {
        Relay::start_with(postgres, WhenClientLeaves::Tell, Duration::ZERO).await
    }

    /// The same, but whatever the server says is late by this.
    pub async fn start_slow(postgres: &Postgres, delay: Duration) -> Relay {
        Relay::start_with(postgres, WhenClientLeaves::Tell, delay).await
    }

    /// The same, but the server is never told that a client is gone, as behind a cable that was
    /// pulled.
    pub async fn start_half_open(postgres: &Postgres) -> Relay {
        Relay::start_with(postgres, WhenClientLeaves::KeepSilent, Duration::ZERO).await
    }

    async fn start_with(
        postgres: &Postgres,
        when_client_leaves: WhenClientLeaves,
        delay: Duration,
    ) -> Relay {
        let server = SocketAddr::from(([127, 0, 0, 1], postgres.port()));
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
        let address = listener.local_addr().expect("a listener has an address");
        let bursts = Arc::default();
        let shared = Arc::clone(&bursts);
        let accepting = tokio::spawn(async move {
            // Dropped with this task, and every connection with it.
            let mut connections = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                let bursts = Arc::clone(&shared);
                connections.spawn(relay(client, server, bursts, when_client_leaves, delay));
            }
        });
        Relay { address, bursts, accepting: accepting.abort_handle() }
    }

    /// A connection string through the relay, in clear text.
    pub fn dsn(&self, database: &str) -> String {
        format!("postgresql://postgres@{}/{database}?sslmode=disable", self.address)
    }

    /// The bursts of all connections that were answered so far, in the order of the answers; what
    /// belongs to start-up and authentication is not among them.
    pub fn bursts(&self) -> Vec<Burst> {
        self.bursts.lock().expect("no holder panics").clone()
    }

    /// Forgets the bursts so far, for measuring from here on.
    pub fn forget(&self) {
        self.bursts.lock().expect("no holder panics").clear();
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

/// Passes one connection on until either side closes it.
async fn relay(
    mut client: TcpStream,
    server: SocketAddr,
    bursts: Arc<Mutex<Vec<Burst>>>,
    when_client_leaves: WhenClientLeaves,
    delay: Duration,
) -> io::Result<()> {
    let mut server = TcpStream::connect(server).await?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    pass_startup(&mut client, &mut server).await?;

    let (mut from_client, mut from_server) = (Messages::default(), Messages::default());
    let mut is_started = false;
    let mut burst = Burst::default();
    let mut owed = 0;
    loop {
        // Room for a whole poll, so that one write is read in one piece.
        from_client.buffer.reserve(1 << 16);
        from_server.buffer.reserve(1 << 16);
        tokio::select! {
            read = client.read_buf(&mut from_client.buffer) => {
                let is_gone = !matches!(read, Ok(1..));
                if is_gone && when_client_leaves == WhenClientLeaves::KeepSilent {
                    return std::future::pending().await;
                }
                let bytes = from_client.newest(read?)?;
                server.write_all(bytes).await?;
                if is_started {
                    burst.reads += 1;
                }
                while let Some((kind, body)) = from_client.next() {
                    if is_started {
                        owed += burst.record(kind, &body);
                    }
                }
            }
            read = server.read_buf(&mut from_server.buffer) => {
                // Noted before it is passed on: a client that has its answer finds the burst here.
                let bytes = from_server.newest(read?)?.to_vec();
                while let Some((kind, _)) = from_server.next() {
                    if kind != b'Z' {
                        continue;
                    }
                    if is_started {
                        owed -= 1;
                    }
                    is_started = true;
                    if owed == 0 && burst.answers > 0 {
                        let burst = std::mem::take(&mut burst);
                        bursts.lock().expect("no holder panics").push(burst);
                    }
                }
                tokio::time::sleep(delay).await;
                client.write_all(&bytes).await?;
            }
        }
    }
}

/// Passes the one message without a type, which opens a connection, and declines encryption, which
/// would hide what follows.
async fn pass_startup(client: &mut TcpStream, server: &mut TcpStream) -> io::Result<()> {
    const ENCRYPTION_REQUESTS: [u32; 2] = [80_877_103, 80_877_104];
    loop {
        let length = client.read_u32().await?;
        let code = client.read_u32().await?;
        if ENCRYPTION_REQUESTS.contains(&code) {
            client.write_all(b"N").await?;
            continue;
        }
        let mut rest = vec![0; usize::try_from(length).map_err(io::Error::other)? - 8];
        client.read_exact(&mut rest).await?;
        server.write_u32(length).await?;
        server.write_u32(code).await?;
        return server.write_all(&rest).await;
    }
}

impl Burst {
    /// Notes one message of the client and returns how many `ReadyForQuery` it is owed.
    fn record(&mut self, kind: u8, body: &[u8]) -> usize {
        self.messages.push(char::from(kind));
        match kind {
            b'P' => {
                let mut texts = body.split(|&byte| byte == 0).map(String::from_utf8_lossy);
                let name = texts.next().unwrap_or_default();
                if !name.is_empty() {
                    self.named_statements.push(name.into_owned());
                }
                self.statements.extend(texts.next().map(Into::into));
                0
            }
            b'Q' | b'S' => {
                if kind == b'Q' {
                    let text = body.strip_suffix(b"\0").unwrap_or(body);
                    self.statements.push(String::from_utf8_lossy(text).into_owned());
                }
                self.answers += 1;
                1
            }
            _ => 0,
        }
    }
}

/// Bytes of one direction, cut into messages: a type, a length that counts itself, a body.
#[derive(Default)]
struct Messages {
    buffer: Vec<u8>,
}

impl Messages {
    /// What a read just added; an end of the stream is an error, which ends the relay.
    fn newest(&self, read: usize) -> io::Result<&[u8]> {
        if read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(&self.buffer[self.buffer.len() - read..])
    }

    fn next(&mut self) -> Option<(u8, Vec<u8>)> {
        let length = self.buffer.get(1..5)?.try_into().map(u32::from_be_bytes).ok()?;
        let end = 1 + usize::try_from(length).ok()?;
        let message: Vec<u8> = self.buffer.get(..end)?.to_vec();
        self.buffer.drain(..end);
        Some((message[0], message[5..].to_vec()))
    }
}
