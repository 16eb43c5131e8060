//! The reader behind `--from`: gets the snapshot of a running exporter, and what happened to a key,
//! over HTTP, and over TLS where the address says https.
//!
//! Each answer has a bound on time and size. The connection is kept for the next one: who looks every
//! second costs the exporter a request, and no handshake. It knows where an exporter lives and what
//! can go wrong on the way; what the bytes mean is [`snapshot`](crate::snapshot)'s business. A
//! password in the address is sent and never shown: not in an error, nor in the debug form. Nor does
//! it go anywhere else: redirects are not followed.

mod connection;
mod trust;

use std::fmt;
use std::fmt::Write as _;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use http_body_util::Empty;
use hyper::header::{self, HeaderValue};
use hyper::{Request, StatusCode, Uri};
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout_at};
use tokio_rustls::TlsConnector;

use self::connection::{Answer, Connection, Stream};
pub use self::trust::{Trust, TrustError};
use crate::key::Key;
use crate::printable::visible;
use crate::snapshot::{Event, ParseSnapshotError, Snapshot, parse_events, parse_snapshot};

/// For connecting, asking and reading together: an exporter answers from memory.
const PATIENCE: Duration = Duration::from_secs(10);

/// Some hundred thousand locks; nothing larger is read into memory.
const MAX_BODY_BYTES: usize = 256 << 20;

/// Of what a refusal says, this much is passed on.
const MAX_REASON_CHARS: usize = 200;

const SNAPSHOT_PATH: &str = "/api/v1/locks";

const EVENTS_PATH: &str = "/api/v1/events";

/// Where a running exporter is.
#[derive(Clone)]
pub struct Exporter {
    is_https: bool,
    host: String,
    /// `None` where the address says none: 80 or 443, as for every address.
    port: Option<u16>,
    /// What stands before the exporter's own paths, without a slash at the end.
    prefix: String,
    /// `Basic …`, marked as a secret.
    authorization: Option<HeaderValue>,
    /// For https.
    trust: Option<Trust>,
    /// Nobody asks on it at the moment. Copies share it.
    kept: Arc<Mutex<Option<Connection>>>,
}

/// Why a text is not the address of an exporter. Never quotes it: there may be a password in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseAddressError {
    /// No scheme.
    #[error("an address begins with http:// or https://, as in http://db-1:10187")]
    NoScheme,
    /// No host, or no number as port, or characters that no address has.
    #[error("not an address: write http://HOST:PORT or https://HOST:PORT, as in http://db-1:10187")]
    Syntax,
    /// Credentials that are not percent-encoded as they should be.
    #[error(
        "name and password are not readable: write %40 for @, %3A for :, %2F for / and %25 for %"
    )]
    Credentials,
}

/// What stood between us and a snapshot.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// Nobody there.
    #[error("cannot connect{}", if *.no_port { "; an exporter listens on port 10187, and the address has no port" } else { "" })]
    Connect {
        /// The address left the port open.
        no_port: bool,
        /// What the operating system said.
        source: io::Error,
    },
    /// Nobody is trusted, so that no certificate can be checked.
    #[error(transparent)]
    Trust(#[from] TrustError),
    /// Somebody who does not prove who they are, or does not speak TLS.
    #[error("the TLS handshake failed: {}", trust::remedy(.0))]
    Tls(#[source] io::Error),
    /// Somebody who says nothing, or too slowly.
    #[error("{} within {} s", .0, PATIENCE.as_secs())]
    Timeout(Awaited),
    /// Somebody who does not speak HTTP, or hung up.
    #[error("the answer broke off or is not HTTP")]
    Http(#[source] hyper::Error),
    /// An answer that says it is packed, and is not.
    #[error("the answer is not compressed as it says")]
    Gzip(#[source] io::Error),
    /// More than anybody's locks.
    #[error("the answer is larger than {} MiB", MAX_BODY_BYTES >> 20)]
    TooLarge,
    /// Another answer than 200.
    #[error("{}", render_status(*.0, .1))]
    Status(StatusCode, String),
    /// An answer that is not what was asked for.
    #[error(transparent)]
    Snapshot(#[from] ParseSnapshotError),
}

/// For what somebody was waited for in vain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Awaited {
    /// For the host to take a connection.
    Connection,
    /// For its part in the TLS handshake.
    Handshake,
    /// For the answer to a request.
    Answer,
}

impl fmt::Display for Awaited {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Connection => "no connection",
            Self::Handshake => "the TLS handshake failed: no answer to it",
            Self::Answer => "no answer",
        })
    }
}

