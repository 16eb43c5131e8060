use std::ops::RangeInclusive;
use std::time::Duration;

use super::*;
use crate::blocking::Chains;
use crate::config::Limits;
use crate::key::Key;
use crate::registry::{Circumstances, Registry, Resolver};
use crate::sample::{DatabaseOid, Names, VirtualTransaction};
use crate::series::SeriesSet;

const APP: DatabaseOid = DatabaseOid(16_384);

/// Polls, folded as far as orders need it.
#[derive(Default)]
struct Polls {
    tracker: Tracker,
    picture: Option<Picture>,
    orders: Orders,
}

/// What a session holds, and what it waits for.
struct Row {
    pid: i32,
    held: Vec<i64>,
    awaited: i64,
}

impl Polls {
    fn observe(&mut self, seconds: i64, rows: &[Row]) {
        let sample = sample(seconds, rows);
        let changes = self.tracker.observe(&sample, |_| None);
        let chains = Chains::of(&sample, &self.tracker);
        let limits =
            Limits { keys: 1, applications: 1, databases: 1, registered_keys: 1, values: 1 };
        let mut series = SeriesSet::new(Arc::default(), &limits);
        let registry = Arc::new(Registry::empty());
        let resolver = Resolver::new(registry, "orders-1".into(), &Circumstances::default());
        let names = Names::default();
        series.observe_labels(&sample, &self.tracker, &chains, &names, &resolver);
        let picture = Picture::draw(&sample, &self.tracker, chains, &names, &series);
        self.orders.observe(Scene {
            sample: &sample,
            tracker: &self.tracker,
            changes: &changes,
            picture: &picture,
            before: self.picture.as_ref(),
        });
        self.picture = Some(picture);
    }

    fn has(&self, held: i64, taken: i64) -> bool {
        self.orders.edges.contains_key(&(id(held), id(taken)))
    }
}

fn id(key: i64) -> KeyId {
    KeyId { database: APP, key: Key::bigint(key) }
}

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_unix_micros(seconds * 1_000_000)
}

fn sample(seconds: i64, rows: &[Row]) -> Sample {
    let group = |row: &Row, granted, keys: &[i64]| KeyGroup {
        database: APP,
        pid: Some(Pid(row.pid)),
        transaction: VirtualTransaction::from_server("4/9"),
        mode: Mode::Exclusive,
        granted,
        wait_start: (!granted).then_some(at(seconds)),
        keys: keys.iter().map(|key| Key::bigint(*key)).collect(),
    };
    let groups = |row| [group(row, true, &row.held), group(row, false, &[row.awaited])];
    Sample {
        at: at(seconds),
        at_local: at(seconds),
        round_trip: Duration::ZERO,
        read_at: at(seconds),
        own_pid: Pid(1),
        in_recovery: false,
        advisory: rows.iter().flat_map(groups).collect(),
        other_locks: Vec::new(),
        backends: Some(Vec::new()),
        prepared: Some(Vec::new()),
        table_entries: None,
    }
}

/// Sessions that hold 64 keys each, all of their own, and wait for one.
fn crowd(sessions: RangeInclusive<i32>) -> Vec<Row> {
    sessions
        .map(|pid| {
            let first = 1_000_000 + i64::from(pid) * 1000;
            Row { pid, held: (first..first + 64).collect(), awaited: first + 999 }
        })
        .collect()
}

#[test]
fn of_a_session_with_many_keys_those_that_were_awaited_come_first() {
    // Many more keys than were ever awaited, and fewer.
    for awaited in [1, 500] {
        let mut polls = Polls::default();
        let waits = |pid| Row { pid, held: Vec::new(), awaited: 900 + i64::from(pid) };
        let mut waiters: Vec<Row> = (1000..1000 + awaited).map(waits).collect();
        waiters.push(Row { pid: 7, held: Vec::new(), awaited: 65 });
        polls.observe(1, &waiters);
        assert!(polls.orders.is_empty(), "who holds nothing makes no order");
        polls.observe(2, &[Row { pid: 8, held: (1..=65).collect(), awaited: 77 }]);
        assert_eq!(polls.orders.len(), KEYS_OF_A_SESSION);
        assert!(polls.has(65, 77), "{awaited}");
    }
}

#[test]
fn what_was_not_seen_for_longest_is_forgotten_first() {
    let mut polls = Polls::default();
    let pair = |pid| Row { pid, held: vec![1], awaited: i64::from(pid) };
    polls.observe(1, &[pair(2)]);
    polls.observe(2, &[pair(3)]);
    // 9,984 in all, with 14 that are left.
    polls.observe(3, &crowd(1..=156));
    for pid in 4..=17 {
        polls.observe(10 + i64::from(pid), &[pair(pid)]);
    }
    assert_eq!(polls.orders.len(), EDGES);
    assert!(polls.has(1, 2));
    polls.observe(50, &[pair(2)]);
    polls.observe(51, &[pair(18)]);
    assert_eq!(polls.orders.len(), EDGES);
    assert!(polls.has(1, 18) && polls.has(1, 2) && !polls.has(1, 3) && polls.has(1, 4));
}

#[test]
fn more_orders_than_can_be_kept_leave_those_that_are_there() {
    let mut polls = Polls::default();
    polls.observe(1, &crowd(1..=10));
    polls.observe(2, &crowd(1..=160));
    assert_eq!(polls.orders.len(), EDGES);
    for row in crowd(1..=10) {
        assert!(row.held.iter().all(|held| polls.has(*held, row.awaited)));
    }
    let awaited = (0..10_100).map(|pid| Row { pid, held: Vec::new(), awaited: pid.into() });
    polls.observe(3, &awaited.collect::<Vec<_>>());
    assert_eq!(polls.orders.awaited.len(), EDGES);
}

#[test]
fn an_order_is_forgotten_in_the_end() {
    let mut polls = Polls::default();
    polls.observe(0, &[Row { pid: 7, held: vec![1, 2], awaited: 3 }]);
    polls.observe(48 * 3600, &[]);
    assert_eq!(polls.orders.len(), 2);
    polls.observe(48 * 3600 + 1, &[]);
    assert!(polls.orders.is_empty() && polls.orders.awaited.is_empty());
}
