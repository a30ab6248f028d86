//! Handshakes of every kind, over a pipe in memory, with certificates made here.

#![allow(missing_docs, clippy::unwrap_used)]

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;

use rdmesh_tls::authority::{Authority, Issued, Request};
use rdmesh_tls::inspect::inspect;
use rdmesh_tls::{Checked, Expected, Files, Live, Peer, Role, now};
use tempfile::TempDir;
use tokio::io::AsyncWriteExt;

struct Site {
    authority: Authority,
    ca: String,
    folder: TempDir,
}

fn write(path: &Path, text: &str) {
    // A new file, as tools that replace certificates make it: another inode, another stamp.
    let beside = path.with_extension("new");
    std::fs::write(&beside, text).unwrap();
    std::fs::set_permissions(&beside, PermissionsExt::from_mode(0o600)).unwrap();
    std::fs::rename(beside, path).unwrap();
}

impl Site {
    fn new(name: &str) -> Self {
        let (authority, own) = Authority::create(name, now(), 30).unwrap();
        let folder = tempfile::tempdir().unwrap();
        write(&folder.path().join("ca.crt"), &own.certificate);
        Self {
            authority,
            ca: own.certificate,
            folder,
        }
    }

    fn files(&self, name: &str) -> Files {
        let at = |ending: &str| self.folder.path().join(format!("{name}.{ending}"));
        Files {
            ca: self.folder.path().join("ca.crt"),
            certificate: at("crt"),
            key: at("key"),
        }
    }

    fn keep(&self, name: &str, issued: &Issued) -> Files {
        let files = self.files(name);
        write(&files.certificate, &issued.certificate);
        write(&files.key, &issued.key);
        files
    }

    fn issue(&self, role: Role, name: &str) -> Issued {
        let request = Request::new(role, name, now(), 7).unwrap();
        self.authority.issue(&request, now()).unwrap()
    }

    fn live(&self, role: Role, name: &str) -> Live {
        let issued = self.issue(role, name);
        Live::open(self.keep(name, &issued)).unwrap()
    }
}

/// What server and client say of a handshake.
async fn shake(
    server: &Live,
    client: &Live,
    expected: Expected,
) -> (Result<Result<Peer, String>, String>, Result<(), String>) {
    let (near, far) = tokio::io::duplex(16 << 10);
    let serve = async {
        let (mut stream, peer) = server.accept(far).await.map_err(|e| e.to_string())?;
        // As an HTTP/2 server speaks first.
        stream.write_all(b"settings").await.unwrap();
        stream.flush().await.unwrap();
        Ok((stream, peer))
    };
    let connect = client.connect(near, &expected);
    let (served, connected) = tokio::join!(serve, connect);
    (
        served.map(|(_, peer)| peer),
        connected.map(drop).map_err(|e| e.to_string()),
    )
}

#[tokio::test]
async fn both_sides_learn_who_the_other_is() {
    let site = Site::new("a");
    let collector = site.live(Role::Collector, "c1");
    let agent = site.live(Role::Agent, "gpu-1");
    let (served, connected) = shake(&collector, &agent, Expected::Collector).await;
    assert_eq!(connected, Ok(()));
    let peer = served.unwrap().unwrap();
    assert_eq!(peer.identity.to_string(), "rdmesh://a/agent/gpu-1");
    assert!(peer.speaks_for("gpu-1"));
    // The other way round: the collector dials the agent of a host.
    let (served, connected) = shake(&agent, &collector, Expected::AgentOf("gpu-1".into())).await;
    assert_eq!(connected, Ok(()));
    assert_eq!(served.unwrap().unwrap().identity.role, Role::Collector);
}

#[tokio::test]
async fn a_client_gives_nothing_to_somebody_else() {
    let site = Site::new("a");
    let other = Site::new("a");
    let agent = site.live(Role::Agent, "gpu-1");
    let second = site.live(Role::Agent, "gpu-2");
    let reader = site.live(Role::Reader, "ada");
    let false_collector = other.live(Role::Collector, "c1");
    let collector = site.live(Role::Collector, "c1");
    for (server, client, expected, words) in [
        (
            &second,
            &agent,
            Expected::Collector,
            "rdmesh://a/agent/gpu-2 answers",
        ),
        (
            &false_collector,
            &agent,
            Expected::Collector,
            "not believed here",
        ),
        (
            &agent,
            &collector,
            Expected::AgentOf("gpu-2".into()),
            "the agent of gpu-2",
        ),
        (
            &collector,
            &reader,
            Expected::AgentAt("gpu-1:7401".into()),
            "collector/c1 answers",
        ),
        // Who serves nothing has no certificate to serve with.
        (&reader, &agent, Expected::Collector, "refused"),
    ] {
        let (_, connected) = shake(server, client, expected).await;
        let why = connected.unwrap_err();
        assert!(why.contains(words), "{why:?} should say {words:?}");
    }
}

