//! How often a poll and a scrape ask for memory, which no clock and no busy machine changes: a check
//! that neither begins to cost more without anybody noticing. `benches/fold.rs` tells the time.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use pg_locks_exporter::config::{Limits, Thresholds};
use pg_locks_exporter::fold::Fold;
use pg_locks_exporter::key::Key;
use pg_locks_exporter::metrics::exposition::{Format, render_families};
use pg_locks_exporter::metrics::{Process, collect_families};
use pg_locks_exporter::mode::Mode;
use pg_locks_exporter::registry::Registry;
use pg_locks_exporter::sample::{
    Backend, DatabaseName, DatabaseOid, KeyGroup, Names, Pid, Sample, State, VirtualTransaction,
};
use pg_locks_exporter::timestamp::Timestamp;
use pg_locks_exporter::view::View;

#[global_allocator]
static ALLOCATOR: dhat::Alloc = dhat::Alloc;

/// There is one account of the whole process.
static TURN: Mutex<()> = Mutex::new(());

const APP: DatabaseOid = DatabaseOid(16_384);
const SESSIONS: u32 = 50;

struct Bench {
    registry: Arc<Registry>,
    fold: Fold,
    view: View,
    polls: u32,
}

impl Bench {
    fn new() -> Self {
        let limits = Limits {
            keys: 100,
            applications: 100,
            databases: 500,
            registered_keys: 10_000,
            values: 1_000_000,
        };
        let registry = Arc::new(Registry::empty());
        let rules = Arc::default();
        let mut fold =
            Fold::new("db-1".into(), registry.clone(), rules, &limits, Thresholds::default());
        let app = DatabaseName { name: "app".into(), encoding: "UTF8".into() };
        fold.observe_names(Names { databases: [(APP, app)].into(), ..Names::default() });
        let view = View { server: "db-1".into(), ..View::default() };
        Self { registry, fold, view, polls: 0 }
    }

    fn poll(&mut self, sample: &Sample) {
        self.view.picture = Some(self.fold.observe(sample, Duration::from_secs(2)));
        self.fold.fill(&mut self.view);
    }

    /// The same locks, a second later.
    fn sample(&mut self, locks: u32) -> Sample {
        self.polls += 1;
        let at = Timestamp::from_unix_micros(1_000_000_000 + i64::from(self.polls) * 1_000_000);
        Sample {
            at,
            at_local: at,
            round_trip: Duration::ZERO,
            read_at: at,
            own_pid: Pid(-1),
            in_recovery: false,
            advisory: (0..SESSIONS)
                .map(|pid| group(pid, pid * locks / SESSIONS..(pid + 1) * locks / SESSIONS))
                .collect(),
            other_locks: Vec::new(),
            backends: Some((0..SESSIONS).map(backend).collect()),
            prepared: Some(Vec::new()),
            table_entries: None,
        }
    }

    fn scrape(&self) -> String {
        let now = self.view.picture.as_ref().expect("it was polled").at;
        let process = Process {
            registry: &self.registry,
            registry_read_at: now,
            registry_is_current: true,
            config: None,
        };
        render_families(&collect_families(process, [&self.view], now), Format::Text).text
    }
}

fn group(pid: u32, keys: std::ops::Range<u32>) -> KeyGroup {
    KeyGroup {
        database: APP,
        pid: Some(Pid(pid.cast_signed())),
        transaction: VirtualTransaction::from_server(&format!("{pid}/0")),
        mode: Mode::Exclusive,
        granted: true,
        wait_start: None,
        keys: keys.map(|number| Key::bigint(number.into())).collect(),
    }
}

fn backend(pid: u32) -> Backend {
    Backend {
        pid: Pid(pid.cast_signed()),
        database: Some(APP),
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

/// How often memory was asked for, and how much of it.
fn count(work: impl FnOnce()) -> (u64, u64) {
    let before = dhat::HeapStats::get();
    work();
    let after = dhat::HeapStats::get();
    (after.total_blocks - before.total_blocks, after.total_bytes - before.total_bytes)
}

#[test]
fn a_poll_of_ten_thousand_locks_asks_for_memory_no_more_often_than_before() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let _profiler = dhat::Profiler::builder().testing().build();
    let mut bench = Bench::new();
    for _ in 0..15 {
        let sample = bench.sample(10_000);
        bench.poll(&sample);
    }
    let sample = bench.sample(10_000);
    let (times, bytes) = count(|| bench.poll(&sample));
    // One for each lock, since a lock has a list of holders, and few beside.
    assert!(times <= 11_500, "{times} times");
    assert!(bytes <= 6_200_000, "{bytes} bytes");
}

#[test]
fn a_scrape_of_ten_thousand_locks_asks_for_memory_no_more_often_than_before() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let _profiler = dhat::Profiler::builder().testing().build();
    let mut bench = Bench::new();
    for _ in 0..15 {
        let sample = bench.sample(10_000);
        bench.poll(&sample);
    }
    let mut length = 0;
    let (times, bytes) = count(|| length = bench.scrape().len());
    assert!(times <= 31_000, "{times} times for {length} bytes");
    assert!(bytes <= 2_250_000, "{bytes} bytes for {length}");
}
