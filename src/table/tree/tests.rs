//! Small pictures of who waits for whom, and the lines that become of them.

use serde_json::{Value, json};

use super::*;
use crate::table::testing;

fn picture(server: &Value) -> Server {
    testing::parse_server(server)
}

fn server(locks: &[Value], other_waits: &[Value], roots: &[Value]) -> Value {
    json!({
        "server": "a", "up": true, "polled_at": "2025-12-01T03:00:00Z",
        "locks": locks, "other_waits": other_waits, "roots": roots,
    })
}

/// As an exporter tells it that knows neither roots nor waits for locks of other types.
fn older(locks: &[Value]) -> Value {
    json!({ "server": "a", "up": true, "polled_at": "2025-12-01T03:00:00Z", "locks": locks })
}

fn lock(number: u32, holders: &[Value], waiters: &[Value]) -> Value {
    let key = json!({ "classid": 0, "objid": number, "objsubid": 1 });
    json!({ "datname": "app", "key": key, "holders": holders, "waiters": waiters })
}

fn holder(pid: i32) -> Value {
    json!({ "pid": pid, "application_name": "h", "state": "idle", "mode": "exclusive",
            "seen_for_seconds": 60.0 })
}

fn hard(pid: i32) -> Value {
    json!({ "pid": pid, "kind": "hard", "certain": true })
}

fn soft(pid: i32, is_certain: bool) -> Value {
    json!({ "pid": pid, "kind": "soft", "certain": is_certain })
}

fn waiter(pid: i32, blocked_by: &[Value]) -> Value {
    json!({ "pid": pid, "application_name": "w", "state": "active", "mode": "exclusive",
            "waited_seconds": 5.0, "blocked_by": blocked_by,
            "blocked_by_count": blocked_by.len() })
}

fn other_wait(pid: i32, blocked_by: &[Value]) -> Value {
    let mut wait = waiter(pid, blocked_by);
    wait["locktype"] = "relation".into();
    wait["target"] = "relation 16402 in app".into();
    wait["mode"] = "AccessShareLock".into();
    wait
}

fn root(pid: i32, blocks: usize) -> Value {
    json!({ "pid": pid, "application_name": "r", "state": "idle", "blocks": blocks })
}

fn circular(pid: i32, blocks: usize) -> Value {
    let mut root = root(pid, blocks);
    root["in_cycle"] = true.into();
    root
}

/// Lines as they are read, with plain guides.
fn text(rows: &[Row], all: &[Server]) -> Vec<String> {
    let text = |row: &Row| {
        let cells: Vec<String> = line(row, all).into_iter().map(|cell| cell.text).collect();
        format!("{}{}", row.branch.as_ref().unwrap().guides(true), cells.join("  "))
    };
    rows.iter().map(text).collect()
}

fn filtered(server: &Value, filter: &str) -> Vec<String> {
    let all = [picture(server)];
    text(&rows(&all, &Filter::parse(filter)), &all)
}

fn shown(server: &Value) -> Vec<String> {
    filtered(server, "")
}

#[test]
fn a_chain_hangs_below_its_root_through_locks_of_every_type() {
    let locks = [
        lock(1, &[holder(10)], &[waiter(11, &[hard(10)])]),
        lock(2, &[holder(12)], &[waiter(13, &[hard(12)])]),
    ];
    let chain = server(&locks, &[other_wait(12, &[hard(11)])], &[root(10, 3)]);
    assert_eq!(
        shown(&chain),
        [
            "10 r  idle  3 behind it  held ≥ 1m: key 1",
            "`- 11 w  waits 5.0s for key 1 (exclusive)",
            "   `- 12 w  waits 5.0s for relation 16402 in app (AccessShareLock)  held ≥ 1m: key 2",
            "      `- 13 w  waits 5.0s for key 2 (exclusive)",
        ]
    );
}

#[test]
fn whoever_waits_is_there_once_below_who_holds_before_who_is_ahead() {
    let waiters = [
        waiter(11, &[hard(10)]),
        waiter(12, &[hard(10), soft(11, true)]),
        waiter(13, &[soft(11, true), soft(12, true)]),
        waiter(14, &[soft(12, false)]),
    ];
    let queue = server(&[lock(1, &[holder(10)], &waiters)], &[], &[root(10, 4)]);
    assert_eq!(
        shown(&queue),
        [
            "10 r  idle  4 behind it  held ≥ 1m: key 1",
            "|- 11 w  waits 5.0s for key 1 (exclusive)",
            "|  `- 13 w  waits 5.0s for key 1 (exclusive)  queued behind it  also behind 12",
            "`- 12 w  waits 5.0s for key 1 (exclusive)  also behind 11",
            "   `- 14 w  waits 5.0s for key 1 (exclusive)  queued behind it?",
        ]
    );
}

