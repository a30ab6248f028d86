//! How people name a wire, and which one of a shaper they mean.

use std::fmt;
use std::str::FromStr;

use rdmesh_proto::collector::v1 as wire;
use rdmesh_proto::shaper::v1 as shaper;

use crate::shaper::{ShaperClient, ShaperError};

/// Which wire: `WIRE`, `SHAPER/WIRE`, or `HOST:FUNCTION` by the shaped host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WireName {
    /// By its name, and its shaper's host where that is told.
    Named {
        /// Host of the shaper.
        shaper_host: Option<String>,
        /// Name of the wire.
        wire: String,
    },
    /// By what it shapes.
    Shaping {
        /// The shaped host.
        host: String,
        /// The virtual function.
        virtual_function: String,
    },
}

impl FromStr for WireName {
    type Err = String;

    fn from_str(text: &str) -> Result<WireName, String> {
        let wrong = || {
            "write SHAPER/WIRE, such as gpu-01/vf0, WIRE alone where only one has that name, or \
             HOST:FUNCTION for the shaped host and its virtual function"
                .to_owned()
        };
        let clean = |part: &str| {
            let fine = !part.is_empty() && !part.contains(|c: char| c.is_control() || c == ' ');
            fine.then(|| part.to_owned()).ok_or_else(wrong)
        };
        if let Some((shaper_host, wire)) = text.split_once('/') {
            if wire.contains('/') {
                return Err(wrong());
            }
            return Ok(WireName::Named {
                shaper_host: Some(clean(shaper_host)?),
                wire: clean(wire)?,
            });
        }
        // A PCI address has colons of its own; a host has none.
        match text.split_once(':') {
            Some((host, function)) => Ok(WireName::Shaping {
                host: clean(host)?,
                virtual_function: clean(function)?,
            }),
            None => Ok(WireName::Named {
                shaper_host: None,
                wire: clean(text)?,
            }),
        }
    }
}

impl fmt::Display for WireName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WireName::Named {
                shaper_host: Some(host),
                wire,
            } => write!(f, "{host}/{wire}"),
            WireName::Named { wire, .. } => f.write_str(wire),
            WireName::Shaping {
                host,
                virtual_function,
            } => write!(f, "{host}:{virtual_function}"),
        }
    }
}

impl WireName {
    pub(super) fn selector(&self) -> wire::WireSelector {
        match self.clone() {
            WireName::Named { shaper_host, wire } => wire::WireSelector {
                shaper_host: shaper_host.unwrap_or_default(),
                wire,
                ..wire::WireSelector::default()
            },
            WireName::Shaping {
                host,
                virtual_function,
            } => wire::WireSelector {
                shaped_host: host,
                virtual_function,
                ..wire::WireSelector::default()
            },
        }
    }
}

/// What a shaper says of itself and its wires.
pub(super) async fn own(client: &ShaperClient) -> Result<shaper::ListWiresResponse, ShaperError> {
    let mut service = client.service();
    let call = service.list_wires(shaper::ListWiresRequest {});
    client.ask(call).await
}

/// What a shaper says of an outage that lasts.
pub(super) async fn data_path_down(client: &ShaperClient) -> Result<Option<String>, ShaperError> {
    let mut service = client.service();
    let call = service.get_data_path_report(shaper::GetDataPathReportRequest {});
    let report = client.ask(call).await?;
    let lasting = report.outages.last().filter(|outage| outage.to.is_none());
    Ok(lasting.map(|outage| format!("the data path is down: {}", outage.cause)))
}

/// The name that a shaper knows a wire by.
pub(super) async fn own_name(
    client: &ShaperClient,
    which: &WireName,
) -> Result<String, ShaperError> {
    if let WireName::Named {
        shaper_host: None,
        wire,
    } = which
    {
        return Ok(wire.clone());
    }
    let own = own(client).await?;
    named(&own, which).map_err(ShaperError::Wire)
}

/// The wire among those that a shaper has.
fn named(own: &shaper::ListWiresResponse, which: &WireName) -> Result<String, String> {
    let (host, virtual_function) = match which {
        WireName::Named { shaper_host, wire } => {
            return match shaper_host {
                Some(asked) if *asked != own.shaper_host => Err(another_shaper(own, asked, wire)),
                _ => Ok(wire.clone()),
            };
        }
        WireName::Shaping {
            host,
            virtual_function,
        } => (host, virtual_function),
    };
    let wires = own.wires.iter();
    let fits = |w: &&shaper::Wire| w.host == *host && w.virtual_function == *virtual_function;
    let fitting: Vec<&str> = wires.clone().filter(fits).map(|w| &*w.name).collect();
    match fitting.as_slice() {
        [name] => Ok((*name).to_owned()),
        [] => {
            let all = wires.map(|w| format!("{} ({}:{})", w.name, w.host, w.virtual_function));
            let all: Vec<String> = all.collect();
            Err(format!(
                "no wire of this shaper shapes {which}; it has: {}",
                all.join(", ")
            ))
        }
        several => Err(format!(
            "several wires of this shaper shape {which}: {}; name one",
            several.join(", ")
        )),
    }
}

/// Somebody takes this shaper for another one: nothing is changed.
fn another_shaper(own: &shaper::ListWiresResponse, asked: &str, wire: &str) -> String {
    if own.shaper_host.is_empty() {
        return format!(
            "this shaper does not say what it is called, so that it may not be {asked}: write \
             {wire} alone to mean it"
        );
    }
    let name = &own.shaper_host;
    format!("this shaper is called {name}, not {asked}: write {name}/{wire}, or {wire} alone")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shaper_is_not_taken_for_another_one() {
        let own = |shaper_host: &str| shaper::ListWiresResponse {
            wires: vec![shaper::Wire {
                name: "w0".to_owned(),
                host: "gpu-01".to_owned(),
                virtual_function: "vf0".to_owned(),
                ..shaper::Wire::default()
            }],
            shaper_host: shaper_host.to_owned(),
        };
        let named = |own, text: &str| named(&own, &text.parse::<WireName>().unwrap());
        for text in ["t7/w0", "w0", "gpu-01:vf0"] {
            assert_eq!(named(own("t7"), text).as_deref(), Ok("w0"), "{text}");
        }
        let refused = named(own("t7"), "xx/w0").unwrap_err();
        assert_eq!(
            refused,
            "this shaper is called t7, not xx: write t7/w0, or w0 alone"
        );
        let refused = named(own(""), "xx/w0").unwrap_err();
        assert!(refused.contains("write w0 alone"), "{refused}");
        let refused = named(own("t7"), "gpu-02:vf0").unwrap_err();
        assert!(refused.contains("w0 (gpu-01:vf0)"), "{refused}");
    }

    #[test]
    fn wires_are_named_in_three_ways() {
        let name = |text: &str| text.parse::<WireName>().unwrap();
        assert_eq!(
            name("gpu-01/vf0").selector().shaper_host,
            "gpu-01".to_owned()
        );
        assert_eq!(name("vf0").selector().wire, "vf0");
        let by_function = name("gpu-01:0000:03:00.2").selector();
        assert_eq!(by_function.shaped_host, "gpu-01");
        assert_eq!(by_function.virtual_function, "0000:03:00.2");
        for text in ["gpu-01/vf0", "vf0", "gpu-01:vf0"] {
            assert_eq!(name(text).to_string(), text);
        }
        for text in ["", "/", "a/", "/b", "a/b/c", ":x", "x:", "a b"] {
            let refused = text.parse::<WireName>().unwrap_err();
            assert!(refused.contains("SHAPER/WIRE"), "{text}");
        }
    }
}