impl Exporter {
    /// Reads an address as people type it: `http[s]://[NAME:PASSWORD@]HOST[:PORT][/PREFIX]`.
    pub fn parse(text: &str) -> Result<Self, ParseAddressError> {
        let text = text.trim();
        let (scheme, rest) = text.split_once("://").ok_or(ParseAddressError::NoScheme)?;
        let is_https = scheme.eq_ignore_ascii_case("https");
        if !is_https && !scheme.eq_ignore_ascii_case("http") {
            return Err(ParseAddressError::NoScheme);
        }
        if !rest.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(ParseAddressError::Syntax);
        }
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        if path.contains(['?', '#']) {
            return Err(ParseAddressError::Syntax);
        }
        let (credentials, place) = match authority.rsplit_once('@') {
            Some((credentials, place)) => (Some(credentials), place),
            None => (None, authority),
        };
        let (host, port) = parse_place(place).ok_or(ParseAddressError::Syntax)?;
        // Who copies it from a browser or a scrape configuration copies a path too.
        let known = ["/metrics", SNAPSHOT_PATH];
        let prefix = known.iter().find_map(|known| path.strip_suffix(known)).unwrap_or(path);
        let prefix = prefix.trim_end_matches('/').to_owned();
        if format!("{prefix}{SNAPSHOT_PATH}").parse::<Uri>().is_err() {
            return Err(ParseAddressError::Syntax);
        }
        Ok(Self {
            is_https,
            host,
            port,
            prefix,
            authorization: credentials.map(render_authorization).transpose()?,
            trust: None,
            kept: Arc::default(),
        })
    }

    /// The same, with the certificates that an https address needs: those of a file alone, else those
    /// that this machine trusts.
    pub fn with_trust(mut self, file: Option<&Path>) -> Result<Self, TrustError> {
        if self.is_https || file.is_some() {
            self.trust = Some(Trust::load(file)?);
        }
        Ok(self)
    }

    /// Gets what it sees now.
    pub async fn fetch_snapshot(&self) -> Result<Snapshot, ReadError> {
        Ok(parse_snapshot(&self.fetch(SNAPSHOT_PATH).await?)?)
    }

    /// Gets what it saw happen to a key of a server lately, in every database, the newest first.
    pub async fn fetch_events(
        &self,
        server: &str,
        key: Key,
        limit: usize,
    ) -> Result<Vec<Event>, ReadError> {
        let (server, key) = (encode_percent(server), encode_percent(&key.to_string()));
        let path = format!("{EVENTS_PATH}?server={server}&key={key}&limit={limit}");
        Ok(parse_events(&self.fetch(&path).await?)?)
    }

    /// Asks on the connection that was kept, else on a new one. All of it together has a bound.
    async fn fetch(&self, path: &str) -> Result<Bytes, ReadError> {
        let deadline = sleep(PATIENCE).deadline();
        let kept = self.kept().take();
        if let Some(kept) = kept {
            match self.ask(kept, path, deadline).await {
                // Since the last answer it was closed, of which nobody needs to hear. Asking twice
                // does no harm: nothing is changed by it.
                Err(ReadError::Http(_)) => {}
                answer => return answer,
            }
        }
        let opened = Connection::open(self.connect(deadline).await?).await?;
        self.ask(opened, path, deadline).await
    }

    async fn ask(
        &self,
        connection: Connection,
        path: &str,
        deadline: Instant,
    ) -> Result<Bytes, ReadError> {
        let answer = connection.ask(self.request(path), MAX_BODY_BYTES);
        let answer = timeout_at(deadline, answer).await;
        let answer = answer.map_err(|_| ReadError::Timeout(Awaited::Answer))??;
        let Answer { head, body, connection } = answer;
        if head.status == StatusCode::OK {
            if connection.is_some() {
                *self.kept() = connection;
            }
            return Ok(body);
        }
        let location = head.headers.get(header::LOCATION).map(HeaderValue::as_bytes);
        Err(ReadError::Status(head.status, first_line(location.unwrap_or(&body))))
    }

    fn request(&self, path: &str) -> Request<Empty<Bytes>> {
        let mut request = Request::new(Empty::new());
        *request.uri_mut() = format!("{}{path}", self.prefix)
            .parse()
            // `parse` let no prefix through that an address cannot have.
            .unwrap_or_else(|_| Uri::from_static(SNAPSHOT_PATH));
        let headers = request.headers_mut();
        if let Ok(host) = HeaderValue::from_str(&self.place()) {
            headers.insert(header::HOST, host);
        }
        headers.insert(header::ACCEPT, HeaderValue::from_static("application/json"));
        headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("gzip"));
        if let Some(authorization) = &self.authorization {
            headers.insert(header::AUTHORIZATION, authorization.clone());
        }
        request
    }

    async fn connect(&self, deadline: Instant) -> Result<Box<dyn Stream>, ReadError> {
        let port = self.port.unwrap_or(if self.is_https { 443 } else { 80 });
        let stream = timeout_at(deadline, TcpStream::connect((self.host.as_str(), port)))
            .await
            .map_err(|_| ReadError::Timeout(Awaited::Connection))?
            .map_err(|source| ReadError::Connect { no_port: self.port.is_none(), source })?;
        if !self.is_https {
            return Ok(Box::new(stream));
        }
        let trust = match &self.trust {
            Some(trust) => trust.clone(),
            None => Trust::load(None)?,
        };
        let invalid = |error| ReadError::Tls(io::Error::new(io::ErrorKind::InvalidInput, error));
        let name = ServerName::try_from(self.host.clone()).map_err(invalid)?;
        let stream = timeout_at(deadline, TlsConnector::from(trust.0).connect(name, stream))
            .await
            .map_err(|_| ReadError::Timeout(Awaited::Handshake))?
            .map_err(ReadError::Tls)?;
        Ok(Box::new(stream))
    }

    /// Never held over an await: who asks takes the connection out, and others ask on another.
    fn kept(&self) -> MutexGuard<'_, Option<Connection>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `Host`
    fn place(&self) -> String {
        let host =
            if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() };
        self.port.map_or(host.clone(), |port| format!("{host}:{port}"))
    }
}

