//! The HTTP surface, and the only place that knows hyper.
//!
//! | path | answer |
//! | --- | --- |
//! | telemetry path, `/metrics` unless configured | every family, in the format the client accepts |
//! | `/` | the status page, for people |
//! | `/api/v1/locks` | the snapshot as JSON |
//! | `/api/v1/events` | what happened lately, as JSON |
//! | `/probe?target=NAME` | the families of one server, by its name in the configuration |
//! | `/api/v1/targets` | every server as a target of `/probe`, for Prometheus to discover |
//! | `/-/healthy` | 200 while the process works |
//! | `/-/ready` | 200 once the first poll was tried, 503 before |
//!
//! GET and HEAD only. No path changes anything, here or on a database, and none waits for one: what
//! is served is what [`Content`] has at hand. It owns routes, headers, connections and their
//! limits, and knows no metric and no lock; `main` gives it the content, a client gets the result.
//! Who may ask, and over what, is the [`Policy`] of the web configuration.

mod authentication;
mod crowd;
mod encryption;
mod listener;
mod negotiation;
mod policy;
mod rate;
mod web_config;

use std::convert::Infallible;
use std::io::Write;
use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use flate2::{Compression, write::GzEncoder};
use http_body_util::Full;
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::http::{request, uri::Authority};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, watch};
use tokio::task::{JoinError, JoinSet};
use tokio::time::Instant;

use crate::event::Filter;
use crate::metrics::exposition::Format;
use crate::page;

use crowd::{Crowd, Doing, Seat};
use listener::Acceptor;
pub use listener::{BindError, InheritError, bind, inherit};
use negotiation::{accepts_gzip, negotiate};
pub use policy::{Policy, WebConfigFile};
pub use web_config::WebConfigError;

/// The most bytes a request's head may have; a longer one is answered with 431. hyper allows no
/// smaller number than 8192.
const MAX_HEAD: usize = 16 * 1024;

/// How often it is looked whether somebody can be spared, where all connections are busy.
const FULL_PAUSE: Duration = Duration::from_millis(100);

/// What there is to serve. Every method renders what is known now; none waits for a server.
pub trait Content: Send + Sync + 'static {
    /// The body of a scrape.
    fn metrics(&self, format: Format) -> Bytes;

    /// The JSON of `/api/v1/locks`. Without `details` it leaves out what names people and data:
    /// parameters, client addresses, roles, gids.
    fn snapshot(&self, details: bool) -> Bytes;

    /// The JSON of `/api/v1/events`, with the same meaning of `details`.
    fn events(&self, filter: &Filter, details: bool) -> Bytes;

    /// The status page, with the same meaning of `details`.
    fn page(&self, query: &page::Query, details: bool) -> Bytes;

    /// The families of one configured server, if there is one of that name. Never of another.
    fn probe(&self, target: &str) -> Option<Probe>;

    /// The JSON of `/api/v1/targets`, for a client that reaches us at this address, over TLS or not.
    fn targets(&self, address: &str, is_encrypted: bool) -> Bytes;

    /// Whether the first poll was tried, whatever came of it.
    fn ready(&self) -> bool;
}

/// Renders one server's families.
pub type Probe = Box<dyn FnOnce(Format) -> Bytes + Send>;

/// How to serve.
#[derive(Clone, Debug)]
pub struct Options {
    /// The path of the metrics, with its leading slash. It goes before any other path.
    pub telemetry_path: String,
    /// Whether every peer gets the JSON with details, not only those on this machine.
    pub show_details: bool,
    /// Names by which clients may call this server beside IP addresses and `localhost`. Where
    /// clients are authenticated every name will do.
    pub allowed_hosts: Vec<String>,
    /// Who may ask, and over what, now and after the web configuration changed.
    pub policy: watch::Receiver<Arc<Policy>>,
    /// How long a connection may take to send the head of a request, the wait between two requests
    /// included; and before the first one, for the TLS handshake.
    pub head_timeout: Duration,
    /// How long a connection may go without a new request before it is cut. Since idle ones end
    /// after `head_timeout`, it concerns clients that do not read their answer.
    pub answer_timeout: Duration,
    /// How many connections are open at once, at least 1. A further one takes the place of one that
    /// is idle, and waits in the system's queue where none is.
    pub max_connections: usize,
    /// How long running answers may take to end once the server stops.
    pub drain_timeout: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            telemetry_path: "/metrics".to_owned(),
            show_details: false,
            allowed_hosts: Vec::new(),
            policy: watch::channel(Arc::default()).1,
            head_timeout: Duration::from_secs(5),
            answer_timeout: Duration::from_secs(60),
            max_connections: 100,
            drain_timeout: Duration::from_secs(5),
        }
    }
}