#[tokio::test]
async fn a_server_refuses_what_no_believed_authority_issued_and_the_client_hears_why() {
    let (site, other) = (Site::new("a"), Site::new("a"));
    let collector = site.live(Role::Collector, "c1");
    // It believes our authority, and ours does not believe its own.
    let files = other.keep("gpu-1", &other.issue(Role::Agent, "gpu-1"));
    write(&files.ca, &site.ca);
    let stranger = Live::open(files).unwrap();
    let (served, connected) = shake(&collector, &stranger, Expected::Collector).await;
    assert!(served.unwrap_err().contains("not believed here"));
    let why = connected.unwrap_err();
    assert!(why.contains("does not believe the authority"), "{why}");
}

#[tokio::test]
async fn another_site_of_the_same_authority_is_told_and_not_let_in() {
    let site = Site::new("a");
    // Certificates of the authority `a`, and one whose CA file holds both authorities.
    let other = Site::new("b");
    let collector_files = site.keep("c1", &site.issue(Role::Collector, "c1"));
    write(&collector_files.ca, &format!("{}{}", site.ca, other.ca));
    let collector = Live::open(collector_files).unwrap();
    let files = other.keep("gpu-1", &other.issue(Role::Agent, "gpu-1"));
    write(&files.ca, &format!("{}{}", site.ca, other.ca));
    let agent = Live::open(files).unwrap();
    let (_, connected) = shake(&collector, &agent, Expected::Collector).await;
    let why = connected.unwrap_err();
    assert!(why.contains("expected a collector of site b"), "{why}");
}

#[tokio::test]
async fn new_files_are_taken_and_bad_ones_are_not() {
    let site = Site::new("a");
    let collector = Arc::new(site.live(Role::Collector, "c1"));
    let agent = site.live(Role::Agent, "gpu-1");
    assert!(matches!(collector.check(), Checked::Same));
    let before = collector.own().serial;
    // The certificate without its key: kept as it was, said once.
    let renewed = site.issue(Role::Collector, "c1");
    let files = site.files("c1");
    write(&files.certificate, &renewed.certificate);
    match collector.check() {
        Checked::Kept(error) => {
            assert!(
                error.to_string().contains("not replaced together"),
                "{error}"
            );
        }
        other => panic!("{other:?}"),
    }
    assert!(matches!(collector.check(), Checked::Same));
    assert_eq!(collector.own().serial, before);
    let (_, connected) = shake(&collector, &agent, Expected::Collector).await;
    assert_eq!(connected, Ok(()));
    // And its key.
    write(&files.key, &renewed.key);
    assert!(matches!(collector.check(), Checked::Reloaded));
    assert_ne!(collector.own().serial, before);
    let (_, connected) = shake(&collector, &agent, Expected::Collector).await;
    assert_eq!(connected, Ok(()));
    // Gone, empty, garbage, another authority's file: those of before stay.
    std::fs::remove_file(&files.certificate).unwrap();
    assert!(matches!(collector.check(), Checked::Kept(_)));
    for bad in [
        "",
        "garbage",
        "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
    ] {
        write(&files.certificate, bad);
        assert!(matches!(collector.check(), Checked::Kept(_)), "{bad}");
    }
    let (_, connected) = shake(&collector, &agent, Expected::Collector).await;
    assert_eq!(connected, Ok(()));
}

#[test]
fn files_that_cannot_be_used_say_what_to_do() {
    let site = Site::new("a");
    let issued = site.issue(Role::Agent, "gpu-1");
    let refused = |files: Files| Live::open(files).map(drop).unwrap_err().to_string();
    let good = site.keep("gpu-1", &issued);
    assert!(Live::open(good.clone()).is_ok());
    // Everybody may read the key.
    std::fs::set_permissions(&good.key, PermissionsExt::from_mode(0o644)).unwrap();
    let message = refused(good.clone());
    assert!(message.contains("chmod 600"), "{message}");
    write(&good.key, &issued.key);
    // A certificate where the authority belongs.
    let swapped = Files {
        ca: good.certificate.clone(),
        ..good.clone()
    };
    assert!(refused(swapped).contains("no authority's certificate"));
    let none = Files {
        certificate: "/nonexistent/x.crt".into(),
        ..good.clone()
    };
    assert!(refused(none).contains("`rdmesh certs`"));
    let endless = Files {
        certificate: "/dev/zero".into(),
        ..good.clone()
    };
    assert!(refused(endless).contains("is it the right file"));
    // An authority is nobody.
    let (_, own) = Authority::create("b", now(), 3).unwrap();
    assert!(refused(site.keep("x", &own)).contains("names no identity"));
    // Its time is over, or has not come.
    for (from, to, words) in [(-20, -10, "has expired"), (10, 20, "is not valid yet")] {
        let mut request = Request::new(Role::Agent, "gpu-1", now(), 7).unwrap();
        (request.not_before, request.not_after) = (now() + from, now() + to);
        let issued = site.authority.issue(&request, now()).unwrap();
        let message = refused(site.keep("timed", &issued));
        assert!(message.contains(words), "{message}");
    }
}

