//! One connection to an exporter, in clear text or over TLS, on which one request after the other is
//! answered.
//!
//! It moves bytes only while somebody waits for an answer, so no task of its own outlives whoever
//! asks. That the other side hung up meanwhile is noticed when it is used again, which is the
//! client's to mend.

use std::io::Read as _;
use std::pin::Pin;

use bytes::Bytes;
use flate2::read::MultiGzDecoder;
use http_body_util::{BodyExt as _, Empty, LengthLimitError, Limited};
use hyper::Request;
use hyper::client::conn::http1::{self, SendRequest};
use hyper::header::{self, HeaderMap};
use hyper::http::response;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};

use super::ReadError;

/// What requests and answers run over.
pub(super) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// A connection that is open, as far as is known.
pub(super) struct Connection {
    sender: SendRequest<Empty<Bytes>>,
    moving: Moving,
}

/// Moves the bytes; ends with the connection.
type Moving = Pin<Box<dyn Future<Output = hyper::Result<()>> + Send>>;

/// What was answered, all of it.
pub(super) struct Answer {
    pub(super) head: response::Parts,
    /// As it was before it was compressed.
    pub(super) body: Bytes,
    /// For the next request, if there may be one.
    pub(super) connection: Option<Connection>,
}

impl Connection {
    /// Speaks HTTP over a stream; nothing is sent yet.
    pub(super) async fn open(stream: Box<dyn Stream>) -> Result<Self, ReadError> {
        let opened = http1::handshake(TokioIo::new(stream)).await;
        let (sender, connection) = opened.map_err(ReadError::Http)?;
        Ok(Self { sender, moving: Box::pin(connection) })
    }

    /// Sends a request and reads all of its answer. Neither what comes nor what is made of it where
    /// it is compressed may be larger than this.
    pub(super) async fn ask(
        self,
        request: Request<Empty<Bytes>>,
        max_bytes: usize,
    ) -> Result<Answer, ReadError> {
        let Self { mut sender, mut moving } = self;
        let mut answer = Box::pin(async move {
            sender.ready().await.map_err(ReadError::Http)?;
            let response = sender.send_request(request).await.map_err(ReadError::Http)?;
            let (head, body) = response.into_parts();
            let body = Limited::new(body, max_bytes).collect().await.map_err(body_error)?;
            Ok((head, body.to_bytes(), sender))
        });
        let (answered, moving) = tokio::select! {
            biased;
            answered = &mut answer => (answered, Some(moving)),
            ended = &mut moving => {
                // The answer has all it will get, of which it is told when this is dropped. What it
                // lacks is the connection's fault.
                drop(moving);
                let answered = match (answer.await, ended) {
                    (Err(ReadError::Http(_)), Err(error)) => Err(ReadError::Http(error)),
                    (answered, _) => answered,
                };
                (answered, None)
            },
        };
        let (head, body, sender) = answered?;
        let body = if is_gzip(&head.headers) { unpack(&body, max_bytes)? } else { body };
        let connection = moving.filter(|_| !sender.is_closed());
        let connection = connection.map(|moving| Self { sender, moving });
        Ok(Answer { head, body, connection })
    }
}

fn is_gzip(headers: &HeaderMap) -> bool {
    let encoding = headers.get(header::CONTENT_ENCODING);
    encoding.is_some_and(|encoding| encoding.as_bytes().eq_ignore_ascii_case(b"gzip"))
}

/// A few bytes may unpack into all the memory there is: one byte more than is allowed is enough to
/// know.
fn unpack(packed: &[u8], max_bytes: usize) -> Result<Bytes, ReadError> {
    let mut body = Vec::new();
    let limit = u64::try_from(max_bytes).unwrap_or(u64::MAX).saturating_add(1);
    let read = MultiGzDecoder::new(packed).take(limit).read_to_end(&mut body);
    read.map_err(ReadError::Gzip)?;
    if body.len() > max_bytes { Err(ReadError::TooLarge) } else { Ok(body.into()) }
}

fn body_error(error: Box<dyn std::error::Error + Send + Sync>) -> ReadError {
    if error.is::<LengthLimitError>() {
        return ReadError::TooLarge;
    }
    match error.downcast::<hyper::Error>() {
        Ok(error) => ReadError::Http(*error),
        Err(_) => ReadError::TooLarge,
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    fn pack(plain: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(plain).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn what_is_packed_is_unpacked_up_to_the_bound_and_no_further() {
        let packed = pack(&[7; 1000]);
        assert_eq!(unpack(&packed, 1000).unwrap(), vec![7; 1000]);
        assert!(matches!(unpack(&packed, 999), Err(ReadError::TooLarge)));
        let two = [pack(b"one "), pack(b"two")].concat();
        assert_eq!(unpack(&two, 100).unwrap(), "one two");
    }

    #[test]
    fn what_is_not_packed_as_it_says_or_broke_off_is_no_answer() {
        let packed = pack(b"a snapshot");
        for broken in [b"a snapshot".as_slice(), b"", &packed[..packed.len() - 1]] {
            assert!(matches!(unpack(broken, 100), Err(ReadError::Gzip(_))), "{broken:?}");
        }
    }
}
