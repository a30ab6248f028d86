//! Bursts of 60 frames after idle gaps at 50 Mbit/s: how far do they run ahead of an
//! ideal wire?

use std::fs::File;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rdmesh_shaper::bench::Figure;
use rdmesh_shaper::capture::Reader;
use rdmesh_shaper::meter::Meter;
use rdmesh_shaper::rate::LineRate;

use crate::net::{Net, Process, SENDER, SERVER, run};
use crate::shaper::{Shaper, block_on};

/// `tc`'s usual setting for a token bucket at 50 Mbit/s. The overhead of 24 bytes makes
/// its rate a line rate like the shaper's.
pub(crate) const TBF: &[&str] = &[
    "root", "tbf", "rate", "50mbit", "burst", "16kb", "latency", "400ms", "overhead", "24",
];

/// The same as a class of `htb`.
pub(crate) const HTB: &[&str] = &[
    "parent", "1:", "classid", "1:1", "htb", "rate", "50mbit", "ceil", "50mbit", "overhead", "24",
];

const BURSTS: usize = 60;
const FRAMES: usize = 60;

/// UDP payload that makes a frame of 1,514 bytes.
const PAYLOAD: usize = 1472;

/// A burst takes 15 ms on the wire; the gap is long enough for a bucket to fill.
const EVERY: Duration = Duration::from_millis(60);

/// No frame for so long: the next one begins a burst.
const GAP_PS: u128 = 30_000_000_000;

const PORT: u16 = 9999;

/// Through the service.
pub(crate) fn through_the_shaper(name: &str) -> Result<Vec<Figure>> {
    let net = Net::lay("ahead")?;
    let directory = tempfile::tempdir()?;
    let shaper = Shaper::configure(directory.path(), "50mbit")?.measured();
    block_on(async {
        let (_service, _client) = shaper.start(&net).await?;
        let mut figures = measure(&net, directory.path(), name)?;
        if let Some(figure) = figures.first_mut() {
            figure.at_most = Some(0.2);
        }
        Ok(figures)
    })
}

/// Through the service with a wire that is not shaped, and `tc` before it: the same
/// path with another shaper.
pub(crate) fn through_tc(name: &str, discipline: &[&str]) -> Result<Vec<Figure>> {
    let net = Net::lay("peer")?;
    let directory = tempfile::tempdir()?;
    let shaper = Shaper::configure(directory.path(), "")?.measured();
    if discipline.contains(&"classid") {
        tc(
            &net,
            &[
                "qdisc", "add", "dev", "eth0", "root", "handle", "1:", "htb", "default", "1",
            ],
        )?;
        tc(
            &net,
            &[&["class", "add", "dev", "eth0"], discipline].concat(),
        )?;
    } else {
        tc(
            &net,
            &[&["qdisc", "add", "dev", "eth0"], discipline].concat(),
        )?;
    }
    block_on(async {
        let (_service, _client) = shaper.start(&net).await?;
        measure(&net, directory.path(), name)
    })
}

fn tc(net: &Net, args: &[&str]) -> Result<()> {
    run(net.sender("tc").args(args)).map(|_| ())
}

fn measure(net: &Net, directory: &Path, name: &str) -> Result<Vec<Figure>> {
    net.reachable()?;
    let path = directory.join("seen.pcap");
    let mut tcpdump = net.receiver("tcpdump");
    tcpdump
        .args([
            "-i",
            "eth0",
            "--time-stamp-precision=nano",
            "-U",
            "-s",
            "64",
            "-w",
        ])
        .arg(&path)
        .args(["-B", "8192", "udp", "dst", "port", &PORT.to_string()])
        .stderr(Stdio::null());
    let mut watching = Process::start(&mut tcpdump)?;
    let deadline = Instant::now() + Duration::from_secs(20);
    while std::fs::metadata(&path).map_or(true, |meta| meta.len() < 24) {
        ensure!(Instant::now() < deadline, "tcpdump does not start");
        std::thread::sleep(Duration::from_millis(10));
    }
    send(net)?;
    std::thread::sleep(Duration::from_millis(300));
    run(std::process::Command::new("kill").args(["-INT", &watching.0.id().to_string()]))?;
    watching.0.wait()?;
    let ahead = frames_ahead(&path)?;
    ensure!(
        ahead.len() >= BURSTS / 2,
        "{} of {BURSTS} bursts were seen",
        ahead.len()
    );
    let (from_first, any_stretch) = ahead.into_iter().unzip();
    Ok(vec![
        Figure::median_of(format!("{name}.median"), "frames", from_first),
        Figure::median_of(format!("{name}.any_stretch.median"), "frames", any_stretch),
    ])
}

/// Sends the bursts from the sender's namespace, which a thread of its own enters.
fn send(net: &Net) -> Result<()> {
    let namespace = File::open(format!("/run/netns/{}", net.sender_name()))?;
    let sending = std::thread::spawn(move || -> Result<()> {
        use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
        move_into_link_name_space(
            std::os::fd::AsFd::as_fd(&namespace),
            Some(LinkNameSpaceType::Network),
        )?;
        let socket = std::net::UdpSocket::bind((SENDER, 0))?;
        socket.connect((SERVER, PORT))?;
        let began = Instant::now();
        for burst in 0..BURSTS {
            let at = EVERY * u32::try_from(burst)?;
            std::thread::sleep(at.saturating_sub(began.elapsed()));
            for _ in 0..FRAMES {
                // The receiver has no such socket, and says so now and then.
                let _ = socket.send(&[0; PAYLOAD]);
            }
        }
        Ok(())
    });
    sending
        .join()
        .map_err(|_| anyhow::anyhow!("the sender failed"))?
}

/// For each burst, the most frames that it was ahead of two ideal wires.
///
/// One starts with the first frame, when that was seen, and always has one to send: if
/// that frame was late, those behind it count as ahead as soon as they are not. A frame
/// in the middle may catch up with it.
///
/// The other gets each frame when it was seen: what came beyond the rate over any stretch
/// of the burst. No frame that is late gives an allowance to those behind it, so this also
/// counts how late the machine lets its programs run.
fn frames_ahead(path: &Path) -> Result<Vec<(f64, f64)>> {
    let mut wire = Meter::new(LineRate::new(50_000_000)?);
    let mut reader = Reader::new(std::io::BufReader::new(File::open(path)?))?;
    let mut bursts: Vec<(f64, f64)> = Vec::new();
    let (mut due_ps, mut last_ps, mut left) = (0, 0, 0);
    while let Some(record) = reader.next_record().context("a capture cut short?")? {
        let len = u16::try_from(record.wire_len)?;
        let frame_ps = wire.time_of(len);
        // A burst has 60 frames, whatever else happens on this machine.
        if left == 0 || record.at_ps > last_ps + GAP_PS {
            (due_ps, left) = (record.at_ps, FRAMES);
            bursts.push((0.0, 0.0));
        }
        let ahead_ps = due_ps.saturating_sub(record.at_ps);
        let stretch_ps = wire.see(record.at_ps, len).ahead_ps;
        if let Some((from_first, any_stretch)) = bursts.last_mut() {
            *from_first = from_first.max(frames(ahead_ps, frame_ps));
            *any_stretch = any_stretch.max(frames(stretch_ps, frame_ps));
        }
        last_ps = record.at_ps;
        due_ps += frame_ps;
        left -= 1;
    }
    Ok(bursts)
}

#[expect(clippy::cast_precision_loss, reason = "milliseconds in picoseconds")]
fn frames(time_ps: u128, frame_ps: u128) -> f64 {
    time_ps as f64 / frame_ps as f64
}
