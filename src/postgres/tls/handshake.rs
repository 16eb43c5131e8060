//! The handshake with one server, and what of it a login may be bound to.
//!
//! It knows neither files nor modes; the client gets the encrypted stream.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use rustls::pki_types::{CertificateDer, ServerName};
use sha2::{Digest as _, Sha256, Sha384, Sha512};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::tls::{ChannelBinding, TlsConnect};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use x509_cert::der::oid::db::rfc5912::{
    ECDSA_WITH_SHA_256, ECDSA_WITH_SHA_384, ECDSA_WITH_SHA_512, SHA_1_WITH_RSA_ENCRYPTION,
    SHA_256_WITH_RSA_ENCRYPTION, SHA_384_WITH_RSA_ENCRYPTION, SHA_512_WITH_RSA_ENCRYPTION,
};

use super::chain::Cert;
use crate::postgres::connect::Socket;

/// The protocol that a server confirms where TLS comes first.
pub(super) const PROTOCOL: &[u8] = b"postgresql";

/// A handshake that was not begun.
pub(in crate::postgres) struct Handshake {
    pub(super) connector: TlsConnector,
    pub(super) name: ServerName<'static>,
    /// Without it, another service behind the same certificate may be spoken to.
    pub(super) wants_protocol: bool,
}

/// The server did not say that it speaks PostgreSQL.
#[derive(Debug, thiserror::Error)]
#[error("the server did not confirm the protocol")]
pub(super) struct Unconfirmed;

impl TlsConnect<Socket> for Handshake {
    type Stream = Encrypted;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Encrypted>> + Send>>;

    fn connect(self, socket: Socket) -> Self::Future {
        Box::pin(async move {
            let stream = self.connector.connect(self.name, socket).await?;
            if self.wants_protocol && stream.get_ref().1.alpn_protocol() != Some(PROTOCOL) {
                return Err(io::Error::other(Unconfirmed));
            }
            Ok(Encrypted(stream))
        })
    }
}

/// Bytes to and from a server that nobody between reads.
pub(in crate::postgres) struct Encrypted(TlsStream<Socket>);

impl tokio_postgres::tls::TlsStream for Encrypted {
    fn channel_binding(&self) -> ChannelBinding {
        let (_, session) = self.0.get_ref();
        let cert = session.peer_certificates().and_then(<[CertificateDer<'_>]>::first);
        cert.and_then(fingerprint)
            .map_or_else(ChannelBinding::none, ChannelBinding::tls_server_end_point)
    }
}

/// With the hash of its signature, as RFC 5929 has it. Where there is no such hash, there is no
/// binding.
fn fingerprint(cert: &CertificateDer<'_>) -> Option<Vec<u8>> {
    let algorithm = Cert::parse(cert.clone()).ok()?.signature_algorithm();
    Some(match algorithm {
        SHA_256_WITH_RSA_ENCRYPTION | ECDSA_WITH_SHA_256 => Sha256::digest(cert).to_vec(),
        SHA_384_WITH_RSA_ENCRYPTION | ECDSA_WITH_SHA_384 => Sha384::digest(cert).to_vec(),
        SHA_512_WITH_RSA_ENCRYPTION | ECDSA_WITH_SHA_512 => Sha512::digest(cert).to_vec(),
        // Too weak for it.
        SHA_1_WITH_RSA_ENCRYPTION => Sha256::digest(cert).to_vec(),
        _ => return None,
    })
}

impl AsyncRead for Encrypted {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, buffer)
    }
}

impl AsyncWrite for Encrypted {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}
