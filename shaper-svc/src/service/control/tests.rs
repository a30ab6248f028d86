use super::*;

const SECOND: Duration = Duration::from_secs(1);

fn start() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000)
}

fn speed(bps: u64) -> Speed {
    Speed::Rate(LineRate::new(bps).unwrap())
}

fn facts() -> Vec<WireFacts> {
    ["vf0", "vf1"]
        .map(|name| WireFacts {
            name: name.to_owned(),
            virtual_function: name.to_owned(),
            configured: speed(25_000_000_000),
            fastest_bps: 100_000_000_000,
        })
        .to_vec()
}

fn control() -> Control {
    Control::new(facts(), Some(60_000_000_000), &State::default(), start())
}

fn rate(wire: &str, rate_bps: u64, expires_after: Option<Duration>) -> Request {
    let change = Change::Rate {
        wire: wire.to_owned(),
        rate_bps,
        expires_after,
        force: false,
    };
    Request {
        id: String::new(),
        reason: String::new(),
        change,
    }
}

fn with_id(request: Request) -> Request {
    Request {
        id: "7b0b7d8e-9a63-4a0e-8f0e-1d1c6c1d0001".to_owned(),
        ..request
    }
}

#[test]
fn a_rate_is_set_and_reset() {
    let mut control = control();
    let done = control
        .apply(&rate("vf1", 10_000_000_000, None), start())
        .unwrap();
    assert_eq!(
        done,
        Done {
            wires: vec![1],
            repeated: false,
            in_force_at: None
        }
    );
    assert_eq!(control.wires()[1].speed(), speed(10_000_000_000));
    assert_eq!(control.wires()[1].generation, 2);
    let reset = Request {
        change: Change::Reset { wire: None },
        ..rate("", 0, None)
    };
    assert_eq!(control.apply(&reset, start()).unwrap().wires, [0, 1]);
    assert_eq!(control.wires()[1].speed(), speed(25_000_000_000));
}

#[test]
fn refusals_name_the_field_and_the_range() {
    let mut control = control();
    for (request, words) in [
        (rate("vf0", 0, None), ["`rate_bps` is 0", "100000000000"]),
        (rate("vf0", 100_000_000_001, None), ["`rate_bps`", "1mbit"]),
        (rate("vf7", 10_000_000_000, None), ["`vf7`", "vf0, vf1"]),
        (
            rate("vf0", 10_000_000_000, Some(Duration::ZERO)),
            ["`expires_after`", "30 days"],
        ),
        (
            rate("vf0", 10_000_000_000, Some(SECOND * 2_600_000)),
            ["`expires_after`", "30 days"],
        ),
        (
            rate("vf0", 50_000_000_000, None),
            ["measured drain", "`force`"],
        ),
        (
            Request {
                id: "x".into(),
                ..rate("vf0", 10_000_000_000, None)
            },
            ["`request_id`", "UUID"],
        ),
        (
            Request {
                reason: "r".repeat(2000),
                ..rate("vf0", 10_000_000_000, None)
            },
            ["`reason`", "1024"],
        ),
    ] {
        let before = control.wires().to_vec();
        let message = control.apply(&request, start()).unwrap_err().to_string();
        assert!(words.iter().all(|word| message.contains(word)), "{message}");
        assert_eq!(control.wires(), before, "a refused request changes nothing");
    }
    let forced = Change::Rate {
        wire: "vf0".into(),
        rate_bps: 50_000_000_000,
        expires_after: None,
        force: true,
    };
    assert!(
        control
            .apply(
                &Request {
                    change: forced,
                    ..rate("", 0, None)
                },
                start()
            )
            .is_ok()
    );
}

#[test]
fn a_request_that_comes_twice_is_one_change() {
    let mut control = control();
    let request = with_id(rate("vf0", 10_000_000_000, None));
    assert!(!control.apply(&request, start()).unwrap().repeated);
    // Somebody else changes it, and the first client's repetition arrives late.
    control
        .apply(&rate("vf0", 5_000_000_000, None), start())
        .unwrap();
    assert!(control.apply(&request, start()).unwrap().repeated);
    assert_eq!(control.wires()[0].speed(), speed(5_000_000_000));
    // The same id in another of its forms.
    let upper = Request {
        id: request.id.to_uppercase(),
        ..request.clone()
    };
    assert!(control.apply(&upper, start()).unwrap().repeated);
    let other = with_id(rate("vf0", 1_000_000_000, None));
    assert!(matches!(
        control.apply(&other, start()),
        Err(Refused::IdReused { .. })
    ));
}