/// Serves on listeners from [`bind`] until `shutdown` is done, then accepts nothing more, lets
/// running answers end within `drain_timeout` and cuts the rest.
///
/// # Panics
///
/// When `content` panics while it renders: a bug in this program ends the process instead of
/// leaving it half alive.
pub async fn serve(
    listeners: Vec<TcpListener>,
    content: Arc<dyn Content>,
    options: Options,
    shutdown: impl Future<Output = ()>,
) {
    let options = Arc::new(options);
    let graceful = GracefulShutdown::new();
    let mut acceptor = Acceptor::new(listeners);
    let mut connections = JoinSet::new();
    let mut crowd = Crowd::new(options.max_connections);
    let mut shutdown = pin!(shutdown);
    loop {
        let has_room = crowd.has_room(now());
        tokio::select! {
            () = &mut shutdown => break,
            Some(ended) = connections.join_next_with_id() => crowd.leave(match ended {
                Ok((id, ())) => id,
                Err(error) => {
                    let id = error.id();
                    pass_on_panic(error);
                    id
                }
            }),
            (stream, peer) = acceptor.accept(), if has_room => {
                crowd.make_room(now());
                let seat = Arc::new(Seat::new(peer.ip(), now()));
                let task = connections.spawn(serve_connection(
                    stream,
                    peer,
                    Arc::clone(&seat),
                    Arc::clone(&content),
                    Arc::clone(&options),
                    graceful.watcher(),
                ));
                crowd.enter(seat, task);
                // So that it is heard before as many come after it as there are places.
                tokio::task::yield_now().await;
            }
            () = tokio::time::sleep(FULL_PAUSE), if !has_room => {}
        }
    }
    // Before the drain, so that a load balancer sees at once that this server is leaving.
    drop(acceptor);
    if tokio::time::timeout(options.drain_timeout, graceful.shutdown()).await.is_err() {
        tracing::info!(connections = connections.len(), "cut connections that did not end in time");
    }
    connections.shutdown().await;
}

/// Lets a panic of a connection's task go on in the server's.
fn pass_on_panic(ended: JoinError) {
    if ended.is_panic() {
        std::panic::resume_unwind(ended.into_panic());
    }
}

/// Who asks, over what.
struct Connection {
    peer: SocketAddr,
    seat: Arc<Seat>,
    /// As it was when the connection began.
    policy: Arc<Policy>,
}

/// Encrypts a connection where that is asked for, and serves it. What goes wrong here is the
/// client's and stays here.
async fn serve_connection(
    stream: TcpStream,
    peer: SocketAddr,
    seat: Arc<Seat>,
    content: Arc<dyn Content>,
    options: Arc<Options>,
    watcher: Watcher,
) {
    // Without it the last piece of an answer can wait for the client's delayed acknowledgement. A
    // socket that refuses it works nevertheless.
    let _ = stream.set_nodelay(true);
    let policy = options.policy.borrow().clone();
    let Some(acceptor) = policy.encryption.as_ref().map(|tls| tls.acceptor.clone()) else {
        let connection = Connection { peer, seat, policy };
        return serve_requests(stream, connection, content, options, watcher).await;
    };
    match tokio::time::timeout(options.head_timeout, acceptor.accept(stream)).await {
        Ok(Ok(stream)) => {
            let connection = Connection { peer, seat, policy };
            serve_requests(stream, connection, content, options, watcher).await;
        }
        Ok(Err(error)) => tracing::debug!(%peer, %error, "TLS handshake failed"),
        Err(_) => tracing::debug!(%peer, "cut a connection that did not finish its TLS handshake"),
    }
}

/// Answers one connection's requests until it ends or is cut.
async fn serve_requests(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    connection: Connection,
    content: Arc<dyn Content>,
    options: Arc<Options>,
    watcher: Watcher,
) {
    let peer = connection.peer;
    let connection = Arc::new(connection);
    let requested = Notify::new();
    let service = service_fn(|request: Request<hyper::body::Incoming>| {
        requested.notify_one();
        connection.seat.set(Doing::Asking, now());
        let (head, _) = request.into_parts();
        let (content, options) = (Arc::clone(&content), Arc::clone(&options));
        let connection = Arc::clone(&connection);
        async move {
            let response = answer(&head, &connection, content, &options).await;
            connection.seat.set(Doing::Answered, now());
            Ok::<_, Infallible>(response)
        }
    });
    // The timeout for the head also ends connections that are kept alive and idle; the test is
    // `an_idle_connection_gives_way_to_one_that_waits`.
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(options.head_timeout)
        .max_buf_size(MAX_HEAD)
        .serve_connection(TokioIo::new(stream), service);
    // hyper has no timeout for writing.
    let stalled = async {
        while tokio::time::timeout(options.answer_timeout, requested.notified()).await.is_ok() {}
    };
    tokio::select! {
        ended = watcher.watch(connection) => {
            if let Err(error) = ended {
                tracing::debug!(%peer, %error, "connection failed");
            }
        }
        () = stalled => tracing::debug!(%peer, "cut a connection that did not read its answer"),
    }
}

/// The answer to one request, with what the policy adds to it.
async fn answer(
    head: &request::Parts,
    connection: &Connection,
    content: Arc<dyn Content>,
    options: &Options,
) -> Response<Full<Bytes>> {
    let policy = options.policy.borrow().clone();
    let mut response = match refuse(head, connection, &policy).await {
        Some(refusal) => refusal,
        None => respond(head, connection.peer.ip(), content, options, &policy).await,
    };
    for (name, value) in &policy.headers {
        response.headers_mut().insert(name, value.clone());
    }
    if !Arc::ptr_eq(&policy, &connection.policy) {
        // The next request comes over a connection as the web configuration has it now.
        set(&mut response, header::CONNECTION, "close");
    }
    response
}

