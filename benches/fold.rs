//! What it costs to fold one poll into the picture: track, relate, name and judge, and to write the
//! scrape of it; and how that grows.
//!
//! `scripts/bench --bench fold`. Processor time of one poll, the median of eleven that follow each other
//! a second apart. Target: from 1,000 locks to 100,000 the time grows with their number to the power of
//! 1.1 at most.

#![expect(clippy::print_stdout, reason = "the numbers are for the terminal")]

use std::sync::Arc;
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

const POLLS: u32 = 11;
const APP: DatabaseOid = DatabaseOid(16_384);

fn main() {
    println!("{:<58} {:>11} {:>11}", "fold, processor time in ms", "poll", "scrape");
    grow("locks of 50 sessions that stay", &[100, 1_000, 10_000, 100_000], |locks, _| {
        (0..50).map(|pid| group(pid, true, pid * locks / 50..(pid + 1) * locks / 50)).collect()
    });
    grow(
        "locks of 50 sessions, a tenth of them new at each poll",
        &[1_000, 10_000, 100_000],
        |locks, poll| {
            let of = |pid: u32| pid * locks / 50..(pid + 1) * locks / 50;
            let is_new = |pid: u32| pid % 10 == poll % 10;
            let shift = |pid| if is_new(pid) { 1_000_000 + poll * 100_000 } else { 0 };
            (0..50)
                .map(|pid| group(pid, true, of(pid).start + shift(pid)..of(pid).end + shift(pid)))
                .collect()
        },
    );
    grow("sessions with a key each", &[1_000, 10_000], |sessions, _| {
        (0..sessions).map(|pid| group(pid, true, pid..pid + 1)).collect()
    });
    grow("waiters for one key", &[100, 1_000, 10_000], |waiters, _| {
        let waits = (1..=waiters).map(|pid| group(pid, false, 0..1));
        std::iter::once(group(0, true, 0..1)).chain(waits).collect()
    });
    grow("links of one chain", &[100, 1_000, 10_000], |links, _| {
        let link = |pid| [group(pid, true, pid..pid + 1), group(pid + 1, false, pid..pid + 1)];
        (0..links).flat_map(link).collect()
    });
}

/// The times for each count, and to which power of it they grow from one to the next.
fn grow(what: &str, counts: &[u32], groups: impl Fn(u32, u32) -> Vec<KeyGroup>) {
    let mut first: Option<(f64, f64)> = None;
    for &count in counts {
        let (poll, scrape) = measure(|poll| groups(count, poll));
        let (size, time) = (f64::from(count), poll.as_secs_f64());
        let exponent = first.map(|(size_before, time_before): (f64, f64)| {
            (time / time_before).ln() / (size / size_before).ln()
        });
        // From 1,000 on, or from what is nearest to it.
        if count <= 1_000 {
            first = Some((size, time));
        }
        let exponent = exponent.map_or(String::new(), |it| format!("  exponent {it:.2}"));
        let what = format!("{count} {what}");
        println!("{what:<58} {:>11.3} {:>11.3}{exponent}", time * 1e3, scrape.as_secs_f64() * 1e3,);
    }
}

fn measure(groups: impl Fn(u32) -> Vec<KeyGroup>) -> (Duration, Duration) {
    let registry = Arc::new(Registry::empty());
    let server: Arc<str> = "bench".into();
    let limits = Limits {
        keys: 100,
        applications: 100,
        databases: 500,
        registered_keys: 10_000,
        values: 1_000_000,
    };
    let mut fold =
        Fold::new(server.clone(), registry.clone(), Arc::default(), &limits, Thresholds::default());
    let app = DatabaseName { name: "app".into(), encoding: "UTF8".into() };
    fold.observe_names(Names { databases: [(APP, app)].into(), ..Names::default() });
    let mut view = View { server, ..View::default() };
    let (mut polls, mut scrapes) = (Vec::new(), Vec::new());
    // The first finds everything new.
    for poll in 0..=POLLS {
        let sample = sample(poll, groups(poll));
        let began = processor_time();
        view.picture = Some(fold.observe(&sample, Duration::from_secs(2)));
        fold.fill(&mut view);
        let drawn = processor_time();
        let process = Process {
            registry: &registry,
            registry_read_at: sample.at,
            registry_is_current: true,
            config: None,
        };
        let families = collect_families(process, [&view], sample.at);
        let exposition = render_families(&families, Format::Text);
        assert!(!exposition.text.is_empty());
        if poll > 0 {
            polls.push(drawn.saturating_sub(began));
            scrapes.push(processor_time().saturating_sub(drawn));
        }
    }
    (median(polls), median(scrapes))
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}

/// What this process, which has one thread, has had of the processor.
fn processor_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.cast_unsigned(), u32::try_from(time.tv_nsec).unwrap_or_default())
}

fn sample(poll: u32, advisory: Vec<KeyGroup>) -> Sample {
    let at = Timestamp::from_unix_micros(1_000_000_000 + i64::from(poll) * 1_000_000);
    let mut pids: Vec<Pid> = advisory.iter().filter_map(|group| group.pid).collect();
    pids.sort_unstable();
    pids.dedup();
    Sample {
        at,
        at_local: at,
        round_trip: Duration::ZERO,
        read_at: at,
        own_pid: Pid(-1),
        in_recovery: false,
        advisory,
        other_locks: Vec::new(),
        backends: Some(pids.into_iter().map(backend).collect()),
        prepared: Some(Vec::new()),
        table_entries: None,
    }
}

fn group(pid: u32, granted: bool, keys: std::ops::Range<u32>) -> KeyGroup {
    KeyGroup {
        database: APP,
        pid: Some(Pid(pid.cast_signed())),
        transaction: VirtualTransaction::from_server(&format!("{pid}/1")),
        mode: Mode::Exclusive,
        granted,
        wait_start: (!granted).then(|| Timestamp::from_unix_micros(990_000_000 + i64::from(pid))),
        keys: keys.map(|number| Key::bigint(number.into())).collect(),
    }
}

fn backend(pid: Pid) -> Backend {
    Backend {
        pid,
        database: Some(APP),
        role: None,
        application_name: Some(format!("pod-{}", pid.0 % 40).into()),
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
