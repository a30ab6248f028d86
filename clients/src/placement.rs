//! Where an attempt runs, written as `HOST[:ranks=0-7][:devices=mlx5_0,mlx5_1]`.

use std::fmt;
use std::str::FromStr;

use rdmesh_proto::collector::v1 as wire;
use serde::Serialize;

/// Ranks of one attempt on one host. The largest hosts have 16 GPUs; one rank a
/// hardware thread on a large CPU host is 512; twice that catches a typing error
/// such as `0-70000000`.
pub const MAX_RANKS_PER_HOST: usize = 1_024;

/// Longest host name in bytes, as the wire contract has it (`Hello.host`).
pub const MAX_HOST_BYTES: usize = 253;

/// One host of an attempt. Empty lists: not told.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Placement {
    /// The host's name as its agents tell it.
    pub host: String,
    /// Ranks that run there.
    pub ranks: Vec<u32>,
    /// RDMA devices (`mlx5_0`).
    pub devices: Vec<String>,
    /// GPUs, by index or UUID.
    pub gpus: Vec<String>,
    /// Virtual functions.
    pub virtual_functions: Vec<String>,
}

/// Why a text is no placement.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlacementError {
    /// No host, or one that cannot be a host's name.
    #[error("{0:?} is no host name; write HOST or HOST:ranks=0-7:devices=mlx5_0,mlx5_1")]
    Host(String),
    /// A part after the host that is not `key=value` with a known key.
    #[error("{0:?} is not known here; after the host write ranks=, devices=, gpus= or vfs=")]
    Key(String),
    /// A list of ranks that cannot be read.
    #[error("{0:?} is no list of ranks; write 0-7 or 0,2,4-6")]
    Ranks(String),
    /// More than [`MAX_RANKS_PER_HOST`].
    #[error("{0:?} holds more than {MAX_RANKS_PER_HOST} ranks for one host")]
    ManyRanks(String),
}

impl FromStr for Placement {
    type Err = PlacementError;

    fn from_str(text: &str) -> Result<Placement, PlacementError> {
        let mut parts = text.split(':');
        let host = parts.next().unwrap_or_default();
        let odd = |c: char| c.is_control() || c.is_whitespace() || c == '=' || c == ',' || c == '/';
        if host.is_empty() || host.len() > MAX_HOST_BYTES || host.contains(odd) {
            return Err(PlacementError::Host(host.to_owned()));
        }
        let mut placement = Placement {
            host: host.to_owned(),
            ..Placement::default()
        };
        for part in parts {
            let Some((key, value)) = part.split_once('=') else {
                return Err(PlacementError::Key(part.to_owned()));
            };
            match key {
                "ranks" => placement.ranks.extend(parse_ranks(value)?),
                "devices" => placement.devices.extend(parse_names(value)),
                "gpus" => placement.gpus.extend(parse_names(value)),
                "vfs" => placement.virtual_functions.extend(parse_names(value)),
                _ => return Err(PlacementError::Key(part.to_owned())),
            }
        }
        if placement.ranks.len() > MAX_RANKS_PER_HOST {
            return Err(PlacementError::ManyRanks(text.to_owned()));
        }
        Ok(placement)
    }
}

fn parse_names(text: &str) -> impl Iterator<Item = String> + '_ {
    text.split(',')
        .filter(|name| !name.is_empty())
        .map(str::to_owned)
}

/// Reads `0-7,9`, in the order in which it is written.
fn parse_ranks(text: &str) -> Result<Vec<u32>, PlacementError> {
    let wrong = || PlacementError::Ranks(text.to_owned());
    let mut ranks = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let first: u32 = first.parse().map_err(|_| wrong())?;
        let last: u32 = last.parse().map_err(|_| wrong())?;
        if last < first {
            return Err(wrong());
        }
        let more = usize::try_from(last - first)
            .unwrap_or(usize::MAX)
            .saturating_add(1);
        if ranks.len().saturating_add(more) > MAX_RANKS_PER_HOST {
            return Err(PlacementError::ManyRanks(text.to_owned()));
        }
        ranks.extend(first..=last);
    }
    Ok(ranks)
}

