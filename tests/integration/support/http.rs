//! The least HTTP/1.1 client that tests need: one request, one connection, the whole answer. The
//! body stays as it came, so that compression and its absence can be told apart.

use std::io::Read as _;
use std::net::SocketAddr;

use flate2::read::GzDecoder;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// An answer.
#[derive(Clone, Debug)]
pub struct Response {
    /// As 200.
    pub status: u16,
    /// Names in lower case, in the order they came.
    pub headers: Vec<(String, String)>,
    /// Without the transfer's chunks, else untouched.
    pub body: Vec<u8>,
}

impl Response {
    /// The first header of this name, given in lower case.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(header, _)| header == name).map(|(_, value)| value.as_str())
    }

    /// The body, taken out of its gzip.
    pub fn gunzipped(&self) -> String {
        let mut text = String::new();
        let unpacked = GzDecoder::new(&*self.body).read_to_string(&mut text);
        unpacked.unwrap_or_else(|error| panic!("the body is no text in gzip: {error}"));
        text
    }

    /// The body as text.
    pub fn text(&self) -> &str {
        str::from_utf8(&self.body).expect("the body is text")
    }
}

/// Gets a path; `Host` is the address unless the headers say otherwise.
pub async fn get(address: SocketAddr, path: &str, headers: &[(&str, &str)]) -> Response {
    request("GET", address, path, headers)
        .await
        .unwrap_or_else(|error| panic!("cannot get http://{address}{path}: {error}"))
}

/// Sends a request without a body. An error is the connection's, never the status'.
pub async fn request(
    method: &str,
    address: SocketAddr,
    path: &str,
    headers: &[(&str, &str)],
) -> std::io::Result<Response> {
    let mut request = format!("{method} {path} HTTP/1.1\r\nConnection: close\r\n");
    if !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("host")) {
        request.push_str(&format!("Host: {address}\r\n"));
    }
    for (name, value) in headers {
        request.push_str(&format!("{name}: {value}\r\n"));
    }
    request.push_str("\r\n");
    exchange(TcpStream::connect(address).await?, request.as_bytes()).await
}

/// Sends what the caller wrote, over any stream, and reads the answer to the end of the stream.
pub async fn exchange(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    request: &[u8],
) -> std::io::Result<Response> {
    stream.write_all(request).await?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await?;
    if answer.is_empty() {
        return Err(std::io::ErrorKind::UnexpectedEof.into());
    }
    Ok(parse_response(&answer))
}

fn parse_response(answer: &[u8]) -> Response {
    let shown = || String::from_utf8_lossy(answer);
    let split = answer
        .windows(4)
        .position(|window| window == b"\r\n\r\n")
        .unwrap_or_else(|| panic!("an answer without an end of headers: {:?}", shown()));
    let head = String::from_utf8_lossy(&answer[..split]);
    let mut lines = head.split("\r\n");
    let status = lines
        .next()
        .and_then(|line| line.split(' ').nth(1)?.parse().ok())
        .unwrap_or_else(|| panic!("an answer without a status: {:?}", shown()));
    let headers: Vec<(String, String)> = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
        .collect();
    let body = &answer[split + 4..];
    let is_chunked = headers
        .iter()
        .any(|(name, value)| name == "transfer-encoding" && value.eq_ignore_ascii_case("chunked"));
    let body = if is_chunked { join_chunks(body) } else { body.to_vec() };
    Response { status, headers, body }
}

fn join_chunks(mut rest: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    loop {
        let end = rest.windows(2).position(|window| window == b"\r\n").expect("a chunk has a size");
        let size = String::from_utf8_lossy(&rest[..end]);
        let size = size.split(';').next().unwrap_or_default().trim();
        let size = usize::from_str_radix(size, 16).expect("a chunk's size is hexadecimal");
        if size == 0 {
            return body;
        }
        let start = end + 2;
        body.extend_from_slice(&rest[start..start + size]);
        rest = &rest[start + size + 2..];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_are_joined() {
        let response = parse_response(
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\nA;x\r\n0123456789\r\n0\r\n\r\n",
        );
        assert_eq!((response.status, response.text()), (200, "abc0123456789"));
    }
}