/// What is said to who may not ask. The two probes are everybody's: they say nothing worth guarding,
/// and orchestrators know no password.
async fn refuse(
    head: &request::Parts,
    connection: &Connection,
    policy: &Policy,
) -> Option<Response<Full<Bytes>>> {
    if matches!(head.uri.path(), "/-/healthy" | "/-/ready") {
        return None;
    }
    if let Some(Err(wait)) = policy.bucket.as_ref().map(|bucket| bucket.take(now())) {
        let mut response = text(StatusCode::TOO_MANY_REQUESTS, "too many requests: try later\n");
        // Whole seconds, and not a moment too early.
        let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        return Some(response);
    }
    if policy.requires_certificate() && !connection.policy.requires_certificate() {
        let reason = "a certificate is asked for since this connection began: connect again\n";
        return Some(text(StatusCode::UNAUTHORIZED, reason));
    }
    if let Some(users) = &policy.users {
        let mut given = head.headers.get_all(header::AUTHORIZATION).iter();
        let is_admitted = match (given.next(), given.next()) {
            (Some(given), None) => users.admit(given.as_bytes(), connection.peer.ip()).await,
            (_, _) => false,
        };
        if !is_admitted {
            tracing::debug!(peer = %connection.peer, "refused a request without a right password");
            let mut response =
                text(StatusCode::UNAUTHORIZED, "log in with a name and a password\n");
            let challenge = "Basic realm=\"locks\", charset=\"UTF-8\"";
            set(&mut response, header::WWW_AUTHENTICATE, challenge);
            return Some(response);
        }
    }
    None
}

/// The answer to one request that may be asked.
async fn respond(
    head: &request::Parts,
    peer: IpAddr,
    content: Arc<dyn Content>,
    options: &Options,
    policy: &Policy,
) -> Response<Full<Bytes>> {
    let details =
        options.show_details || policy.authenticates() || is_on_this_machine(peer, &head.headers);
    if head.method != Method::GET && head.method != Method::HEAD {
        let mut response =
            text(StatusCode::METHOD_NOT_ALLOWED, "method not allowed: use GET or HEAD\n");
        set(&mut response, header::ALLOW, "GET, HEAD");
        return response;
    }
    match head.uri.path() {
        // The two probes come before the check of the host: they say nothing worth guarding, and
        // orchestrators call them by whatever name they have.
        "/-/healthy" => text(StatusCode::OK, "healthy\n"),
        "/-/ready" if content.ready() => text(StatusCode::OK, "ready\n"),
        "/-/ready" => text(StatusCode::SERVICE_UNAVAILABLE, "not ready: no poll was tried yet\n"),
        _ if !policy.authenticates() && !is_host_allowed(head, options) => text(
            StatusCode::FORBIDDEN,
            "this name is not one of the server's: call it by IP address or as localhost, \
             or add the name to --web.allowed-hosts\n",
        ),
        path if path == options.telemetry_path => {
            let format = negotiate(joined(&head.headers, header::ACCEPT).as_deref());
            let render = move || content.metrics(format);
            let mut response = compressible(head, format.content_type(), render).await;
            set(&mut response, header::VARY, "Accept, Accept-Encoding");
            response
        }
        "/probe" => {
            let Some(target) = target(head.uri.query()) else {
                return text(
                    StatusCode::BAD_REQUEST,
                    "one target is asked for: /probe?target=NAME\n",
                );
            };
            let Some(probe) = content.probe(&target) else {
                return text(
                    StatusCode::NOT_FOUND,
                    "no server of this name is configured: /api/v1/targets lists them\n",
                );
            };
            let format = negotiate(joined(&head.headers, header::ACCEPT).as_deref());
            let render = move || probe(format);
            let mut response = compressible(head, format.content_type(), render).await;
            set(&mut response, header::VARY, "Accept, Accept-Encoding");
            response
        }
        "/api/v1/targets" => {
            let Some(address) = authority(head) else {
                let reason = "targets are at the address that is asked: say it as `Host`\n";
                return text(StatusCode::BAD_REQUEST, reason);
            };
            let address = address.to_string();
            let is_encrypted = policy.is_encrypted();
            let render = move || content.targets(&address, is_encrypted);
            let mut response = compressible(head, "application/json", render).await;
            set(&mut response, header::VARY, "Accept-Encoding");
            response
        }
        "/api/v1/locks" => {
            let render = move || content.snapshot(details);
            let mut response = compressible(head, "application/json", render).await;
            set(&mut response, header::VARY, "Accept-Encoding");
            response
        }
        "/api/v1/events" => {
            let filter = match Filter::parse(head.uri.query()) {
                Ok(filter) => filter,
                Err(error) => return text(StatusCode::BAD_REQUEST, format!("{error}\n")),
            };
            let render = move || content.events(&filter, details);
            let mut response = compressible(head, "application/json", render).await;
            set(&mut response, header::VARY, "Accept-Encoding");
            response
        }
        "/" => {
            let query = page::Query::parse(head.uri.query());
            let render = move || content.page(&query, details);
            let mut response = compressible(head, "text/html; charset=utf-8", render).await;
            set(&mut response, header::VARY, "Accept-Encoding");
            set(&mut response, header::REFERRER_POLICY, "no-referrer");
            set(&mut response, header::CONTENT_SECURITY_POLICY, &page::CONTENT_SECURITY_POLICY);
            response
        }
        _ => text(StatusCode::NOT_FOUND, "not found: / lists what there is\n"),
    }
}