/// The address without name and password.
impl fmt::Display for Exporter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.is_https { "https" } else { "http" };
        write!(f, "{scheme}://{}{}", self.place(), self.prefix)
    }
}

impl fmt::Debug for Exporter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Exporter({self})")
    }
}

fn parse_place(place: &str) -> Option<(String, Option<u16>)> {
    let (host, port) = match place.strip_prefix('[') {
        Some(rest) => {
            let (host, port) = rest.split_once(']')?;
            let _: std::net::Ipv6Addr = host.parse().ok()?;
            (host, port.strip_prefix(':').or(port.is_empty().then_some(""))?)
        }
        None => place.split_once(':').unwrap_or((place, "")),
    };
    if host.is_empty() || host.contains(['[', ']', '%']) || port.contains(':') {
        return None;
    }
    let port = if port.is_empty() { None } else { Some(port.parse().ok()?) };
    Some((host.to_owned(), port))
}

fn render_authorization(credentials: &str) -> Result<HeaderValue, ParseAddressError> {
    let (name, password) = credentials.split_once(':').unwrap_or((credentials, ""));
    let mut plain = decode_percent(name).ok_or(ParseAddressError::Credentials)?;
    plain.push(b':');
    plain.extend(decode_percent(password).ok_or(ParseAddressError::Credentials)?);
    let mut value = HeaderValue::from_str(&format!("Basic {}", BASE64_STANDARD.encode(plain)))
        .map_err(|_| ParseAddressError::Credentials)?;
    value.set_sensitive(true);
    Ok(value)
}

