//! Small pictures written by hand, and the rows that become of them.

use serde_json::{Value, json};

use super::super::column::Column;
use super::*;
use crate::finding::Severity;
use crate::snapshot::Lock;
use crate::table::testing::{finding, held, holder, lock, server, waiter, with};

/// Many keys of one session, from a number on.
fn held_by_one(from: u32, count: u32) -> Vec<Value> {
    let held_one = |number: u32| held(number, None, holder(7, "queue", f64::from(number)));
    (from..from + count).map(held_one).collect()
}

fn rows_of(kind: ViewKind, all: &[Server], sort: Sort) -> Vec<Row> {
    rows(kind, all, &Filter::default(), sort, &HashSet::new())
}

/// Rows in short: the key, with who is meant on it; of a fold its keys.
fn shown(rows: &[Row], all: &[Server]) -> Vec<String> {
    let key =
        |server: usize, index: usize| all[server].locks.as_ref().unwrap()[index].key.to_string();
    let shown = |row: &Row| {
        let server = row.place.server;
        let pid = row.place.party(all).and_then(|party| party.pid()).map_or(0, |pid| pid.0);
        let text = match &row.place.what {
            What::Lock(index) => key(server, *index),
            What::Holder(index, _) => format!("{} held by {pid}", key(server, *index)),
            What::Waiter(index, _) => format!("{} awaited by {pid}", key(server, *index)),
            What::Fold(keys) => format!("{} keys", keys.len()),
            other @ (What::Server | What::OtherWait(_) | What::Root(_)) => format!("{other:?}"),
        };
        let is_inside = row.fold.is_some() && !matches!(row.place.what, What::Fold(_));
        if is_inside { format!("  {text}") } else { text }
    };
    rows.iter().map(shown).collect()
}

fn shown_locks(locks: Vec<Value>) -> Vec<String> {
    let all = [server("main", &locks.into())];
    shown(&rows_of(ViewKind::Locks, &all, Sort::default()), &all)
}

#[test]
fn the_worst_is_first_then_whom_most_wait_for_then_the_oldest_hold() {
    let said = |severity| json!({ "findings": [finding("said", severity, &[])] });
    let awaited = json!({ "waiters": [waiter(20, "w", 3.0)] });
    let locks = vec![
        held(1, None, holder(1, "young", 1.0)),
        held(2, None, holder(2, "old", 900.0)),
        with(held(3, None, holder(3, "awaited", 5.0)), &awaited),
        with(held(4, None, holder(4, "warned", 1.0)), &said("warning")),
        with(lock(5, None), &said("critical")),
        held(6, None, holder(6, "as-young", 1.0)),
    ];
    assert_eq!(shown_locks(locks), ["5", "4", "3", "2", "1", "6"]);
}

#[test]
fn equals_stay_in_the_order_of_servers_and_keys_whichever_way_rows_are_sorted() {
    let locks = json!([
        held(1, Some("a"), holder(1, "x", 1.0)),
        held(2, Some("a"), holder(2, "y", 1.0)),
        held(3, Some("b"), holder(3, "z", 1.0)),
    ]);
    let all = [server("one", &locks), server("two", &locks)];
    let by_name = Sort::by(Column::Lock);
    let ascending = rows_of(ViewKind::Locks, &all, by_name);
    assert_eq!(shown(&ascending, &all), ["1", "2", "1", "2", "3", "3"]);
    let servers: Vec<usize> = ascending.iter().map(|row| row.place.server).collect();
    assert_eq!(servers, [0, 0, 1, 1, 0, 1]);
    let descending = rows_of(ViewKind::Locks, &all, by_name.inverted());
    assert_eq!(shown(&descending, &all), ["3", "3", "1", "2", "1", "2"]);
}

#[test]
fn a_row_keeps_its_identity_when_keys_come_before_it() {
    let mine = || held(9, None, holder(9, "mine", 1.0));
    let before = [server("main", &json!([mine()]))];
    let after = [server("main", &json!([held(1, None, holder(1, "new", 5.0)), mine()]))];
    for kind in [ViewKind::Locks, ViewKind::Sessions] {
        let id = rows_of(kind, &before, Sort::default()).remove(0).id;
        let rows = rows_of(kind, &after, Sort::default());
        assert_eq!(rows.iter().position(|row| row.id == id), Some(1), "{kind:?}");
    }
}

#[test]
fn the_next_backend_of_a_pid_is_another_row() {
    let began = |at| json!({ "backend_start": at });
    let row = |at| {
        let lock = held(1, None, with(holder(7, "a", 1.0), &began(at)));
        let all = [server("main", &json!([lock]))];
        rows_of(ViewKind::Sessions, &all, Sort::default()).remove(0).id
    };
    assert_ne!(row("2026-11-30T03:00:00Z"), row("2026-11-30T03:00:01Z"));
    assert_eq!(row("2026-11-30T03:00:00Z"), row("2026-11-30T03:00:00Z"));
}

