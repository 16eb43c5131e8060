//! What it costs at each poll to see in which order keys are taken, beside everything else that a
//! poll is folded into.
//!
//! `scripts/bench --bench order`. Processor time of one poll on average, of polls that follow each
//! other a second apart. Targets: a session with 100,000 keys that waits for one costs next to
//! nothing, and no case costs more than the rest of its poll.

#![expect(clippy::print_stdout, reason = "the numbers are for the terminal")]

use std::sync::Arc;
use std::time::Duration;

use pg_locks_exporter::blocking::Chains;
use pg_locks_exporter::config::{Applications, Limits};
use pg_locks_exporter::key::Key;
use pg_locks_exporter::mode::Mode;
use pg_locks_exporter::order::{Orders, Scene};
use pg_locks_exporter::registry::{Circumstances, Registry, Resolver};
use pg_locks_exporter::sample::{DatabaseOid, KeyGroup, Names, Pid, Sample, VirtualTransaction};
use pg_locks_exporter::series::SeriesSet;
use pg_locks_exporter::timestamp::Timestamp;
use pg_locks_exporter::tracker::Tracker;
use pg_locks_exporter::view::Picture;

const POLLS: u32 = 20;

fn main() {
    let case = |what: &str, groups: &dyn Fn(u32) -> Vec<KeyGroup>| {
        let (order, rest, orders, inversions) = measure(groups);
        println!(
            "{what:<74} {:>7.3} ms beside {:>7.2} ms, {orders:>6} orders, {inversions:>4} inversions",
            order.as_secs_f64() * 1e3,
            rest.as_secs_f64() * 1e3,
        );
    };
    let held = |sessions: u32| {
        (0..sessions).map(|pid| group(pid, true, keys(pid * 10..pid * 10 + 10))).collect::<Vec<_>>()
    };
    case("1,000 sessions with 10 keys each, nobody waits", &|_| held(1_000));
    case("the same, and each waits for a key of the next", &|_| {
        let waits =
            |pid| group(pid, false, keys((pid + 1) % 1_000 * 10..(pid + 1) % 1_000 * 10 + 1));
        held(1_000).into_iter().chain((0..1_000).map(waits)).collect()
    });
    case("the same, and at each poll each waits anew, for another", &|poll| {
        let key = |pid| (pid + 1 + poll) % 1_000 * 10 + poll % 10;
        let waits = |pid| group(pid, false, keys(key(pid)..key(pid) + 1));
        held(1_000).into_iter().chain((0..1_000).map(waits)).collect()
    });
    case("200 pairs of sessions wait for each other, with 5 keys each", &|_| {
        let held = (0..400).map(|pid| group(pid, true, keys(pid * 10..pid * 10 + 5)));
        let waits = (0..400).map(|pid| group(pid, false, keys((pid ^ 1) * 10..(pid ^ 1) * 10 + 1)));
        held.chain(waits).collect()
    });
    let many = || group(1, true, keys(0..100_000));
    case("a session with 100,000 keys, nobody waits", &|_| vec![many()]);
    case("a session with 100,000 keys waits for one", &|_| {
        vec![
            many(),
            group(1, false, keys(200_000..200_001)),
            group(2, true, keys(200_000..200_001)),
        ]
    });
    case("the same, and 1,000 sessions wait for a key of it each", &|_| {
        let waits = (10..1_010).map(|pid| group(pid, false, keys(pid * 7..pid * 7 + 1)));
        let first = [many(), group(1, false, keys(200_000..200_001))];
        first.into_iter().chain(waits).collect()
    });
    case("100,000 keys, 100 more at each poll, and 100 sessions wait for a key of it", &|poll| {
        let waits = (10..110).map(|pid| group(pid, false, keys(pid * 7..pid * 7 + 1)));
        let all = group(1, true, keys(0..100_000 + poll * 100));
        std::iter::once(all).chain(waits).collect()
    });
}

fn keys(numbers: std::ops::Range<u32>) -> Vec<Key> {
    numbers.map(|number| Key::bigint(number.into())).collect()
}

fn group(pid: u32, granted: bool, keys: Vec<Key>) -> KeyGroup {
    KeyGroup {
        database: DatabaseOid(16_384),
        pid: Some(Pid(i32::try_from(pid).expect("a small number"))),
        transaction: VirtualTransaction::from_server(&format!("{pid}/7")),
        mode: Mode::Exclusive,
        granted,
        wait_start: (!granted).then_some(Timestamp::from_unix_micros(0)),
        keys,
    }
}

/// The time of one poll for its orders, and for all that comes before; what there was to see.
fn measure(groups: &dyn Fn(u32) -> Vec<KeyGroup>) -> (Duration, Duration, usize, usize) {
    let limits = Limits {
        keys: 100,
        applications: 100,
        databases: 100,
        registered_keys: 10_000,
        values: 1_000_000,
    };
    let (mut tracker, mut orders) = (Tracker::default(), Orders::default());
    let mut series = SeriesSet::new(Arc::new(Applications::new(Vec::new())), &limits);
    let registry = Arc::new(Registry::empty());
    let resolver = Resolver::new(registry, "db-1".into(), &Circumstances::default());
    let names = Names::default();
    let mut before: Option<Picture> = None;
    let (mut of_orders, mut of_rest, mut inversions) = (Duration::ZERO, Duration::ZERO, 0);
    for poll in 0..=POLLS {
        let sample = sample(poll, groups(poll));
        let began = processor_time();
        let changes = tracker.observe(&sample, |_| None);
        let chains = Chains::of(&sample, &tracker);
        series.observe_labels(&sample, &tracker, &chains, &names, &resolver);
        let mut picture = Picture::draw(&sample, &tracker, chains, &names, &series);
        let drawn = processor_time();
        orders.observe(Scene {
            sample: &sample,
            tracker: &tracker,
            changes: &changes,
            picture: &picture,
            before: before.as_ref(),
        });
        let labels = |keys: &[_]| series.labels_of(keys, &names, &resolver);
        picture.inversions = orders.inversions(picture.at_local, labels);
        // The first poll finds everything new.
        if poll > 0 {
            of_orders += processor_time().saturating_sub(drawn);
            of_rest += drawn.saturating_sub(began);
        }
        inversions = picture.inversions.len();
        before = Some(picture);
    }
    (of_orders / POLLS, of_rest / POLLS, orders.len(), inversions)
}

/// What this process, which has one thread, has had of the processor.
fn processor_time() -> Duration {
    let status = std::fs::read_to_string("/proc/self/schedstat").unwrap_or_default();
    let nanoseconds = status.split(' ').next().and_then(|word| word.parse().ok());
    Duration::from_nanos(nanoseconds.unwrap_or(0))
}

fn sample(poll: u32, advisory: Vec<KeyGroup>) -> Sample {
    let at = Timestamp::from_unix_micros(i64::from(poll + 1) * 1_000_000);
    Sample {
        at,
        at_local: at,
        round_trip: Duration::ZERO,
        read_at: at,
        own_pid: Pid(-1),
        in_recovery: false,
        advisory,
        other_locks: Vec::new(),
        backends: Some(Vec::new()),
        prepared: Some(Vec::new()),
        table_entries: None,
    }
}
