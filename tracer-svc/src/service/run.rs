//! The waits of the tracer: it wakes for its timers, for the kernel's call, and
//! for modules that come and go. At rest there is nothing else.

use std::time::Duration;

use rdmesh_services::shutdown::Closing;
use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior, interval_at, sleep_until};

use super::kernel::Kernel;
use super::orders::Order;
use super::pipeline::{Outputs, Pipeline};
use super::uevents::Uevents;

/// Time between two looks at modules, devices and the host, for what no message
/// of the kernel told.
pub const SLOW_SCAN: Duration = Duration::from_secs(60);

/// Time from the first message about a module to the look at it: a driver's
/// dependencies come within milliseconds of one another.
pub const SETTLE: Duration = Duration::from_millis(500);

/// Runs until the end is asked for, and then sends what is left.
pub async fn run<K: Kernel, O: Outputs>(
    mut pipeline: Pipeline<K, O>,
    interval: Duration,
    mut uevents: Option<Uevents>,
    mut orders: Option<mpsc::Receiver<Order>>,
    closing: Closing,
) {
    let mut ticks = interval_at(Instant::now() + interval, interval);
    // A tick that came late does not bring the next one nearer: the message says
    // which interval it is about.
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut scans = interval_at(Instant::now() + SLOW_SCAN, SLOW_SCAN);
    scans.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut refresh_at: Option<Instant> = None;
    // Devices are registered after their module's message; look once more.
    let mut again = false;
    let mut more = pipeline.drain();
    let mut woken = true;
    loop {
        tokio::select! {
            biased;
            () = closing.requested() => break,
            _ = ticks.tick() => {
                pipeline.snapshot();
                if std::mem::take(&mut again) {
                    pipeline.refresh();
                }
            }
            order = next_order(&mut orders), if orders.is_some() => match order {
                Some(order) => pipeline.obey(order),
                None => orders = None,
            },
            _ = scans.tick() => pipeline.refresh(),
            () = sleep_until(refresh_at.unwrap_or_else(Instant::now)), if refresh_at.is_some() => {
                refresh_at = None;
                again = true;
                pipeline.refresh();
            }
            heard = hear(&mut uevents), if uevents.is_some() => match heard {
                Ok(()) => {
                    refresh_at.get_or_insert_with(|| Instant::now() + SETTLE);
                }
                Err(error) => {
                    tracing::warn!(%error, "the kernel's messages are not heard any more; modules are found by the slow scan");
                    uevents = None;
                }
            },
            () = tokio::task::yield_now(), if more => more = pipeline.drain(),
            ready = pipeline.kernel.ready(), if woken && !more => match ready {
                Ok(()) => more = pipeline.drain(),
                Err(error) => {
                    tracing::warn!(%error, "the ring cannot wake the tracer; it is read with each snapshot");
                    woken = false;
                }
            },
        }
    }
    pipeline.end();
}

async fn next_order(orders: &mut Option<mpsc::Receiver<Order>>) -> Option<Order> {
    match orders {
        Some(orders) => orders.recv().await,
        None => std::future::pending().await,
    }
}

async fn hear(uevents: &mut Option<Uevents>) -> std::io::Result<()> {
    match uevents {
        Some(uevents) => uevents.changed().await,
        None => std::future::pending().await,
    }
}
