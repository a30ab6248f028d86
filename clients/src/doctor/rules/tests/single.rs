//! One fact at a time.

use super::*;

/// One fact is changed, and this is said of it: status, words.
fn expect(change: impl FnOnce(&mut Facts), status: Status, words: &str) {
    let mut facts = well();
    change(&mut facts);
    let checks = examine(&facts);
    let found = checks
        .iter()
        .any(|check| check.status == status && check.found.contains(words));
    assert!(found, "{status:?} {words:?} in\n{}", shown(&facts));
}

fn spool_place(facts: &mut Facts) -> &mut Place {
    match &mut tracer(facts).spool.as_mut().unwrap().place {
        Looked::Found(place) => place,
        _ => unreachable!("it has one"),
    }
}

#[test]
fn each_rule_speaks_where_it_should() {
    use Status::{CouldNotLook, Ok, Problem, Warning};
    let kernel = |change: fn(&mut Kernel)| {
        move |facts: &mut Facts| {
            if let Looked::Found(kernel) = &mut facts.kernel {
                change(kernel);
            }
        }
    };
    expect(
        kernel(|k| k.release = "5.15.0".into()),
        Problem,
        "needs 5.17",
    );
    expect(
        kernel(|k| k.release = "6.0.1".into()),
        Warning,
        "older than 6.1",
    );
    expect(kernel(|k| k.release = "next".into()), CouldNotLook, "next");
    expect(kernel(|k| k.btf = Looked::Found(0)), Problem, "is empty");
    expect(
        kernel(|k| k.lockdown = Looked::Found("integrity".into())),
        Ok,
        "integrity",
    );
    expect(
        |f| f.devices = Looked::Absent,
        Problem,
        "RDMA core is there",
    );
    expect(
        |f| {
            f.services = Looked::Found(Vec::new());
            f.devices = Looked::Absent;
            f.kernel = Looked::Found(Kernel::default());
        },
        Warning,
        "ib_core",
    );
    expect(
        |f| f.devices = Looked::Found(vec![device("x", port("HUH?"))]),
        CouldNotLook,
        "HUH?",
    );
    expect(
        |f| {
            let without = Port {
                gids: Vec::new(),
                ..port("ACTIVE")
            };
            f.devices = Looked::Found(vec![device("x", without)]);
        },
        Warning,
        "without an address",
    );
    expect(|f| tracer(f).running.clear(), Problem, "does not run");
    expect(
        |f| {
            tracer(f).running.clear();
            f.shell = Looked::Found(Process {
                bounding: Some(0),
                effective: Some(0),
                ..process("bash", 1)
            });
        },
        Warning,
        "it is a container",
    );
    expect(
        |f| tracer(f).spool.as_mut().unwrap().max_mib = 0,
        Warning,
        "switched off",
    );
    expect(|f| spool_place(f).is_read_only = true, Problem, "read-only");
    expect(
        |f| spool_place(f).free_bytes = 1 << 20,
        Problem,
        "1 MiB are free",
    );
    expect(
        |f| spool_place(f).free_bytes = 100 << 20,
        Warning,
        "may grow to 256 MiB",
    );
    expect(
        |f| {
            spool_place(f).is_it = false;
            spool_place(f).path = "/var/lib".into();
        },
        Warning,
        "there is no /var/lib/rdmesh/tracer",
    );
    expect(
        |f| {
            spool_place(f).is_it = false;
            spool_place(f).path = "/var/lib/rdmesh/tracer".into();
        },
        Ok,
        "made at the start",
    );
    expect(|f| f.nccl.shaped = Some(true), Problem, "is not set");
    expect(
        |f| f.nccl.settings = vec![setting("NCCL_IB_GID_INDEX", "9", "x")],
        Problem,
        "mlx5_0 port 1 and mlx5_1 port 1",
    );
    expect(
        |f| f.nccl.settings = vec![setting("NCCL_IB_HCA", "^nosuch", "x")],
        Ok,
        "NCCL_IB_HCA=^nosuch",
    );
    expect(
        |f| f.nccl.settings = vec![setting("NCCL_IB_TIMEOUT", "6", "x")],
        Warning,
        "after 262 us",
    );
    expect(
        |f| f.nccl.settings = vec![setting("NCCL_IB_TIMEOUT", "99", "x")],
        Warning,
        "that is no number",
    );
    expect(
        |f| f.dials[1].outcome = answered(2_500),
        Warning,
        "2 s ahead",
    );
    expect(
        |f| f.dials[1].outcome = Outcome::NotTried("its key: Permission denied".into()),
        CouldNotLook,
        "Permission denied",
    );
}

#[test]
fn each_thing_about_certificates_is_told() {
    use Status::{CouldNotLook, Ok, Problem, Warning};
    let with = |made: Certificate| move |facts: &mut Facts| tracer(facts).certificate = Some(made);
    let agent = "rdmesh://site-a/agent/gpu-01";
    expect(with(certificate(&[agent], 20)), Ok, "20 days left");
    let mut long = certificate(&[agent], 20);
    if let Result::Ok(own) = &mut long.inspection.as_mut().unwrap().own {
        own.not_before = NOW - 340 * DAY;
    }
    expect(with(long), Warning, "ends in 20 days");
    let mut early = certificate(&[agent], 20);
    if let Result::Ok(own) = &mut early.inspection.as_mut().unwrap().own {
        own.not_before = NOW + DAY;
    }
    expect(with(early), Problem, "not valid yet");
    expect(
        with(certificate(&["rdmesh://site-a/agent/gpu-02"], 300)),
        Problem,
        "does not speak for gpu-01",
    );
    expect(with(certificate(&[], 300)), Problem, "names no identity");
    let mut made = certificate(&[agent], 300);
    let inspection = made.inspection.as_mut().unwrap();
    inspection.authorities = Result::Ok(vec![facts_of(&[], 10)]);
    inspection.key = Err("the key is another's".to_owned());
    expect(
        with(made.clone()),
        Warning,
        "authority of site-a ends in 10 days",
    );
    expect(with(made), Problem, "the key is another's");
    let mut made = certificate(&[agent], 300);
    made.inspection.as_mut().unwrap().chain = Err("no authority in x issued y".to_owned());
    expect(with(made), Problem, "no authority in x");
    let mut made = certificate(&[agent], 300);
    made.inspection = None;
    made.files[2].unreadable = Some("/k: Permission denied (os error 13)".to_owned());
    expect(with(made.clone()), CouldNotLook, "/k");
    made.files[2].owner = Looked::Absent;
    expect(
        with(made.clone()),
        Problem,
        "there is no /etc/rdmesh/agent.key",
    );
    made.files[2].path = PathBuf::new();
    expect(with(made), Problem, "key is not named");
    expect(
        |f| tracer(f).certificate = None,
        Warning,
        "listens for other machines and dials another machine",
    );
    expect(
        |f| {
            let tracer = tracer(f);
            tracer.certificate = None;
            tracer.settings = Looked::Found(Settings {
                listen: "unix:/run/t.sock".to_owned(),
                collectors: vec!["127.0.0.1:7400".to_owned()],
                ..Settings::default()
            });
        },
        Ok,
        "this machine alone",
    );
    expect(
        |f| f.own = Some(certificate(&["rdmesh://site-a/operator/ada"], -1)),
        Problem,
        "has expired 1 day ago",
    );
}
