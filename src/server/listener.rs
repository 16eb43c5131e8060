//! The sockets: bound once at start-up, accepted from until the process ends.
//!
//! Or passed by systemd, which bound them. It owns addresses and accept errors and knows nothing of
//! HTTP. `server` serves the connections.

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::task::{Context, Poll};
use std::time::Duration;

use listenfd::ListenFd;
use tokio::net::{TcpListener, TcpSocket, TcpStream};

/// Connections that the system completes before we accept them. The usual 128 are full for as long
/// as it takes a crowd to come, and who finds them full tries again a second later.
const BACKLOG: u32 = 1024;

/// How long no connection is accepted after the system refused one. A lack of file descriptors is
/// mended by connections that end, not by asking again at once.
const PAUSE: Duration = Duration::from_secs(1);

/// Why an address cannot be listened on, with the mend.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// Another process has the address, or a wildcard address given before it covers it.
    #[error(
        "cannot listen on {0}: address already in use: stop what listens there or choose another \
         port with --web.listen-address"
    )]
    InUse(SocketAddr),
    /// A port below 1024 without the right to it.
    #[error(
        "cannot listen on {0}: permission denied; ports below 1024 need CAP_NET_BIND_SERVICE: \
         choose a higher port with --web.listen-address"
    )]
    PrivilegedPort(SocketAddr),
    /// An address of another machine.
    #[error(
        "cannot listen on {0}: no interface of this machine has this address: choose one that has, \
         or 0.0.0.0 for all, with --web.listen-address"
    )]
    NotHere(SocketAddr),
    /// Anything else.
    #[error("cannot listen on {address}")]
    Other {
        /// The address as configured.
        address: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
}

impl BindError {
    fn new(address: SocketAddr, source: io::Error) -> Self {
        if source.kind() == io::ErrorKind::AddrInUse {
            Self::InUse(address)
        } else if source.kind() == io::ErrorKind::PermissionDenied && address.port() < 1024 {
            Self::PrivilegedPort(address)
        } else if source.kind() == io::ErrorKind::AddrNotAvailable {
            Self::NotHere(address)
        } else {
            Self::Other { address, source }
        }
    }
}

/// Listens on every address, or on none: the first that fails is the error. Must be called within
/// a tokio runtime.
pub fn bind(addresses: &[SocketAddr]) -> Result<Vec<TcpListener>, BindError> {
    let listen = |address: SocketAddr| {
        let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
        // So that a restart need not wait until the connections before it are forgotten.
        socket.set_reuseaddr(true)?;
        socket.bind(address)?;
        socket.listen(BACKLOG)
    };
    addresses
        .iter()
        .map(|&address| listen(address).map_err(|source| BindError::new(address, source)))
        .collect()
}

/// Why there is nothing of systemd's to listen on.
#[derive(Debug, thiserror::Error)]
pub enum InheritError {
    /// Started in another way, or with a socket unit that does not belong to it.
    #[error(
        "--web.systemd-socket: no socket was passed to this process (LISTEN_FDS): start it by its \
         .socket unit, or use --web.listen-address"
    )]
    NoSocket,
    /// A Unix socket, a FIFO or the like.
    #[error(
        "--web.systemd-socket: socket {number} of those passed does not listen for TCP: write a \
         port into ListenStream="
    )]
    NotTcp {
        /// Counted from 1.
        number: usize,
        /// What the system said.
        source: io::Error,
    },
}

/// The sockets that systemd listens on for us. They can be taken once. Must be called within a
/// tokio runtime.
pub fn inherit() -> Result<Vec<TcpListener>, InheritError> {
    let mut passed = ListenFd::from_env();
    let passed_count = passed.len();
    let mut take = |index| {
        let listener = passed.take_tcp_listener(index)?;
        let listener = listener.ok_or(io::ErrorKind::NotFound)?;
        listener.set_nonblocking(true)?;
        TcpListener::from_std(listener)
    };
    let listeners: Vec<_> = (0..passed_count)
        .map(|index| {
            take(index).map_err(|source| InheritError::NotTcp { number: index + 1, source })
        })
        .collect::<Result<_, _>>()?;
    if listeners.is_empty() { Err(InheritError::NoSocket) } else { Ok(listeners) }
}

/// Takes connections from all listeners in turn and outlives every accept error.
pub(super) struct Acceptor {
    listeners: Vec<TcpListener>,
    /// Which listener is asked first, so that a busy one does not starve the others.
    first: usize,
    /// Whether the last accept was refused: a streak of refusals is one log line.
    refused: bool,
}

impl Acceptor {
    pub(super) fn new(listeners: Vec<TcpListener>) -> Self {
        Self { listeners, first: 0, refused: false }
    }

    /// The next connection. Cancelling it loses nothing.
    pub(super) async fn accept(&mut self) -> (TcpStream, SocketAddr) {
        let Self { listeners, first, refused } = self;
        accept_from(refused, |context| {
            let (before, after) = listeners.split_at(*first);
            let ready =
                after.iter().chain(before).enumerate().find_map(|(turn, listener)| match listener
                    .poll_accept(context)
                {
                    Poll::Ready(accepted) => Some((turn, accepted)),
                    Poll::Pending => None,
                });
            match ready {
                Some((turn, accepted)) => {
                    *first = (*first + turn + 1) % listeners.len();
                    Poll::Ready(accepted)
                }
                None => Poll::Pending,
            }
        })
        .await
    }
}

