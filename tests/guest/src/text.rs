//! Bytes that are mostly text: written to JSON as a string when they are UTF-8 and
//! as hexadecimal digits when they are not, so that a process name or a control
//! group that is not UTF-8 travels unharmed.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Bytes, shown as text where they are text.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Text(Vec<u8>);

impl Text {
    /// The bytes themselves.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Adds bytes to the end.
    pub fn append(&mut self, more: &Text) {
        self.0.extend_from_slice(&more.0);
    }

    /// For people and for parsing: what is not UTF-8 becomes U+FFFD.
    pub fn to_lossy(&self) -> String {
        String::from_utf8_lossy(&self.0).into_owned()
    }
}

impl std::fmt::Debug for Text {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Debug::fmt(&String::from_utf8_lossy(&self.0), f)
    }
}

impl From<Vec<u8>> for Text {
    fn from(bytes: Vec<u8>) -> Self {
        Text(bytes)
    }
}

impl From<&str> for Text {
    fn from(text: &str) -> Self {
        Text(text.as_bytes().to_vec())
    }
}

impl From<String> for Text {
    fn from(text: String) -> Self {
        Text(text.into_bytes())
    }
}

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Wire {
    Utf8(String),
    Hex { hex: String },
}

impl Serialize for Text {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match std::str::from_utf8(&self.0) {
            Ok(text) => serializer.serialize_str(text),
            Err(_) => {
                let hex = self.0.iter().map(|byte| format!("{byte:02x}")).collect();
                Wire::Hex { hex }.serialize(serializer)
            }
        }
    }
}

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match Wire::deserialize(deserializer)? {
            Wire::Utf8(text) => Ok(Text(text.into_bytes())),
            Wire::Hex { hex } => parse_hex(&hex)
                .map(Text)
                .ok_or_else(|| D::Error::custom("hex: want pairs of hexadecimal digits")),
        }
    }
}

fn parse_hex(hex: &str) -> Option<Vec<u8>> {
    let digits = hex
        .chars()
        .map(|digit| {
            digit
                .to_digit(16)
                .and_then(|value| u8::try_from(value).ok())
        })
        .collect::<Option<Vec<u8>>>()?;
    let (pairs, rest) = digits.as_chunks::<2>();
    rest.is_empty()
        .then(|| pairs.iter().map(|[high, low]| high << 4 | low).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_stays_text_and_the_rest_is_hex() {
        let text = serde_json::to_string(&Text::from("näme")).unwrap();
        assert_eq!(text, "\"näme\"");
        let raw = Text::from(vec![b'a', 0xff, 0x00]);
        let line = serde_json::to_string(&raw).unwrap();
        assert_eq!(line, r#"{"hex":"61ff00"}"#);
        assert_eq!(serde_json::from_str::<Text>(&line).unwrap(), raw);
    }

    #[test]
    fn broken_hex_is_refused() {
        for line in [r#"{"hex":"6"}"#, r#"{"hex":"zz"}"#, "5"] {
            assert!(serde_json::from_str::<Text>(line).is_err(), "{line}");
        }
    }
}
