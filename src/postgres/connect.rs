//! Every connection of this program: hosts, addresses, encryption and login, in libpq's order.
//!
//! A host that does not answer gives way to the next; a server that refuses the login does not,
//! since the next one would refuse it too. `oracle/rows.toml` among the tests holds what libpq
//! does in each case. It owns sockets and their options and the order of attempts; `dsn` says what
//! is wanted, `tls` how certificates are judged. Who calls drives the connection.

use std::collections::HashMap;
use std::error::Error;
use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs as _};
use std::os::linux::net::SocketAddrExt as _;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use rand::seq::SliceRandom as _;
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::timeout;
use tokio_postgres::config::{SslMode as ClientSslMode, SslNegotiation};
use tokio_postgres::error::{DbError, SqlState};
use tokio_postgres::tls::TlsConnect;
use tokio_postgres::{CancelToken, Client, Config, NoTls, SimpleQueryMessage};

use super::aside::aside;
use super::connection::render_chain;
use super::dsn::{Account, Dsn, DsnError, Host, Lack, PassFile, Target, Transport};
use super::tls::{Connector, Negotiation, SslMode, TlsError};

/// A session, and what moves its bytes.
pub(super) struct Connected {
    pub client: Client,
    /// Has to be polled for anything to happen. It ends when the client is gone or the server hangs
    /// up, with what the server said last.
    pub driver: Driver,
    /// Calls a statement back.
    pub canceller: Canceller,
    /// What the server told of itself at the start.
    pub parameters: Parameters,
}

/// See [`Connected::driver`].
pub(super) type Driver = Pin<Box<dyn Future<Output = Result<(), tokio_postgres::Error>> + Send>>;

/// Settings that a server reports by itself.
#[derive(Debug, Default)]
pub(super) struct Parameters(HashMap<&'static str, String>);

impl Parameters {
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }
}

const REPORTED: [&str; 4] =
    ["server_version", "server_encoding", "in_hot_standby", "default_transaction_read_only"];

/// Calls back what a session runs, over a short connection of the same kind to the same place.
#[derive(Clone)]
pub(super) struct Canceller {
    token: CancelToken,
    place: Place,
    encryption: Option<(Connector, String, Negotiation)>,
}

impl Canceller {
    /// Asks the server to cancel, and waits for a second at most: nobody tells whether it did.
    pub(super) async fn cancel(&self) {
        let _ = timeout(Duration::from_secs(1), self.try_cancel()).await;
    }

    async fn try_cancel(&self) -> Result<(), Box<dyn Error + Send + Sync>> {
        let mut socket = self.place.open().await?;
        match &self.encryption {
            None => self.token.cancel_query_raw(socket, NoTls).await?,
            Some((connector, name, negotiation)) => {
                if request_tls(&mut socket, *negotiation).await? == Offer::Accepted {
                    self.token.cancel_query_raw(socket, connector.for_host(name)?).await?;
                }
            }
        }
        Ok(())
    }
}

/// Why there is no connection: what each host said, in the order in which they were tried.
#[derive(Debug)]
pub struct ConnectError(Vec<Refusal>);

/// Why one address of one host is not the one.
#[derive(Debug)]
struct Refusal {
    place: String,
    fault: Fault,
}

/// The step that failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum Fault {
    #[error("cannot resolve the name")]
    Resolve(#[source] io::Error),
    #[error("cannot connect")]
    Socket(#[source] io::Error),
    #[error("no answer within {0:?}")]
    Timeout(Duration),
    #[error("the server runs as another user than requirepeer asks for")]
    Peer,
    #[error(
        "the server does not offer TLS, and sslmode={0} asks for it: let it offer TLS (ssl = on), or \
         accept a plain connection with sslmode=prefer"
    )]
    NoTls(SslMode),
    #[error("the server answered the request for TLS with something else: is it PostgreSQL?")]
    Answer,
    #[error(transparent)]
    Tls(#[from] TlsError),
    #[error(transparent)]
    Dsn(#[from] DsnError),
    #[error("the server asks for a password, and there is none: {0}")]
    NoPassword(Lack),
    #[error(
        "cannot log in: the server did not use channel binding, and channel_binding=require asks for \
         it: let it want a password by scram-sha-256, over TLS, or say channel_binding=prefer"
    )]
    NoBinding,
    #[error("cannot log in")]
    Login(#[source] tokio_postgres::Error),
    #[error("it is not what target_session_attrs={0} asks for")]
    Target(Target),
}

