//! What is asked of the collector, and how its answers come out.

use rdmesh_proto::collector::v1 as wire;

use crate::fake::{self, Fake};
use crate::run::{ask, code, json, stderr, stdout};

#[test]
fn a_job_is_started_placed_ended_listed_and_shown() {
    let fake = Fake::start();
    let start = [
        "job",
        "start",
        "4711",
        "--name",
        "llama",
        "--user",
        "ada",
        "--scheduler",
        "slurm",
        "--cluster",
        "west",
        "--class",
        "training",
        "--host",
        "gpu-01:ranks=0-1:devices=rxe0",
        "--host",
        "gpu-02",
        "--at",
        "2026-01-31T14:00:00Z",
        "--label",
        "model=llama=70b",
    ];
    let output = ask(&fake, &start);
    assert_eq!(
        (code(&output), stdout(&output).as_str()),
        (0, "4711/0  running  on gpu-01, gpu-02\n")
    );
    {
        let state = fake.state();
        let job = &state.jobs[0];
        assert_eq!(
            (job.placements[0].ranks.as_slice(), job.user.as_str()),
            ([0, 1].as_slice(), "ada")
        );
        assert_eq!(job.labels["model"], "llama=70b");
        assert_eq!(job.started_at.unwrap().seconds, 1_769_868_000);
    }
    assert_eq!(code(&ask(&fake, &["job", "start", "4711/1.2"])), 0);
    // A job alone means its latest attempt.
    let output = ask(&fake, &["job", "place", "4711", "--host", "gpu-03"]);
    assert_eq!(stdout(&output), "4711/1.2  running  on gpu-03\n");
    let output = ask(
        &fake,
        &[
            "job",
            "end",
            "4711",
            "--exit-code",
            "-9",
            "--reason",
            "killed",
        ],
    );
    assert_eq!(stdout(&output), "4711/1.2  failed  on gpu-03\n");
    let output = ask(&fake, &["job", "end", "4711/0", "--state", "CANCELLED"]);
    assert!(
        stdout(&output).starts_with("4711/0  cancelled"),
        "{}",
        stdout(&output)
    );

    let output = ask(&fake, &["job", "show", "4711", "-o", "json"]);
    let shown = json(&stdout(&output));
    assert_eq!(shown["job"]["attempt"]["id"], "4711/1.2");
    assert_eq!(shown["job"]["state"], "failed");
    assert_eq!(shown["job"]["exit_code"], -9);
    assert_eq!(shown["attempts"].as_array().unwrap().len(), 2);

    let filters = [
        "job",
        "list",
        "--user",
        "ada",
        "--host",
        "gpu-01",
        "--state",
        "failed",
        "--since",
        "@1769868000",
        "--limit",
        "7",
        "-ojson",
    ];
    let output = ask(&fake, &filters);
    assert_eq!(json(&stdout(&output))["jobs"][0]["attempt"]["requeue"], 1);
    let asked = fake.state().last_jobs.clone().unwrap();
    assert_eq!(
        (asked.user.as_str(), asked.host.as_str(), asked.page_size),
        ("ada", "gpu-01", 7)
    );
    assert_eq!(asked.state, i32::from(wire::JobState::Failed));
    let time = asked.time.unwrap();
    assert_eq!((time.from.unwrap().seconds, time.to), (1_769_868_000, None));
}

#[test]
fn the_end_of_an_unknown_job_is_the_end_of_its_first_attempt() {
    let fake = Fake::start();
    let output = ask(&fake, &["job", "end", "late", "--state", "completed"]);
    assert_eq!(
        (code(&output), stdout(&output).as_str()),
        (0, "late/0  completed\n")
    );
}