/// For a value in a query: letters and digits stay.
fn encode_percent(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() {
            encoded.push(char::from(byte));
        } else {
            let _ = write!(encoded, "%{byte:02X}");
        }
    }
    encoded
}

fn decode_percent(text: &str) -> Option<Vec<u8>> {
    let mut bytes = text.bytes();
    let mut decoded = Vec::with_capacity(text.len());
    while let Some(byte) = bytes.next() {
        decoded.push(if byte == b'%' {
            let mut digit = || char::from(bytes.next()?).to_digit(16);
            u8::try_from(digit()? * 16 + digit()?).ok()?
        } else {
            byte
        });
    }
    Some(decoded)
}

/// For a terminal: whatever is at that address may say anything.
fn first_line(said: &[u8]) -> String {
    let said = String::from_utf8_lossy(said);
    let line = said.trim_start().lines().next().unwrap_or_default();
    let line: String = line.chars().take(MAX_REASON_CHARS).collect();
    visible(&line).into_owned()
}

fn render_status(status: StatusCode, said: &str) -> String {
    let mend = match status {
        StatusCode::UNAUTHORIZED => {
            "write name and password into the address, as in http://NAME:PASSWORD@HOST:PORT"
        }
        StatusCode::FORBIDDEN => {
            "use its IP address, or start the exporter with --web.allowed-hosts and this name"
        }
        StatusCode::NOT_FOUND => {
            "is this a locks exporter? The address is that of its landing page, without /metrics"
        }
        status if status.is_redirection() => "use the address it names",
        status if status.is_server_error() => "look into the log of the exporter",
        _ => "is this a locks exporter?",
    };
    if said.is_empty() || said.starts_with('<') {
        format!("answered {status}: {mend}")
    } else {
        format!("answered {status} ({said}): {mend}")
    }
}

#[cfg(test)]
mod tests {
    use std::error::Error as _;

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;

    #[test]
    fn addresses_are_read_as_people_type_them() {
        let cases = [
            ("http://db-1:10187", "http://db-1:10187"),
            ("http://db-1:10187/", "http://db-1:10187"),
            ("HTTP://db-1", "http://db-1"),
            (" http://[::1]:10187\n", "http://[::1]:10187"),
            ("http://db-1:10187/metrics", "http://db-1:10187"),
            ("http://db-1:10187/api/v1/locks", "http://db-1:10187"),
            ("http://proxy/locks/", "http://proxy/locks"),
            ("http://me:p%40ss@db-1:1", "http://db-1:1"),
            ("http://me:p@ss@db-1:1", "http://db-1:1"),
            ("https://me:p%40ss@db-1:1/metrics", "https://db-1:1"),
        ];
        for (text, shown) in cases {
            assert_eq!(Exporter::parse(text).unwrap().to_string(), shown, "{text}");
        }
    }

    #[test]
    fn what_is_no_address_is_refused_with_the_mend_and_not_quoted() {
        use ParseAddressError::{Credentials, NoScheme, Syntax};
        let cases = [
            ("db-1:10187", NoScheme),
            ("", NoScheme),
            ("ftp://secret@db-1", NoScheme),
            ("http://", Syntax),
            ("http://:10187", Syntax),
            ("http://db-1:secret", Syntax),
            ("http://db-1:65536", Syntax),
            ("http://::1:10187", Syntax),
            ("http://[::1", Syntax),
            ("http://[::1]x", Syntax),
            ("http://db 1", Syntax),
            ("http://db-1/?q", Syntax),
            ("http://db-1/<locks>", Syntax),
            ("http://me:secret%4@db-1", Credentials),
            ("http://me:%zz@db-1", Credentials),
        ];
        for (text, error) in cases {
            let refusal = Exporter::parse(text).unwrap_err();
            assert_eq!(refusal, error, "{text}");
            assert!(!refusal.to_string().contains("secret"));
        }
    }

