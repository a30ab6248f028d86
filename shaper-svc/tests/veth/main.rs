//! Two namespaces joined through the running service, with `net_af_packet` on veth:
//! ping, iperf3, a change of rate under load, kill -9 and a restart under load.
//!
//! Needs root, or a user who may make namespaces; iproute2, ethtool, ping, iperf3 and
//! util-linux. The machine may be busy: counts, order and mean rates over seconds are asserted, never single frames.
#![cfg(feature = "dpdk")]

mod net;
mod shaper;

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use net::{Net, Process, SERVER, run};
use rdmesh_proto::shaper::v1::InvalidCause;
use serde_json::Value;
use shaper::{Shaper, block_on, mean_rate_bps, report, set_rate};

/// 200 Mbit/s, the rate of most of these tests.
const WIRE_BPS: f64 = 200e6;

/// A wire at its catch-up limit is above its rate by 64 frames at the most: 4 ms.
const ABOVE: f64 = 1.02;

fn iperf(net: &Net, args: &[&str]) -> Command {
    let mut command = net.sender("iperf3");
    command
        .args(["-J", "-c", SERVER])
        .args(args)
        .stdout(Stdio::piped());
    command
}

fn result(output: &[u8]) -> Result<Value> {
    let json: Value = serde_json::from_slice(output).context("iperf3 -J writes JSON")?;
    ensure!(json.get("error").is_none(), "iperf3: {}", json["error"]);
    Ok(json)
}

fn number(json: &Value, path: &str) -> Result<f64> {
    json.pointer(path)
        .and_then(Value::as_f64)
        .with_context(|| format!("no {path} in {json}"))
}

#[test]
fn ping_tcp_and_udp_pass_at_the_rate_of_the_wire() -> Result<()> {
    let net = Net::lay("rate")?;
    let directory = tempfile::tempdir()?;
    let shaper = Shaper::configure(directory.path(), "200mbit")?;
    block_on(async {
        let (_service, mut client) = shaper.start(&net).await?;
        net.reachable()?;
        let ping = run(net.sender("ping").args(["-c", "20", "-i", "0.02", SERVER]))?;
        let said = String::from_utf8_lossy(&ping.stdout).into_owned();
        ensure!(
            said.contains(" 0% packet loss") && !said.contains("DUP!"),
            "{said}"
        );

        let _server = net.iperf_server()?;
        let tcp = result(&run(&mut iperf(&net, &["-t", "4", "-O", "1"]))?.stdout)?;
        let goodput = number(&tcp, "/end/sum_received/bits_per_second")?;
        // 1,448 of 1,538 bytes on the wire are payload.
        let allowed = WIRE_BPS * 1448.0 / 1538.0;
        ensure!(goodput < allowed * ABOVE, "{goodput} of {allowed} bit/s");
        ensure!(goodput > allowed * 0.8, "{goodput} of {allowed} bit/s");

        // Half the wire: nothing is lost, doubled or out of order.
        let udp = result(&run(&mut iperf(&net, &["-u", "-b", "100M", "-t", "3"]))?.stdout)?;
        let lost = number(&udp, "/end/sum/lost_packets")?;
        let sent = number(&udp, "/end/sum/packets")?;
        let reordered = number(&udp, "/end/streams/0/udp/out_of_order")?;
        let imissed: u64 = report(&mut client)
            .await?
            .ports
            .iter()
            .map(|port| port.imissed)
            .sum();
        ensure!(
            reordered == 0.0,
            "{reordered} of {sent} datagrams out of order"
        );
        ensure!(
            lost <= sent * 0.01,
            "{lost} of {sent} datagrams lost, {imissed} by the port"
        );

        // Twice the wire: what arrives fits the wire, in order.
        let udp = result(&run(&mut iperf(&net, &["-u", "-b", "400M", "-t", "3"]))?.stdout)?;
        let reordered = number(&udp, "/end/streams/0/udp/out_of_order")?;
        ensure!(reordered == 0.0, "{reordered} datagrams out of order");
        let report = report(&mut client).await?;
        ensure!(
            report.fault.is_empty() && report.outages.is_empty(),
            "{report:?}"
        );
        // The rest found the ring full, which the driver does not count and the kernel does.
        let dropped = i32::from(InvalidCause::PortDropped);
        let told = &report.invalid_windows;
        ensure!(
            report.ports[0].imissed > imissed
                && told.iter().any(|window| window.causes.contains(&dropped)),
            "{report:?}"
        );
        Ok(())
    })
}

