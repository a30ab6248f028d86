//! Any bytes are a capture or a clear error, and a capture can be replayed.
#![no_main]

use libfuzzer_sys::fuzz_target;
use rdmesh_shaper::rate::LineRate;
use rdmesh_shaper::replay::{Options, replay};

fuzz_target!(|file: &[u8]| {
    let Ok(rate) = LineRate::new(10_000_000_000) else {
        return;
    };
    let options = Options {
        queue_frames: 64,
        sub_queues: 4,
        accept_cut: true,
        ..Options::new(rate)
    };
    if let Ok((summary, output)) = replay(file, Vec::new(), &options) {
        assert_eq!(summary.frames_ahead_of_the_wire, 0);
        let again = replay(&*output, Vec::new(), &options);
        assert!(again.is_ok_and(|(again, _)| again.frames == summary.frames));
    }
});