#[test]
fn an_inspection_tells_each_thing_that_is_wrong_and_not_the_first_alone() {
    let site = Site::new("a");
    let files = site.keep("gpu-1", &site.issue(Role::Agent, "gpu-1"));
    let good = inspect(&files, now());
    assert_eq!(
        good.peer.unwrap().identity.to_string(),
        "rdmesh://a/agent/gpu-1"
    );
    assert_eq!((good.key, good.chain), (Ok(()), Ok(())));
    assert_eq!(good.authorities.unwrap().len(), 1);
    // Expired, another's key, and of an authority that is not believed.
    let other = Site::new("a");
    let mut request = Request::new(Role::Agent, "gpu-1", now(), 7).unwrap();
    (request.not_before, request.not_after) = (now() - 20, now() - 10);
    let expired = other.authority.issue(&request, now()).unwrap();
    write(&files.certificate, &expired.certificate);
    let bad = inspect(&files, now());
    assert!(bad.own.unwrap().not_after < now());
    let why = bad.key.unwrap_err();
    assert!(why.contains("not replaced together"), "{why}");
    let why = bad.chain.unwrap_err();
    assert!(why.contains("no authority in"), "{why}");
    // Its own authority issued it, although its time is over.
    write(&files.ca, &other.ca);
    write(&files.key, &expired.key);
    let expired = inspect(&files, now());
    assert_eq!((expired.key, expired.chain), (Ok(()), Ok(())));
    // Nothing there, and garbage: sentences, nothing else.
    write(&files.ca, "garbage");
    std::fs::remove_file(&files.key).unwrap();
    std::fs::remove_file(&files.certificate).unwrap();
    let none = inspect(&files, now());
    assert!(none.own.is_err() && none.peer.is_err() && none.authorities.is_err());
    assert!(none.key.unwrap_err().contains("gpu-1.key"));
    assert!(none.chain.unwrap_err().contains("ca.crt"));
}

#[test]
fn an_authority_is_read_back_and_issues_within_bounds() {
    let (made, files) = Authority::create("site-a", now(), 30).unwrap();
    let authority = Authority::open(&files.certificate, &files.key).unwrap();
    assert_eq!(authority.site(), made.site());
    let refused = |change: &dyn Fn(&mut Request)| {
        let mut request = Request::new(Role::Agent, "gpu-1", now(), 7).unwrap();
        change(&mut request);
        let issued = authority.issue(&request, now());
        issued.map(drop).unwrap_err().to_string()
    };
    assert!(refused(&|r| r.name = "../../etc/passwd".into()).contains("no name"));
    assert!(refused(&|r| r.name = String::new()).contains("no name"));
    assert!(refused(&|r| r.also_for = vec!["a b".into()]).contains("no name"));
    assert!(refused(&|r| r.addresses = vec!["a b".into()]).contains("neither a name of DNS"));
    assert!(refused(&|r| r.not_after = now() + 40 * 86_400).contains("--days 30"));
    assert!(
        refused(&|r| {
            r.role = Role::Reader;
            r.also_for = vec!["b".into()];
        })
        .contains("only an agent")
    );
    for days in [0, 10_000] {
        assert!(Request::new(Role::Agent, "a", now(), days).is_err());
        assert!(Authority::create("a", now(), days).is_err());
    }
    assert!(Authority::create("a/b", now(), 3).is_err());
    // Another one's key, and what is no authority.
    let (_, other) = Authority::create("site-a", now(), 30).unwrap();
    let message = Authority::open(&files.certificate, &other.key).unwrap_err();
    assert!(message.to_string().contains("not that of the certificate"));
    let request = Request::new(Role::Agent, "gpu-1", now(), 7).unwrap();
    let leaf = authority.issue(&request, now()).unwrap();
    assert!(Authority::open(&leaf.certificate, &leaf.key).is_err());
    assert!(Authority::open("", "").is_err());
    let shown = format!("{leaf:?}");
    assert!(!shown.contains("PRIVATE"), "{shown}");
}
