//! Limits on values, checked before anything binds.

use std::fmt::{self, Debug, Display};
use std::ops::RangeInclusive;

use crate::uplink::CollectorAddress;

/// Longest `HOST:PORT`: a name of DNS has 253 bytes at most, a port five.
const MAX_ADDRESS_BYTES: usize = 253 + 1 + 5;

/// A value that is out of its range.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{field}` is {value}, which is not allowed: {allowed}")]
pub struct Invalid {
    /// Dotted key: `server.listen`.
    pub field: String,
    /// The value that was given; never a secret.
    pub value: String,
    /// What would be allowed.
    pub allowed: String,
}

impl Invalid {
    /// Says which field has which value, and what is allowed.
    pub fn new(field: &str, value: impl Display, allowed: impl Into<String>) -> Self {
        Self {
            field: field.to_owned(),
            value: value.to_string(),
            allowed: allowed.into(),
        }
    }

    /// The same, seen from the section that holds the field.
    #[must_use]
    pub fn within(mut self, section: &str) -> Self {
        self.field = format!("{section}.{}", self.field);
        self
    }
}

/// A structure that knows its limits.
pub trait Validate {
    /// Checks every field.
    ///
    /// # Errors
    /// The first field that is out of its range.
    fn validate(&self) -> Result<(), Invalid>;
}

/// Ready-made checks.
#[derive(Clone, Copy, Debug)]
pub struct Check;

impl Check {
    /// `value` lies in `allowed`.
    ///
    /// # Errors
    /// [`Invalid`] with the range.
    pub fn range<T: PartialOrd + Display + Debug>(
        field: &str,
        value: T,
        allowed: RangeInclusive<T>,
    ) -> Result<(), Invalid> {
        if allowed.contains(&value) {
            return Ok(());
        }
        let words = format!("{} to {}", allowed.start(), allowed.end());
        Err(Invalid::new(field, value, words))
    }

    /// `value` is one of `allowed`.
    ///
    /// # Errors
    /// [`Invalid`] with the list.
    pub fn one_of(field: &str, value: &str, allowed: &[&str]) -> Result<(), Invalid> {
        if allowed.contains(&value) {
            return Ok(());
        }
        Err(Invalid::new(
            field,
            Quoted(value),
            format!("one of {}", allowed.join(", ")),
        ))
    }

    /// `value` is an address that another machine can dial, `HOST:PORT`, the port
    /// not 0; or empty. A name is not looked up.
    ///
    /// # Errors
    /// [`Invalid`] with the form.
    pub fn dialled(field: &str, value: &str) -> Result<(), Invalid> {
        let nowhere = |text: &str| {
            let ip = text.rsplit_once(':').map_or("", |(host, _)| host);
            let ip = ip.trim_matches(['[', ']']).parse::<std::net::IpAddr>();
            ip.is_ok_and(|ip| ip.is_unspecified())
        };
        // The same text as a collector's address, but for its scheme.
        let is_address = value
            .parse::<CollectorAddress>()
            .is_ok_and(|address| address.to_string() == value);
        if value.is_empty() || is_address && value.len() <= MAX_ADDRESS_BYTES && !nowhere(value) {
            return Ok(());
        }
        Err(Invalid::new(
            field,
            Quoted(value),
            "HOST:PORT as another machine dials it, such as gpu-01:7401 or [fd00::1]:7401; \
             or empty",
        ))
    }

    /// Runs the checks of a section and puts its name before theirs.
    ///
    /// # Errors
    /// What the section says.
    pub fn section(name: &str, section: &impl Validate) -> Result<(), Invalid> {
        section.validate().map_err(|invalid| invalid.within(name))
    }
}

struct Quoted<'a>(&'a str);

impl Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_message_has_field_value_and_range() {
        let invalid = Check::range("seconds", 0, 1..=3600)
            .unwrap_err()
            .within("snapshot");
        assert_eq!(
            invalid.to_string(),
            "`snapshot.seconds` is 0, which is not allowed: 1 to 3600"
        );
    }

    #[test]
    fn a_choice_lists_what_there_is() {
        let invalid = Check::one_of("format", "xml", &["auto", "text", "json"]).unwrap_err();
        assert_eq!(
            invalid.to_string(),
            "`format` is \"xml\", which is not allowed: one of auto, text, json"
        );
    }

    #[test]
    fn an_address_can_be_dialled_from_elsewhere() {
        for good in ["", "gpu-01:7401", "10.0.0.1:7401", "[fd00::1]:7401"] {
            assert_eq!(Check::dialled("advertise", good), Ok(()), "{good}");
        }
        let long = format!("{}:7401", "x".repeat(300));
        for bad in [
            "xx",
            "xx:",
            "xx:0",
            ":7401",
            "http://xx:1",
            "xx:1/",
            "0.0.0.0:7401",
            "[::]:7401",
            "unix:/run/x",
            "a b:1",
            &long,
        ] {
            let refused = Check::dialled("advertise", bad).map_err(|e| e.to_string());
            assert!(
                refused
                    .as_ref()
                    .is_err_and(|m| m.contains("HOST:PORT as another")),
                "{bad}: {refused:?}"
            );
        }
    }
}
