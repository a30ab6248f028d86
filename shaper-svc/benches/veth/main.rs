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
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use net::{Net, Process, run};
use rdmesh_proto::shaper::v1 as proto;
use rdmesh_shaper::bench::Figure;
use serde_json::Value;
use shaper::Shaper;

const SERVER: &str = "10.9.0.2";

/// A measurement.
type Measure = fn() -> Result<Figure>;

const FIGURES: [(&str, Measure); 5] = [
    ("shaper.frames_ahead.median", || {
        bursts::through_the_shaper("shaper.frames_ahead.median")
    }),
    ("shaper.frames_ahead.tbf.median", || {
        bursts::through_tc("shaper.frames_ahead.tbf.median", bursts::TBF)
    }),
    ("shaper.frames_ahead.htb.median", || {
        bursts::through_tc("shaper.frames_ahead.htb.median", bursts::HTB)
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
    for (name, measure) in FIGURES {
        if name.contains(&only) {
            let line = serde_json::to_string(&measure().context(name)?)?;
            writeln!(std::io::stdout(), "{line}")?;
        }
    }
    Ok(())
}

fn block_on<F: Future>(test: F) -> F::Output {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime
        .enable_all()
        .build()
        .expect("a runtime")
        .block_on(test)
}

fn reachable(net: &Net) -> Result<()> {
    let deadline = Instant::now() + Duration::from_secs(20);
    while run(net.sender("ping").args(["-c1", "-W1", SERVER])).is_err() {
        ensure!(Instant::now() < deadline, "no ping comes through");
    }
    Ok(())
}

/// The part of what the wire formula allows at 200 Mbit/s that TCP gets.
fn tcp_goodput() -> Result<Figure> {
    const RUNS: usize = 3;
    let net = Net::lay("tcp")?;
    let directory = tempfile::tempdir()?;
    let shaper = Shaper::configure(directory.path(), "200mbit")?;
    block_on(async {
        let (_service, _client) = shaper.start(&net).await?;
        reachable(&net)?;
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
        let figure = Figure::median_of("shaper.tcp_goodput.fraction".into(), "fraction", fractions);
        Ok(Figure {
            at_least: Some(0.99),
            ..figure
        })
    })
}

/// From a request's arrival at the service to the first frame boundary with its rate,
/// under a load of TCP.
fn rate_change() -> Result<Figure> {
    const CHANGES: u64 = 100;
    let net = Net::lay("change")?;
    let directory = tempfile::tempdir()?;
    let shaper = Shaper::configure(directory.path(), "200mbit")?;
    block_on(async {
        let (_service, mut client) = shaper.start(&net).await?;
        reachable(&net)?;
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
        let figure = Figure::median_of("shaper.rate_change.ms".into(), "ms", times);
        Ok(Figure {
            at_most: Some(1.0),
            ..figure
        })
    })
}
