//! Sections `[[wires]]`.

use rdmesh_services::config::{Check, Invalid, Validate};
use serde::{Deserialize, Serialize};

use crate::datapath::Marking;
use crate::engine::{
    DEFAULT_QUEUE_FRAMES, DEFAULT_SUB_QUEUES, MAX_FRAME_BYTES, MAX_MTU_BYTES, MAX_QUEUE_FRAMES,
    MIN_MTU_BYTES, Speed, WireConfig,
};
use crate::rate::{LineRate, MAX_RATE_BPS};

/// Largest payload of a frame unless configured, bytes: Ethernet's own.
pub(super) const DEFAULT_MTU_BYTES: u16 = 1500;

/// Longest name of a wire, a function or a port, bytes: DPDK's own limit is 64.
const MAX_NAME_BYTES: usize = 63;

/// Deepest queue that a marking profile can speak of, bytes: what the largest wire
/// holds in the largest frames.
const MAX_MARKING_BYTES: u64 = MAX_QUEUE_FRAMES as u64 * MAX_FRAME_BYTES as u64;

/// A rate in the notation of `tc`, or nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RateText(pub String);

impl RateText {
    /// The rate; `None` for an empty text.
    ///
    /// # Errors
    /// [`Invalid`] with `field` and what a rate is.
    pub fn rate(&self, field: &str) -> Result<Option<LineRate>, Invalid> {
        if self.0.trim().is_empty() {
            return Ok(None);
        }
        self.0
            .parse()
            .map(Some)
            .map_err(|error: crate::rate::RateError| {
                Invalid::new(field, format!("{:?}", self.0), error.to_string())
            })
    }
}

/// One wire.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct WireSection {
    /// Its name in every request and window.
    pub name: String,
    /// The function: `vf0`, or its PCI address. Empty: the wire's name.
    pub virtual_function: String,
    /// Port whose frames it shapes.
    pub in_port: String,
    /// Port that it sends to.
    pub out_port: String,
    /// Line rate, overhead included; empty: not shaped.
    pub rate: RateText,
    /// Line rate of `out_port`: a wire cannot be faster. Empty: 200gbit.
    pub port_rate: RateText,
    /// The function's `max_tx_rate`: what the sender can push at the most. Empty: not
    /// known.
    pub valve: RateText,
    /// When to mark frames as having met congestion; absent: never.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub marking: Option<MarkingSection>,
    /// Largest payload of a frame, bytes.
    pub mtu: u16,
    /// Frames that may wait.
    pub queue_frames: u32,
    /// Keys that get a turn of their own.
    pub sub_queues: u32,
}

/// A profile of random early detection: `marking = { kmin_bytes = 40000, … }`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MarkingSection {
    /// Bytes that may wait unmarked.
    pub kmin_bytes: u64,
    /// Bytes from which on every frame is marked.
    pub kmax_bytes: u64,
    /// Probability of a mark just below `kmax_bytes`, thousandths.
    pub pmax_permille: u16,
}

impl Validate for MarkingSection {
    fn validate(&self) -> Result<(), Invalid> {
        let above = self.kmin_bytes.saturating_add(1);
        Check::range("kmin_bytes", self.kmin_bytes, 0..=MAX_MARKING_BYTES - 1)?;
        Check::range("kmax_bytes", self.kmax_bytes, above..=MAX_MARKING_BYTES)?;
        Check::range("pmax_permille", self.pmax_permille, 0..=1000)
    }
}

impl Default for WireSection {
    fn default() -> Self {
        Self {
            name: String::new(),
            virtual_function: String::new(),
            in_port: String::new(),
            out_port: String::new(),
            rate: RateText::default(),
            port_rate: RateText::default(),
            valve: RateText::default(),
            marking: None,
            mtu: DEFAULT_MTU_BYTES,
            queue_frames: DEFAULT_QUEUE_FRAMES,
            sub_queues: DEFAULT_SUB_QUEUES,
        }
    }
}

impl WireSection {
    /// The configured speed.
    ///
    /// # Errors
    /// [`Invalid`] for a text that is no rate.
    pub fn speed(&self) -> Result<Speed, Invalid> {
        Ok(self.rate.rate("rate")?.map_or(Speed::Unshaped, Speed::Rate))
    }