/// Polls until something is accepted. A client that gave up in the queue is passed over; what the
/// system refuses (out of descriptors or memory) is tried again after a pause.
async fn accept_from<A>(
    refused: &mut bool,
    mut poll_accept: impl FnMut(&mut Context<'_>) -> Poll<io::Result<A>>,
) -> A {
    loop {
        match poll_fn(&mut poll_accept).await {
            Ok(accepted) => {
                *refused = false;
                return accepted;
            }
            Err(error) if is_of_the_client(&error) => {}
            Err(error) => {
                if !*refused {
                    tracing::warn!(%error, "cannot accept connections, trying again every second");
                }
                *refused = true;
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

/// Linux hands errors of the connection that waited in the queue to `accept`.
fn is_of_the_client(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    [ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted].contains(&error.kind())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;
    use tokio::time::Instant;

    fn address(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    #[tokio::test]
    async fn an_address_in_use_is_an_error_that_names_it() {
        let first = bind(&[address("127.0.0.1:0")]).unwrap();
        let taken = first[0].local_addr().unwrap();
        assert_eq!(
            bind(&[taken]).unwrap_err().to_string(),
            format!(
                "cannot listen on {taken}: address already in use: stop what listens there or \
                 choose another port with --web.listen-address"
            )
        );
    }

    #[test]
    fn a_low_port_without_the_right_says_which_right() {
        let refused = || io::Error::from(io::ErrorKind::PermissionDenied);
        assert_eq!(
            BindError::new(address("127.0.0.1:80"), refused()).to_string(),
            "cannot listen on 127.0.0.1:80: permission denied; ports below 1024 need \
             CAP_NET_BIND_SERVICE: choose a higher port with --web.listen-address"
        );
        let other = BindError::new(address("127.0.0.1:8080"), refused());
        assert!(matches!(other, BindError::Other { .. }), "{other}");
    }

    #[tokio::test]
    async fn an_address_of_another_machine_is_an_error_that_names_it() {
        let error = bind(&[address("192.0.2.1:0")]).unwrap_err();
        assert!(matches!(error, BindError::NotHere(_)), "{error}");
        assert!(error.to_string().starts_with("cannot listen on 192.0.2.1:0: no interface"));
    }

    #[tokio::test]
    async fn every_listener_is_accepted_from() {
        let listeners = bind(&[address("127.0.0.1:0"), address("127.0.0.1:0")]).unwrap();
        let addresses: Vec<_> = listeners.iter().map(|one| one.local_addr().unwrap()).collect();
        let mut acceptor = Acceptor::new(listeners);
        for index in [1, 0, 0, 1] {
            let client = TcpStream::connect(addresses[index]).await.unwrap();
            let (_, peer) = acceptor.accept().await;
            assert_eq!(peer, client.local_addr().unwrap());
        }
    }

    #[tokio::test]
    async fn a_busy_listener_does_not_starve_the_other() {
        let listeners = bind(&[address("127.0.0.1:0"), address("127.0.0.1:0")]).unwrap();
        let addresses: Vec<_> = listeners.iter().map(|one| one.local_addr().unwrap()).collect();
        let mut acceptor = Acceptor::new(listeners);
        let _busy = (
            TcpStream::connect(addresses[0]).await.unwrap(),
            TcpStream::connect(addresses[0]).await.unwrap(),
        );
        let other = TcpStream::connect(addresses[1]).await.unwrap().local_addr().unwrap();
        let peers = [acceptor.accept().await.1, acceptor.accept().await.1];
        assert!(peers.contains(&other), "{peers:?}");
    }

    #[tokio::test(start_paused = true)]
    #[expect(clippy::disallowed_methods, reason = "the clock is paused")]
    async fn refused_accepts_pause_and_never_end_the_loop() {
        let emfile = || io::Error::from_raw_os_error(24);
        let mut answers = VecDeque::from([Err(emfile()), Err(emfile()), Ok("connection")]);
        let mut refused = false;
        let start = Instant::now();
        let accepted =
            accept_from(&mut refused, |_| Poll::Ready(answers.pop_front().unwrap())).await;
        assert_eq!(accepted, "connection");
        assert_eq!(start.elapsed(), 2 * PAUSE);
        assert!(!refused);
    }

    #[tokio::test(start_paused = true)]
    #[expect(clippy::disallowed_methods, reason = "the clock is paused")]
    async fn a_client_that_gave_up_in_the_queue_costs_no_pause() {
        let gave_up = io::Error::from(io::ErrorKind::ConnectionAborted);
        let mut answers = VecDeque::from([Err(gave_up), Ok("connection")]);
        let start = Instant::now();
        accept_from(&mut false, |_| Poll::Ready(answers.pop_front().unwrap())).await;
        assert_eq!(start.elapsed(), Duration::ZERO);
    }
}