/// The one target of a query; of none and of several, nothing.
fn target(query: Option<&str>) -> Option<String> {
    let pairs = form_urlencoded::parse(query.unwrap_or_default().as_bytes());
    let mut targets = pairs.filter(|(name, _)| name == "target").map(|(_, target)| target);
    let target = targets.next()?.into_owned();
    (!target.is_empty() && targets.next().is_none()).then_some(target)
}

/// By which name and port the request calls this server.
fn authority(head: &request::Parts) -> Option<Authority> {
    let host = || Authority::try_from(head.headers.get(header::HOST)?.as_bytes()).ok();
    head.uri.authority().cloned().or_else(host)
}

/// Whether the request calls this server by a name it may be called by. Otherwise any web page
/// could point a name of its own at 127.0.0.1 and read, through the browser of somebody on this
/// machine, what only this machine should see. A request without a host is not a browser's.
fn is_host_allowed(head: &request::Parts, options: &Options) -> bool {
    let authority = match (head.uri.authority(), head.headers.get(header::HOST)) {
        (Some(authority), _) => authority.clone(),
        (None, None) => return true,
        (None, Some(host)) => match Authority::try_from(host.as_bytes()) {
            Ok(authority) => authority,
            Err(_) => return false,
        },
    };
    let host = authority.host();
    let address = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    address.parse::<IpAddr>().is_ok()
        || host.eq_ignore_ascii_case("localhost")
        || options.allowed_hosts.iter().any(|name| host.eq_ignore_ascii_case(name))
}

/// Whether the client sits on this machine. Behind a proxy on this machine every client seems to,
/// so a request that says it was forwarded does not count.
fn is_on_this_machine(peer: IpAddr, headers: &HeaderMap) -> bool {
    peer.to_canonical().is_loopback()
        && !["forwarded", "via", "x-forwarded-for", "x-real-ip"]
            .into_iter()
            .any(|name| headers.contains_key(name))
}

fn text(status: StatusCode, body: impl Into<Bytes>) -> Response<Full<Bytes>> {
    plain(status, "text/plain; charset=utf-8", body.into())
}

/// A response whose body is compressed where the client accepts it. Rendered beside the thread that
/// polls: with very many locks it takes longer than a poll, which must not wait for it.
async fn compressible(
    head: &request::Parts,
    content_type: &'static str,
    render: impl FnOnce() -> Bytes + Send + 'static,
) -> Response<Full<Bytes>> {
    let compresses = accepts_gzip(joined(&head.headers, header::ACCEPT_ENCODING).as_deref());
    let rendering = tokio::task::spawn_blocking(move || {
        let body = render();
        if compresses { compress(&body) } else { body }
    });
    let body = match rendering.await {
        Ok(body) => body,
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    };
    let mut response = plain(StatusCode::OK, content_type, body);
    if compresses {
        set(&mut response, header::CONTENT_ENCODING, "gzip");
    }
    response
}

fn compress(body: &[u8]) -> Bytes {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(body).expect("writing to a Vec cannot fail");
    encoder.finish().expect("writing to a Vec cannot fail").into()
}

/// A response with the headers that all have. For HEAD hyper sends the headers and leaves the body.
fn plain(status: StatusCode, content_type: &'static str, body: Bytes) -> Response<Full<Bytes>> {
    let length = HeaderValue::from(body.len());
    let mut response = Response::new(Full::new(body));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_LENGTH, length);
    set(&mut response, header::CONTENT_TYPE, content_type);
    set(&mut response, header::CACHE_CONTROL, "no-store");
    set(&mut response, header::X_CONTENT_TYPE_OPTIONS, "nosniff");
    response
}

fn set(response: &mut Response<Full<Bytes>>, name: HeaderName, value: &'static str) {
    response.headers_mut().insert(name, HeaderValue::from_static(value));
}

/// All values of a header that is a list, as the one list they stand for.
fn joined(headers: &HeaderMap, name: HeaderName) -> Option<String> {
    let values: Vec<&str> =
        headers.get_all(name).iter().filter_map(|value| value.to_str().ok()).collect();
    (!values.is_empty()).then(|| values.join(","))
}