    /// The fastest that the wire can be, bit/s.
    ///
    /// # Errors
    /// [`Invalid`] for a text that is no rate.
    pub fn fastest_bps(&self) -> Result<u64, Invalid> {
        Ok(self
            .port_rate
            .rate("port_rate")?
            .map_or(MAX_RATE_BPS, LineRate::bps))
    }

    /// The function's name.
    #[must_use]
    pub fn function(&self) -> &str {
        if self.virtual_function.is_empty() {
            &self.name
        } else {
            &self.virtual_function
        }
    }

    /// When to mark, for the data path.
    #[must_use]
    pub fn marking(&self) -> Option<Marking> {
        self.marking.map(|section| Marking {
            kmin_bytes: section.kmin_bytes,
            kmax_bytes: section.kmax_bytes,
            pmax_permille: section.pmax_permille,
        })
    }

    /// Size and speed for the engine.
    #[must_use]
    pub const fn engine(&self, speed: Speed) -> WireConfig {
        WireConfig {
            speed,
            mtu_bytes: self.mtu,
            queue_frames: self.queue_frames,
            sub_queues: self.sub_queues,
        }
    }
}

impl Validate for WireSection {
    fn validate(&self) -> Result<(), Invalid> {
        for (field, name) in [
            ("name", &self.name),
            ("in_port", &self.in_port),
            ("out_port", &self.out_port),
        ] {
            let length = name.len();
            if length == 0 || length > MAX_NAME_BYTES || name.chars().any(char::is_control) {
                let allowed = format!("1 to {MAX_NAME_BYTES} bytes without control characters");
                return Err(Invalid::new(field, format!("{name:?}"), allowed));
            }
        }
        // People write SHAPER/WIRE and HOST:FUNCTION.
        if self
            .name
            .contains(|c: char| matches!(c, '/' | ':') || c.is_whitespace())
        {
            let allowed = "a name without slash, colon and space, so that requests can name it";
            return Err(Invalid::new("name", format!("{:?}", self.name), allowed));
        }
        if self.in_port == self.out_port {
            return Err(Invalid::new(
                "out_port",
                &self.out_port,
                "another port than in_port",
            ));
        }
        Check::range("mtu", self.mtu, MIN_MTU_BYTES..=MAX_MTU_BYTES)?;
        Check::range("queue_frames", self.queue_frames, 64..=MAX_QUEUE_FRAMES)?;
        Check::range("sub_queues", self.sub_queues, 1..=4096)?;
        if let Some(marking) = &self.marking {
            Check::section("marking", marking)?;
        }
        self.valve.rate("valve")?;
        let fastest = self.fastest_bps()?;
        if let Speed::Rate(rate) = self.speed()?
            && rate.bps() > fastest
        {
            let allowed = format!("at most the port's own rate, {fastest} bit/s");
            return Err(Invalid::new("rate", rate, allowed));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wire() -> WireSection {
        WireSection {
            name: "vf0".into(),
            in_port: "a".into(),
            out_port: "b".into(),
            rate: RateText("25gbit".into()),
            ..WireSection::default()
        }
    }

    #[test]
    fn each_limit_names_its_field() {
        assert!(wire().validate().is_ok());
        let refused = |change: &dyn Fn(&mut WireSection)| {
            let mut wire = wire();
            change(&mut wire);
            wire.validate().unwrap_err().to_string()
        };
        let text = |text: &str| RateText(text.to_owned());
        for (message, field) in [
            (refused(&|w| w.name.clear()), "`name`"),
            (refused(&|w| w.name = "a/b".into()), "`name`"),
            (refused(&|w| w.name = "a:b".into()), "`name`"),
            (refused(&|w| w.name = "a b".into()), "`name`"),
            (refused(&|w| w.out_port = "a".into()), "`out_port`"),
            (refused(&|w| w.mtu = 67), "`mtu`"),
            (refused(&|w| w.queue_frames = 1), "`queue_frames`"),
            (refused(&|w| w.sub_queues = 5000), "`sub_queues`"),
            (refused(&|w| w.rate = text("0")), "`rate`"),
            (refused(&|w| w.rate = text("fast")), "`rate`"),
            (refused(&|w| w.port_rate = text("10gbit")), "`rate`"),
            (refused(&|w| w.valve = text("1")), "`valve`"),
            (
                refused(&|w| w.marking = Some(MarkingSection::default())),
                "`marking.kmax_bytes`",
            ),
        ] {
            assert!(message.contains(field), "{message}");
        }
    }
}
