//! What it costs to make rows of a picture and to draw them, however many there are.
//!
//! `scripts/bench --bench top`. Processor time of one call on average. Target: a redraw in under
//! 16 ms at 10,000 rows, so that a key is answered within the picture that follows it.

#![expect(clippy::print_stdout, reason = "the numbers are for the terminal")]

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use pg_locks_exporter::key::Key;
use pg_locks_exporter::sample::Pid;
use pg_locks_exporter::snapshot::{Lock, Server, parse_snapshot};
use pg_locks_exporter::table::column::{Column, Sort, ViewKind};
use pg_locks_exporter::table::filter::Filter;
use pg_locks_exporter::table::list;
use pg_locks_exporter::timestamp::Timestamp;
use pg_locks_exporter::top::app::{App, Options};
use pg_locks_exporter::top::input::{Action, Motion};
use pg_locks_exporter::top::screen::Plan;
use pg_locks_exporter::top::source::{Alone, Origin, Watched};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

const ROUNDS: u32 = 10;
const AREA: Rect = Rect { x: 0, y: 0, width: 200, height: 50 };

/// A picture of a server with so many of some locks.
type Scene = (&'static str, fn(i32) -> Vec<Lock>);

fn main() {
    let scenes: [Scene; 3] = [
        ("keys that all differ", differing),
        ("keys that say the same", alike),
        ("waiters of one key", queue),
    ];
    println!(
        "{:<44} {:>8} {:>8} {:>8} {:>8} {:>8}",
        "", "rows", "filtered", "by name", "drawn", "the end"
    );
    for (name, locks) in scenes {
        for count in [100, 10_000, 100_000] {
            for kind in ViewKind::ALL {
                case(&format!("{count} {name}, {}", kind.title()), kind, locks(count));
            }
        }
    }
}

fn case(name: &str, kind: ViewKind, locks: Vec<Lock>) {
    let all = [watched(locks)];
    let rows = |filter: &Filter, sort| {
        time(|| drop(list::rows(kind, &all, filter, sort, &HashSet::new())))
    };
    let every = Filter::default();
    let worst = rows(&every, Sort::default());
    let filtered = rows(&Filter::parse("billing !nowhere"), Sort::default());
    let by_name = rows(&every, Sort::by(Column::Application));

    let mut app = App::new(Options {
        kind,
        sort: Sort::default(),
        filter: every,
        interval: Duration::from_secs(1),
        may_act: false,
        shows_queries: false,
        is_colored: true,
        is_ascii: false,
    });
    app.observe(all.to_vec());
    // Keys that say the same are rows of their own then.
    app.apply(Action::Unfold);
    let drawn = draw(&mut app);
    app.apply(Action::Move(Motion::Last));
    let at_the_end = draw(&mut app);
    let milliseconds =
        [worst, filtered, by_name, drawn, at_the_end].map(|one| one.as_secs_f64() * 1e3);
    let [worst, filtered, by_name, drawn, at_the_end] = milliseconds;
    println!(
        "{name:<44} {worst:>8.2} {filtered:>8.2} {by_name:>8.2} {drawn:>8.2} {at_the_end:>8.2} ms"
    );
}

/// As the loop does it.
fn draw(app: &mut App) -> Duration {
    let now = Timestamp::from_unix_micros(1_000_000);
    let mut buffer = Buffer::empty(AREA);
    time(|| {
        let plan = Plan::of(app, now, AREA);
        app.observe_measure(plan.measure(app));
        plan.render(app, &mut buffer);
    })
}

fn watched(locks: Vec<Lock>) -> Watched {
    let json = br#"{ "schema": 1, "servers": [{ "server": "orders-1", "up": true }] }"#;
    let mut snapshot = parse_snapshot(json).expect("a snapshot");
    let server = Server { locks: Some(locks), ..snapshot.servers.remove(0) };
    Watched {
        server: Arc::new(server),
        origin: Origin::Own(Alone::NotWanted),
        received_at: Timestamp::from_unix_micros(0),
        lost: None,
        interval: Duration::from_secs(1),
    }
}

/// A key with a holder and a waiter.
fn pattern() -> Lock {
    let json = br#"{ "schema": 1, "servers": [{ "server": "a", "up": true, "locks": [{
        "datname": "app", "key": { "classid": 0, "objid": 1, "objsubid": 1 },
        "holders": [{ "pid": 1, "application_name": "billing-worker", "mode": "exclusive",
            "first_application_name": "billing-worker", "state": "idle in transaction",
            "seen_for_seconds": 12.0 }],
        "waiters": [{ "pid": 2, "application_name": "billing-worker", "mode": "exclusive",
            "state": "active", "waited_seconds": 4.0, "blocked_by": [{ "pid": 1, "kind": "hard" }],
            "blocked_by_count": 1, "roots": [{ "pid": 1 }], "roots_count": 1 }]
    }] }] }"#;
    let mut snapshot = parse_snapshot(json).expect("a snapshot");
    snapshot.servers.remove(0).locks.expect("its locks").remove(0)
}

fn alike(count: i32) -> Vec<Lock> {
    let one = Lock { waiters: Vec::new(), ..pattern() };
    (0..count).map(|number| Lock { key: Key::bigint(number.into()), ..one.clone() }).collect()
}

/// Each with a holder and a waiter of its own.
fn differing(count: i32) -> Vec<Lock> {
    let numbered = |number: i32| {
        let mut lock = Lock {
            key: Key::bigint(number.into()),
            lock: Some(format!("lock-{number}").into()),
            ..pattern()
        };
        lock.holders[0].pid = Some(Pid(2 * number));
        lock.waiters[0].pid = Some(Pid(2 * number + 1));
        lock.waiters[0].blocked_by[0].pid = Some(Pid(2 * number));
        lock.waiters[0].waited_seconds = Some(f64::from(number % 97));
        lock
    };
    (0..count).map(numbered).collect()
}

fn queue(count: i32) -> Vec<Lock> {
    let mut lock = pattern();
    let one = lock.waiters.remove(0);
    lock.waiters.extend((2..count + 2).map(|pid| {
        let mut waiter = one.clone();
        waiter.pid = Some(Pid(pid));
        waiter
    }));
    vec![lock]
}

/// Of one call, on average.
fn time(mut call: impl FnMut()) -> Duration {
    let began = processor_time();
    for _ in 0..ROUNDS {
        call();
    }
    processor_time().saturating_sub(began) / ROUNDS
}

/// What this process, which has one thread, has had of the processor.
fn processor_time() -> Duration {
    let status = std::fs::read_to_string("/proc/self/schedstat").unwrap_or_default();
    let nanoseconds = status.split(' ').next().and_then(|word| word.parse().ok());
    Duration::from_nanos(nanoseconds.unwrap_or(0))
}
