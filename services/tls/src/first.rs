//! The first word of the other side of a connection without TLS.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::oneshot;

/// Types of records with which a server of TLS begins: an alert, or its part of a handshake
/// (RFC 8446, 5.1). HTTP/2 begins with the length of a SETTINGS frame, whose first byte is 0,
/// HTTP/1 with a letter.
const TLS_RECORDS: [u8; 2] = [21, 22];

/// The byte behind it, of every version of TLS there is.
const TLS_MAJOR: u8 = 3;

/// What the other side speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Spoken {
    /// TLS.
    Tls,
    /// Something else, or nothing: it closed the connection.
    Other,
}

impl Spoken {
    fn of(first: &[u8]) -> Self {
        match first {
            [record, rest @ ..]
                if TLS_RECORDS.contains(record)
                    && rest.first().is_none_or(|major| *major == TLS_MAJOR) =>
            {
                Self::Tls
            }
            _ => Self::Other,
        }
    }
}

/// A connection that tells once what came first, and passes everything on.
#[derive(Debug)]
pub(crate) struct Heard<S> {
    stream: S,
    tell: Option<oneshot::Sender<Spoken>>,
}

impl<S> Heard<S> {
    /// `tell`: absent where nobody wants to know.
    pub(crate) fn new(stream: S, tell: Option<oneshot::Sender<Spoken>>) -> Self {
        Self { stream, tell }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Heard<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = ready!(Pin::new(&mut self.stream).poll_read(cx, buffer));
        if let Some(tell) = self.tell.take() {
            // Who asked may have gone.
            let _ = tell.send(Spoken::of(&buffer.filled()[before..]));
        }
        Poll::Ready(read)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Heard<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    #[test]
    fn tls_is_told_from_http() {
        for (first, spoken) in [
            // rustls: an alert, "unexpected message".
            (&[21, 3, 3, 0, 2, 2, 10][..], Spoken::Tls),
            (&[22, 3, 1], Spoken::Tls),
            (&[21], Spoken::Tls),
            // SETTINGS of HTTP/2, of 24 bytes.
            (&[0, 0, 24, 4, 0], Spoken::Other),
            (b"HTTP/1.1 400", Spoken::Other),
            (b"SSH-2.0", Spoken::Other),
            (&[21, 0], Spoken::Other),
            (&[], Spoken::Other),
        ] {
            assert_eq!(Spoken::of(first), spoken, "{first:?}");
        }
    }

    #[tokio::test]
    async fn what_came_first_is_told_once_and_passed_on() {
        let (near, mut far) = tokio::io::duplex(64);
        let (tell, told) = oneshot::channel();
        let mut heard = Heard::new(near, Some(tell));
        far.write_all(&[21, 3, 3, 0]).await.unwrap();
        let mut bytes = [0; 4];
        heard.read_exact(&mut bytes).await.unwrap();
        assert_eq!((bytes, told.await), ([21, 3, 3, 0], Ok(Spoken::Tls)));
        drop(far);
        assert_eq!(heard.read(&mut bytes).await.unwrap(), 0);
    }
}
