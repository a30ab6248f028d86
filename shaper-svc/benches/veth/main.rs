//! What the running service does to real traffic, beside `tc tbf` and `tc htb` on the
//! same veth pair in the same run; one line of JSON per figure.
//!
//! Needs root, iproute2, ethtool, ping, iperf3, tcpdump. `cargo bench -p rdmesh-shaper
//! --bench veth [NAME]` runs the figures whose name contains NAME.

#[path = "../../tests/veth/net.rs"]
#[allow(dead_code)]
mod net;
#[path = "../../tests/veth/shaper.rs"]
#[allow(dead_code)]
mod shaper;

mod bursts;

use std::io::Write;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use net::{Net, Process, SERVER, run};
use rdmesh_proto::shaper::v1 as proto;
use rdmesh_shaper::bench::Figure;
use serde_json::Value;
use shaper::{Shaper, block_on};

/// A measurement: the beginning of its figures' names, and how it is made.
type Measure = (&'static str, fn(&str) -> Result<Vec<Figure>>);

const MEASURES: [Measure; 5] = [
    ("shaper.frames_ahead", bursts::through_the_shaper),
    ("shaper.frames_ahead.tbf", |name| {
        bursts::through_tc(name, bursts::TBF)
    }),
    ("shaper.frames_ahead.htb", |name| {
        bursts::through_tc(name, bursts::HTB)
    }),
    ("shaper.tcp_goodput.fraction", tcp_goodput),
    ("shaper.rate_change.ms", rate_change),
];

fn main() -> Result<()> {
    // cargo bench passes --bench.
    let only = std::env::args()
        .skip(1)
        .find(|arg| !arg.starts_with('-'))
        .unwrap_or_default();
    for (name, measure) in MEASURES.iter().filter(|(name, _)| name.contains(&only)) {
        for figure in measure(name).context(*name)? {
            writeln!(std::io::stdout(), "{}", serde_json::to_string(&figure)?)?;
        }
    }
    Ok(())
}

/// The part of what the wire formula allows at 200 Mbit/s that TCP gets.
fn tcp_goodput(name: &str) -> Result<Vec<Figure>> {
    const RUNS: usize = 3;
    let net = Net::lay("tcp")?;
    let directory = tempfile::tempdir()?;
    let shaper = Shaper::configure(directory.path(), "200mbit")?.measured();
    block_on(async {
        let (_service, _client) = shaper.start(&net).await?;
        net.reachable()?;
        let _server = net.iperf_server()?;
        let mut fractions = Vec::new();
        for _ in 0..RUNS {
            let args = ["-J", "-c", SERVER, "-t", "8", "-O", "2"];
            let said = run(net.sender("iperf3").args(args))?.stdout;
            let json: Value = serde_json::from_slice(&said)?;
            let goodput = json.pointer("/end/sum_received/bits_per_second");
            let goodput = goodput.and_then(Value::as_f64).context("no goodput")?;
            // 1,448 bytes of payload in 1,538 on the wire.
            fractions.push(goodput / (200e6 * 1448.0 / 1538.0));
        }
        let figure = Figure::median_of(name.to_owned(), "fraction", fractions);
        Ok(vec![Figure {
            at_least: Some(0.99),
            ..figure
        }])
    })
}

/// From a request's arrival at the service to the first frame boundary with its rate,
/// under a load of TCP.
fn rate_change(name: &str) -> Result<Vec<Figure>> {
    const CHANGES: u64 = 100;
    let net = Net::lay("change")?;
    let directory = tempfile::tempdir()?;
    let shaper = Shaper::configure(directory.path(), "200mbit")?.measured();
    block_on(async {
        let (_service, mut client) = shaper.start(&net).await?;
        net.reachable()?;
        let _server = net.iperf_server()?;
        let mut load = net.sender("iperf3");
        load.args(["-c", SERVER, "-t", "60"])
            .stdout(std::process::Stdio::null());
        let _load = Process::start(&mut load)?;
        let mut times = Vec::new();
        for change in 0..CHANGES {
            let request = proto::SetRateRequest {
                wire: "vf0".to_owned(),
                rate_bps: 100_000_000 + change,
                ..Default::default()
            };
            let after_ns = client
                .set_rate(request)
                .await?
                .into_inner()
                .in_force_after_ns;
            ensure!(after_ns > 0, "the service does not say");
            times.push(Duration::from_nanos(after_ns).as_secs_f64() * 1e3);
        }
        let figure = Figure::median_of(name.to_owned(), "ms", times);
        Ok(vec![Figure {
            at_most: Some(1.0),
            ..figure
        }])
    })
}
