//! Who a line speaks of: RDMA device, peer, rank; and where messages begin.

use std::sync::OnceLock;

use aho_corasick::packed::{self, Searcher};
use memchr::memmem::{Finder, FinderRev};
use regex::bytes::Regex;

use crate::clean::text;

/// A message's prefix is no longer: launcher tags, a time, host and source file.
const HOST_REACH_BYTES: usize = 512;

/// Longest host name (RFC 1035, 2.3.4).
const MAX_HOST_BYTES: usize = 253;

/// How names of RDMA devices begin: the kernel's drivers, and `rdma-core`'s rules
/// for stable names (by driver, then PCI place).
const DEVICE_STARTS: &[&str] = &[
    "mlx4_", "mlx5_", "rdmap", "rocep", "ibp", "iwp", "roceo", "ibs", "rocex", "rdmas", "bnxt_re",
    "irdma", "hfi1_", "efa", "erdma_", "rxe", "siw", "hns_", "ionic_", "qedr", "mana_", "cxgb",
    "i40iw", "ocrdma", "qib", "mthca", "roce", "ib0", "ib1", "ib2", "ib3", "ib4", "ib5", "ib6",
    "ib7", "ib8", "ib9", "ib_",
];

/// Words without which a longer search is in vain; built once, for each line asks.
struct Words {
    rank: [Finder<'static>; 2],
    mpirun: Finder<'static>,
    kernel: Finder<'static>,
    gpu: FinderRev<'static>,
    ucx: FinderRev<'static>,
}

struct Patterns {
    words: Words,
    heads: Regex,
    device_starts: Option<Searcher>,
    device: Regex,
    peer: Regex,
    syslog_host: Regex,
    ranks: [Regex; 4],
}

fn patterns() -> &'static Patterns {
    static PATTERNS: OnceLock<Patterns> = OnceLock::new();
    let fixed = |text: &str| Regex::new(text).expect("a constant of this crate, built by a test");
    PATTERNS.get_or_init(|| Patterns {
        words: Words {
            rank: [Finder::new("ank"), Finder::new("ANK")],
            mpirun: Finder::new("]<std"),
            kernel: Finder::new(" kernel:"),
            gpu: FinderRev::new(" ["),
            ucx: FinderRev::new("] ["),
        },
        // Where the message of a library begins, also in the middle of a line.
        heads: fixed(
            r"(?-u)NCCL (?:WARN|INFO|ERROR|TRACE|CALL)\b|UCX +(?:FATAL|ERROR|WARN|DIAG|INFO|DEBUG|TRACE)\b|\[rank ?\d+\]:|NVRM:",
        ),
        device_starts: packed::Config::new()
            .builder()
            .extend(DEVICE_STARTS)
            .build(),
        device: fixed(
            r"(?-u)\A(mlx[45]_(?:ib|bond_?|core|roce|rdma|dev|eth)?_?[0-9x]+|(?:rdmap|rocep|ibp|iwp|roceo|ibs|rocex|rdmas)[a-z0-9]*\d[a-z0-9]*|bnxt_re[a-z_-]*\d+|irdma\d+|hfi1_\d+|efa_?\d+|erdma_\d+|rxe_?[a-z]*\d+|siw_?[a-z]*\d+|hns_\d+|ionic_\d+|qedr\d+|mana_\d+|cxgb[34]_\d+|i40iw\d+|ocrdma\d+|qib\d+|mthca\d+|roce\d+|ib_?\d{1,2})(?:\b|:)",
        ),
        peer: fixed(
            r"(?i-u)(?:remote peer|from peer|peer|connect(?:ed|ing)? to|recv from|send to|remote)[ =:]+(\[?[a-z0-9_.:%-]*[a-z0-9_\]]<\d+>|\d{1,3}(?:\.\d{1,3}){3}(?::\d+|<\d+>)?)",
        ),
        syslog_host: fixed(
            r"(?-u)(?:^|\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)? )([A-Za-z0-9][A-Za-z0-9._-]{0,252}) kernel:",
        ),
        // From the surest to the least sure: torchrun, mpirun, PyTorch, prose.
        ranks: [
            fixed(r"(?-u)\[rank ?(\d{1,7})\]"),
            fixed(r"(?-u)\[\d+,(\d{1,7})\]<std(?:out|err|diag)>"),
            fixed(r"(?-u)\[[^\]]{0,80}\bRank +(\d{1,7})\]"),
            fixed(r"(?i-u)(?:^|[ ,(\[])(?:global_?)?rank[=: ]\s*(\d{1,7})\b"),
        ],
    })
}

/// Puts the starts of messages in the line, in order, at most `limit`.
pub(crate) fn heads(line: &[u8], limit: usize, heads: &mut Vec<usize>) {
    let found = patterns().heads.find_iter(line).take(limit);
    heads.clear();
    heads.extend(found.map(|head| head.start()));
}

