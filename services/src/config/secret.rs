//! Values that are never printed.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// What stands in the place of a secret.
pub(super) const STARS: &str = "***";

/// A text that neither `Debug` nor `--print-config` shows.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Takes a text as a secret.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text itself, for the call that needs it.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// A URL whose password (`scheme://user:password@…`, or `password=` in its query)
/// neither `Debug`, `Display` nor `--print-config` shows.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct SecretUrl(String);

impl SecretUrl {
    /// Takes a URL.
    pub fn new(url: impl Into<String>) -> Self {
        Self(url.into())
    }

    /// The URL with its password, for the call that needs it.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The URL with stars for the password.
    #[must_use]
    pub fn redacted(&self) -> String {
        redact_query(&redact_authority(&self.0))
    }
}

/// Stars the password before the last `@` of the authority.
fn redact_authority(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else {
        return url.to_owned();
    };
    // A password may hold `/` or `?` when it was not escaped: look at the last `@`.
    let Some((user, host)) = rest.rsplit_once('@') else {
        return url.to_owned();
    };
    match user.split_once(':') {
        Some((name, _)) => format!("{scheme}://{name}:{STARS}@{host}"),
        None => url.to_owned(),
    }
}

/// Stars `password=…` in the query.
fn redact_query(url: &str) -> String {
    let Some((before, query)) = url.split_once('?') else {
        return url.to_owned();
    };
    let parts: Vec<String> = query
        .split('&')
        .map(|part| match part.split_once('=') {
            Some((key, _)) if key.contains("password") => format!("{key}={STARS}"),
            _ => part.to_owned(),
        })
        .collect();
    format!("{before}?{}", parts.join("&"))
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_empty() { "\"\"" } else { STARS })
    }
}

impl fmt::Debug for SecretUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.redacted())
    }
}

impl fmt::Display for SecretUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.redacted())
    }
}

impl Serialize for Secret {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(if self.0.is_empty() { "" } else { STARS })
    }
}

impl Serialize for SecretUrl {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.redacted())
    }
}

/// The usual message would repeat the value.
fn text_only<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    String::deserialize(deserializer)
        .map_err(|_| serde::de::Error::custom("expected a text in quotes"))
}

impl<'de> Deserialize<'de> for Secret {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        text_only(deserializer).map(Self)
    }
}

impl<'de> Deserialize<'de> for SecretUrl {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        text_only(deserializer).map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_are_starred_wherever_a_url_has_them() {
        for (url, shown) in [
            (
                "postgres://u:hunter2@h:5432/db",
                "postgres://u:***@h:5432/db",
            ),
            ("postgres://u:p@ss/w?rd@h/db", "postgres://u:***@h/db"),
            ("postgres://u@h/db", "postgres://u@h/db"),
            ("postgres:///db?host=/run/pg", "postgres:///db?host=/run/pg"),
            (
                "postgres://h/db?user=u&password=x&a=b",
                "postgres://h/db?user=u&password=***&a=b",
            ),
            ("", ""),
        ] {
            assert_eq!(SecretUrl::new(url).redacted(), shown);
            assert_eq!(SecretUrl::new(url).to_string(), shown);
            assert_eq!(SecretUrl::new(url).expose(), url);
        }
    }

    #[test]
    fn debug_shows_no_secret() {
        assert_eq!(format!("{:?}", Secret::new("hunter2")), "***");
        assert_eq!(format!("{:?}", Secret::default()), "\"\"");
    }
}