impl ConnectError {
    /// The last thing that stopped it, which with several hosts is what the last one said.
    fn last(&self) -> Option<&Fault> {
        self.0.last().map(|refusal| &refusal.fault)
    }

    /// What a server said, if one did.
    pub(super) fn server_error(&self) -> Option<&DbError> {
        self.0.iter().rev().find_map(|refusal| match &refusal.fault {
            Fault::Login(error) => error.as_db_error(),
            Fault::Resolve(_)
            | Fault::Socket(_)
            | Fault::Timeout(_)
            | Fault::Peer
            | Fault::NoTls(_)
            | Fault::Answer
            | Fault::Tls(_)
            | Fault::Dsn(_)
            | Fault::NoPassword(_)
            | Fault::NoBinding
            | Fault::Target(_) => None,
        })
    }

    /// Whether nobody was there who could have refused.
    pub(super) fn is_unreachable(&self) -> bool {
        match self.last() {
            Some(Fault::Resolve(_) | Fault::Socket(_) | Fault::Timeout(_) | Fault::Answer)
            | None => true,
            Some(Fault::Login(error)) => {
                error.source().is_some_and(|source| source.is::<io::Error>())
            }
            Some(
                Fault::Peer
                | Fault::NoTls(_)
                | Fault::Tls(_)
                | Fault::Dsn(_)
                | Fault::NoPassword(_)
                | Fault::NoBinding
                | Fault::Target(_),
            ) => false,
        }
    }
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Whoever shows a single one knows which server was meant.
        if let [Refusal { fault, .. }] = &self.0[..] {
            return f.write_str(&render_chain(fault));
        }
        for (index, Refusal { place, fault }) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str("; ")?;
            }
            write!(f, "{place}: {}", render_chain(fault))?;
        }
        Ok(())
    }
}

impl Error for ConnectError {}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Any => "any",
            Self::ReadWrite => "read-write",
            Self::ReadOnly => "read-only",
            Self::Primary => "primary",
            Self::Standby => "standby",
            Self::PreferStandby => "prefer-standby",
        })
    }
}

/// Connects as the connection string says.
///
/// A place that accepts the connection and then says nothing is given up after `connect_timeout`
/// where another one is left to try. The last one is waited for, whatever it takes: a login that hangs
/// (behind somebody's lock on a catalog, say) has a server process already, and a second one beside
/// it would be no quicker. How long to wait is for whoever calls.
pub(super) async fn connect(dsn: &Dsn) -> Result<Connected, ConnectError> {
    let mut refusals = Vec::new();
    let targets: &[Target] = match dsn.startup().target {
        Target::PreferStandby => &[Target::Standby, Target::Any],
        Target::Any => &[Target::Any],
        Target::ReadWrite => &[Target::ReadWrite],
        Target::ReadOnly => &[Target::ReadOnly],
        Target::Primary => &[Target::Primary],
        Target::Standby => &[Target::Standby],
    };
    let mut hosts: Vec<&Host> = dsn.hosts().iter().collect();
    if dsn.transport().balances_hosts {
        hosts.shuffle(&mut rand::rng());
    }
    for (round, target) in targets.iter().enumerate() {
        for (index, host) in hosts.iter().enumerate() {
            let is_last = round + 1 == targets.len() && index + 1 == hosts.len();
            let attempt = Attempt { dsn, host, target: *target };
            match attempt.connect(is_last, &mut refusals).await {
                Ok(connected) => return Ok(connected),
                Err(GoOn::Elsewhere) => {}
                Err(GoOn::Nowhere) => return Err(ConnectError(refusals)),
            }
        }
    }
    Err(ConnectError(refusals))
}