    #[test]
    fn a_password_is_sent_and_never_shown() {
        let exporter = Exporter::parse("http://me:S3cr%33t@db-1").unwrap();
        assert_eq!(exporter.authorization.as_ref().unwrap(), "Basic bWU6UzNjcjN0");
        let shown = format!("{exporter} {exporter:?} {:?}", exporter.authorization);
        assert!(!shown.contains("S3c") && !shown.contains("bWU"), "{shown}");
    }

    /// Answers one request with these bytes; gives back what was asked.
    async fn answering(answer: &'static [u8]) -> (String, tokio::task::JoinHandle<String>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://me:secret@{}", listener.local_addr().unwrap());
        let asked = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut asked = Vec::new();
            while !asked.ends_with(b"\r\n\r\n") {
                asked.push(stream.read_u8().await.unwrap());
            }
            stream.write_all(answer).await.unwrap();
            String::from_utf8(asked).unwrap()
        });
        (url, asked)
    }

    async fn refusal(answer: &'static [u8]) -> String {
        let (url, _) = answering(answer).await;
        let error = Exporter::parse(&url).unwrap().fetch_snapshot().await.unwrap_err();
        assert!(!format!("{error:?}").contains("secret"));
        let cause = error.source().map(|cause| format!(": {cause}"));
        format!("{error}{}", cause.unwrap_or_default())
    }

    #[tokio::test]
    async fn a_snapshot_is_asked_for_with_host_and_credentials() {
        let (url, asked) = answering(
            b"HTTP/1.1 200 OK\r\nContent-Length: 26\r\n\r\n{\"schema\":1,\"servers\":[]}\n",
        )
        .await;
        let exporter = Exporter::parse(&url).unwrap();
        assert!(exporter.fetch_snapshot().await.unwrap().servers.is_empty());
        let asked = asked.await.unwrap();
        assert!(asked.starts_with("GET /api/v1/locks HTTP/1.1\r\n"), "{asked}");
        assert!(asked.contains("authorization: Basic bWU6c2VjcmV0\r\n"), "{asked}");
        assert!(asked.contains("accept-encoding: gzip\r\n"), "{asked}");
        assert!(asked.contains(&format!("host: {}\r\n", exporter.place())), "{asked}");
    }

    #[tokio::test]
    async fn an_answer_in_chunks_and_one_that_ends_with_the_connection_are_read() {
        for answer in [
            &b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\
               C\r\n{\"schema\":1,\r\nD\r\n\"servers\":[]}\r\n0\r\n\r\n"[..],
            b"HTTP/1.0 200 OK\r\n\r\n{\"schema\":1,\"servers\":[]}",
        ] {
            let (url, _) = answering(answer).await;
            Exporter::parse(&url).unwrap().fetch_snapshot().await.unwrap();
        }
    }

    #[tokio::test]
    async fn an_answer_that_is_no_snapshot_says_how_to_mend_it() {
        let cases: [(&[u8], &str); 9] = [
            (
                b"HTTP/1.1 403 Forbidden\r\nContent-Length: 11\r\n\r\nother\x1b[1m\nx",
                "answered 403 Forbidden (other\\u{1b}[1m): use its IP address, or start the exporter \
                 with --web.allowed-hosts",
            ),
            (
                b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n",
                "answered 401 Unauthorized: write name and password into the address",
            ),
            (
                b"HTTP/1.1 404 Not Found\r\nContent-Length: 6\r\n\r\n<html>",
                "answered 404 Not Found: is this a locks exporter?",
            ),
            (
                b"HTTP/1.1 301 Moved\r\nLocation: http://b/\r\nContent-Length: 0\r\n\r\n",
                "answered 301 Moved Permanently (http://b/): use the address it names",
            ),
            (
                b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n<html>",
                "no snapshot of locks: is there another program at this address?",
            ),
            (
                b"HTTP/1.1 200 OK\r\nContent-Length: 12\r\n\r\n{\"schema\":9}",
                "a snapshot of schema 9, and this program reads schema 1",
            ),
            (b"SSH-2.0-OpenSSH_9.2\r\n\r\n", "the answer broke off or is not HTTP: "),
            (b"", "the answer broke off or is not HTTP: "),
            (
                b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{",
                "the answer broke off or is not HTTP: ",
            ),
        ];
        for (answer, expected) in cases {
            let said = refusal(answer).await;
            assert!(said.starts_with(expected), "{:?}: {said}", String::from_utf8_lossy(answer));
        }
    }

    /// A server that deals with connections one after the other as it is told, each of them a list
    /// of answers to requests, and hangs up after the last. Counts the requests of each.
    async fn answering_in_turn(
        connections: Vec<Vec<Vec<u8>>>,
    ) -> (Exporter, tokio::task::JoinHandle<Vec<usize>>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://me:secret@{}", listener.local_addr().unwrap());
        let counted = tokio::spawn(async move {
            let mut counts = Vec::new();
            for answers in connections {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut count = 0;
                for answer in answers {
                    let mut asked = Vec::new();
                    while !asked.ends_with(b"\r\n\r\n") {
                        asked.push(stream.read_u8().await.unwrap());
                    }
                    count += 1;
                    stream.write_all(&answer).await.unwrap();
                }
                counts.push(count);
            }
            counts
        });
        (Exporter::parse(&url).unwrap(), counted)
    }

    fn reply(status: &str, headers: &str, body: &[u8]) -> Vec<u8> {
        let head = format!("HTTP/1.1 {status}\r\n{headers}Content-Length: {}\r\n\r\n", body.len());
        [head.as_bytes(), body].concat()
    }

    fn empty() -> Vec<u8> {
        reply("200 OK", "", b"{\"schema\":1,\"servers\":[],\"events\":[]}")
    }

    #[tokio::test]
    async fn one_connection_serves_all_looks_and_copies_share_it() {
        let (exporter, counted) = answering_in_turn(vec![vec![empty(), empty(), empty()]]).await;
        exporter.fetch_snapshot().await.unwrap();
        exporter.clone().fetch_snapshot().await.unwrap();
        assert!(exporter.fetch_events("a b&c", Key::pair(7, -9), 5).await.unwrap().is_empty());
        assert_eq!(counted.await.unwrap(), [3]);
    }

    #[tokio::test]
    async fn a_kept_connection_that_was_closed_is_replaced_in_silence() {
        let closing = reply("200 OK", "Connection: close\r\n", b"{\"schema\":1,\"servers\":[]}");
        let broken = b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{".to_vec();
        let (exporter, counted) = answering_in_turn(vec![
            vec![empty()],
            vec![closing],
            // Broke off in the middle of the second answer.
            vec![empty(), broken],
            // Nor answers the second request.
            vec![empty(), empty(), Vec::new()],
            vec![empty()],
        ])
        .await;
        for look in 0..6 {
            exporter.fetch_snapshot().await.unwrap_or_else(|error| panic!("{look}: {error:?}"));
        }
        assert_eq!(counted.await.unwrap(), [1, 1, 2, 3, 1]);
    }

    #[tokio::test]
    async fn a_new_connection_that_breaks_is_an_error_and_not_tried_again() {
        let (exporter, counted) =
            answering_in_turn(vec![vec![empty(), Vec::new()], vec![Vec::new()]]).await;
        exporter.fetch_snapshot().await.unwrap();
        let error = exporter.fetch_snapshot().await.unwrap_err();
        assert!(matches!(error, ReadError::Http(_)), "{error:?}");
        assert_eq!(counted.await.unwrap(), [2, 1]);
        // Nobody listens any more.
        let error = exporter.fetch_snapshot().await.unwrap_err();
        assert!(matches!(error, ReadError::Connect { .. }), "{error:?}");
    }

    #[tokio::test]
    async fn a_connection_of_an_answer_that_was_not_wanted_is_not_kept() {
        let (exporter, counted) =
            answering_in_turn(vec![vec![reply("503 Busy", "", b"busy")], vec![empty()]]).await;
        let error = exporter.fetch_snapshot().await.unwrap_err();
        assert!(matches!(error, ReadError::Status(..)), "{error:?}");
        exporter.fetch_snapshot().await.unwrap();
        assert_eq!(counted.await.unwrap(), [1, 1]);
    }

    #[tokio::test]
    async fn two_who_ask_at_once_do_not_wait_for_each_other() {
        let (exporter, counted) = answering_in_turn(vec![vec![empty()], vec![empty()]]).await;
        let (one, two) = tokio::join!(exporter.fetch_snapshot(), exporter.fetch_snapshot());
        assert!(one.is_ok() && two.is_ok());
        assert_eq!(counted.await.unwrap(), [1, 1]);
    }

    #[tokio::test]
    async fn answers_may_be_compressed_and_so_may_refusals() {
        let pack = |plain: &[u8]| {
            let level = flate2::Compression::fast();
            let mut encoder = flate2::write::GzEncoder::new(Vec::new(), level);
            std::io::Write::write_all(&mut encoder, plain).unwrap();
            encoder.finish().unwrap()
        };
        let gzip = "Content-Encoding: gzip\r\n";
        let (exporter, _) = answering_in_turn(vec![
            vec![reply("200 OK", gzip, &pack(b"{\"schema\":1,\"servers\":[]}")), Vec::new()],
            vec![reply("503 Busy", gzip, &pack(b"busy"))],
            vec![reply("200 OK", gzip, b"{\"schema\":1,\"servers\":[]}")],
        ])
        .await;
        exporter.fetch_snapshot().await.unwrap();
        let error = exporter.fetch_snapshot().await.unwrap_err().to_string();
        assert!(error.starts_with("answered 503 Service Unavailable (busy): "), "{error}");
        let error = exporter.fetch_snapshot().await.unwrap_err().to_string();
        assert_eq!(error, "the answer is not compressed as it says");
    }

    #[tokio::test]
    async fn events_are_asked_for_with_everything_percent_encoded() {
        let (url, asked) = answering(
            b"HTTP/1.1 200 OK\r\nContent-Length: 37\r\n\r\n\
              {\"schema\":1,\"servers\":[],\"events\":[]}",
        )
        .await;
        let exporter = Exporter::parse(&url).unwrap();
        exporter.fetch_events("gr\u{f6}\u{df}e&limit=9 #", Key::pair(7, -9), 5).await.unwrap();
        let asked = asked.await.unwrap();
        let line = "GET /api/v1/events?server=gr%C3%B6%C3%9Fe%26limit%3D9%20%23&key=%287%2C%2D9%29\
                    &limit=5 HTTP/1.1\r\n";
        assert!(asked.starts_with(line), "{asked}");
        let query = line.split(['?', ' ']).nth(2);
        let filter = crate::event::Filter::parse(query).unwrap();
        assert_eq!(filter.server.as_deref(), Some("gr\u{f6}\u{df}e&limit=9 #"));
        assert_eq!((filter.key, filter.limit), (Some(Key::pair(7, -9)), 5));
    }

    #[tokio::test]
    async fn nobody_there_is_told_with_the_default_port_where_none_was_given() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        drop(listener);
        let error = Exporter::parse(&url).unwrap().fetch_snapshot().await.unwrap_err();
        assert_eq!(error.to_string(), "cannot connect");
        assert!(error.source().is_some());
        let no_port = ReadError::Connect { no_port: true, source: io::ErrorKind::TimedOut.into() };
        assert!(no_port.to_string().contains("10187"));
    }

    #[tokio::test(start_paused = true)]
    async fn somebody_who_says_nothing_is_not_waited_for() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let error = Exporter::parse(&url).unwrap().fetch_snapshot().await.unwrap_err();
        assert_eq!(error.to_string(), "no answer within 10 s");
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_read_or_refused(text: String) {
            let _ = Exporter::parse(&text);
            let _ = Exporter::parse(&format!("http://{text}"));
        }
    }
}
