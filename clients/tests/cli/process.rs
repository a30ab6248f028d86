//! How the program behaves as a process: usage, addresses, pipes, terminals.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::process::{Command, Stdio};

use crate::fake::Fake;
use crate::run::{ask, closed_address, code, json, rdmesh, stderr, stdout};

#[test]
fn something_else_at_the_address_is_no_collector() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let answering = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut preface = [0; 24];
        stream.read_exact(&mut preface).unwrap();
        stream
            .write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            .unwrap();
    });
    let output = rdmesh(&["--collector", &address, "fleet"])
        .output()
        .unwrap();
    assert_eq!(code(&output), 5, "{}", stderr(&output));
    answering.join().unwrap();
}

#[test]
fn no_collector_is_said_with_what_to_do() {
    let address = closed_address();
    let output = rdmesh(&["--collector", &address, "fleet"])
        .output()
        .unwrap();
    assert_eq!((code(&output), stdout(&output).as_str()), (5, ""));
    let said = stderr(&output);
    for part in [
        address.as_str(),
        "is it running there?",
        "--collector",
        "RDMESH_COLLECTOR",
        "cli.toml",
    ] {
        assert!(said.contains(part), "{part} is missing in {said}");
    }
    let output = rdmesh(&["--collector", &address, "fleet", "-o", "json"])
        .output()
        .unwrap();
    let error = json(&stderr(&output));
    assert_eq!(
        (code(&output), error["error"]["kind"].as_str()),
        (5, Some("unreachable"))
    );
    assert!(
        error["error"]["next"]
            .as_str()
            .unwrap()
            .contains("RDMESH_COLLECTOR")
    );
}

#[test]
fn wrong_usage_is_two_also_in_json() {
    let wrong: &[&[&str]] = &[
        &["diagnose"],
        &["diagnose", "a/b/c"],
        &["failures", "--errno", "EWHAT"],
        &["failures", "--since", "yesterday"],
        &["failures", "--limit", "0"],
        &["job", "end", "4711"],
        &["job", "end", "4711", "--state", "running"],
        &["job", "end", "4711", "--state", "unknown"],
        &["fleet", "--collector", "unix:relative.sock"],
        &["job", "start", "4711", "--host", "gpu:rank=1"],
        &["job", "start", "4711", "--label", "novalue"],
        &["fleet", "--collector", "a b"],
    ];
    for arguments in wrong {
        let output = rdmesh(arguments).output().unwrap();
        assert_eq!(
            (code(&output), stdout(&output).as_str()),
            (2, ""),
            "{arguments:?}"
        );
        let output = rdmesh(arguments).args(["-o", "json"]).output().unwrap();
        assert_eq!(
            json(&stderr(&output))["error"]["exit_code"],
            2,
            "{arguments:?}"
        );
    }
}

#[test]
fn the_end_of_a_job_is_asked_for_in_both_ways() {
    let said = stderr(&rdmesh(&["job", "end", "4711"]).output().unwrap());
    assert!(
        said.contains("--state") && said.contains("--exit-code"),
        "{said}"
    );
    let help = stdout(&rdmesh(&["job", "end", "--help"]).output().unwrap());
    assert!(!help.contains("unknown"), "{help}");
}

#[test]
fn a_time_that_ends_before_it_begins_is_told_in_the_users_words() {
    let fake = Fake::start();
    for command in ["failures", "job list"] {
        let mut arguments: Vec<&str> = command.split(' ').collect();
        arguments.extend(["--since", "1h", "--until", "2h"]);
        let output = ask(&fake, &arguments);
        assert_eq!(code(&output), 2);
        assert!(
            stderr(&output).contains("is later than --until"),
            "{}",
            stderr(&output)
        );
    }
    assert_eq!(fake.state().calls, 0);
}

#[test]
fn a_label_that_is_given_twice_is_refused_before_anybody_is_told() {
    let fake = Fake::start();
    let arguments = ["job", "start", "4711", "--label", "a=b", "--label", "a=c"];
    let output = ask(&fake, &arguments);
    assert_eq!(code(&output), 2);
    assert!(
        stderr(&output).contains("--label a=… is given twice"),
        "{}",
        stderr(&output)
    );
    assert_eq!(fake.state().calls, 0);
}

#[test]
fn a_collector_at_a_socket_of_the_file_system_is_asked() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("collector.sock");
    let fake = Fake::start_at(&path);
    assert_eq!(code(&ask(&fake, &["fleet"])), 0);
    let missing = format!("unix:{}/missing.sock", dir.path().display());
    let output = rdmesh(&["fleet", "--collector", &missing])
        .output()
        .unwrap();
    assert_eq!(code(&output), 5);
    for part in [missing.as_str(), "No such file", "write to its socket"] {
        let said = stderr(&output)
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(" ");
        assert!(said.contains(part), "{part} is missing in {said}");
    }
}

#[test]
fn hostile_arguments_command_no_terminal() {
    let output = rdmesh(&["diagnose", "a\u{1b}[31m"]).output().unwrap();
    assert_eq!(code(&output), 2);
    assert!(!output.stderr.contains(&0x1b), "{}", stderr(&output));
    assert!(
        stderr(&output).contains("no job id may hold"),
        "{}",
        stderr(&output)
    );
}

#[test]
fn a_closed_pipe_is_no_failure() {
    let fake = Fake::start();
    fake.state().failures = 3_000;
    let mut child = rdmesh(&["failures", "--limit", "3000"])
        .env("RDMESH_COLLECTOR", &fake.address)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!((code(&output), stderr(&output).as_str()), (0, ""));
}