/// Writes ranks the short way: `0-7,9`.
pub fn ranks_text(ranks: &[u32]) -> String {
    let mut out = String::new();
    let mut rest = ranks;
    while let [first, ..] = rest {
        let run = rest
            .iter()
            .zip(0_u32..)
            .take_while(|(rank, index)| first.checked_add(*index) == Some(**rank))
            .count();
        if !out.is_empty() {
            out.push(',');
        }
        match (run, rest.get(run - 1)) {
            (2.., Some(last)) => out.push_str(&format!("{first}-{last}")),
            _ => out.push_str(&first.to_string()),
        }
        rest = &rest[run..];
    }
    out
}

impl fmt::Display for Placement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.host)?;
        if !self.ranks.is_empty() {
            write!(f, ":ranks={}", ranks_text(&self.ranks))?;
        }
        let lists = [
            ("devices", &self.devices),
            ("gpus", &self.gpus),
            ("vfs", &self.virtual_functions),
        ];
        for (key, names) in lists {
            if !names.is_empty() {
                write!(f, ":{key}={}", names.join(","))?;
            }
        }
        Ok(())
    }
}

impl From<Placement> for wire::Placement {
    fn from(p: Placement) -> wire::Placement {
        wire::Placement {
            host: p.host,
            ranks: p.ranks,
            devices: p.devices,
            gpus: p.gpus,
            virtual_functions: p.virtual_functions,
        }
    }
}

impl From<wire::Placement> for Placement {
    fn from(p: wire::Placement) -> Placement {
        Placement {
            host: p.host,
            ranks: p.ranks,
            devices: p.devices,
            gpus: p.gpus,
            virtual_functions: p.virtual_functions,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn reads_host_ranks_and_devices() {
        let placement: Placement = "gpu-01:ranks=0-2,7:devices=mlx5_0,mlx5_1".parse().unwrap();
        assert_eq!(placement.host, "gpu-01");
        assert_eq!(placement.ranks, [0, 1, 2, 7]);
        assert_eq!(placement.devices, ["mlx5_0", "mlx5_1"]);
        assert_eq!(
            placement.to_string(),
            "gpu-01:ranks=0-2,7:devices=mlx5_0,mlx5_1"
        );
        assert_eq!("gpu-01".parse::<Placement>().unwrap().to_string(), "gpu-01");
    }

    #[test]
    fn refuses_what_is_no_placement() {
        for text in [
            "",
            ":ranks=0",
            "a b",
            "a:rank=0",
            "a:ranks",
            "a:ranks=",
            "a:ranks=7-0",
            "a:ranks=x",
        ] {
            assert!(text.parse::<Placement>().is_err(), "{text}");
        }
        assert!(matches!(
            "a:ranks=0-4294967295".parse::<Placement>(),
            Err(PlacementError::ManyRanks(_))
        ));
        assert!(matches!(
            "a:ranks=0-1000:ranks=0-1000".parse::<Placement>(),
            Err(PlacementError::ManyRanks(_))
        ));
    }

    #[test]
    fn ranks_are_written_the_short_way() {
        assert_eq!(ranks_text(&[]), "");
        assert_eq!(ranks_text(&[3]), "3");
        assert_eq!(ranks_text(&[3, 4, 9, 1, u32::MAX]), "3-4,9,1,4294967295");
    }

    proptest! {
        #[test]
        fn ranks_are_read_back(ranks in prop::collection::vec(0_u32..2_000, 1..40)) {
            prop_assert_eq!(parse_ranks(&ranks_text(&ranks)).unwrap(), ranks);
        }

        #[test]
        fn any_text_is_read_or_refused(text in ".{0,60}") {
            let _ = text.parse::<Placement>();
        }
    }
}