#[test]
fn diagnose_tells_scripts_how_it_went() {
    let fake = Fake::start();
    ask(&fake, &["job", "start", "good"]);
    ask(&fake, &["job", "start", "bad"]);
    ask(&fake, &["job", "end", "bad", "--state", "failed"]);

    let output = ask(&fake, &["diagnose", "bad"]);
    assert_eq!(code(&output), 0);
    assert!(
        stdout(&output).contains("EFAULT (14)"),
        "{}",
        stdout(&output)
    );
    let verdict = json(&stdout(&ask(&fake, &["diagnose", "bad/0", "-o", "json"])));
    assert_eq!(verdict["class"], "application_arguments");
    assert_eq!(
        (verdict["errno"].as_u64(), verdict["errno_name"].as_str()),
        (Some(14), Some("EFAULT"))
    );
    assert_eq!(verdict["job"]["attempt"]["job_id"], "bad");

    let output = ask(&fake, &["diagnose", "good"]);
    assert_eq!(code(&output), 3);
    assert!(stdout(&output).contains("Cannot tell what broke good/0."));

    let output = ask(&fake, &["diagnose", "nobody"]);
    assert_eq!((code(&output), stdout(&output).as_str()), (4, ""));
    assert!(
        stderr(&output).contains("rdmesh job list"),
        "{}",
        stderr(&output)
    );

    let output = ask(&fake, &["diagnose", "broken", "-o", "json"]);
    assert_eq!(code(&output), 1);
    assert_eq!(json(&stderr(&output))["error"]["kind"], "bad_answer");
}

#[test]
fn a_slow_collector_is_given_up() {
    let fake = Fake::start();
    let output = ask(&fake, &["--timeout", "1", "diagnose", "slow", "-o", "json"]);
    assert_eq!(code(&output), 5);
    let error = json(&stderr(&output));
    assert_eq!(error["error"]["kind"], "timeout");
    assert_eq!(error["error"]["exit_code"], 5);
    let output = ask(&fake, &["--timeout", "0.25", "diagnose", "slow"]);
    assert_eq!(code(&output), 5);
    assert!(
        stderr(&output).contains("did not answer within 0.25 s"),
        "{}",
        stderr(&output)
    );
}

#[test]
fn what_the_collector_refuses_is_shown_escaped() {
    let fake = Fake::start();
    let output = ask(&fake, &["job", "start", "4711", "--host", "bad"]);
    assert_eq!(code(&output), 2);
    assert!(
        stderr(&output).contains("placements[0].host: \\x1b[31mbad"),
        "{}",
        stderr(&output)
    );
}

#[test]
fn reads_are_asked_again_within_a_bound_and_writes_are_not() {
    let fake = Fake::start();
    fake.state().refusals = 2;
    assert_eq!(code(&ask(&fake, &["fleet"])), 0);
    assert_eq!(fake.state().calls, 3);

    *fake.state() = fake::State {
        refusals: 10,
        ..fake::State::default()
    };
    let output = ask(&fake, &["fleet"]);
    assert_eq!((code(&output), fake.state().calls), (1, 3));
    assert!(stderr(&output).contains("the database does not answer"));

    *fake.state() = fake::State {
        refusals: 10,
        ..fake::State::default()
    };
    assert_eq!(code(&ask(&fake, &["job", "start", "4711"])), 1);
    assert_eq!(fake.state().calls, 1);
}

/// The last try is cut off; what the tries before were told says more.
#[test]
fn what_a_try_was_told_stands_above_that_time_is_over() {
    let fake = Fake::start();
    fake.state().refusals = 10;
    let output = ask(&fake, &["fleet", "--timeout", "0.55"]);
    assert_eq!(code(&output), 1, "{}", stderr(&output));
    assert!(stderr(&output).contains("the database does not answer"));
    assert_eq!(fake.state().calls, 2);
}