#[test]
fn a_rate_changes_under_load_and_a_bypass_lifts_it() -> Result<()> {
    let net = Net::lay("load")?;
    let directory = tempfile::tempdir()?;
    let shaper = Shaper::configure(directory.path(), "200mbit")?;
    block_on(async {
        let (_service, mut client) = shaper.start(&net).await?;
        net.reachable()?;
        let _server = net.iperf_server()?;
        let mut load = Process::start(&mut iperf(&net, &["-t", "60"]))?;
        // Until the load has come up.
        let deadline = Instant::now() + Duration::from_secs(20);
        while mean_rate_bps(&mut client, 0.5).await? < WIRE_BPS * 0.7 {
            ensure!(Instant::now() < deadline, "the load does not fill the wire");
        }
        for rate_bps in [50_000_000_u32, 120_000_000, 10_000_000, 200_000_000] {
            set_rate(&mut client, rate_bps.into()).await?;
            let (mean, rate) = (mean_rate_bps(&mut client, 2.0).await?, f64::from(rate_bps));
            ensure!(mean < rate * ABOVE, "{mean} bit/s on a wire of {rate}");
            ensure!(mean > rate * 0.6, "{mean} bit/s on a wire of {rate}");
        }
        let bypass = rdmesh_proto::shaper::v1::SetBypassRequest {
            wire: "vf0".to_owned(),
            bypass: true,
            ..Default::default()
        };
        client.set_bypass(bypass).await?;
        let deadline = Instant::now() + Duration::from_secs(20);
        while mean_rate_bps(&mut client, 1.0).await? < WIRE_BPS * 1.2 {
            ensure!(Instant::now() < deadline, "the bypassed wire is still slow");
        }
        load.kill();
        Ok(())
    })
}

#[test]
fn what_the_unit_leaves_the_service_is_enough() -> Result<()> {
    let net = Net::lay("unit")?;
    let directory = tempfile::tempdir()?;
    let shaper = Shaper::configure(directory.path(), "200mbit")?.run_by_the_unit();
    block_on(async {
        let (service, mut client) = shaper.start(&net).await?;
        let status = std::fs::read_to_string(format!("/proc/{}/status", service.0.id()))?;
        let line = |name: &str| status.lines().find_map(|line| line.strip_prefix(name));
        // The four of the unit: 12, 13, 14 and 17 (capabilities(7), capability.h).
        ensure!(
            line("CapBnd:").map(str::trim) == Some("0000000000027000")
                && line("CapEff:").map(str::trim) == Some("0000000000027000")
                && line("NoNewPrivs:").map(str::trim) == Some("1"),
            "{status}"
        );
        net.reachable()?;
        set_rate(&mut client, 50_000_000).await?;
        let report = report(&mut client).await?;
        ensure!(report.fault.is_empty(), "{report:?}");
        Ok(())
    })
}

#[test]
fn a_killed_service_comes_back_under_load() -> Result<()> {
    let net = Net::lay("kill")?;
    let directory = tempfile::tempdir()?;
    let shaper = Shaper::configure(directory.path(), "200mbit")?;
    block_on(async {
        let (mut service, mut client) = shaper.start(&net).await?;
        net.reachable()?;
        set_rate(&mut client, 80_000_000).await?;
        let _server = net.iperf_server()?;
        let load = iperf(&net, &["-t", "10"]).spawn()?;
        let deadline = Instant::now() + Duration::from_secs(20);
        while mean_rate_bps(&mut client, 0.5).await? < 40e6 {
            ensure!(Instant::now() < deadline, "the load does not come up");
        }
        service.kill();
        drop(client);
        let began = Instant::now();
        let (_service, mut client) = shaper.start(&net).await?;
        let away = began.elapsed();
        ensure!(away < Duration::from_secs(10), "back after {away:?}");

        // The connection goes on, at the rate that was set before the kill.
        let deadline = Instant::now() + Duration::from_secs(20);
        let mean = loop {
            let mean = mean_rate_bps(&mut client, 1.0).await?;
            if mean > 40e6 {
                break mean;
            }
            ensure!(Instant::now() < deadline, "traffic does not come back");
        };
        ensure!(mean < 80e6 * ABOVE, "{mean} bit/s on a wire of 80 Mbit/s");
        let ended = result(&load.wait_with_output()?.stdout)?;
        ensure!(number(&ended, "/end/sum_received/bytes")? > 1e6);
        let report = report(&mut client).await?;
        let outage = report.outages.last().context("the kill is an outage")?;
        ensure!(
            outage.cause.contains("killed") && outage.to.is_some(),
            "{outage:?}"
        );
        let told = report.invalid_windows.iter().find(|window| {
            let down = i32::from(InvalidCause::DataPathDown);
            window.causes.contains(&down) && window.wire == "vf0"
        });
        let told = told.with_context(|| format!("no window tells of it: {report:?}"))?;
        ensure!(told.from == outage.from, "{told:?} {outage:?}");
        Ok(())
    })
}