/// Whether the next one may be asked after one that will not do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum GoOn {
    /// Another host, or another address of this one.
    Elsewhere,
    /// It would say the same.
    Nowhere,
}

/// One host that is tried.
struct Attempt<'a> {
    dsn: &'a Dsn,
    host: &'a Host,
    target: Target,
}

impl Attempt<'_> {
    async fn connect(&self, is_last: bool, refusals: &mut Vec<Refusal>) -> Result<Connected, GoOn> {
        let mut refuse = |fault: Fault, place: Option<&Place>| {
            refusals.push(Refusal { place: self.describe(place), fault });
        };
        let (dsn, host) = (self.dsn.clone(), self.host.clone());
        let password = match aside(move || dsn.fetch_password(&host)).await {
            Ok(Ok(password)) => password,
            Ok(Err(error)) => {
                refuse(error.into(), None);
                return Err(GoOn::Nowhere);
            }
            Err(error) => {
                refuse(Fault::Socket(error), None);
                return Err(GoOn::Nowhere);
            }
        };
        let mut places = match self.resolve().await {
            Ok(places) => places,
            Err(error) => {
                refuse(Fault::Resolve(error), None);
                return Err(GoOn::Elsewhere);
            }
        };
        if self.dsn.transport().balances_hosts {
            places.shuffle(&mut rand::rng());
        }
        for (index, place) in places.iter().enumerate() {
            let is_last = is_last && index + 1 == places.len();
            let trying = self.try_place(place, &password);
            let outcome = match self.dsn.connect_timeout().filter(|_| !is_last) {
                Some(limit) => timeout(limit, trying)
                    .await
                    .unwrap_or(Err((Fault::Timeout(limit), Next::Address))),
                None => trying.await,
            };
            match outcome {
                Ok(connected) => return Ok(connected),
                Err((fault, next)) => {
                    refuse(fault, Some(place));
                    match next {
                        Next::Address => {}
                        Next::Host => return Err(GoOn::Elsewhere),
                        Next::Plain | Next::Nothing => return Err(GoOn::Nowhere),
                    }
                }
            }
        }
        Err(GoOn::Elsewhere)
    }

    /// How a person knows the place.
    fn describe(&self, place: Option<&Place>) -> String {
        match place {
            Some(Place::Tcp(address, _))
                if self.host.name.parse::<IpAddr>().is_err() && !self.host.name.is_empty() =>
            {
                format!("{} ({})", self.host, address.ip())
            }
            _ => self.host.to_string(),
        }
    }

    async fn resolve(&self) -> io::Result<Vec<Place>> {
        let Host { name, address, port } = self.host;
        let transport = self.dsn.transport();
        let tcp = |address| Place::Tcp(address, transport.clone());
        if let Some(folder) = self.host.socket() {
            return Ok(vec![Place::Socket(format!("{folder}/.s.PGSQL.{port}"))]);
        }
        if let Some(address) = address {
            return Ok(vec![tcp(SocketAddr::new(*address, *port))]);
        }
        let (name, port) = (name.clone(), *port);
        let looking = aside(move || (name, port).to_socket_addrs());
        // The system's resolver has a patience of its own, and it may be long.
        let found = match self.dsn.connect_timeout() {
            Some(limit) => timeout(limit, looking).await.map_err(|_| {
                io::Error::new(io::ErrorKind::TimedOut, format!("no answer within {limit:?}"))
            })?,
            None => looking.await,
        };
        Ok(found??.map(tcp).collect())
    }

    /// The attempts that `sslmode` asks for, at one address.
    async fn try_place(
        &self,
        place: &Place,
        password: &PassFile,
    ) -> Result<Connected, (Fault, Next)> {
        let mode = self.dsn.tls().mode;
        let is_socket = matches!(place, Place::Socket(_));
        match mode {
            SslMode::Disable => self.login(place, password, false).await,
            // Nobody listens in on a socket of this machine.
            _ if is_socket => self.login(place, password, false).await,
            SslMode::Require | SslMode::VerifyCa | SslMode::VerifyFull => {
                self.login(place, password, true).await
            }
            SslMode::Allow => match self.login(place, password, false).await {
                Err((fault, Next::Nothing)) if fault.is_of_server() => {
                    self.login(place, password, true).await.map_err(|(second, next)| {
                        // A server without TLS has said it all at first.
                        if matches!(second, Fault::NoTls(_)) {
                            (fault, next)
                        } else {
                            (second, next)
                        }
                    })
                }
                outcome => outcome,
            },
            SslMode::Prefer => match self.login(place, password, true).await {
                // What was said over an encrypted connection may not be said over a plain one, and the
                // other way round. The first word is the better one of two.
                Err((fault, Next::Plain)) => {
                    let again = self.login(place, password, false).await;
                    again.map_err(|(_, next)| (fault, next))
                }
                outcome => outcome,
            },
        }
    }

    /// One connection and one login.
    async fn login(
        &self,
        place: &Place,
        password: &PassFile,
        encrypted: bool,
    ) -> Result<Connected, (Fault, Next)> {
        let opening = async {
            let opened = place.open().await.map_err(Fault::Socket)?;
            self.check_peer(&opened)?;
            Ok(opened)
        };
        let opened = match self.dsn.connect_timeout() {
            Some(limit) => timeout(limit, opening).await.unwrap_or(Err(Fault::Timeout(limit))),
            None => opening.await,
        };
        let mut socket = opened.map_err(|fault| {
            let next = if matches!(fault, Fault::Peer) { Next::Nothing } else { Next::Address };
            (fault, next)
        })?;
        let tls = self.dsn.tls();
        let encryption = if encrypted {
            let wanted = tls.clone();
            let connector = aside(move || wanted.connector()).await;
            let connector = connector.map_err(|error| (Fault::Socket(error), Next::Nothing))?;
            let connector = connector.map_err(|error| (error.into(), self.after_tls()))?;
            match request_tls(&mut socket, tls.negotiation).await {
                Ok(Offer::Accepted) => Some((connector, self.tls_name(), tls.negotiation)),
                Ok(Offer::Declined) if tls.mode == SslMode::Prefer => None,
                Ok(Offer::Declined) => return Err((Fault::NoTls(tls.mode), Next::Nothing)),
                Ok(Offer::Other) => return Err((Fault::Answer, self.after_tls())),
                Err(error) => return Err((Fault::Socket(error), Next::Nothing)),
            }
        } else {
            None
        };
        let config = self.config(password, encryption.is_some());
        let started = match &encryption {
            None => start(&config, socket, NoTls).await,
            Some((connector, name, _)) => {
                let connect = connector.for_host(name);
                start(&config, socket, connect.map_err(|error| (error.into(), self.after_tls()))?)
                    .await
            }
        };
        let (client, driver, parameters) =
            started.map_err(|error| self.judge(error, password, encryption.is_some()))?;
        let canceller =
            Canceller { token: client.cancel_token(), place: place.clone(), encryption };
        let mut connected = Connected { client, driver, canceller, parameters };
        match self.is_wanted(&mut connected).await {
            Ok(true) => Ok(connected),
            Ok(false) => Err((Fault::Target(self.dsn.startup().target), Next::Host)),
            Err(error) => Err((Fault::Login(error), Next::Host)),
        }
    }

    /// What comes after a refusal over an encrypted connection.
    fn after_tls(&self) -> Next {
        if self.dsn.tls().mode == SslMode::Prefer { Next::Plain } else { Next::Nothing }
    }

    /// The name that certificates are looked at for.
    fn tls_name(&self) -> String {
        match (self.host.name.as_str(), self.host.address) {
            ("", Some(address)) => address.to_string(),
            (name, _) => name.to_owned(),
        }
    }

    fn check_peer(&self, socket: &Socket) -> Result<(), Fault> {
        let Some(wanted) = &self.dsn.startup().required_peer else { return Ok(()) };
        let Socket::Unix(socket) = socket else { return Ok(()) };
        let uid = socket.peer_cred().map_err(Fault::Socket)?.uid();
        let is_wanted = Account::of(uid).is_some_and(|account| account.name == *wanted);
        if is_wanted { Ok(()) } else { Err(Fault::Peer) }
    }

    fn config(&self, password: &PassFile, encrypted: bool) -> Config {
        let startup = self.dsn.startup();
        let mut config = Config::new();
        config
            .user(self.dsn.user())
            .dbname(self.dsn.database())
            .application_name(&startup.application_name)
            .channel_binding(startup.channel_binding);
        if let PassFile::Found(password) = password {
            config.password(password);
        }
        if let Some(options) = &startup.options {
            config.options(options);
        }
        if encrypted {
            // Whether the server does was asked already.
            config.ssl_mode(ClientSslMode::Require).ssl_negotiation(SslNegotiation::Direct);
        } else {
            config.ssl_mode(ClientSslMode::Disable);
        }
        config
    }

    /// What a failed start means, and who is to be asked next.
    fn judge(
        &self,
        error: tokio_postgres::Error,
        password: &PassFile,
        encrypted: bool,
    ) -> (Fault, Next) {
        // A server that starts or stops is not the one that others are. Another refusal is final, and
        // so is a broken one: libpq does not ask the next host either.
        let next = if error.code() == Some(&SqlState::CANNOT_CONNECT_NOW) {
            Next::Host
        } else if encrypted && !is_broken(&error) {
            self.after_tls()
        } else {
            Next::Nothing
        };
        if encrypted && let Some(fault) = TlsError::of(&error) {
            return (fault.into(), next);
        }
        // The client has no type for either.
        if let PassFile::Nothing(lack) = password
            && error.to_string().contains("password missing")
        {
            return (Fault::NoPassword(lack.clone()), next);
        }
        if render_chain(&error).contains("did not use channel binding") {
            return (Fault::NoBinding, next);
        }
        (Fault::Login(error), next)
    }

    /// Whether the server is of the kind that was asked for.
    async fn is_wanted(&self, connected: &mut Connected) -> Result<bool, tokio_postgres::Error> {
        let Connected { client, driver, parameters, .. } = connected;
        // From 14 on a server says both by itself.
        let told = |name| parameters.get(name).map(|value| value == "on");
        let (standby, read_only) = (told("in_hot_standby"), told("default_transaction_read_only"));
        let mut ask = async |question: &str| -> Result<bool, tokio_postgres::Error> {
            let answer = client.simple_query(question);
            let rows = tokio::select! {
                biased;
                rows = answer => rows?,
                ended = &mut *driver => { ended?; Vec::new() }
            };
            Ok(rows.iter().any(|message| {
                matches!(message, SimpleQueryMessage::Row(row) if matches!(row.get(0), Some("t" | "on")))
            }))
        };
        let mut is_standby = async || match standby {
            Some(standby) => Ok(standby),
            None => ask("SELECT pg_catalog.pg_is_in_recovery()").await,
        };
        Ok(match self.target {
            Target::Any | Target::PreferStandby => true,
            Target::Standby => is_standby().await?,
            Target::Primary => !is_standby().await?,
            Target::ReadWrite | Target::ReadOnly => {
                let is_read_only = match (standby, read_only) {
                    (Some(standby), Some(read_only)) => standby || read_only,
                    _ => ask("SHOW transaction_read_only").await?,
                };
                is_read_only == (self.target == Target::ReadOnly)
            }
        })
    }
}