#[test]
fn failures_are_filtered_and_paged() {
    let fake = Fake::start();
    fake.state().failures = 2_500;
    let arguments = [
        "failures",
        "--job",
        "4711/1",
        "--host",
        "gpu-01",
        "--device",
        "rxe0",
        "--function",
        "ib_umem_get",
        "--errno",
        "-14",
        "--since",
        "1h",
        "--until",
        "now",
        "--all",
        "--limit",
        "2200",
        "-o",
        "json",
    ];
    let list = json(&stdout(&ask(&fake, &arguments)));
    assert_eq!(list["failures"].as_array().unwrap().len(), 2_200);
    assert_eq!(
        (
            list["failures"][2_199]["count"].as_u64(),
            list["more"].as_bool()
        ),
        (Some(2_200), Some(true))
    );
    let asked = fake.state().last_failures.clone().unwrap();
    assert_eq!(
        (asked.job_id.as_str(), asked.requeue, asked.restart),
        ("4711", Some(1), None)
    );
    assert_eq!(
        (asked.host.as_str(), asked.device.as_str()),
        ("gpu-01", "rxe0")
    );
    assert_eq!((asked.function.as_str(), asked.errno), ("ib_umem_get", 14));
    assert!(asked.include_expected && asked.time.is_some());
    assert_eq!((asked.page_size, asked.page_token.as_str()), (200, "2000"));

    let list = json(&stdout(&ask(
        &fake,
        &["failures", "--limit", "5000", "-o", "json"],
    )));
    assert_eq!(
        (
            list["failures"].as_array().unwrap().len(),
            list["more"].as_bool()
        ),
        (2_500, Some(false))
    );
}

#[test]
fn names_of_processes_command_no_terminal() {
    let fake = Fake::start();
    fake.state().failures = 1;
    for arguments in [&["failures"][..], &["failures", "-o", "json"]] {
        let output = ask(&fake, arguments);
        assert_eq!(code(&output), 0);
        assert!(!output.stdout.contains(&0x1b), "{}", stdout(&output));
    }
    let list = json(&stdout(&ask(&fake, &["failures", "-o", "json"])));
    assert_eq!(list["failures"][0]["comm"], "\u{1b}[31mtrain");
}

#[test]
fn probes_and_fleet() {
    let fake = Fake::start();
    let output = ask(&fake, &["probes", "gpu-01"]);
    assert_eq!(code(&output), 0);
    let output = ask(&fake, &["probes", "gpu-77"]);
    assert_eq!(code(&output), 4);
    assert!(
        stderr(&output).contains("rdmesh fleet"),
        "{}",
        stderr(&output)
    );
    let fleet = json(&stdout(&ask(&fake, &["fleet", "-o", "json"])));
    assert_eq!(fleet["agents"][0]["host"], "gpu-02", "the unhealthy first");
}

#[test]
fn an_odd_row_hides_no_other() {
    let fake = Fake::start();
    ask(&fake, &["job", "start", "4711"]);
    let odd = "a/\u{1b}[31mb";
    {
        let mut state = fake.state();
        let mut job = state.jobs[0].clone();
        job.attempt.as_mut().unwrap().job_id = odd.to_owned();
        job.ended_at = Some(prost_types::Timestamp {
            seconds: i64::MAX,
            nanos: 0,
        });
        state.jobs.push(job);
        state.failures = 2;
        state.failing_job = odd.to_owned();
    }
    for list in ["job list", "failures"] {
        let arguments: Vec<&str> = list.split(' ').collect();
        let output = ask(&fake, &arguments);
        assert_eq!(code(&output), 0, "{}", stderr(&output));
        let shown = stdout(&output);
        assert!(!shown.contains('\u{1b}'), "{shown}");
        for part in ["a/\\x1b[31mb/0", "the job id holds '/'"] {
            assert!(shown.contains(part), "{part} is missing in {shown}");
        }
    }
    assert!(stdout(&ask(&fake, &["job", "list"])).contains("4711/0"));
    let list = json(&stdout(&ask(&fake, &["failures", "-ojson"])));
    assert_eq!(list["failures"][0]["attempt"]["job_id"], odd);
    assert_eq!(list["failures"].as_array().unwrap().len(), 2);
}

#[test]
fn what_the_collector_cannot_work_out_is_no_wrong_usage() {
    let fake = Fake::start();
    let output = ask(&fake, &["diagnose", "overflowing"]);
    assert_eq!(code(&output), 1, "{}", stderr(&output));
    assert!(stderr(&output).contains("the collector failed"));
}