#[test]
fn a_port_that_vanishes_is_an_outage_and_its_return_a_restart() -> Result<()> {
    let net = Net::lay("gone")?;
    let directory = tempfile::tempdir()?;
    let shaper = Shaper::configure(directory.path(), "200mbit")?;
    block_on(async {
        let (mut service, mut client) = shaper.start(&net).await?;
        net.reachable()?;
        // Frames are on their way all the time.
        let mut ping = net.sender("ping");
        ping.args(["-i", "0.01", SERVER]).stdout(Stdio::null());
        let _ping = Process::start(&mut ping)?;
        net.part_receiver()?;
        let deadline = Instant::now() + Duration::from_secs(20);
        let outage = loop {
            if let Some(outage) = report(&mut client).await?.outages.pop() {
                break outage;
            }
            ensure!(Instant::now() < deadline, "nothing is reported");
        };
        ensure!(
            outage.cause.contains("net_af_packet1") && outage.cause.contains("in1 has gone"),
            "{outage:?}"
        );
        let watch = rdmesh_proto::shaper::v1::WatchWiresRequest::default();
        let mut windows = client.watch_wires(watch).await?.into_inner();
        let down = i32::from(InvalidCause::DataPathDown);
        for _ in 0..4 {
            let window = windows.message().await?.context("a window")?.window;
            let window = window.context("a window")?;
            ensure!(window.invalid.contains(&down), "{window:?}");
        }
        // Rates can be asked for meanwhile.
        set_rate(&mut client, 50_000_000).await?;

        net.join_receiver()?;
        let deadline = Instant::now() + Duration::from_secs(20);
        let ended = loop {
            if let Some(status) = service.0.try_wait()? {
                break status;
            }
            ensure!(Instant::now() < deadline, "the service does not end");
            std::thread::yield_now();
        };
        ensure!(
            !ended.success(),
            "a supervisor is to start it anew: {ended}"
        );
        let (_service, mut client) = shaper.start(&net).await?;
        net.reachable()?;
        let outages = report(&mut client).await?.outages;
        ensure!(outages.len() == 1 && outages[0].to.is_some(), "{outages:?}");
        Ok(())
    })
}

#[test]
fn what_cannot_run_is_refused_before_a_port_is_touched() -> Result<()> {
    let net = Net::lay("no")?;
    let directory = tempfile::tempdir()?;
    let shaper = Shaper::configure(directory.path(), "200mbit")?;
    let other = tempfile::tempdir()?;
    let second = Shaper::configure(other.path(), "200mbit")?;
    block_on(async {
        let (_service, _client) = shaper.start(&net).await?;
        for (shaper, more, words) in [
            (&second, "wires=[]", "no wires"),
            (&second, "dpdk.file_prefix=other", "device in0 is in use"),
            (&shaper, "dpdk.devices=[]", "state directory"),
            (&second, "dpdk.memory_mb=1000000", "nothing was touched"),
            (
                &second,
                "wires=[{name=\"x\",in_port=\"a\",out_port=\"a\"}]",
                "out_port",
            ),
            (&second, "window_ms=1", "window_ms"),
            (
                &second,
                "dpdk.devices=[\"net_af_packet0,iface=nosuch0\"]",
                "device `net_af_packet0,iface=nosuch0` did not come up",
            ),
            (
                &second,
                "dpdk.devices=[\"net_null7\"]",
                "there is no port `net_af_packet0`",
            ),
        ] {
            let said = shaper.refused(&net, &["--set", more])?;
            ensure!(said.contains(words), "{more}: {said}");
        }
        Ok(())
    })
}
