//! DPDK's `rte_sched` beside the engine: one line of JSON per figure.
//! `cargo bench -p rdmesh-dpdk-sys --features bench-sched`

// It calls the raw binding and a C function of its own.
#![allow(unsafe_code)]

use std::ffi::{CString, c_int};
use std::io::Write;

use rdmesh_dpdk_sys as sys;

unsafe extern "C" {
    fn rdmesh_sched_bench(
        pool: *mut sys::Mempool,
        pipes: u32,
        places: u32,
        backlog: u32,
        queue: u16,
        rounds: *mut f64,
        n: c_int,
    ) -> c_int;
}

const ROUNDS: usize = 101;

/// Name, keys, standing backlog, frames of a queue. A queue holds 32,768 frames at the
/// most, so 200,000 frames of one key (`deep.k1`) are more than it can do.
const LOADS: [(&str, u32, u32, u16); 4] = [
    ("shaper.engine.k1.rte_sched.ns", 1, 1024, 2048),
    ("shaper.engine.k64.rte_sched.ns", 64, 1024, 64),
    ("shaper.engine.k200.rte_sched.ns", 200, 1024, 64),
    ("shaper.engine.deep.k64.rte_sched.ns", 64, 200_000, 4096),
];

fn main() {
    let arguments = [
        "bench",
        "--no-huge",
        "-m1024",
        "--no-pci",
        "--no-shconf",
        "--no-telemetry",
    ];
    let file_prefix = format!("--file-prefix=rdmesh-sched-{}", std::process::id());
    let strings = arguments
        .into_iter()
        .chain([file_prefix.as_str(), "--log-level=error"]);
    let mut argv: Vec<_> = strings
        .map(|s| CString::new(s).expect("no zero byte").into_raw())
        .collect();
    let argc = c_int::try_from(argv.len()).expect("few");
    argv.push(std::ptr::null_mut());
    // SAFETY: argc strings that are never freed, and a null at the end.
    let started = unsafe { sys::rte_eal_init(argc, argv.as_mut_ptr()) };
    assert!(started >= 0, "DPDK does not start");
    let name = CString::new("bench").expect("no zero byte");
    // SAFETY: the environment is up.
    let pool = unsafe { sys::rte_pktmbuf_pool_create(name.as_ptr(), 210_000, 256, 0, 256, -1) };
    assert!(!pool.is_null(), "no pool");
    for (name, pipes, backlog, queue) in LOADS {
        let mut rounds = vec![0.0; ROUNDS];
        let n = c_int::try_from(ROUNDS).expect("few");
        let places = pipes.next_power_of_two();
        // SAFETY: the pool lives and `rounds` has room for n numbers.
        let code = unsafe {
            rdmesh_sched_bench(pool, pipes, places, backlog, queue, rounds.as_mut_ptr(), n)
        };
        assert_eq!(code, 0, "{name}");
        rounds.sort_by(f64::total_cmp);
        let (min, median, max) = (rounds[0], rounds[ROUNDS / 2], rounds[ROUNDS - 1]);
        writeln!(
            std::io::stdout(),
            r#"{{"name":"{name}","value":{median},"unit":"ns","min":{min},"max":{max},"rounds":{ROUNDS}}}"#
        )
        .expect("standard output");
    }
}
