//! `rdmesh probes --detach` and `--attach`: the collector tells where the tracer is, and
//! the tracer does it.

use crate::fake::Fake;
use crate::run::{ask, closed_address, code, json, rdmesh, stderr, stdout};

/// A collector that knows where the tracer of gpu-01 is: the same fake.
fn fleet() -> Fake {
    let fake = Fake::start();
    let address = fake.address.clone();
    fake.state().tracer_address = address;
    fake
}

#[test]
fn a_driver_is_let_go_and_taken_back() {
    let fake = fleet();
    let output = ask(&fake, &["probes", "gpu-01", "--detach", "mlx5_ib"]);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    assert_eq!(
        stdout(&output),
        "gpu-01: 7 probes taken off mlx5_ib, which can be unloaded now; 8 of 13 logical\n        \
         hooks are watched. They come back when it is loaded again, or by: rdmesh\n        \
         probes gpu-01 --attach mlx5_ib\n"
    );
    let output = ask(&fake, &["probes", "gpu-01", "--attach", "mlx5_ib"]);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    assert_eq!(
        stdout(&output),
        "gpu-01: 1 probe put on mlx5_ib; 13 of 13 logical hooks are watched\n"
    );
}

#[test]
fn programs_get_names_that_stay() {
    let fake = fleet();
    let done = ask(
        &fake,
        &["probes", "gpu-01", "--detach", "all", "-o", "json"],
    );
    assert_eq!(
        json(&stdout(&done)),
        serde_json::json!({
            "host": "gpu-01", "module": null, "detached": 40, "attached": null,
            "logical_attached": 0, "logical_total": 13,
        })
    );
    let done = ask(
        &fake,
        &["probes", "gpu-01", "--attach", "all", "-o", "json"],
    );
    assert_eq!(json(&stdout(&done))["attached"], 1);
}

#[test]
fn each_way_to_fail_has_its_exit_code_and_says_what_to_do() {
    let fake = fleet();
    let tracer = fake.address.clone();
    let failing = |arguments: &[&str], exit: i32, words: &str| {
        let output = ask(&fake, &[&["probes"], arguments].concat());
        let said = stderr(&output);
        assert_eq!(code(&output), exit, "{arguments:?}: {said}");
        assert!(said.contains(words), "{arguments:?}: {said}");
    };
    failing(
        &["gpu-01", "--detach", "nvme"],
        4,
        "no probe is in module nvme",
    );
    failing(&["gpu-01", "--detach", "stuck"], 1, "the kernel refused it");
    failing(&["gpu-77", "--detach", "mlx5_ib"], 4, "rdmesh fleet");
    failing(&["gpu-02", "--attach", "mlx5_ib"], 1, "`advertise`");
    failing(&["gpu-01", "--tracer", &tracer], 2, "--detach or --attach");
    failing(
        &["gpu-01", "--detach", "a", "--attach", "a"],
        2,
        "cannot be used with",
    );
    failing(&["gpu-01", "--detach", ""], 2, "--detach");
    fake.state().tracer_address = closed_address();
    failing(
        &["gpu-01", "--detach", "mlx5_ib"],
        5,
        "no tracer answers at",
    );
}

#[test]
fn a_tracer_is_told_without_a_collector() {
    let fake = Fake::start();
    let order = ["probes", "gpu-01", "--detach", "mlx5_ib", "--tracer"];
    let told = |address: &str| rdmesh(&[&order[..], &[address]].concat()).output().unwrap();
    let output = told(&fake.address);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    let output = told("a b");
    assert_eq!(code(&output), 2, "{}", stderr(&output));
    let both = [&order[..], &[&fake.address, "--collector", &fake.address]].concat();
    let output = rdmesh(&both).output().unwrap();
    assert_eq!(code(&output), 2, "{}", stderr(&output));
    assert!(stderr(&output).contains("give one"), "{}", stderr(&output));
}

#[test]
fn its_help_is_as_written() {
    let help = stdout(&rdmesh(&["probes", "--help"]).output().unwrap());
    let own = help.split("Global options").next().unwrap();
    insta::assert_snapshot!(own);
}