#[expect(clippy::disallowed_methods, reason = "the server is an edge")]
fn now() -> Instant {
    Instant::now()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;
    use std::io::Read;
    use std::net::Ipv4Addr;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::{Mutex, mpsc};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::sync::oneshot;
    use tokio::task::JoinHandle;

    const SHORT: Duration = Duration::from_millis(50);

    /// Content whose answers say how they were asked for.
    #[derive(Default)]
    struct Fake {
        /// The scrape, where the test needs a certain one.
        metrics: Bytes,
        unready: bool,
        panics: bool,
        /// Rendering takes until the other end of this is dropped.
        busy: Option<Mutex<mpsc::Receiver<()>>>,
        begun: Arc<AtomicUsize>,
    }

    impl Fake {
        /// A scrape that no socket buffer swallows: it is in flight until the client reads it.
        fn endless() -> Self {
            Self { metrics: Bytes::from(vec![b'x'; 32 << 20]), ..Self::default() }
        }
    }

    impl Content for Fake {
        fn metrics(&self, format: Format) -> Bytes {
            assert!(!self.panics, "a panic of the content");
            self.begun.fetch_add(1, Ordering::Relaxed);
            if let Some(busy) = &self.busy {
                let _over = busy.lock().unwrap().recv();
            }
            match self.metrics.is_empty() {
                true => format!("metrics as {format:?}\n").into(),
                false => self.metrics.clone(),
            }
        }

        fn snapshot(&self, details: bool) -> Bytes {
            format!("{{\"details\":{details}}}").into()
        }

        fn events(&self, filter: &Filter, details: bool) -> Bytes {
            format!("{{\"limit\":{},\"details\":{details}}}", filter.limit).into()
        }

        fn probe(&self, target: &str) -> Option<Probe> {
            let text = format!("the families of {target}");
            (target == "orders & co").then(|| Box::new(move |_| text.into()) as Probe)
        }

        fn targets(&self, address: &str, is_encrypted: bool) -> Bytes {
            format!("targets at {address}, encrypted: {is_encrypted}").into()
        }

        fn page(&self, query: &page::Query, details: bool) -> Bytes {
            format!("a page, {query:?}, details: {details}").into()
        }

        fn ready(&self) -> bool {
            !self.unready
        }
    }

    struct Server {
        address: SocketAddr,
        shutdown: oneshot::Sender<()>,
        task: JoinHandle<()>,
    }

    fn start(content: Fake, options: Options) -> Server {
        let listeners = bind(&[(Ipv4Addr::LOCALHOST, 0).into()]).unwrap();
        let address = listeners[0].local_addr().unwrap();
        let (shutdown, stopped) = oneshot::channel();
        let task = tokio::spawn(serve(listeners, Arc::new(content), options, async {
            let _ = stopped.await;
        }));
        Server { address, shutdown, task }
    }

    fn start_default() -> Server {
        start(Fake::default(), Options::default())
    }

    /// A deadline, so that a test that would hang fails.
    async fn within<T>(future: impl Future<Output = T>) -> T {
        tokio::time::timeout(Duration::from_secs(20), future).await.expect("not done in time")
    }

    struct Client {
        stream: TcpStream,
    }

    #[derive(Debug)]
    struct Reply {
        status: u16,
        headers: HashMap<String, String>,
        body: Vec<u8>,
    }

    impl Reply {
        fn text(&self) -> &str {
            std::str::from_utf8(&self.body).unwrap()
        }
    }

    impl Client {
        async fn connect(server: &Server) -> Self {
            Self { stream: TcpStream::connect(server.address).await.unwrap() }
        }

        async fn send(&mut self, text: &str) {
            self.stream.write_all(text.as_bytes()).await.unwrap();
        }

        async fn read_head(&mut self) -> Reply {
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                head.push(within(self.stream.read_u8()).await.unwrap());
            }
            let head = String::from_utf8(head).unwrap();
            let mut lines = head.lines();
            let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
            let headers = lines
                .filter_map(|line| line.split_once(": "))
                .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
                .collect();
            Reply { status, headers, body: Vec::new() }
        }

        async fn read_body(&mut self, reply: &mut Reply) {
            reply.body = vec![0; reply.headers["content-length"].parse().unwrap()];
            within(self.stream.read_exact(&mut reply.body)).await.unwrap();
        }

        async fn read_reply(&mut self) -> Reply {
            let mut reply = self.read_head().await;
            self.read_body(&mut reply).await;
            reply
        }

        /// Sends a GET with more header lines and reads the reply; the connection stays open.
        async fn get(&mut self, path: &str, headers: &[&str]) -> Reply {
            self.send(&request("GET", path, headers)).await;
            self.read_reply().await
        }

        /// What still comes until the server closes.
        async fn read_to_end(&mut self) -> Vec<u8> {
            let mut rest = Vec::new();
            within(self.stream.read_to_end(&mut rest)).await.unwrap();
            rest
        }
    }

    fn request(method: &str, path: &str, headers: &[&str]) -> String {
        let host = match headers.iter().any(|header| header.starts_with("Host:")) {
            true => "",
            false => "Host: localhost:10187\r\n",
        };
        let headers: String = headers.iter().map(|header| format!("{header}\r\n")).collect();
        format!("{method} {path} HTTP/1.1\r\n{host}{headers}\r\n")
    }

    async fn get(server: &Server, path: &str, headers: &[&str]) -> Reply {
        Client::connect(server).await.get(path, headers).await
    }

    fn decompress(body: &[u8]) -> String {
        let mut text = String::new();
        flate2::read::GzDecoder::new(body).read_to_string(&mut text).unwrap();
        text
    }

    #[tokio::test]
    async fn every_path_has_its_answer() {
        let server = start_default();
        for (path, status, content_type, body) in [
            ("/metrics", 200, "text/plain; version=0.0.4; charset=utf-8", "metrics as Text\n"),
            ("/metrics?x=1", 200, "text/plain; version=0.0.4; charset=utf-8", "metrics as Text\n"),
            ("/api/v1/locks", 200, "application/json", "{\"details\":true}"),
            ("/api/v1/events?limit=7", 200, "application/json", "{\"limit\":7,\"details\":true}"),
            ("/-/healthy", 200, "text/plain; charset=utf-8", "healthy\n"),
            ("/-/ready", 200, "text/plain; charset=utf-8", "ready\n"),
            ("/metrics/", 404, "text/plain; charset=utf-8", "not found: / lists what there is\n"),
            ("/nowhere", 404, "text/plain; charset=utf-8", "not found: / lists what there is\n"),
        ] {
            let reply = get(&server, path, &[]).await;
            assert_eq!(
                (reply.status, reply.headers["content-type"].as_str(), reply.text()),
                (status, content_type, body),
                "{path}"
            );
        }
        let page = get(&server, "/?flat=1", &[]).await;
        assert_eq!(page.status, 200);
        assert_eq!(page.headers["content-type"], "text/html; charset=utf-8");
        assert_eq!(page.headers["content-security-policy"], *page::CONTENT_SECURITY_POLICY);
        assert_eq!(page.headers["referrer-policy"], "no-referrer");
        let text = page.text();
        assert!(text.contains("flat: true") && text.contains("details: true"), "{text}");
    }

    #[tokio::test]
    async fn every_answer_has_a_length_and_forbids_caches_and_guesses() {
        let server = start_default();
        let paths = ["/", "/metrics", "/api/v1/locks", "/api/v1/events", "/api/v1/events?x"];
        for path in paths.into_iter().chain(["/-/healthy", "/-/ready", "/nowhere"]) {
            for encoding in ["Accept-Encoding: gzip", "Accept-Encoding: identity"] {
                let reply = get(&server, path, &[encoding]).await;
                assert_eq!(reply.headers["cache-control"], "no-store", "{path}");
                assert_eq!(reply.headers["x-content-type-options"], "nosniff", "{path}");
                assert!(!reply.headers.contains_key("transfer-encoding"), "{path}");
            }
        }
    }

    #[tokio::test]
    async fn a_query_for_events_that_is_not_understood_is_told_why() {
        let server = start_default();
        let reply = get(&server, "/api/v1/events?limit=0", &[]).await;
        assert_eq!((reply.status, reply.text()), (400, "limit is not between 1 and 10000\n"));
        let reply = get(&server, "/api/v1/events?since=now", &[]).await;
        assert_eq!(reply.status, 400);
        assert!(reply.text().starts_with("unknown parameter: use server, lock"));
    }

    #[tokio::test]
    async fn the_telemetry_path_is_where_the_operator_put_it() {
        let options = Options { telemetry_path: "/locks".to_owned(), ..Options::default() };
        let server = start(Fake::default(), options);
        assert_eq!(get(&server, "/locks", &[]).await.text(), "metrics as Text\n");
        assert_eq!(get(&server, "/metrics", &[]).await.status, 404);
    }

    #[tokio::test]
    async fn ready_is_refused_until_the_first_poll_and_healthy_is_not() {
        let server = start(Fake { unready: true, ..Fake::default() }, Options::default());
        let reply = get(&server, "/-/ready", &[]).await;
        assert_eq!((reply.status, reply.text()), (503, "not ready: no poll was tried yet\n"));
        assert_eq!(get(&server, "/-/healthy", &[]).await.status, 200);
        assert_eq!(get(&server, "/metrics", &[]).await.status, 200);
    }

    #[tokio::test]
    async fn other_methods_are_told_which_there_are() {
        let server = start_default();
        for method in ["POST", "PUT", "DELETE", "OPTIONS", "TRACE", "BREW"] {
            let mut client = Client::connect(&server).await;
            client.send(&request(method, "/metrics", &["Content-Length: 0"])).await;
            let reply = client.read_reply().await;
            assert_eq!(reply.status, 405, "{method}");
            assert_eq!(reply.headers["allow"], "GET, HEAD", "{method}");
        }
    }

    #[tokio::test]
    async fn head_has_the_headers_of_get_and_no_body() {
        let server = start_default();
        for path in
            ["/", "/metrics", "/api/v1/events", "/api/v1/events?x", "/-/healthy", "/nowhere"]
        {
            let mut client = Client::connect(&server).await;
            client.send(&request("HEAD", path, &["Connection: close"])).await;
            let mut head = client.read_head().await;
            assert_eq!(client.read_to_end().await, b"", "{path}");

            let mut get = get(&server, path, &["Connection: close"]).await;
            assert_eq!(get.headers["content-length"], get.body.len().to_string());
            for reply in [&mut head, &mut get] {
                reply.headers.remove("date");
            }
            assert_eq!((head.status, head.headers), (get.status, get.headers), "{path}");
        }
    }

    #[tokio::test]
    async fn metrics_and_json_are_compressed_for_those_who_accept_it() {
        let server = start_default();
        for (path, vary, body) in [
            ("/metrics", "Accept, Accept-Encoding", "metrics as Text\n"),
            ("/api/v1/locks", "Accept-Encoding", "{\"details\":true}"),
            ("/api/v1/events", "Accept-Encoding", "{\"limit\":1000,\"details\":true}"),
        ] {
            let reply = get(&server, path, &["Accept-Encoding: gzip"]).await;
            assert_eq!(reply.headers["content-encoding"], "gzip", "{path}");
            assert_eq!(reply.headers["vary"], vary, "{path}");
            assert_eq!(decompress(&reply.body), body);

            for encoding in ["Accept-Encoding: gzip;q=0", "Accept-Encoding: br"] {
                let reply = get(&server, path, &[encoding]).await;
                assert!(!reply.headers.contains_key("content-encoding"), "{path} {encoding}");
                assert_eq!(reply.headers["vary"], vary, "{path}");
                assert_eq!(reply.text(), body);
            }
        }
    }

    #[tokio::test]
    async fn openmetrics_is_served_to_those_who_prefer_it() {
        let server = start_default();
        for headers in [
            &["Accept: application/openmetrics-text;version=1.0.0,text/plain;q=0.5"][..],
            &["Accept: text/plain;q=0.5", "Accept: application/openmetrics-text"],
        ] {
            let reply = get(&server, "/metrics", headers).await;
            assert_eq!(
                reply.headers["content-type"],
                "application/openmetrics-text; version=1.0.0; charset=utf-8"
            );
            assert_eq!(reply.text(), "metrics as OpenMetrics\n");
        }
    }

    #[tokio::test]
    async fn details_are_for_this_machine_and_not_for_what_a_proxy_on_it_forwards() {
        let server = start_default();
        let body = |reply: Reply| reply.text().to_owned();
        assert_eq!(body(get(&server, "/api/v1/locks", &[]).await), "{\"details\":true}");
        let forwarded = ["X-Forwarded-For: 203.0.113.9"];
        let events = body(get(&server, "/api/v1/events", &forwarded).await);
        assert_eq!(events, "{\"limit\":1000,\"details\":false}");
        assert_eq!(body(get(&server, "/api/v1/locks", &forwarded).await), "{\"details\":false}");

        let shown = start(Fake::default(), Options { show_details: true, ..Options::default() });
        assert_eq!(body(get(&shown, "/api/v1/locks", &forwarded).await), "{\"details\":true}");

        for (peer, here) in [
            ("127.0.0.1", true),
            ("127.8.8.8", true),
            ("::1", true),
            ("::ffff:127.0.0.1", true),
            ("10.0.0.1", false),
            ("::ffff:10.0.0.1", false),
            ("::", false),
        ] {
            let peer = peer.parse().unwrap();
            assert_eq!(is_on_this_machine(peer, &HeaderMap::new()), here, "{peer}");
        }
    }

    #[tokio::test]
    async fn a_name_that_is_not_the_servers_is_refused() {
        let allowed_hosts = vec!["locks.example".to_owned()];
        let server = start(Fake::default(), Options { allowed_hosts, ..Options::default() });
        for (host, status) in [
            ("Host: localhost", 200),
            ("Host: LOCALHOST:10187", 200),
            ("Host: 127.0.0.1:10187", 200),
            ("Host: 192.0.2.7", 200),
            ("Host: [::1]:10187", 200),
            ("Host: Locks.example:10187", 200),
            ("Host: rebound.example:10187", 403),
            ("Host: localhost.rebound.example", 403),
            ("Host: 127.0.0.1.rebound.example", 403),
            ("Host:", 403),
        ] {
            for path in ["/", "/metrics", "/api/v1/locks", "/api/v1/events"] {
                assert_eq!(get(&server, path, &[host]).await.status, status, "{host} {path}");
            }
            assert_eq!(get(&server, "/-/healthy", &[host]).await.status, 200, "{host}");
        }
    }

    #[tokio::test]
    async fn a_client_of_http_1_0_is_answered_and_let_go() {
        let server = start_default();
        let mut client = Client::connect(&server).await;
        client.send("GET /-/healthy HTTP/1.0\r\n\r\n").await;
        let reply = client.read_reply().await;
        assert_eq!((reply.status, reply.text()), (200, "healthy\n"));
        assert_eq!(client.read_to_end().await, b"");
    }

    #[tokio::test]
    async fn a_connection_serves_one_request_after_another() {
        let server = start_default();
        let mut client = Client::connect(&server).await;
        for _ in 0..3 {
            assert_eq!(client.get("/metrics", &[]).await.text(), "metrics as Text\n");
        }
    }

    #[tokio::test]
    async fn a_head_that_is_too_long_or_no_http_is_refused_and_harms_nobody() {
        let server = start_default();
        let long = format!("X-Long: {}", "x".repeat(MAX_HEAD));
        for (sent, status) in [
            (request("GET", "/metrics", &[&long]), 431),
            ("\x16\x03\x01 this is not HTTP\r\n\r\n".to_owned(), 400),
        ] {
            let mut client = Client::connect(&server).await;
            client.send(&sent).await;
            assert_eq!(client.read_head().await.status, status);
        }
        assert_eq!(get(&server, "/metrics", &[]).await.status, 200);
    }

    #[tokio::test]
    async fn a_client_that_does_not_finish_its_head_is_cut() {
        let server = start(Fake::default(), Options { head_timeout: SHORT, ..Options::default() });
        for sent in ["", "GET /metr", "GET /metrics HTTP/1.1\r\nHost: localhost\r\n"] {
            let mut client = Client::connect(&server).await;
            client.send(sent).await;
            assert_eq!(client.read_to_end().await, b"", "{sent}");
        }
    }

    #[tokio::test]
    async fn a_client_that_does_not_read_its_answer_is_cut() {
        let options = Options { answer_timeout: SHORT, max_connections: 1, ..Options::default() };
        let server = start(Fake::endless(), options);
        let mut stalled = Client::connect(&server).await;
        stalled.send(&request("GET", "/metrics", &[])).await;
        assert_eq!(get(&server, "/-/healthy", &[]).await.status, 200);
        let mut rest = Vec::new();
        // Cut in the middle: the system says so or ends the stream early.
        let _ = within(stalled.stream.read_to_end(&mut rest)).await;
        assert!(rest.len() < 32 << 20, "{}", rest.len());
    }

    #[tokio::test]
    async fn connections_past_the_limit_wait_while_the_others_are_busy() {
        let (rendering, busy) = mpsc::channel();
        let begun = Arc::<AtomicUsize>::default();
        let busy = Some(Mutex::new(busy));
        let content = Fake { busy, begun: begun.clone(), ..Fake::default() };
        let server = start(content, Options { max_connections: 1, ..Options::default() });
        let mut first = Client::connect(&server).await;
        first.send(&request("GET", "/metrics", &[])).await;
        within(async {
            while begun.load(Ordering::Relaxed) == 0 {
                tokio::task::yield_now().await;
            }
        })
        .await;
        let mut second = Client::connect(&server).await;
        second.send(&request("GET", "/-/healthy", &[])).await;
        // Longer than it takes to look for somebody who can be spared.
        let patience = 3 * FULL_PAUSE;
        assert!(tokio::time::timeout(patience, second.stream.readable()).await.is_err());

        drop(rendering);
        assert_eq!(first.read_reply().await.text(), "metrics as Text\n");
        drop(first);
        assert_eq!(second.read_reply().await.status, 200);
    }

    #[tokio::test]
    async fn a_newcomer_takes_the_place_of_who_says_nothing() {
        let server = start(Fake::default(), Options { max_connections: 2, ..Options::default() });
        let mut oldest = Client::connect(&server).await;
        let mut silent = Client::connect(&server).await;
        assert_eq!(get(&server, "/metrics", &[]).await.status, 200);
        assert_eq!(oldest.read_to_end().await, b"");
        assert_eq!(silent.get("/metrics", &[]).await.status, 200);
    }

    #[tokio::test]
    async fn an_idle_connection_gives_way_to_one_that_waits() {
        let options = Options { head_timeout: SHORT, max_connections: 1, ..Options::default() };
        let server = start(Fake::default(), options);
        let mut idle = Client::connect(&server).await;
        idle.get("/metrics", &[]).await;
        assert_eq!(get(&server, "/metrics", &[]).await.status, 200);
        assert_eq!(idle.read_to_end().await, b"");
    }

    #[tokio::test]
    async fn one_answer_does_not_wait_for_another() {
        let server = start(Fake::endless(), Options::default());
        let mut slow = Client::connect(&server).await;
        slow.send(&request("GET", "/metrics", &[])).await;
        let mut reply = slow.read_head().await;
        assert_eq!(get(&server, "/-/healthy", &[]).await.status, 200);
        slow.read_body(&mut reply).await;
        assert_eq!(reply.body.len(), 32 << 20);
    }

    #[tokio::test]
    async fn stopping_refuses_new_connections_and_finishes_answers_in_flight() {
        let server = start(Fake::endless(), Options::default());
        let mut idle = Client::connect(&server).await;
        idle.get("/-/healthy", &[]).await;
        let mut busy = Client::connect(&server).await;
        busy.send(&request("GET", "/metrics", &[])).await;
        let mut reply = busy.read_head().await;

        server.shutdown.send(()).unwrap();
        assert_eq!(idle.read_to_end().await, b"");
        let refused = TcpStream::connect(server.address).await.unwrap_err();
        assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused);
        assert!(!server.task.is_finished());

        busy.read_body(&mut reply).await;
        assert_eq!(reply.body.len(), 32 << 20);
        assert_eq!(busy.read_to_end().await, b"");
        within(server.task).await.unwrap();
    }

    #[tokio::test]
    async fn stopping_waits_no_longer_than_the_drain_timeout() {
        let server = start(Fake::endless(), Options { drain_timeout: SHORT, ..Options::default() });
        let mut stalled = Client::connect(&server).await;
        stalled.send(&request("GET", "/metrics", &[])).await;
        stalled.read_head().await;

        let start = now();
        server.shutdown.send(()).unwrap();
        within(server.task).await.unwrap();
        assert!(start.elapsed() >= SHORT);
    }

    #[tokio::test]
    async fn a_panic_while_rendering_ends_the_server() {
        let server = start(Fake { panics: true, ..Fake::default() }, Options::default());
        let mut client = Client::connect(&server).await;
        client.send(&request("GET", "/metrics", &[])).await;
        assert!(within(server.task).await.unwrap_err().is_panic());
    }
}
