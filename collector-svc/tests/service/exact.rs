//! Snapshots are kept as they came.

use std::time::Duration;

use prost::Message;
use rdmesh_collector::ingest::restore;
use rdmesh_proto::collector::v1::report_request::Item;
use rdmesh_store::{Store, StoreOptions};
use uuid::Uuid;

use crate::made::Host;
use crate::running::{Running, cluster};

#[tokio::test]
async fn a_snapshot_comes_back_as_it_was_sent_also_where_it_is_kept_against_another_one() {
    let collector = Running::start().await;
    let host = Host::new("gpu-01");
    let mut agent = collector.agent(host.hello()).await;
    let mut sent = Vec::new();
    for sequence in 1..=6 {
        let mut snapshot = host.snapshot(&format!("{sequence}"));
        // As tracers' are: more texts than a frame takes to say that there is a reference.
        snapshot.strings.push(vec![b'f'; 200]);
        sent.push(snapshot.encode_to_vec());
        agent.send(sequence, Item::Snapshot(snapshot)).await;
        agent.acknowledged(sequence).await;
    }
    let store = Store::new(&StoreOptions {
        url: cluster().url(&collector.database),
        connections: 1,
        acquire_timeout: Duration::from_secs(20),
    })
    .unwrap();
    let run_id: Uuid = host.run_id.parse().unwrap();
    let mut against = 0;
    for (sequence, sent) in (1..).zip(&sent) {
        let kept = store.exact_snapshot("gpu-01", run_id, sequence).await;
        let kept = kept.unwrap().unwrap();
        against += usize::from(kept.reference.is_some());
        let restored = restore(&kept.body, kept.reference.as_deref()).unwrap();
        assert_eq!(&restored, sent, "{sequence}");
        if let Some(reference) = &kept.reference {
            assert!(kept.body.len() < reference.len());
            // Not without it.
            assert_ne!(restore(&kept.body, None).as_ref(), Ok(sent));
        }
    }
    assert_eq!(against, 5);
    let none = store.exact_snapshot("gpu-01", run_id, 7).await.unwrap();
    assert_eq!(none, None);
}
