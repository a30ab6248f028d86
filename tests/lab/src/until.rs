//! Waiting for a condition with a deadline.

use anyhow::{Result, bail};
use std::time::Duration;
use tokio::time::Instant;

/// How often a condition is looked at again.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Asks until there is an answer; `what` names it in the error. An error of `look`
/// ends the waiting.
pub async fn some<T, F>(what: &str, limit: Duration, look: impl Fn() -> F) -> Result<T>
where
    F: Future<Output = Result<Option<T>>>,
{
    let deadline = Instant::now() + limit;
    loop {
        if let Some(found) = look().await? {
            return Ok(found);
        }
        if Instant::now() >= deadline {
            bail!("{what}: not within {} s", limit.as_secs());
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// Asks until it holds.
pub async fn holds<F>(what: &str, limit: Duration, look: impl Fn() -> F) -> Result<()>
where
    F: Future<Output = Result<bool>>,
{
    some(what, limit, || async { Ok(look().await?.then_some(())) }).await
}