/// The RDMA device that the text names first.
pub(crate) fn device(window: &[u8]) -> Option<String> {
    let patterns = patterns();
    let named_at = |at: usize| {
        let begins = at == 0 || !is_word(window[at - 1]);
        begins
            .then(|| patterns.device.captures(&window[at..]))
            .flatten()
            .and_then(|found| Some(text(found.get(1)?.as_bytes())))
    };
    match &patterns.device_starts {
        Some(starts) => starts
            .find_iter(window)
            .find_map(|found| named_at(found.start())),
        // A machine without the instructions that the searcher is made of.
        None => (0..window.len()).find_map(named_at),
    }
}

/// The peer that the text names first, as it stands there.
pub(crate) fn peer(window: &[u8]) -> Option<String> {
    // Either form has a digit behind a point or an angle.
    let may_hold = memchr::memchr2_iter(b'<', b'.', window)
        .any(|at| window.get(at + 1).is_some_and(u8::is_ascii_digit));
    if !may_hold {
        return None;
    }
    first(&patterns().peer, window)
}

/// Host of the process that wrote the message at `at`: the last one named before.
pub(crate) fn host(line: &[u8], at: usize) -> Option<String> {
    let before = &line[at.saturating_sub(HOST_REACH_BYTES)..at];
    if let Some(host) = nccl_host(before) {
        return Some(text(host));
    }
    if let Some(host) = ucx_host(before) {
        return Some(text(host));
    }
    patterns().words.kernel.find(before)?;
    let last = patterns().syslog_host.captures_iter(before).last()?;
    Some(text(last.get(1)?.as_bytes()))
}

/// The host of UCX's `[time] [host:pid:thread]`, the last one in the text.
fn ucx_host(before: &[u8]) -> Option<&[u8]> {
    patterns().words.ucx.rfind_iter(before).find_map(|at| {
        let time = &before[..at];
        let fraction = digits_at_end(time);
        let whole = time[..time.len() - fraction].strip_suffix(b".")?;
        let seconds = digits_at_end(whole);
        let is_time = fraction > 0 && seconds > 0 && whole[..whole.len() - seconds].ends_with(b"[");
        let rest = &before[at + 3..];
        let length = rest.iter().take_while(|byte| is_host(**byte)).count();
        let (host, rest) = rest.split_at(length);
        // Names are filled up with spaces.
        let pid = rest.trim_ascii_start().strip_prefix(b":")?;
        let digits = pid.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let has_pid = digits > 0 && pid[digits..].trim_ascii_start().starts_with(b":");
        (is_time && has_pid && is_host_name(host)).then_some(host)
    })
}

fn is_host(byte: u8) -> bool {
    is_word(byte) || matches!(byte, b'.' | b'-')
}

fn is_host_name(name: &[u8]) -> bool {
    name.len() <= MAX_HOST_BYTES && name.first().is_some_and(u8::is_ascii_alphanumeric)
}

fn digits_at_end(text: &[u8]) -> usize {
    let digits = text.iter().rev();
    digits.take_while(|byte| byte.is_ascii_digit()).count()
}

/// The host of NCCL's `host:pid:tid [gpu]`, the last one in the text.
fn nccl_host(before: &[u8]) -> Option<&[u8]> {
    patterns().words.gpu.rfind_iter(before).find_map(|at| {
        let gpu = &before[at + 2..];
        let digits = gpu.iter().take_while(|byte| byte.is_ascii_digit()).count();
        if digits == 0 || gpu.get(digits) != Some(&b']') {
            return None;
        }
        let rest = without_number(&before[..at])?;
        let rest = without_number(rest)?;
        let length = rest.iter().rev().take_while(|byte| is_host(**byte)).count();
        let (lead, host) = rest.split_at(rest.len() - length);
        let begins = lead
            .last()
            .is_none_or(|byte| byte.is_ascii_whitespace() || matches!(byte, b'>' | b']' | b':'));
        (begins && is_host_name(host)).then_some(host)
    })
}

/// The text without `:NUMBER` at its end.
fn without_number(text: &[u8]) -> Option<&[u8]> {
    let digits = digits_at_end(text);
    (digits > 0)
        .then(|| text[..text.len() - digits].strip_suffix(b":"))
        .flatten()
}

/// Rank of the process that wrote the line, where its prefix or message says it.
pub(crate) fn rank(line: &[u8]) -> Option<u32> {
    let by = |pattern: &Regex| {
        pattern
            .captures(line)
            .and_then(|found| parse(found.get(1)?.as_bytes()))
    };
    let Patterns { words, ranks, .. } = patterns();
    let [torchrun, mpirun, pytorch, prose] = ranks;
    let named = words.rank.iter().any(|word| word.find(line).is_some());
    named
        .then(|| by(torchrun))
        .flatten()
        .or_else(|| words.mpirun.find(line).and_then(|_| by(mpirun)))
        .or_else(|| srun_rank(line))
        .or_else(|| named.then(|| by(pytorch)).flatten())
        .or_else(|| named.then(|| by(prose)).flatten())
}

