//! What earlier runs left, sent under their own names.

use std::sync::Arc;

use rdmesh_proto::collector::v1::Hello;
use rdmesh_proto::common::v1::ClockPair;

use super::keeper::Waker;
use super::record::Stamp;
use crate::uplink::driver::Driver;
use crate::uplink::shared::Shared;
use crate::uplink::{Dial, Pace};

/// An earlier run that is to be sent.
#[derive(Debug)]
pub(crate) struct EarlierUplink {
    pub(super) shared: Arc<Shared>,
    /// As the run introduced itself.
    pub(super) hello: Hello,
    /// Clocks of its newest item.
    pub(super) newest: Stamp,
    /// Whether it ran during this boot.
    pub(super) same_boot: bool,
}

impl EarlierUplink {
    /// The Hello of the run as of now: the collector takes from it how far the host's clock
    /// is from its own, and places all items by that.
    fn hello(&self, live: &Hello, now: Stamp) -> Hello {
        let boottime_ns = if self.same_boot {
            now.boot_ns
        } else {
            // Where the boot clock of that boot would stand had it gone on: the wall clock
            // is all that both boots share. One that was set back since says nothing.
            let since = now.real_ns.saturating_sub(self.newest.real_ns);
            self.newest.boot_ns.saturating_add(since)
        };
        Hello {
            clock: Some(ClockPair {
                boottime_ns,
                realtime_ns: now.real_ns,
            }),
            // Whoever dials the agent reaches the process that runs now.
            address: live.address.clone(),
            ..self.hello.clone()
        }
    }
}

/// Sends what earlier runs left, oldest run first, beside the live run `live`.
pub(crate) async fn send_earlier(
    waker: Waker,
    live: Arc<Shared>,
    live_hello: Arc<dyn Fn() -> Hello + Send + Sync>,
    dialer: Arc<dyn Dial>,
    pace: Pace,
    seed: u64,
) {
    // The run that goes on introduces itself first, and a collector that is away is asked
    // by one connection alone.
    live.first_connected().await;
    while let Some(earlier) = waker.next_earlier().await {
        let waiting = earlier.shared.status().queued_items;
        tracing::info!(run_id = %earlier.hello.run_id, items = waiting, "sending what an earlier run left");
        let shared = Arc::clone(&earlier.shared);
        let (clock, hello) = (waker.clocks(), Arc::clone(&live_hello));
        let run_id = earlier.hello.run_id.clone();
        let of_earlier = Arc::new(move || earlier.hello(&hello(), (clock.now)()));
        Driver::new(shared, Arc::clone(&dialer), pace, seed ^ 1, of_earlier)
            .run()
            .await;
        tracing::info!(%run_id, "all of an earlier run is handed over");
        waker.earlier_is_done();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::uplink::UplinkConfig;

    const S: u64 = 1_000_000_000;

    fn told(same_boot: bool, newest: Stamp, now: Stamp) -> (u64, u64) {
        let earlier = EarlierUplink {
            shared: Arc::new(Shared::new(
                &UplinkConfig::default(),
                std::time::SystemTime::now,
            )),
            hello: Hello::default(),
            newest,
            same_boot,
        };
        let clock = earlier.hello(&Hello::default(), now).clock.unwrap();
        (clock.boottime_ns, clock.realtime_ns)
    }

    fn stamp(boot: u64, real: u64) -> Stamp {
        Stamp {
            boot_ns: boot * S,
            real_ns: real * S,
        }
    }

    #[test]
    fn an_earlier_boots_clock_goes_on_where_it_stood() {
        let newest = stamp(500, 10_000);
        assert_eq!(
            told(true, newest, stamp(900, 10_400)),
            (900 * S, 10_400 * S)
        );
        // The machine was started anew an hour later.
        assert_eq!(
            told(false, newest, stamp(30, 13_600)),
            (4_100 * S, 13_600 * S)
        );
        // Its clock was set back meanwhile.
        assert_eq!(told(false, newest, stamp(30, 9_000)), (500 * S, 9_000 * S));
    }
}