#[test]
fn of_many_who_are_in_the_way_two_are_named_and_the_others_counted() {
    let mut waiter = waiter(20, &[hard(10), hard(11), hard(12), hard(13)]);
    waiter["blocked_by_count"] = 9.into();
    let holders = [holder(10), holder(11), holder(12), holder(13)];
    let many = server(&[lock(1, &holders, &[waiter])], &[], &[root(10, 1)]);
    assert!(shown(&many)[1].ends_with("  also behind 11, 12 and 6 others"), "{:?}", shown(&many));
}

#[test]
fn a_root_without_a_key_says_what_it_does_and_since_when() {
    let mut forgotten = root(9, 1);
    forgotten["state"] = "idle in transaction".into();
    forgotten["state_since"] = "2025-12-01T02:54:00Z".into();
    let locks = [lock(1, &[holder(10)], &[])];
    let chain = server(&locks, &[other_wait(10, &[hard(9)])], &[forgotten]);
    assert_eq!(
        shown(&chain),
        [
            "9 r  idle in transaction for 6m  1 behind it",
            "`- 10 w  waits 5.0s for relation 16402 in app (AccessShareLock)  held ≥ 1m: key 1",
        ]
    );
}

#[test]
fn a_root_under_another_name_says_what_it_was_called() {
    let mut pooled = holder(10);
    pooled["first_application_name"] = "pod-a".into();
    let locks = [lock(1, &[pooled], &[waiter(11, &[hard(10)])])];
    let shown = shown(&server(&locks, &[], &[root(10, 1)]));
    assert_eq!(shown[0], "10 r (was pod-a)  idle  1 behind it  held ≥ 1m: key 1");
}

#[test]
fn what_a_root_holds_begins_with_what_is_waited_for() {
    let mut locks: Vec<Value> = (1..=5).map(|key| lock(key, &[holder(10)], &[])).collect();
    locks.push(lock(6, &[holder(10)], &[waiter(11, &[hard(10)])]));
    let shown = shown(&server(&locks, &[], &[root(10, 1)]));
    assert_eq!(shown[0], "10 r  idle  1 behind it  held ≥ 1m: key 6; also key 1, key 2 and 3 more");
}

#[test]
fn a_prepared_transaction_is_a_root_by_its_name() {
    let prepared = json!({ "gid": "order-7", "prepared_at": "2025-12-01T02:50:00Z" });
    let held = json!({ "pid": null, "prepared": prepared, "seen_for_seconds": 60.0 });
    let blocker = json!({ "pid": null, "gid": "order-7", "kind": "hard", "certain": true });
    let root = json!({ "pid": null, "prepared": prepared, "blocks": 1 });
    let locks = [lock(1, &[held], &[waiter(11, &[blocker])])];
    assert_eq!(
        shown(&server(&locks, &[], &[root])),
        [
            "prepared transaction order-7  1 behind it  held ≥ 1m: key 1",
            "`- 11 w  waits 5.0s for key 1 (exclusive)",
        ]
    );
}

#[test]
fn a_prepared_transaction_without_a_key_says_since_when_it_is_one() {
    let prepared = json!({ "gid": "order-7", "prepared_at": "2025-12-01T02:50:00Z" });
    let blocker = json!({ "pid": null, "gid": "order-7", "kind": "hard", "certain": true });
    let root = json!({ "pid": null, "prepared": prepared, "blocks": 1 });
    let chain = server(&[lock(1, &[holder(10)], &[])], &[other_wait(10, &[blocker])], &[root]);
    assert_eq!(shown(&chain)[0], "prepared transaction order-7  prepared 10m ago  1 behind it");
}

