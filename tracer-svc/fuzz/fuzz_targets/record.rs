//! Both decoders of what the rings carry, on any bytes.
#![no_main]

use libfuzzer_sys::fuzz_target;
use rdmesh_tracer::record::{Identity, Record};

fuzz_target!(|bytes: &[u8]| {
    if let Ok(record) = Record::decode(bytes) {
        let _ = record.arguments();
    }
    if let Ok(identity) = Identity::decode(bytes) {
        assert_eq!(identity.cgroup_path.first(), Some(&b'/'));
        assert!(identity.environ.len() <= bytes.len());
    }
});
