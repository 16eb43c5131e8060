//! What it costs to make the snapshot's values from a view, and to write them as JSON or as the status
//! page.
//!
//! `scripts/bench --bench snapshot`. Wall time of one snapshot on average, with details: of keys
//! held by one session or by many, and of chains. Target: making the values costs less than writing
//! them does, and a page is made in less time than lies between two polls.

#![expect(clippy::print_stdout, reason = "the numbers are for the terminal")]
#![expect(clippy::disallowed_methods, reason = "a benchmark measures time")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use pg_locks_exporter::config::{Limits, Thresholds};
use pg_locks_exporter::fold::Fold;
use pg_locks_exporter::key::Key;
use pg_locks_exporter::mode::Mode;
use pg_locks_exporter::page::{Query, Site, render_page};
use pg_locks_exporter::registry::Registry;
use pg_locks_exporter::sample::{
    Backend, DatabaseOid, KeyGroup, Pid, Sample, State, VirtualTransaction,
};
use pg_locks_exporter::snapshot::{Server, Snapshot, render_snapshot};
use pg_locks_exporter::timestamp::Timestamp;
use pg_locks_exporter::view::View;

const ROUNDS: u32 = 10;

fn main() {
    let many = |sessions: u32, keys: u32| {
        (0..sessions).map(move |pid| group(pid, true, pid * keys..(pid + 1) * keys)).collect()
    };
    case("10,000 keys of one session", many(1, 10_000));
    case("10,000 keys of 1,000 sessions", many(1_000, 10));
    case("100,000 keys of one session", many(1, 100_000));
    case("100,000 keys of 1,000 sessions", many(1_000, 100));
    let waits = (1..1_001).map(|pid| group(pid, false, 0..1));
    case("1,000 waiters for one key", std::iter::once(group(0, true, 0..1)).chain(waits).collect());
    let links = (0..1_000)
        .flat_map(|pid| [group(pid, true, pid..pid + 1), group(pid + 1, false, pid..pid + 1)]);
    case("a chain of 1,000", links.collect());
}

fn case(what: &str, advisory: Vec<KeyGroup>) {
    let (poll, view) = view(advisory);
    let now = Timestamp::from_unix_micros(1_000_000_000);
    let values = measure(|| Server::of(&view, now, true));
    let snapshot = Snapshot::of([&view], now, true);
    let json = measure(|| render_snapshot(&snapshot));
    let site = Site { telemetry_path: "/metrics", details: true, now };
    let query = Query::default();
    let page = measure(|| render_page(&snapshot, &query, site));
    println!(
        "{what:<34} values {:>8.3} ms, JSON {:>8.3} ms, page {:>8.3} ms, beside {:>8.3} ms for the poll",
        values.as_secs_f64() * 1e3,
        json.as_secs_f64() * 1e3,
        page.as_secs_f64() * 1e3,
        poll.as_secs_f64() * 1e3,
    );
}

fn measure<T>(mut make: impl FnMut() -> T) -> Duration {
    // The first one warms up.
    drop(make());
    let start = Instant::now();
    (0..ROUNDS).for_each(|_| drop(make()));
    start.elapsed() / ROUNDS
}

fn view(advisory: Vec<KeyGroup>) -> (Duration, View) {
    let limits =
        Limits { keys: 100, applications: 100, databases: 10, registered_keys: 10, values: 10 };
    let registry = Arc::new(Registry::empty());
    let server: Arc<str> = "bench".into();
    let mut fold =
        Fold::new(server.clone(), registry, Arc::default(), &limits, Thresholds::default());
    let backends = (0..1_001).map(backend).collect();
    let at = Timestamp::from_unix_micros(1_000_000_000);
    let sample = Sample {
        at,
        at_local: at,
        round_trip: Duration::ZERO,
        read_at: at,
        own_pid: Pid(999_999),
        in_recovery: false,
        advisory,
        other_locks: Vec::new(),
        backends: Some(backends),
        prepared: None,
        table_entries: None,
    };
    let start = Instant::now();
    let picture = fold.observe(&sample, Duration::from_secs(1));
    (start.elapsed(), View { server, picture: Some(picture), ..View::default() })
}

fn group(pid: u32, granted: bool, keys: std::ops::Range<u32>) -> KeyGroup {
    KeyGroup {
        database: DatabaseOid(5),
        pid: Some(Pid(pid.cast_signed())),
        transaction: VirtualTransaction::from_server(&format!("{pid}/1")),
        mode: Mode::Exclusive,
        granted,
        wait_start: (!granted).then(|| Timestamp::from_unix_micros(990_000_000 + i64::from(pid))),
        keys: keys.map(|number| Key::bigint(number.into())).collect(),
    }
}

fn backend(pid: u32) -> Backend {
    Backend {
        pid: Pid(pid.cast_signed()),
        database: Some(DatabaseOid(5)),
        role: None,
        application_name: Some(format!("pod-{pid}").into()),
        state: State::Idle,
        state_change: Some(Timestamp::from_unix_micros(900_000_000)),
        wait_event: Some("Client/ClientRead".into()),
        backend_start: Some(Timestamp::from_unix_micros(800_000_000)),
        client_addr: Some([10, 0, 0, 7].into()),
        client_port: Some(4711),
        snapshot_age: None,
        backend_type: Some("client backend".into()),
        leader: None,
    }
}
