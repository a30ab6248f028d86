//! The private cluster starts, serves, survives a stop, and leaves nothing behind.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rdmesh_test_postgres::{Cluster, SUPERUSER};

#[test]
fn a_cluster_serves_stops_starts_again_and_leaves_nothing() {
    let cluster = Cluster::start().unwrap();
    let database = cluster.new_database().unwrap();
    let one = cluster.psql(
        &database,
        SUPERUSER,
        "CREATE TABLE t AS SELECT 1 AS n; SELECT n FROM t",
    );
    assert_eq!(one.unwrap().trim(), "1");

    cluster.stop().unwrap();
    assert!(cluster.psql(&database, SUPERUSER, "SELECT 1").is_err());
    cluster.start_again().unwrap();
    assert_eq!(
        cluster
            .psql(&database, SUPERUSER, "SELECT 2")
            .unwrap()
            .trim(),
        "2"
    );

    let dir = cluster.socket_dir();
    drop(cluster);
    assert!(!dir.exists());
}

/// Runs as a child of the test below, which kills it.
#[test]
fn owner_that_waits_to_be_killed() {
    if std::env::var_os("RDMESH_TEST_OWNER").is_none() {
        return;
    }
    let cluster = Cluster::start().unwrap();
    println!("DIR={}", cluster.socket_dir().display());
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).unwrap();
}

#[test]
fn a_killed_owner_leaves_nothing() {
    use std::io::{BufRead, BufReader};
    let mut owner = Command::new(std::env::current_exe().unwrap())
        .args(["owner_that_waits_to_be_killed", "--exact", "--nocapture"])
        .env("RDMESH_TEST_OWNER", "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let out = BufReader::new(owner.stdout.take().unwrap());
    let dir = out
        .lines()
        .map_while(Result::ok)
        .find_map(|line| line.split_once("DIR=").map(|(_, dir)| PathBuf::from(dir)))
        .expect("the owner names its directory");
    assert!(dir.exists());
    owner.kill().unwrap();
    owner.wait().unwrap();
    let deadline = Instant::now() + Duration::from_secs(30);
    while dir.exists() {
        assert!(
            Instant::now() < deadline,
            "{} outlived its owner",
            dir.display()
        );
        std::thread::yield_now();
    }
}