#[test]
fn prepared_transactions_without_a_name_are_not_taken_for_one() {
    let prepared = |minute: u32| json!({ "prepared_at": format!("2025-12-01T02:{minute}:00Z") });
    let held =
        |minute| json!({ "pid": null, "prepared": prepared(minute), "seen_for_seconds": 60.0 });
    let root = |minute| json!({ "pid": null, "prepared": prepared(minute), "blocks": 1 });
    let blocker = json!({ "pid": null, "kind": "hard", "certain": true });
    let locks = [
        lock(1, &[held(50)], &[waiter(11, std::slice::from_ref(&blocker))]),
        lock(2, &[held(40)], &[waiter(12, &[blocker])]),
    ];
    let shown = shown(&server(&locks, &[], &[root(50), root(40)]));
    for line in [
        "a prepared transaction  1 behind it  held ≥ 1m: key 1",
        "a prepared transaction  1 behind it  held ≥ 1m: key 2",
    ] {
        assert!(shown.iter().any(|shown| shown == line), "{line} in {shown:#?}");
    }
}

#[test]
fn a_circle_is_walked_once_and_each_in_it_says_so() {
    let locks = [
        lock(1, &[holder(10)], &[waiter(11, &[hard(10)])]),
        lock(2, &[holder(11)], &[waiter(10, &[hard(11)]), waiter(12, &[hard(11)])]),
    ];
    let circle = server(&locks, &[], &[circular(10, 2), circular(11, 2)]);
    assert_eq!(
        shown(&circle),
        [
            "10 w  in a circle  waits 5.0s for key 2 (exclusive)  behind 11  2 behind it  \
             held ≥ 1m: key 1",
            "`- 11 w  in a circle  waits 5.0s for key 1 (exclusive)  held ≥ 1m: key 2",
            "   `- 12 w  waits 5.0s for key 2 (exclusive)",
        ]
    );
}

#[test]
fn a_circle_that_nobody_told_of_is_walked_once_too() {
    let locks = [
        lock(1, &[holder(10)], &[waiter(11, &[hard(10)])]),
        lock(2, &[holder(11)], &[waiter(10, &[hard(11)])]),
    ];
    let shown = shown(&server(&locks, &[], &[]));
    assert_eq!(shown.len(), 2, "{shown:#?}");
    assert!(
        shown[0].starts_with("11 w  waits 5.0s for key 1 (exclusive)  behind 10"),
        "{shown:#?}"
    );
}

#[test]
fn whoever_waits_for_somebody_who_is_gone_is_not_left_out() {
    let locks = [lock(1, &[], &[waiter(11, &[])])];
    assert_eq!(
        shown(&server(&locks, &[], &[])),
        ["11 w  waits 5.0s for key 1 (exclusive)  behind nobody that was seen"]
    );
}

#[test]
fn who_keeps_nobody_waiting_is_not_there() {
    let locks = [lock(1, &[holder(10)], &[]), lock(2, &[holder(11)], &[waiter(12, &[hard(11)])])];
    let shown = shown(&server(&locks, &[], &[root(11, 1)]));
    assert_eq!(shown.len(), 2, "{shown:#?}");
    assert!(super::rows(&[picture(&server(&locks[..1], &[], &[]))], &Filter::default()).is_empty());
}

#[test]
fn a_line_that_is_found_keeps_all_above_it_and_nothing_beside() {
    let locks = [
        lock(1, &[holder(10)], &[waiter(11, &[hard(10)]), waiter(14, &[hard(10)])]),
        lock(2, &[holder(11)], &[waiter(12, &[hard(11)]), waiter(13, &[hard(11)])]),
        lock(3, &[holder(20)], &[waiter(21, &[hard(20)])]),
    ];
    let server = server(&locks, &[], &[root(10, 4), root(20, 1)]);
    let pids = |filter| -> Vec<String> {
        let first = |line: String| {
            let at = line.find(|c: char| c.is_ascii_digit()).unwrap();
            line[..at + 2].to_owned()
        };
        filtered(&server, filter).into_iter().map(first).collect()
    };
    assert_eq!(pids("pid:13"), ["10", "`- 11", "   `- 13"]);
    assert_eq!(pids("pid:14"), ["10", "`- 14"]);
    assert_eq!(pids("key:3"), ["20", "`- 21"]);
    assert_eq!(pids("pid:99"), [""; 0]);
}