#[test]
fn a_forgotten_experiment_ends_by_itself() {
    let mut control = control();
    control
        .apply(&rate("vf0", 10_000_000_000, Some(60 * SECOND)), start())
        .unwrap();
    let order = control.wires()[0].order(start() + 20 * SECOND);
    let expiry = order.policy.rules()[0].expiry.unwrap();
    assert_eq!(
        (expiry.after_ps, expiry.then),
        (40_000_000_000_000, speed(25_000_000_000))
    );
    assert!(control.expire(start() + 59 * SECOND).is_empty());
    assert_eq!(control.expire(start() + 60 * SECOND), [0]);
    assert_eq!(control.wires()[0].speed(), speed(25_000_000_000));
    assert!(control.expire(start() + 61 * SECOND).is_empty());
}

#[test]
fn a_bypass_keeps_the_rate_for_later() {
    let mut control = control();
    control
        .apply(&rate("vf0", 10_000_000_000, Some(60 * SECOND)), start())
        .unwrap();
    let bypass = |bypass| Request {
        change: Change::Bypass {
            wire: "vf0".into(),
            bypass,
        },
        ..rate("", 0, None)
    };
    control.apply(&bypass(true), start()).unwrap();
    let order = control.wires()[0].order(start());
    assert!(order.bypass && order.policy.rules()[0].expiry.is_none());
    assert_eq!(order.policy.rules()[0].speed, Speed::Unshaped);
    control
        .apply(&bypass(false), start() + 30 * SECOND)
        .unwrap();
    let order = control.wires()[0].order(start() + 30 * SECOND);
    assert_eq!(order.policy.rules()[0].speed, speed(10_000_000_000));
    assert_eq!(
        order.policy.rules()[0].expiry.unwrap().after_ps,
        30_000_000_000_000
    );
}

#[test]
fn a_restart_remembers_rates_ends_and_requests() {
    let mut control = control();
    let request = with_id(rate("vf0", 10_000_000_000, Some(60 * SECOND)));
    control.apply(&request, start()).unwrap();
    control
        .apply(&rate("vf1", 1_000_000_000, None), start())
        .unwrap();
    let (wires, requests) = control.saved();
    let state = State {
        wires,
        requests,
        ..State::default()
    };

    let mut soon = Control::new(facts(), None, &state, start() + 10 * SECOND);
    assert_eq!(soon.wires()[0].speed(), speed(10_000_000_000));
    assert!(soon.wires()[0].generation > control.wires()[0].generation);
    assert!(
        soon.apply(&request, start() + 11 * SECOND)
            .unwrap()
            .repeated
    );
    let late = Control::new(facts(), None, &state, start() + 61 * SECOND);
    assert_eq!(
        late.wires()[0].speed(),
        speed(25_000_000_000),
        "it ended while nobody ran"
    );
    assert_eq!(late.wires()[1].speed(), speed(1_000_000_000));
    assert!(soon.reverted().is_empty());
    let [reverted] = late.reverted() else {
        panic!("{:?}", late.reverted());
    };
    assert_eq!(
        (reverted.wire, reverted.rate_bps, reverted.action),
        (0, 10_000_000_000, "expired")
    );
}

/// What is kept after `vf1` was set to 10 Gbit/s.
fn remembered() -> State {
    let mut before = control();
    before
        .apply(&rate("vf1", 10_000_000_000, None), start())
        .unwrap();
    let (wires, requests) = before.saved();
    State {
        wires,
        requests,
        ..State::default()
    }
}

#[test]
fn a_remembered_rate_that_the_port_no_longer_has_is_told() {
    let state = remembered();
    let mut facts = facts();
    facts[1].fastest_bps = 5_000_000_000;
    facts[1].configured = speed(1_000_000_000);
    let control = Control::new(facts, None, &state, start());
    assert_eq!(control.wires()[1].speed(), speed(1_000_000_000));
    let [reverted] = control.reverted() else {
        panic!("{:?}", control.reverted());
    };
    assert_eq!((reverted.wire, reverted.action), (1, "reverted"));
    assert!(reverted.why.contains("5000000000"), "{reverted:?}");
}

#[test]
fn a_remembered_wire_that_is_not_configured_any_more_is_told() {
    let state = remembered();
    let mut facts = facts();
    facts.remove(1);
    let control = Control::new(facts, None, &state, start());
    let gone: Vec<_> = control
        .gone()
        .iter()
        .map(|w| (&*w.name, w.rate_bps))
        .collect();
    assert_eq!(gone, [("vf1", Some(10_000_000_000))]);
    assert!(control.reverted().is_empty());
}

#[test]
fn after_a_lost_state_generations_grow_on() {
    let lost = State {
        first_generation: 1_800_000_000,
        ..State::default()
    };
    let control = Control::new(facts(), None, &lost, start());
    assert_eq!(control.wires()[0].generation, 1_800_000_000);
}
