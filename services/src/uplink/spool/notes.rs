//! The two small files beside a run's segments: its Hello, and how far it was acknowledged.

use prost::Message;
use rdmesh_proto::collector::v1::Hello;

use super::record::Key;

/// Name of the file with the run's Hello.
pub(super) const HELLO_FILE: &str = "hello";

/// Name of the file that tells how far the run was acknowledged.
pub(super) const ACKED_FILE: &str = "acked";

const HELLO_MAGIC: [u8; 8] = *b"rdmHello";
const ACKED_MAGIC: [u8; 8] = *b"rdmAcked";

/// Largest Hello, bytes: five short texts. What is larger is no file of ours.
pub(super) const HELLO_MAX_BYTES: u64 = 64 << 10;

/// Bytes of [`encode_acked`].
pub(super) const ACKED_BYTES: usize = 20;

/// A Hello with magic and checksum.
#[must_use]
pub fn encode_hello(key: Key, hello: &Hello) -> Vec<u8> {
    let body = hello.encode_to_vec();
    let mut bytes = HELLO_MAGIC.to_vec();
    bytes.extend_from_slice(&key.checksum(&body).to_le_bytes());
    bytes.extend_from_slice(&body);
    bytes
}

/// The Hello in a file, unless it is damaged.
#[must_use]
pub fn decode_hello(key: Key, bytes: &[u8]) -> Option<Hello> {
    let body = checked(HELLO_MAGIC, key, bytes)?;
    Hello::decode(body).ok()
}

/// A sequence with magic and checksum.
#[must_use]
pub fn encode_acked(key: Key, through: u64) -> [u8; ACKED_BYTES] {
    let body = through.to_le_bytes();
    let mut bytes = [0; ACKED_BYTES];
    bytes[..8].copy_from_slice(&ACKED_MAGIC);
    bytes[8..12].copy_from_slice(&key.checksum(&body).to_le_bytes());
    bytes[12..].copy_from_slice(&body);
    bytes
}

/// The sequence in a file; 0 when it is damaged: then everything is sent again, and the
/// collector recognises it.
#[must_use]
pub fn decode_acked(key: Key, bytes: &[u8]) -> u64 {
    checked(ACKED_MAGIC, key, bytes)
        .and_then(|body| body.try_into().ok())
        .map_or(0, u64::from_le_bytes)
}

fn checked(magic: [u8; 8], key: Key, bytes: &[u8]) -> Option<&[u8]> {
    let rest = bytes.strip_prefix(magic.as_slice())?;
    let (crc, body) = rest.split_first_chunk::<4>()?;
    (key.checksum(body) == u32::from_le_bytes(*crc)).then_some(body)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_notes_come_back_and_damage_is_seen() {
        let key = Key::of_run("r");
        let hello = Hello {
            host: "gpu-1".into(),
            run_id: "r".into(),
            ..Hello::default()
        };
        let bytes = encode_hello(key, &hello);
        assert_eq!(decode_hello(key, &bytes), Some(hello));
        for cut in 0..bytes.len() {
            assert_eq!(decode_hello(key, &bytes[..cut]), None, "{cut}");
        }
        let bytes = encode_acked(key, 77);
        assert_eq!(decode_acked(key, &bytes), 77);
        for at in 0..bytes.len() {
            assert_eq!(decode_acked(key, &bytes[..at]), 0, "{at}");
            let mut bytes = bytes;
            bytes[at] ^= 0x10;
            assert_eq!(decode_acked(key, &bytes), 0, "{at}");
        }
    }
}