#[test]
fn a_chain_of_a_thousand_is_walked_to_its_end() {
    const DEEP: i32 = 1000;
    let locks: Vec<Value> = (0..DEEP)
        .map(|n| lock(n.unsigned_abs(), &[holder(n + 1)], &[waiter(n + 2, &[hard(n + 1)])]))
        .collect();
    let shown = shown(&server(&locks, &[], &[root(1, 1000)]));
    assert_eq!(shown.len(), 1001);
    assert!(shown[1000].starts_with("(1000) "), "{}", shown[1000]);
    // Whoever it is, is still in sight.
    assert!(shown[1000].find("1001 w").unwrap() < 50, "{}", shown[1000]);
}

#[test]
fn ten_thousand_waiters_of_a_key_are_ten_thousand_lines_below_its_holder() {
    let waiters: Vec<Value> = (0..10_000)
        .map(|n| {
            let ahead = (0..n.min(19)).map(|ahead| soft(100 + ahead, true));
            waiter(100 + n, &std::iter::once(hard(10)).chain(ahead).collect::<Vec<_>>())
        })
        .collect();
    let all = [picture(&server(&[lock(1, &[holder(10)], &waiters)], &[], &[root(10, 10_000)]))];
    let rows = super::rows(&all, &Filter::default());
    let depths: Vec<usize> = rows.iter().map(|row| row.branch.as_ref().unwrap().depth).collect();
    assert_eq!((depths.len(), depths[0]), (10_001, 0));
    assert!(depths[1..].iter().all(|depth| *depth == 1));
}

#[test]
fn an_older_exporter_gets_a_tree_of_what_it_tells_and_a_line_of_what_is_missing() {
    const MISSING: &str =
        "not told by this exporter, which is older: who waits for locks of other types";
    let mut waits = waiter(11, &[hard(9)]);
    let end = json!({ "pid": 9, "application_name": "r", "state": "idle in transaction" });
    waits["roots"] = json!([end]);
    let mut behind = holder(20);
    behind["blocks"] = 2.into();
    let locks = [
        lock(1, &[holder(10)], &[waiter(12, &[hard(10)])]),
        lock(2, &[], &[waits]),
        lock(3, &[behind], &[]),
    ];
    assert_eq!(
        shown(&older(&locks)),
        [
            "20 h  idle  2 behind it  held ≥ 1m: key 3",
            "10 h  idle  0 behind it  held ≥ 1m: key 1",
            "`- 12 w  waits 5.0s for key 1 (exclusive)",
            "11 w  waits 5.0s for key 2 (exclusive)  behind 9 r (idle in transaction)",
            MISSING,
        ]
    );
    assert!(shown(&older(&[lock(1, &[holder(10)], &[])])).is_empty());
}

#[test]
fn an_older_exporter_tells_of_a_circle_by_those_who_wait() {
    let in_circle = |pid: i32, by: i32| {
        let mut waiter = waiter(pid, &[hard(by)]);
        waiter["roots"] = json!([{ "pid": 10, "in_cycle": true }, { "pid": 11, "in_cycle": true }]);
        waiter
    };
    let locks = [
        lock(1, &[holder(10)], &[in_circle(11, 10)]),
        lock(2, &[holder(11)], &[in_circle(10, 11)]),
    ];
    let shown = shown(&older(&locks));
    assert!(shown[0].starts_with("11 w  in a circle  waits"), "{shown:#?}");
    assert!(shown[1].starts_with("`- 10 w  in a circle  waits"), "{shown:#?}");
}

#[test]
fn a_family_is_whoever_is_above_and_below_and_nobody_beside() {
    let locks = [
        lock(1, &[holder(10)], &[waiter(11, &[hard(10)]), waiter(14, &[hard(10)])]),
        lock(2, &[holder(11)], &[waiter(12, &[hard(11)]), waiter(13, &[hard(11)])]),
        lock(3, &[holder(12)], &[waiter(15, &[hard(12)])]),
    ];
    let all = [picture(&server(&locks, &[], &[root(10, 5)]))];
    let twelve = Place { server: 0, what: What::Waiter(1, 0) };
    let family = family(&all, 0, twelve.party(&all).unwrap());
    let (above, below) = (text(&family.above, &all), text(&family.below, &all));
    assert!(above[0].starts_with("10 r") && above[1].starts_with("`- 11 w"), "{above:#?}");
    assert!(below[0].starts_with("   `- 12 w"), "{below:#?}");
    assert!(below[1].starts_with("      `- 15 w"), "{below:#?}");
    assert_eq!((above.len(), below.len()), (2, 2));
}
