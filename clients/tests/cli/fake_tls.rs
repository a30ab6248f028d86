//! A fake with TLS, and certificates for both of its sides.

use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use rdmesh_tls::authority::{Authority, Request};
use rdmesh_tls::{Files, Live, Role, now};
use tempfile::TempDir;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_stream::StreamExt;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::transport::server::Connected;

use crate::fake::{Fake, State};

/// An authority, and a folder for what it issues.
pub(crate) struct Site {
    authority: Authority,
    pub(crate) folder: TempDir,
}

impl Site {
    pub(crate) fn new() -> Site {
        let (authority, own) = Authority::create("site-a", now(), 60).unwrap();
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("ca.crt"), own.certificate).unwrap();
        Site { authority, folder }
    }

    /// Issues a certificate for 59 days, without a warning of its end.
    pub(crate) fn issue(&self, role: Role, name: &str) -> Files {
        let request = Request::new(role, name, now(), 59).unwrap();
        let issued = self.authority.issue(&request, now()).unwrap();
        let at = |ending: &str| self.folder.path().join(format!("{role}-{name}.{ending}"));
        let files = Files {
            ca: self.folder.path().join("ca.crt"),
            certificate: at("crt"),
            key: at("key"),
        };
        std::fs::write(&files.certificate, issued.certificate).unwrap();
        std::fs::write(&files.key, issued.key).unwrap();
        std::fs::set_permissions(&files.key, PermissionsExt::from_mode(0o600)).unwrap();
        files
    }
}

/// The options that name the files.
pub(crate) fn options(files: &Files) -> [&str; 6] {
    fn text(path: &Path) -> &str {
        path.to_str().unwrap()
    }
    [
        "--tls-ca",
        text(&files.ca),
        "--tls-certificate",
        text(&files.certificate),
        "--tls-key",
        text(&files.key),
    ]
}

/// A connection that has shaken hands.
struct Shaken<S>(S);

impl<S> Connected for Shaken<S> {
    type ConnectInfo = ();

    fn connect_info(&self) {}
}

impl<S: AsyncRead + Unpin> AsyncRead for Shaken<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Shaken<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}

impl Fake {
    /// With TLS, under the certificate in `files`.
    pub(crate) fn start_secured(files: Files) -> Fake {
        let live = Arc::new(Live::open(files).unwrap());
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap().to_string();
        Fake::serve(address, State::default(), move || {
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            let shaken = TcpListenerStream::new(listener).then(move |stream| {
                let live = Arc::clone(&live);
                async move {
                    let (stream, _peer) = live.accept(stream?).await.map_err(io::Error::other)?;
                    Ok::<_, io::Error>(Shaken(stream))
                }
            });
            // Who fails to shake hands is no connection.
            Box::pin(shaken.filter(Result::is_ok))
        })
    }
}