/// `12: `, which `srun --label` writes before each line.
fn srun_rank(line: &[u8]) -> Option<u32> {
    const MAX_DIGITS: usize = 7;
    let line = line.trim_ascii_start();
    let digits = line.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let is_label = (1..=MAX_DIGITS).contains(&digits) && line[digits..].starts_with(b": ");
    is_label.then(|| parse(&line[..digits])).flatten()
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// A decimal number that fits.
pub(crate) fn parse(digits: &[u8]) -> Option<u32> {
    std::str::from_utf8(digits).ok()?.trim().parse().ok()
}

fn first(pattern: &Regex, window: &[u8]) -> Option<String> {
    Some(text(pattern.captures(window)?.get(1)?.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_of_every_naming() {
        let named = |line: &str| device(line.as_bytes());
        for (line, name) in [
            ("hca mlx5_10", "mlx5_10"),
            ("NET/IB : mlx5_ib0:1 async", "mlx5_ib0"),
            ("on mlx5_bond_0:1", "mlx5_bond_0"),
            ("error on rdmap132s0/0x55", "rdmap132s0"),
            ("infiniband efa_0: Failed", "efa_0"),
            ("infiniband bnxt_re_bond0: x", "bnxt_re_bond0"),
            ("rocep1s0f0: x", "rocep1s0f0"),
        ] {
            assert_eq!(named(line), Some(name.to_owned()), "{line}");
        }
        assert_eq!(named("ibv_reg_mr at ib_plugin.c:12"), None);
        assert_eq!(named("transport/net_ib.cc:12"), None);
    }

    #[test]
    fn peers() {
        let named = |line: &str| peer(line.as_bytes());
        assert_eq!(
            named("from peer 10.1.2.3<44206> with"),
            Some("10.1.2.3<44206>".into())
        );
        assert_eq!(
            named("Connection closed by remote peer node-7.x<571>"),
            Some("node-7.x<571>".into())
        );
        assert_eq!(
            named("from peer fe80::1%ib0<53249> with"),
            Some("fe80::1%ib0<53249>".into())
        );
        assert_eq!(named("from peer with error 5"), None);
    }

    #[test]
    fn ranks_of_every_launcher() {
        let of = |line: &str| rank(line.as_bytes());
        assert_eq!(of("[rank13]:[E218 x] [Rank 1] Watchdog"), Some(13));
        assert_eq!(of("[1,12]<stderr>:HOST:1:2 [0] NCCL"), Some(12));
        assert_eq!(of("12: HOST:1:2 [0] NCCL"), Some(12));
        assert_eq!(of("[PG 0 Rank 7] x"), Some(7));
        assert_eq!(of("[Rank    0]: Error"), Some(0));
        assert_eq!(of("HOST:1:2 [3] NCCL WARN x"), None);
        assert_eq!(of("[rank99999999999]: x"), None);
        assert_eq!(of("12345678: x"), None);
        assert_eq!(of("RANK=4 x"), Some(4));
    }

    #[test]
    fn hosts_of_every_library() {
        let of = |line: &str| host(line.as_bytes(), line.len());
        assert_eq!(of("gpu-01:10:20 [3] NCCL WARN "), Some("gpu-01".into()));
        assert_eq!(of("[1,2]<stderr>:n.x:1:2 [0] "), Some("n.x".into()));
        assert_eq!(of("a:1:2 [0] x b:3:4 [1] "), Some("b".into()));
        assert_eq!(of("-a:1:2 [0] "), None);
        assert_eq!(of("(a:1:2 [0] "), None);
        assert_eq!(of("a:1 [0] "), None);
        assert_eq!(of("a:1:2 [x] "), None);
        assert_eq!(of(&format!("{}:1:2 [0] ", "a".repeat(254))), None);
        assert_eq!(of("[1.25] [n3:77  :0] x.c:1 UCX "), Some("n3".into()));
        assert_eq!(of("[1.2] [n3  :7:0] [1.3] [n4:8:0] "), Some("n4".into()));
        assert_eq!(of("1.25] [n3:77:0] x.c:1 UCX "), None);
        assert_eq!(of("[125] [n3:77:0] x.c:1 UCX "), None);
        assert_eq!(of("[1.25] [n3:77] x.c:1 UCX "), None);
        assert_eq!(of("[1.25] [-n3:77:0] x.c:1 UCX "), None);
        assert_eq!(of("Jan  2 03:04:05 gpu-01 kernel: "), Some("gpu-01".into()));
    }

    #[test]
    fn devices_are_found_with_and_without_the_searcher() {
        for line in DEVICE_STARTS.iter().map(|start| format!("x {start}3 y")) {
            let window = line.as_bytes();
            let slow = (0..window.len()).find_map(|at| {
                let begins = at == 0 || !is_word(window[at - 1]);
                begins.then(|| patterns().device.captures(&window[at..]))?
            });
            let slow = slow.map(|found| text(&found[1]));
            assert_eq!(device(window), slow, "{line}");
        }
        assert_eq!(device(b"xmlx5_0 mlx5_1"), Some("mlx5_1".into()));
    }
}
