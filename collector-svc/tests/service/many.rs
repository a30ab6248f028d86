//! A hundred thousand failures: listed page by page, in bounded memory and messages.

use prost::Message;
use rdmesh_proto::collector::v1::{DiagnoseRequest, ListFailuresRequest};

use crate::running::{Running, cluster};

/// What gRPC clients take unless told otherwise.
const CLIENT_MAX_BYTES: usize = 4 << 20;

/// Rows of `failures` by number, each in a group of its own: `width` is the length of each
/// function's name. A signature of no hour would be forgotten.
fn fill(collector: &Running, rows: u32, steps: u32, width: u32) {
    let sql = format!(
        "INSERT INTO rdmesh_store.signatures \
         VALUES (1, 'rdma_rxe', 2, false, \
                 array_fill(rpad('ib_umem_get', {width}, 'x'), ARRAY[{steps}]), \
                 array_fill('ib_uverbs'::text, ARRAY[{steps}]), \
                 array_fill(1::smallint, ARRAY[{steps}]), array_fill(14, ARRAY[{steps}])); \
         INSERT INTO rdmesh_store.signature_hours \
         VALUES ('gpu-0', date_trunc('hour', now()), 1, 1, now(), now()); \
         INSERT INTO rdmesh_store.devices VALUES (2, 'rxe0', 'eth0', '', now()); \
         INSERT INTO rdmesh_store.failure_groups \
             (host, at, until, run_id, seq, host_ahead_us, job_id, requeue, restart, source, \
              first_ordinal, afters, signature_places, task_places, signatures, tgids, tids, \
              ranks, local_ranks, device_places, cgroup_places, devices, texts) \
         SELECT 'gpu-' || n % 64, at, at, '00000000-0000-0000-0000-000000000001', n, 0, '7', 0, \
                0, 1, 0, '{{0}}', '{{0}}', '{{0}}', '{{1}}', '{{100}}', '{{101}}', '{{0}}', \
                '{{0}}', '{{1}}', '{{1}}', '{{2}}', '{{rank,/job}}' \
         FROM generate_series(1, {rows}) n \
         CROSS JOIN LATERAL (SELECT now() - interval '1 hour' + n * interval '20 ms' AS at) t"
    );
    cluster().psql(&collector.database, "rdmesh", &sql).unwrap();
}

/// The most memory that this process ever held, bytes.
fn peak_bytes() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib: usize = peak.unwrap().trim_end_matches("kB").trim().parse().unwrap();
    kib << 10
}

/// Reads all pages; returns the rows of each.
async fn pages(collector: &Running, page_size: u32) -> Vec<usize> {
    let mut queries = collector.queries();
    let mut request = ListFailuresRequest {
        page_size,
        ..ListFailuresRequest::default()
    };
    let mut sizes = Vec::new();
    let mut last = None;
    loop {
        let page = queries.list_failures(request.clone()).await.unwrap();
        let page = page.into_inner();
        assert!(
            page.encoded_len() < CLIENT_MAX_BYTES,
            "{}",
            page.encoded_len()
        );
        for failure in &page.failures {
            let at = failure.first_at.unwrap();
            let at = (at.seconds, at.nanos);
            assert!(last.is_none_or(|last| at < last), "{at:?} after {last:?}");
            last = Some(at);
        }
        sizes.push(page.failures.len());
        if page.next_page_token.is_empty() {
            return sizes;
        }
        request.page_token = page.next_page_token;
    }
}

#[tokio::test]
async fn a_hundred_thousand_failures_are_listed_each_once_in_bounded_memory() {
    let collector = Running::start().await;
    fill(&collector, 100_000, 3, 11);
    let before = peak_bytes();
    let sizes = pages(&collector, 1_000).await;
    assert_eq!(sizes.len(), 100);
    assert_eq!(sizes.iter().sum::<usize>(), 100_000);
    let grown = peak_bytes() - before;
    assert!(grown < 64 << 20, "{grown} bytes");
    // So many are diagnosed by the first of them, and counted up to a bound.
    let ask = DiagnoseRequest {
        job_id: "7".into(),
        ..DiagnoseRequest::default()
    };
    cluster()
        .psql(
            &collector.database,
            "rdmesh",
            "INSERT INTO rdmesh_store.attempts \
                 (job_id, requeue, restart, told, first_told_at, updated_at) \
             VALUES ('7', 0, 0, false, now(), now())",
        )
        .unwrap();
    let answer = collector.queries().diagnose(ask).await.unwrap();
    let answer = answer.into_inner();
    assert!(answer.encoded_len() < CLIENT_MAX_BYTES);
    let verdict = answer.verdict.unwrap();
    assert_eq!(
        (verdict.failures_looked_at, verdict.failures_total),
        (5_000, 50_000)
    );
}

#[tokio::test]
async fn rows_of_the_longest_texts_make_shorter_pages() {
    let collector = Running::start().await;
    // 64 steps of 4,096 bytes: a quarter of a megabyte each.
    fill(&collector, 100, 64, 4_096);
    let before = peak_bytes();
    let sizes = pages(&collector, 1_000).await;
    assert_eq!(sizes.iter().sum::<usize>(), 100);
    assert!(
        sizes.iter().all(|rows| (1..=12).contains(rows)),
        "{sizes:?}"
    );
    let grown = peak_bytes() - before;
    assert!(grown < 96 << 20, "{grown} bytes");
}
