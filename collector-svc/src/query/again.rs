//! Reads that a restart of Postgres cut short, made again within a bound.

use std::future::Future;
use std::time::Duration;

use tokio::time::{Instant, sleep};
use tonic::Status;

use crate::status;

/// How long a read is made again: a Postgres that was restarted, or failed over, is back
/// within seconds; whoever asks waits no longer than for a slow query.
const READ_AGAIN_FOR: Duration = Duration::from_secs(5);

/// First and longest wait between two tries.
const WAIT_MIN: Duration = Duration::from_millis(50);
const WAIT_MAX: Duration = Duration::from_secs(1);

/// Makes a read, and makes it again while what stands in its way passes by itself. After
/// [`READ_AGAIN_FOR`] the last refusal stands, with its reason and its `retry-after`.
pub(crate) async fn again<T, F>(mut read: impl FnMut() -> F) -> Result<T, Status>
where
    F: Future<Output = Result<T, Status>>,
{
    let give_up_at = Instant::now() + READ_AGAIN_FOR;
    let mut wait = WAIT_MIN;
    loop {
        match read().await {
            Err(refusal) if status::passes(&refusal) && Instant::now() + wait < give_up_at => {
                tracing::debug!(why = refusal.message(), "read is made again");
                sleep(wait).await;
                wait = (wait * 2).min(WAIT_MAX);
            }
            done => return done,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rdmesh_store::StoreError;
    use std::cell::Cell;

    #[tokio::test]
    async fn what_passes_is_tried_again_and_what_does_not_is_refused_at_once() {
        let tries = Cell::new(0);
        let count = || tries.replace(tries.get() + 1);
        let answered = again(|| async {
            match count() {
                0 | 1 => Err(status::from_store(&StoreError::Unavailable("gone".into()))),
                _ => Ok(7),
            }
        })
        .await;
        assert_eq!((answered.unwrap(), tries.get()), (7, 3));
        tries.set(0);
        let refused = again(|| async {
            count();
            Err::<(), _>(status::from_store(&StoreError::TooSlow("slow".into())))
        })
        .await;
        assert_eq!(
            (refused.unwrap_err().message().contains("slow"), tries.get()),
            (true, 1)
        );
    }
}