/// Whether the connection broke after the handshake, which a server that wants another client
/// certificate does with TLS 1.3. Nothing that was said asks for a plain one then.
fn is_broken(error: &tokio_postgres::Error) -> bool {
    error.is_closed() || error.to_string() == "error communicating with the server"
}

/// Who is asked after a place that will not do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    /// The next address of this host, or the next host.
    Address,
    /// The next host.
    Host,
    /// The same once more, not encrypted.
    Plain,
    /// Nobody.
    Nothing,
}

impl Fault {
    /// Whether a server spoke, and would perhaps say something else in another way of connecting.
    fn is_of_server(&self) -> bool {
        matches!(self, Self::Login(error) if error.as_db_error().is_some())
    }
}

async fn start<T>(
    config: &Config,
    socket: Socket,
    tls: T,
) -> Result<(Client, Driver, Parameters), tokio_postgres::Error>
where
    T: TlsConnect<Socket>,
    T::Stream: Send + 'static,
{
    let (client, connection) = config.connect_raw(socket, tls).await?;
    let reported = REPORTED
        .into_iter()
        .filter_map(|name| Some((name, connection.parameter(name)?.to_owned())));
    let parameters = Parameters(reported.collect());
    Ok((client, Box::pin(connection), parameters))
}

/// What a server says to the request for TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Offer {
    Accepted,
    Declined,
    Other,
}