#[test]
fn more_than_five_keys_that_say_the_same_are_one_line() {
    assert_eq!(shown_locks(held_by_one(1, 5)), ["5", "4", "3", "2", "1"]);
    assert_eq!(shown_locks(held_by_one(1, 6)), ["6 keys"]);
    let of_many = (1..=20_u32)
        .map(|number| held(number, None, holder(i32::try_from(number).unwrap(), "row", 1.0)));
    assert_eq!(shown_locks(of_many.collect()), ["20 keys"], "twenty sessions of one application");
}

#[test]
fn what_differs_stays_out_of_a_line() {
    let differences = [
        json!({ "lock": "leader" }),
        json!({ "datname": "other" }),
        json!({ "holders": [holder(7, "another", 9.0)] }),
        json!({ "holders": [with(holder(7, "queue", 9.0), &json!({ "state": "active" }))] }),
        json!({ "holders": [with(holder(7, "queue", 9.0), &json!({ "mode": "share" }))] }),
        json!({ "holders": [with(holder(7, "queue", 9.0),
                                 &json!({ "first_application_name": "stranger" }))] }),
        json!({ "holders": [holder(7, "queue", 9.0), holder(8, "queue", 9.0)] }),
        json!({ "holders": [] }),
        json!({ "findings": [finding("held_too_long", "warning", &[7])] }),
    ];
    for difference in differences {
        let mut locks = held_by_one(1, 6);
        locks.push(with(held(9, None, holder(7, "queue", 9.0)), &difference));
        let mut rows = shown_locks(locks);
        rows.sort();
        assert_eq!(rows, ["6 keys", "9"], "{difference}");
    }
}

#[test]
fn a_key_that_somebody_waits_for_is_never_in_a_line() {
    let awaited = |lock| with(lock, &json!({ "waiters": [waiter(70, "w", 1.0)] }));
    let locks: Vec<Value> = held_by_one(1, 7).into_iter().map(awaited).collect();
    assert_eq!(shown_locks(locks).len(), 7);
}

#[test]
fn what_is_critical_is_not_in_a_line_with_what_is_a_warning() {
    let said = |severity| json!({ "findings": [finding("pooled_backend", severity, &[7])] });
    let warned = held_by_one(1, 6).into_iter().map(|lock| with(lock, &said("warning")));
    let critical = held_by_one(10, 1).into_iter().map(|lock| with(lock, &said("critical")));
    let all = [server("main", &warned.chain(critical).collect::<Vec<_>>().into())];
    let rows = rows_of(ViewKind::Locks, &all, Sort::default());
    assert_eq!(shown(&rows, &all), ["10", "6 keys"]);
    let severity = |row| worst_finding(&all, row).unwrap().severity;
    assert_eq!(severity(&rows[0]), Severity::Critical);
    assert_eq!(severity(&rows[1]), Severity::Warning);
}

#[test]
fn prepared_transactions_are_apart_from_each_other_and_from_sessions_that_are_hidden() {
    let prepared = |gid| json!({ "pid": null, "mode": "exclusive", "prepared": { "gid": gid } });
    let hidden = json!({ "pid": 7, "mode": "exclusive" });
    let mut locks = Vec::new();
    for (from, holder) in [(0, prepared("one")), (10, prepared("two")), (20, hidden)] {
        locks.extend((from..from + 6).map(|number| held(number, None, holder.clone())));
    }
    assert_eq!(shown_locks(locks), ["6 keys", "6 keys", "6 keys"]);
}

#[test]
fn among_sessions_a_line_stands_for_one_session() {
    let mut locks = held_by_one(1, 6);
    let others = (20..26).map(|number| held(number, None, holder(8, "queue", 1.0)));
    locks.extend(others);
    locks.push(with(
        held(30, None, holder(9, "mine", 2.0)),
        &json!({ "waiters": [waiter(70, "w", 1.0)] }),
    ));
    let all = [server("main", &locks.into())];
    let rows = rows_of(ViewKind::Sessions, &all, Sort::by(Column::Held));
    assert_eq!(
        shown(&rows, &all),
        ["6 keys", "30 held by 9", "6 keys", "30 awaited by 70"],
        "each session's keys, its longest hold first"
    );
}

