//! Any bytes have a key, however they lie in memory, and only the head decides.
#![no_main]

use libfuzzer_sys::fuzz_target;
use rdmesh_shaper::classify::{Classifier, HEAD_BYTES, head_of};

fuzz_target!(|input: (u8, &[u8])| {
    let (cut, frame) = input;
    let classifier = Classifier::new(1);
    let verdict = classifier.classify(frame);
    let (first, second) = frame.split_at(usize::from(cut).min(frame.len()));
    let mut buffer = [0; HEAD_BYTES];
    let head = head_of([first, second].into_iter(), &mut buffer);
    assert_eq!(classifier.classify(head), verdict);
});
