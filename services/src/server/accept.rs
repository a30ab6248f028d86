//! An accept loop that survives a full descriptor table.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::Sleep;
use tokio_stream::Stream;

/// How long to wait when the process or the system has no descriptor left. Accepting
/// again at once would spin; connections end and free theirs within moments.
const PAUSE: Duration = Duration::from_millis(100);

/// Waits and goes on where the system lacks resources; passes every other error.
pub(crate) struct Patient<S> {
    inner: S,
    pause: Option<Pin<Box<Sleep>>>,
}

impl<S> Patient<S> {
    pub(crate) fn new(inner: S) -> Self {
        Self { inner, pause: None }
    }
}

/// EMFILE, ENFILE, ENOBUFS and ENOMEM (accept(2)).
fn lacks_resources(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let lacking = [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM];
    error
        .raw_os_error()
        .is_some_and(|raw| lacking.iter().any(|e| e.raw_os_error() == raw))
}

impl<T, S: Stream<Item = io::Result<T>> + Unpin> Stream for Patient<S> {
    type Item = io::Result<T>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            if let Some(pause) = &mut self.pause {
                std::task::ready!(pause.as_mut().poll(cx));
                self.pause = None;
            }
            match std::task::ready!(Pin::new(&mut self.inner).poll_next(cx)) {
                Some(Err(error)) if lacks_resources(&error) => {
                    tracing::warn!(%error, "cannot accept a connection; raise LimitNOFILE");
                    self.pause = Some(Box::pin(tokio::time::sleep(PAUSE)));
                }
                other => return Poll::Ready(other),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio_stream::StreamExt;

    #[test]
    fn a_full_descriptor_table_is_waited_out() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let events = vec![
                Ok(1),
                Err(io::Error::from_raw_os_error(
                    rustix::io::Errno::MFILE.raw_os_error(),
                )),
                Ok(2),
                Err(io::Error::from_raw_os_error(
                    rustix::io::Errno::CONNABORTED.raw_os_error(),
                )),
            ];
            let mut patient = Patient::new(tokio_stream::iter(events));
            let began = tokio::time::Instant::now();
            assert_eq!(patient.next().await.unwrap().unwrap(), 1);
            assert_eq!(patient.next().await.unwrap().unwrap(), 2);
            assert!(began.elapsed() >= PAUSE);
            assert!(patient.next().await.unwrap().is_err());
            assert!(patient.next().await.is_none());
        });
    }
}
