//! Where the collector is.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// `host:port`. Written with or without `http://`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CollectorAddress(String);

/// Where a collector listens unless its configuration says otherwise.
const DEFAULT: &str = "127.0.0.1:7400";

impl Default for CollectorAddress {
    fn default() -> Self {
        Self(DEFAULT.to_owned())
    }
}

impl CollectorAddress {
    /// Whether it is on this machine, as far as its text tells.
    #[must_use]
    pub fn is_local(&self) -> bool {
        let host = self.0.rsplit_once(':').map_or("", |(host, _)| host);
        let ip = host.trim_matches(['[', ']']).parse::<std::net::IpAddr>();
        host == "localhost" || ip.is_ok_and(|ip| ip.is_loopback())
    }

    /// `http://host:port`, as a transport wants it.
    #[must_use]
    pub fn uri(&self) -> String {
        format!("http://{}", self.0)
    }
}

impl fmt::Display for CollectorAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for CollectorAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.starts_with("https://") {
            return Err(format!(
                "`{text}`: write HOST:PORT; certificates in [tls] make it TLS"
            ));
        }
        let bare = text.strip_prefix("http://").unwrap_or(text);
        let bare = bare.strip_suffix('/').unwrap_or(bare);
        let refuse = || format!("`{text}` is no collector address: write HOST:PORT");
        let (host, port) = bare.rsplit_once(':').ok_or_else(refuse)?;
        let host_is_fine = match host.strip_prefix('[') {
            Some(rest) => rest
                .strip_suffix(']')
                .is_some_and(|ip| ip.parse::<std::net::Ipv6Addr>().is_ok()),
            None => {
                let allowed = |b: u8| b.is_ascii_alphanumeric() || b"-._".contains(&b);
                !host.is_empty() && host.bytes().all(allowed)
            }
        };
        match port.parse::<u16>() {
            Ok(port) if port > 0 && host_is_fine => Ok(Self(format!("{host}:{port}"))),
            _ => Err(refuse()),
        }
    }
}

/// One collector, or several on one database: agents try them in turn.
///
/// Written with commas between them. A name that stands for several machines counts as
/// all of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CollectorAddresses(Vec<CollectorAddress>);

/// Addresses in one list. More are the business of a name.
const MAX_ADDRESSES: usize = 16;

impl Default for CollectorAddresses {
    fn default() -> Self {
        CollectorAddress::default().into()
    }
}

impl From<CollectorAddress> for CollectorAddresses {
    fn from(address: CollectorAddress) -> Self {
        Self(vec![address])
    }
}

impl CollectorAddresses {
    /// All of them, in the order in which they were written; at least one.
    pub fn iter(&self) -> impl Iterator<Item = &CollectorAddress> {
        self.0.iter()
    }

    /// Whether all are on this machine, as far as their texts tell.
    #[must_use]
    pub fn is_local(&self) -> bool {
        self.0.iter().all(CollectorAddress::is_local)
    }
}

impl fmt::Display for CollectorAddresses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, address) in self.0.iter().enumerate() {
            let comma = if at == 0 { "" } else { "," };
            write!(f, "{comma}{address}")?;
        }
        Ok(())
    }
}

impl FromStr for CollectorAddresses {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut addresses: Vec<CollectorAddress> = Vec::new();
        for part in text.split(',') {
            let address = part.trim().parse()?;
            // Twice would only be asked twice.
            if !addresses.contains(&address) {
                addresses.push(address);
            }
        }
        if addresses.len() > MAX_ADDRESSES {
            return Err(format!(
                "{} collector addresses; write {MAX_ADDRESSES} at most, or a name that stands \
                 for all of them",
                addresses.len()
            ));
        }
        Ok(Self(addresses))
    }
}

impl Serialize for CollectorAddresses {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for CollectorAddresses {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?
            .parse()
            .map_err(serde::de::Error::custom)
    }
}

impl Serialize for CollectorAddress {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for CollectorAddress {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?
            .parse()
            .map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_name_the_same_place() {
        for text in ["c.site:7400", "http://c.site:7400", "http://c.site:7400/"] {
            let address: CollectorAddress = text.parse().unwrap();
            assert_eq!(address.to_string(), "c.site:7400");
            assert_eq!(address.uri(), "http://c.site:7400");
        }
        assert_eq!(
            "[fd00::1]:7400".parse::<CollectorAddress>().unwrap().uri(),
            "http://[fd00::1]:7400"
        );
    }

    #[test]
    fn several_collectors_are_written_with_commas() {
        let several: CollectorAddresses = "a:1, http://b:2,a:1".parse().unwrap();
        assert_eq!(several.to_string(), "a:1,b:2");
        assert_eq!(several.to_string().parse(), Ok(several));
        for bad in ["", "a:1,", ",", "a:1,,b:2", "a:1;b:2"] {
            let message = bad.parse::<CollectorAddresses>().unwrap_err();
            assert!(message.contains("write HOST:PORT"), "{bad}: {message}");
        }
        let many: Vec<String> = (1..=17).map(|n| format!("h{n}:1")).collect();
        let message = many.join(",").parse::<CollectorAddresses>().unwrap_err();
        assert!(message.contains("16 at most"), "{message}");
    }

    #[test]
    fn local_addresses_are_known() {
        for (text, local) in [
            ("127.0.0.1:1", true),
            ("[::1]:1", true),
            ("localhost:1", true),
            ("10.0.2.2:1", false),
            ("localhost.site:1", false),
        ] {
            assert_eq!(
                text.parse::<CollectorAddress>().unwrap().is_local(),
                local,
                "{text}"
            );
        }
    }

    #[test]
    fn other_texts_are_refused_with_what_to_write() {
        for bad in [
            "",
            "host",
            "host:",
            "host:0",
            "host:99999",
            ":7400",
            "a/b:1",
            "[::1:7",
            "x y:1",
            "fd00::1:7400",
        ] {
            let message = bad.parse::<CollectorAddress>().unwrap_err();
            assert!(message.contains("write HOST:PORT"), "{bad}: {message}");
        }
        assert!(
            "https://h:1"
                .parse::<CollectorAddress>()
                .unwrap_err()
                .contains("certificates in [tls]")
        );
    }
}