#[test]
fn a_full_disk_is_a_failure() {
    let fake = Fake::start();
    let full = std::fs::File::options()
        .write(true)
        .open("/dev/full")
        .unwrap();
    let output = rdmesh(&["fleet"])
        .env("RDMESH_COLLECTOR", &fake.address)
        .stdout(full)
        .output()
        .unwrap();
    assert_eq!(code(&output), 1);
    assert!(
        stderr(&output).contains("could not be written"),
        "{}",
        stderr(&output)
    );
}

#[test]
fn the_collector_is_found_by_flag_variable_and_file() {
    let fake = Fake::start();
    let address = fake.address.clone();
    let closed = closed_address();
    let home = tempfile::tempdir().unwrap();
    let dir = home.path().join(".config/rdmesh");
    std::fs::create_dir_all(&dir).unwrap();
    std::fs::write(dir.join("cli.toml"), format!("collector = \"{address}\"\n")).unwrap();

    let by_file = rdmesh(&["fleet"])
        .env("HOME", home.path())
        .output()
        .unwrap();
    assert_eq!(code(&by_file), 0, "{}", stderr(&by_file));
    let by_variable = rdmesh(&["fleet"])
        .env("HOME", home.path())
        .env("RDMESH_COLLECTOR", &closed)
        .output()
        .unwrap();
    assert_eq!(code(&by_variable), 5);
    let by_flag = rdmesh(&["fleet", "--collector", &address])
        .env("RDMESH_COLLECTOR", &closed)
        .output()
        .unwrap();
    assert_eq!(code(&by_flag), 0);

    std::fs::write(dir.join("cli.toml"), "collektor = 1\n").unwrap();
    let wrong = rdmesh(&["fleet"])
        .env("HOME", home.path())
        .output()
        .unwrap();
    assert_eq!(code(&wrong), 2);
    assert!(stderr(&wrong).contains("collektor"), "{}", stderr(&wrong));
}

#[test]
fn colour_only_where_it_is_wanted() {
    let fake = Fake::start();
    assert!(!ask(&fake, &["fleet"]).stdout.contains(&0x1b));
    assert!(
        ask(&fake, &["fleet", "--color", "always"])
            .stdout
            .contains(&0x1b)
    );
    assert!(
        !ask(&fake, &["fleet", "--color", "never"])
            .stdout
            .contains(&0x1b)
    );
    let json = ask(&fake, &["fleet", "--color", "always", "-o", "json"]);
    assert!(!json.stdout.contains(&0x1b));
}

/// Runs on a terminal of 60 columns and gives what it shows.
fn on_terminal(fake: &Fake, arguments: &[&str], no_color: &str) -> String {
    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let terminal = openpt(flags).unwrap();
    grantpt(&terminal).unwrap();
    unlockpt(&terminal).unwrap();
    let name = ptsname(&terminal, Vec::new())
        .unwrap()
        .into_string()
        .unwrap();
    let size = rustix::termios::Winsize {
        ws_row: 24,
        ws_col: 60,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    rustix::termios::tcsetwinsize(&terminal, size).unwrap();
    let side = std::fs::File::options()
        .read(true)
        .write(true)
        .open(name)
        .unwrap();
    let mut child = rdmesh(arguments)
        .env("RDMESH_COLLECTOR", &fake.address)
        .env("TERM", "xterm")
        .env("NO_COLOR", no_color)
        .stdout(side)
        .spawn()
        .unwrap();
    let mut shown = Vec::new();
    // The last side that closes ends the reading with EIO.
    let _ = std::fs::File::from(terminal).read_to_end(&mut shown);
    assert_eq!(child.wait().unwrap().code(), Some(0));
    String::from_utf8(shown).unwrap()
}

#[test]
fn a_terminal_gets_colour_and_its_own_width() {
    let fake = Fake::start();
    ask(&fake, &["job", "start", "bad"]);
    ask(&fake, &["job", "end", "bad", "--state", "failed"]);
    assert!(on_terminal(&fake, &["diagnose", "bad"], "").contains("\u{1b}[1;31m"));
    let plain = on_terminal(&fake, &["diagnose", "bad"], "1");
    assert!(
        plain.contains("EFAULT (14)") && !plain.contains('\u{1b}'),
        "{plain}"
    );
    let widest = plain.lines().map(|line| line.trim_end().len()).max();
    assert!(widest <= Some(60), "{plain}");
}

#[test]
fn help_shows_exit_codes_and_examples() {
    let help = stdout(&rdmesh(&["--help"]).output().unwrap());
    for part in ["Exit codes:", "cannot tell", "RDMESH_COLLECTOR", "Example:"] {
        assert!(help.contains(part), "{part} is missing in {help}");
    }
    let output = rdmesh(&["--version"]).output().unwrap();
    assert_eq!(
        (code(&output), stdout(&output)),
        (0, format!("rdmesh {}\n", env!("CARGO_PKG_VERSION")))
    );
}

#[test]
fn completions_are_scripts_of_their_shell() {
    for shell in ["bash", "zsh", "fish"] {
        let output = rdmesh(&["completions", shell]).output().unwrap();
        assert_eq!(code(&output), 0);
        assert!(stdout(&output).contains("diagnose"), "{shell}");
        assert!(stdout(&output).contains("out_of_memory"), "{shell}");
    }
    let script = rdmesh(&["completions", "bash"]).output().unwrap().stdout;
    let mut bash = Command::new("bash")
        .arg("-n")
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    bash.stdin.take().unwrap().write_all(&script).unwrap();
    assert!(bash.wait().unwrap().success());
}
