//! Who a line speaks of: RDMA device, peer, rank; and where messages begin.

use std::sync::OnceLock;

use regex::bytes::{Match, Regex};

use crate::clean::text;

/// A message's prefix is no longer: launcher tags, a time, host and source file.
const HOST_REACH_BYTES: usize = 512;

struct Patterns {
    heads: Regex,
    device: Regex,
    peer: Regex,
    hosts: [Regex; 3],
    ranks: [Regex; 5],
}

fn patterns() -> &'static Patterns {
    static PATTERNS: OnceLock<Patterns> = OnceLock::new();
    let fixed = |text: &str| Regex::new(text).expect("a constant of this crate, built by a test");
    PATTERNS.get_or_init(|| Patterns {
        // Where the message of a library begins, also in the middle of a line.
        heads: fixed(
            r"(?-u)NCCL (?:WARN|INFO|ERROR|TRACE|CALL)\b|UCX +(?:FATAL|ERROR|WARN|DIAG|INFO|DEBUG|TRACE)\b|\[rank ?\d+\]:|NVRM:",
        ),
        // Names of `rdma-core`'s rename rules and of the kernel's drivers.
        device: fixed(
            r"(?-u)\b((?:mlx[45]_(?:ib|bond_?|core|roce|rdma|dev|eth)?_?[0-9x]+|(?:rdmap|rocep|ibp|iwp|roceo|ibs|rocex|rdmas)[a-z0-9]*\d[a-z0-9]*|bnxt_re[a-z_-]*\d+|irdma\d+|hfi1_\d+|efa_?\d+|erdma_\d+|rxe_?[a-z]*\d+|siw_?[a-z]*\d+|hns_\d+|ionic_\d+|qedr\d+|mana_\d+|cxgb[34]_\d+|i40iw\d+|ocrdma\d+|qib\d+|mthca\d+|roce\d+|ib_?\d{1,2}))(?:\b|:)",
        ),
        peer: fixed(
            r"(?i-u)(?:remote peer|from peer|peer|connect(?:ed|ing)? to|recv from|send to|remote)[ =:]+(\[?[a-z0-9_.:%-]*[a-z0-9_\]]<\d+>|\d{1,3}(?:\.\d{1,3}){3}(?::\d+|<\d+>)?)",
        ),
        // NCCL's `host:pid:tid [gpu]`, UCX's `[time] [host:pid:thread]`, syslog.
        hosts: [
            fixed(r"(?-u)(?:^|[\s>\]:])([A-Za-z0-9][A-Za-z0-9._-]{0,252}):\d+:\d+ \[\d+\]"),
            fixed(r"(?-u)\[\d+\.\d+\] \[([A-Za-z0-9][A-Za-z0-9._-]{0,252}) *:\d+ *:"),
            fixed(r"(?-u)(?:^|\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)? )([A-Za-z0-9][A-Za-z0-9._-]{0,252}) kernel:"),
        ],
        // From the surest to the least sure: torchrun, mpirun, srun, PyTorch, prose.
        ranks: [
            fixed(r"(?-u)\[rank ?(\d{1,7})\]"),
            fixed(r"(?-u)\[\d+,(\d{1,7})\]<std(?:out|err|diag)>"),
            fixed(r"(?-u)^\s*(\d{1,7}): "),
            fixed(r"(?-u)\[[^\]]{0,80}\bRank +(\d{1,7})\]"),
            fixed(r"(?i-u)(?:^|[ ,(\[])(?:global_?)?rank[=: ]\s*(\d{1,7})\b"),
        ],
    })
}

/// Starts of messages in the line, in order, at most `limit`.
pub(crate) fn heads(line: &[u8], limit: usize) -> Vec<usize> {
    patterns()
        .heads
        .find_iter(line)
        .take(limit)
        .map(|head| head.start())
        .collect()
}

/// The RDMA device that the text names first.
pub(crate) fn device(window: &[u8]) -> Option<String> {
    first(&patterns().device, window)
}

/// The peer that the text names first, as it stands there.
pub(crate) fn peer(window: &[u8]) -> Option<String> {
    first(&patterns().peer, window)
}

/// Host of the process that wrote the message at `at`: the last one named before.
pub(crate) fn host(line: &[u8], at: usize) -> Option<String> {
    let before = &line[at.saturating_sub(HOST_REACH_BYTES)..at];
    patterns().hosts.iter().find_map(|pattern| {
        let last = pattern.captures_iter(before).last()?;
        Some(text(last.get(1)?.as_bytes()))
    })
}

/// Rank of the process that wrote the line, where its prefix or message says it.
pub(crate) fn rank(line: &[u8]) -> Option<u32> {
    patterns().ranks.iter().find_map(|pattern| {
        let digits = pattern.captures(line)?.get(1)?;
        parse(digits)
    })
}

/// A decimal number that fits.
pub(crate) fn parse(digits: Match<'_>) -> Option<u32> {
    std::str::from_utf8(digits.as_bytes())
        .ok()?
        .trim()
        .parse()
        .ok()
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
    }
}