/// Asks for TLS. Of the answer a single byte is read: whatever else came with it was not encrypted
/// and must not be taken for something that was.
async fn request_tls(socket: &mut Socket, negotiation: Negotiation) -> io::Result<Offer> {
    /// Its length, and the number that stands in the place of a protocol version.
    const REQUEST: [u8; 8] = [0, 0, 0, 8, 0x04, 0xd2, 0x16, 0x2f];
    if negotiation == Negotiation::Direct {
        return Ok(Offer::Accepted);
    }
    socket.write_all(&REQUEST).await?;
    let mut answer = [0];
    socket.read_exact(&mut answer).await?;
    Ok(match answer {
        [b'S'] => Offer::Accepted,
        [b'N'] => Offer::Declined,
        _ => Offer::Other,
    })
}

/// Where a server listens.
#[derive(Clone, Debug)]
enum Place {
    Tcp(SocketAddr, Transport),
    /// The path of a socket, or after `@` the name of one without a file.
    Socket(String),
}

impl Place {
    async fn open(&self) -> io::Result<Socket> {
        match self {
            Self::Tcp(address, transport) => {
                let stream = TcpStream::connect(address).await?;
                stream.set_nodelay(true)?;
                let socket = SockRef::from(&stream);
                if let Some(kept) = &transport.keepalive {
                    let keepalive = TcpKeepalive::new()
                        .with_time(kept.idle)
                        .with_interval(kept.interval)
                        .with_retries(kept.retries);
                    socket.set_tcp_keepalive(&keepalive)?;
                }
                if let Some(limit) = transport.tcp_user_timeout {
                    socket.set_tcp_user_timeout(Some(limit))?;
                }
                Ok(Socket::Tcp(stream))
            }
            Self::Socket(path) => Ok(Socket::Unix(match path.strip_prefix('@') {
                None => UnixStream::connect(path).await?,
                Some(name) => {
                    let address = std::os::unix::net::SocketAddr::from_abstract_name(name)?;
                    let stream = std::os::unix::net::UnixStream::connect_addr(&address)?;
                    stream.set_nonblocking(true)?;
                    UnixStream::from_std(stream)?
                }
            })),
        }
    }
}

/// Bytes to and from a server.
#[derive(Debug)]
pub(super) enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl AsyncRead for Socket {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_read(context, buffer),
            Self::Unix(stream) => Pin::new(stream).poll_read(context, buffer),
        }
    }
}

impl AsyncWrite for Socket {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_write(context, bytes),
            Self::Unix(stream) => Pin::new(stream).poll_write(context, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_flush(context),
            Self::Unix(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_shutdown(context),
            Self::Unix(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }
}
