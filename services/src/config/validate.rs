//! Limits on values, checked before anything binds.

use std::fmt::{self, Debug, Display};
use std::ops::RangeInclusive;

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
}
