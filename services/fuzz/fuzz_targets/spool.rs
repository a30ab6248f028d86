//! What a spool's files say after a crash: any bytes, and good files that were damaged.
#![no_main]

use libfuzzer_sys::fuzz_target;
use rdmesh_services::uplink::spool::notes::{decode_acked, decode_hello};
use rdmesh_services::uplink::spool::record::{Key, Record, Records, Stamp, encode};

/// Nothing is found that was not written, and in its order.
fn read(bytes: &[u8], key: Key, written: Option<&[&[u8]]>) {
    let mut records = Records::new(bytes, key);
    let (mut last, mut good) = (0, 0);
    for record in records.by_ref() {
        if let Some(written) = written {
            assert!(record.sequence > last);
            last = record.sequence;
            let at = usize::try_from(record.sequence).unwrap() - 1;
            assert_eq!(record.payload, written[at]);
        }
        good += rdmesh_services::uplink::spool::record::HEAD_BYTES + record.payload.len();
    }
    assert_eq!(records.damaged_bytes() + good, bytes.len());
}

fuzz_target!(|input: &[u8]| {
    let key = Key::of_run("6f1f4e4e-8a52-4b53-9c0a-0a0f9a6d7c11");
    // As it is: what is no record is counted, to the last byte.
    read(input, key, None);
    let _ = decode_hello(key, input);
    let _ = decode_acked(key, input);

    // The first half says what was written, the second what happened to it.
    let (content, damage) = input.split_at(input.len() / 2);
    let payloads: Vec<&[u8]> = content.split(|byte| *byte == b'\n').collect();
    let mut file = Vec::new();
    for (sequence, payload) in (1..).zip(&payloads) {
        let stamp = Stamp::default();
        let kind = 1;
        encode(&mut file, key, &Record { sequence, stamp, kind, payload });
    }
    for step in damage.chunks_exact(3) {
        let at = usize::from(u16::from_le_bytes([step[0], step[1]])) % (file.len() + 1);
        match step[2] {
            0 => file.truncate(at),
            1 => file.insert(at, step[0]),
            flip if at < file.len() => file[at] ^= flip,
            _ => {}
        }
    }
    read(&file, key, Some(&payloads));
});