#[test]
fn an_unfolded_line_has_its_keys_below_it_in_the_order_of_the_rows() {
    let mut locks = held_by_one(1, 6);
    locks.push(held(50, Some("leader"), holder(9, "leader", 3.5)));
    let all = [server("main", &locks.into())];
    let sort = Sort::by(Column::Held);
    let folded = rows_of(ViewKind::Locks, &all, sort);
    assert_eq!(shown(&folded, &all), ["6 keys", "50"], "its longest hold counts");
    let unfolded = HashSet::from([folded[0].fold.clone().unwrap()]);
    let rows = rows(ViewKind::Locks, &all, &Filter::default(), sort, &unfolded);
    assert_eq!(shown(&rows, &all), ["6 keys", "  6", "  5", "  4", "  3", "  2", "  1", "50"]);
    assert!(rows[..7].iter().all(|row| row.fold == folded[0].fold));
    assert_eq!(rows[0].id, folded[0].id);
}

#[test]
fn a_line_is_the_same_when_keys_of_it_come_and_go() {
    let id = |locks: Vec<Value>| {
        let all = [server("main", &locks.into())];
        rows_of(ViewKind::Locks, &all, Sort::default()).remove(0).id
    };
    assert_eq!(id(held_by_one(1, 6)), id(held_by_one(4, 30)));
}

#[test]
fn a_line_sorts_by_the_sessions_that_it_shows() {
    let mut locks = held_by_one(1, 30);
    locks.push(with(
        lock(50, None),
        &json!({ "holders": [holder(1, "a", 1.0), holder(2, "b", 1.0)] }),
    ));
    let all = [server("main", &locks.into())];
    let rows = rows_of(ViewKind::Locks, &all, Sort::by(Column::Holders));
    assert_eq!(shown(&rows, &all), ["50", "30 keys"]);
    let cell = |row: &Row| Column::Holders.cell(&Subject::of(&row.place, &all).unwrap()).text;
    assert_eq!([cell(&rows[0]), cell(&rows[1])], ["2", "1"]);
}

#[test]
fn rows_for_scripts_have_no_lines_of_many_keys_and_each_stands_where_it_belongs() {
    let mut locks = held_by_one(1, 6);
    locks.push(held(50, Some("leader"), holder(9, "leader", 3.5)));
    let all = [server("main", &locks.into())];
    let sort = Sort::by(Column::Held);
    let rows = flat_rows(ViewKind::Locks, &all, &Filter::default(), sort);
    assert_eq!(shown(&rows, &all), ["6", "5", "4", "50", "3", "2", "1"]);
    assert!(rows.iter().all(|row| row.fold.is_none()));
}

#[test]
fn what_is_said_of_a_session_comes_before_what_is_said_of_its_key() {
    let said = json!({ "findings": [
        finding("waiting_too_long", "warning", &[70]),
        finding("stuck", "critical", &[7]),
        finding("lock_table", "critical", &[]),
    ] });
    let lock = with(
        held(1, None, holder(7, "a", 1.0)),
        &json!({ "waiters": [waiter(70, "w", 1.0), waiter(71, "w", 2.0)] }),
    );
    let all = [server("main", &json!([with(lock, &said)]))];
    let worst_of = |kind, wanted: &str| {
        let rows = rows_of(kind, &all, Sort::default());
        let row = rows.iter().find(|row| shown(std::slice::from_ref(row), &all)[0] == wanted);
        worst_finding(&all, row.unwrap()).unwrap().finding.to_string()
    };
    assert_eq!(worst_of(ViewKind::Locks, "1"), "stuck", "the first of the worst");
    assert_eq!(worst_of(ViewKind::Sessions, "1 held by 7"), "stuck");
    assert_eq!(worst_of(ViewKind::Sessions, "1 awaited by 70"), "waiting_too_long");
    assert_eq!(worst_of(ViewKind::Sessions, "1 awaited by 71"), "stuck");
}

#[test]
fn servers_that_were_not_seen_or_have_no_locks_have_no_rows() {
    let mut blind = server("blind", &json!([]));
    (blind.up, blind.locks) = (false, None);
    let all = [blind, server("empty", &json!([]))];
    for kind in ViewKind::ALL {
        assert_eq!(rows_of(kind, &all, Sort::default()), [], "{kind:?}");
    }
}

#[test]
fn a_hundred_thousand_keys_of_one_session_are_one_line_beside_the_lock_that_is_awaited() {
    let mut picture = server(
        "main",
        &json!([
            with(
                held(1, Some("leader"), holder(9, "leader", 1.0)),
                &json!({ "waiters": [waiter(70, "w", 1.0)] })
            ),
            held(2, None, holder(7, "queue", 1.0)),
        ]),
    );
    let locks = picture.locks.as_mut().unwrap();
    let one = locks[1].clone();
    locks.extend(
        (3..100_002).map(|number| Lock { key: crate::key::Key::bigint(number), ..one.clone() }),
    );
    let all = [picture];
    let rows = rows_of(ViewKind::Locks, &all, Sort::default());
    assert_eq!(shown(&rows, &all), ["1", "100000 keys"]);
}
