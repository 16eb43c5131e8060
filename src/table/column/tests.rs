//! What stands in cells, in what order rows come by them, and which names are understood.

use serde_json::{Value, json};

use super::*;
use crate::table::testing::{finding, held, holder, lock, server, waiter, with};

/// What the column shows of each of these places in a picture of these keys.
fn shown_at(column: Column, locks: Vec<Value>, places: &[What]) -> Vec<String> {
    let all = [server("main", &locks.into())];
    let cell = |what: &What| {
        let place = Place { server: 0, what: what.clone() };
        column.cell(&Subject::of(&place, &all).unwrap()).text
    };
    places.iter().map(cell).collect()
}

/// What the column shows of the only key.
fn of_lock(column: Column, lock: Value) -> String {
    shown_at(column, vec![lock], &[What::Lock(0)]).remove(0)
}

/// What it shows of the first holder of the only key.
fn of_holder(column: Column, holder: Value) -> String {
    shown_at(column, vec![held(42, None, holder)], &[What::Holder(0, 0)]).remove(0)
}

/// What it shows of the first waiter of the only key.
fn of_waiter(column: Column, waiter: Value) -> String {
    let awaited = with(lock(42, None), &json!({ "waiters": [waiter] }));
    shown_at(column, vec![awaited], &[What::Waiter(0, 0)]).remove(0)
}

/// A holder of whom this is known besides.
fn holder_with(more: &Value) -> Value {
    with(holder(7, "billing-a", 12.0), more)
}

fn prepared(gid: Option<&str>) -> Value {
    holder_with(&json!({
        "pid": null, "application_name": null, "first_application_name": null, "state": null,
        "prepared": { "gid": gid, "owner": "ledger" },
    }))
}

/// The pids of holders of a key each, in this order; 0 for a prepared transaction.
fn sorted(sort: Sort, holders: &[Value]) -> Vec<i32> {
    let locks = holders.iter().zip(1..).map(|(holder, number)| held(number, None, holder.clone()));
    sorted_places(sort, locks.collect(), (0..holders.len()).map(|lock| What::Holder(lock, 0)))
}

fn sorted_places(sort: Sort, locks: Vec<Value>, places: impl Iterator<Item = What>) -> Vec<i32> {
    let all = [server("main", &locks.into())];
    let places: Vec<Place> = places.map(|what| Place { server: 0, what }).collect();
    let mut subjects: Vec<Subject<'_>> =
        places.iter().map(|place| Subject::of(place, &all).unwrap()).collect();
    subjects.sort_by(|a, b| sort.compare(&sort.value(a), &sort.value(b)));
    subjects.iter().map(|one| one.party.unwrap().pid().map_or(0, |pid| pid.0)).collect()
}

#[test]
fn an_age_has_two_units_and_never_claims_more_than_was_seen() {
    for (seconds, text) in [
        (-1.0, "0.0s"),
        (0.0, "0.0s"),
        (0.09, "0.0s"),
        (9.99, "9.9s"),
        (10.0, "10s"),
        (59.99, "59s"),
        (60.0, "1m"),
        (312.0, "5m12s"),
        (3599.9, "59m59s"),
        (3600.0, "1h"),
        (3719.0, "1h1m"),
        (86_399.0, "23h59m"),
        (86_400.0, "1d"),
        (97_199.0, "1d2h"),
        (8_640_000.0, "100d"),
    ] {
        assert_eq!(render_age(seconds), text, "{seconds}");
    }
}

#[test]
fn a_hold_is_a_bound_unless_its_beginning_is_known() {
    for (seen, at_most, text) in [
        (12.0, json!(null), "≥ 12s"),
        (12.0, json!(13.5), "12s"),
        (12.0, json!(13.6), "≥ 12s"),
        (300.0, json!(330.0), "5m"),
        (300.0, json!(331.0), "≥ 5m"),
        (0.0, json!(1.0), "0.0s"),
        // What was proved of an age may be rounded to less than what was seen of it.
        (12.0, json!(11.9), "12s"),
    ] {
        let hold =
            holder_with(&json!({ "seen_for_seconds": seen, "held_at_most_seconds": at_most }));
        assert_eq!(of_holder(Column::Held, hold), text, "{seen} {at_most}");
    }
}

#[test]
fn a_key_shows_its_longest_hold_and_its_longest_wait() {
    let crowd = json!({
        "holders": [holder(1, "a", 5.0), holder(2, "b", 90.0), holder(3, "c", 60.0)],
        "waiters": [waiter(4, "d", 2.0), waiter(5, "e", 75.0)],
    });
    let crowd = with(lock(42, None), &crowd);
    for (column, text) in [
        (Column::Held, "≥ 1m30s"),
        (Column::Wait, "1m15s"),
        (Column::Holders, "3"),
        (Column::Waiters, "2"),
        (Column::Application, "a +2"),
    ] {
        assert_eq!(of_lock(column, crowd.clone()), text, "{column:?}");
    }
}

#[test]
fn nobody_is_an_empty_cell_and_no_zero() {
    for column in [
        Column::Holders,
        Column::Application,
        Column::Mode,
        Column::State,
        Column::Held,
        Column::Waiters,
        Column::Wait,
        Column::Blocks,
        Column::User,
        Column::Client,
        Column::Findings,
        Column::Owner,
    ] {
        assert_eq!(of_lock(column, lock(42, None)), "", "{column:?}");
    }
}

#[test]
fn a_wait_that_the_server_does_not_date_is_not_known() {
    let unknown = with(waiter(8, "report", 0.0), &json!({ "waited_seconds": null }));
    assert_eq!(of_waiter(Column::Wait, unknown.clone()), "?");
    let both = [unknown.clone(), waiter(9, "report", 4.0)];
    let of = |waiters: &[Value]| {
        of_lock(Column::Wait, with(lock(42, None), &json!({ "waiters": waiters })))
    };
    assert_eq!(of(&[unknown]), "?");
    assert_eq!(of(&both), "4.0s");
}

#[test]
fn a_session_goes_by_its_present_name_with_the_first_one_behind_it() {
    for (present, first, text) in [
        (json!("billing-a"), json!("billing-a"), "billing-a"),
        (json!("pod-c"), json!("pod-a"), "pod-c (was pod-a)"),
        (json!(""), json!("pod-a"), "(none) (was pod-a)"),
        (json!("pod-c"), json!(""), "pod-c (was (none))"),
        (json!("pod-c"), json!(null), "pod-c"),
        (json!(""), json!(""), "(none)"),
        (json!(null), json!(null), "(unknown)"),
        (json!(null), json!("pod-a"), "(unknown)"),
    ] {
        let names = json!({ "application_name": present, "first_application_name": first });
        let hold = holder_with(&names);
        assert_eq!(of_holder(Column::Application, hold), text, "{present} {first}");
    }
    // A waiter has one name only.
    assert_eq!(of_waiter(Column::Application, waiter(8, "", 1.0)), "(none)");
}

#[test]
fn a_prepared_transaction_is_told_by_its_gid_and_its_owner() {
    for (column, text) in [
        (Column::Pid, "prepared"),
        (Column::State, "prepared"),
        (Column::Application, "prepared order-4711"),
        (Column::User, "ledger"),
    ] {
        assert_eq!(of_holder(column, prepared(Some("order-4711"))), text, "{column:?}");
        let key = held(42, None, prepared(Some("order-4711")));
        let text = if column == Column::Pid { "" } else { text };
        assert_eq!(of_lock(column, key), text, "{column:?}");
    }
    assert_eq!(of_holder(Column::Application, prepared(None)), "a prepared transaction");
    // Some servers show rows without a pid, of sessions like any other.
    let nameless = json!({ "pid": null, "state": null });
    let waiter = with(waiter(8, "report", 1.0), &nameless);
    assert_eq!(of_waiter(Column::Pid, waiter.clone()), "?");
    assert_eq!(of_waiter(Column::State, waiter), "unknown");
    assert_eq!(of_holder(Column::Pid, holder_with(&nameless)), "?");
    assert_eq!(of_holder(Column::State, holder_with(&nameless)), "unknown");
}

#[test]
fn a_state_is_told_as_the_server_writes_it_and_a_hidden_one_is_unknown() {
    for (state, text, tone) in [
        (json!("idle"), "idle", Tone::Plain),
        (json!("active"), "active", Tone::Plain),
        (json!("idle in transaction"), "idle in transaction", Tone::Warning),
        (json!("idle in transaction (aborted)"), "idle in transaction (aborted)", Tone::Warning),
        (json!(null), "unknown", Tone::Dim),
    ] {
        let key = held(42, None, holder_with(&json!({ "state": state })));
        let all = [server("main", &json!([key]))];
        let place = Place { server: 0, what: What::Lock(0) };
        let cell = Column::State.cell(&Subject::of(&place, &all).unwrap());
        assert_eq!((cell.text.as_str(), cell.tone), (text, tone));
    }
}

#[test]
fn a_client_is_an_address_with_its_port_and_one_that_is_not_told_is_no_unknown_one() {
    for (client, text) in [
        (json!({ "client_addr": "10.0.0.7", "client_port": 40_112 }), "10.0.0.7:40112"),
        (json!({ "client_addr": "fd00::7", "client_port": 40_112 }), "[fd00::7]:40112"),
        (json!({ "client_addr": "10.0.0.7" }), "10.0.0.7"),
        (json!({ "client_addr": null, "client_port": -1 }), "local"),
        (json!({ "client_addr": null, "client_port": null }), "?"),
        (json!({}), "(not shown)"),
    ] {
        assert_eq!(of_holder(Column::Client, holder_with(&client)), text, "{client}");
    }
    assert_eq!(of_holder(Column::User, holder_with(&json!({}))), "(not shown)");
    assert_eq!(of_holder(Column::User, holder_with(&json!({ "usename": null }))), "?");
    assert_eq!(of_holder(Column::User, holder_with(&json!({ "usename": "app" }))), "app");
}

#[test]
fn a_key_goes_by_its_name_with_its_parameters_and_without_one_is_unregistered() {
    let named = lock(42, Some("tenant"));
    let with_parameters = with(named.clone(), &json!({ "display_name": "tenant{id=7}" }));
    assert_eq!(of_lock(Column::Lock, named), "tenant");
    assert_eq!(of_lock(Column::Lock, with_parameters.clone()), "tenant{id=7}");
    assert_eq!(of_lock(Column::Lock, lock(42, None)), "unregistered");
    let pair = json!({ "key": { "classid": 7, "objid": 4_294_967_295_u32, "objsubid": 2 } });
    assert_eq!(of_lock(Column::Key, with(lock(0, None), &pair)), "(7,-1)");
    let tenants = vec![with_parameters.clone(), with_parameters];
    let fold = [What::Fold(vec![0, 1])];
    assert_eq!(shown_at(Column::Lock, tenants.clone(), &fold), ["tenant"]);
    assert_eq!(shown_at(Column::Key, tenants, &fold), ["2 keys"]);
}

#[test]
fn a_fold_counts_the_sessions_of_its_keys_and_shows_the_longest_hold() {
    let locks = vec![
        held(1, None, holder(7, "queue", 5.0)),
        held(2, None, holder(7, "queue", 90.0)),
        held(3, None, holder(8, "queue", 60.0)),
        held(4, None, holder(9, "queue", 999.0)),
    ];
    let fold = [What::Fold(vec![0, 1, 2])];
    assert_eq!(shown_at(Column::Holders, locks.clone(), &fold), ["2"]);
    assert_eq!(shown_at(Column::Held, locks.clone(), &fold), ["≥ 1m30s"]);
    assert_eq!(shown_at(Column::Application, locks, &fold), ["queue"]);
}

#[test]
fn findings_are_told_the_worst_first_each_once_with_a_sign_before_critical_ones() {
    let findings = json!({ "findings": [
        finding("waiting_too_long", "warning", &[8]),
        finding("waiting_too_long", "warning", &[9]),
        finding("stuck", "critical", &[7]),
    ]});
    let key = with(held(42, None, holder(7, "billing-a", 1.0)), &findings);
    assert_eq!(of_lock(Column::Findings, key.clone()), "!stuck, waiting_too_long x2");
    // Of somebody only what names them.
    let key = with(key, &json!({ "waiters": [waiter(8, "report", 4.0), waiter(6, "other", 4.0)] }));
    let places = [What::Holder(0, 0), What::Waiter(0, 0), What::Waiter(0, 1)];
    assert_eq!(shown_at(Column::Findings, vec![key], &places), ["!stuck", "waiting_too_long", ""]);
}

#[test]
fn a_waiter_shows_the_first_end_of_its_chain_and_how_many_more_there_are() {
    let pid_root = json!({ "pid": 7, "application_name": "billing-a" });
    let nameless = json!({ "pid": 7, "application_name": "" });
    let gid_root = json!({ "pid": null, "gid": "order-4711" });
    for (roots, count, text) in [
        (json!([]), 0, ""),
        (json!([pid_root]), 1, "7 billing-a"),
        (json!([nameless]), 1, "7 (none)"),
        (json!([gid_root]), 1, "prepared order-4711"),
        (json!([{ "pid": null }]), 1, "prepared transaction"),
        (json!([pid_root, gid_root]), 3, "7 billing-a +2"),
    ] {
        let waiter =
            with(waiter(8, "report", 1.0), &json!({ "roots": roots, "roots_count": count }));
        assert_eq!(of_waiter(Column::Root, waiter), text);
    }
}

#[test]
fn every_column_of_a_view_is_understood_by_its_name_and_by_its_title() {
    for kind in ViewKind::ALL {
        for &column in kind.columns() {
            assert_eq!(Column::parse(kind, column.name()), Ok(column));
            assert_eq!(Column::parse(kind, &format!(" {} ", column.title())), Ok(column));
        }
    }
}

#[test]
fn a_name_that_a_view_does_not_have_is_answered_with_those_it_has() {
    let refusal = |kind, name| Column::parse(kind, name).unwrap_err().to_string();
    let known = "server, lock, key, database, holders, application, mode, state, held, waiters, \
                 wait, blocks, findings, owner";
    for name in ["lok", "pid", "", "-held"] {
        let expected = format!("the Locks view has no column {name:?}; it has {known}");
        assert_eq!(refusal(ViewKind::Locks, name), expected);
    }
    assert!(refusal(ViewKind::Sessions, "holders").starts_with("the Sessions view has no column"));
    let tree = "the Tree view has no column \"lock\"; it has none: its lines are sentences";
    assert_eq!(refusal(ViewKind::Tree, "lock"), tree);
}

#[test]
fn a_minus_turns_round_how_one_begins_to_read_a_column() {
    for (text, column, is_descending) in [
        ("held", Column::Held, true),
        ("-held", Column::Held, false),
        (" - held", Column::Held, false),
        ("lock", Column::Lock, false),
        ("-lock", Column::Lock, true),
        ("pid", Column::Pid, false),
        ("findings", Column::Findings, true),
    ] {
        let is_of_sessions = column == Column::Pid;
        let kind = if is_of_sessions { ViewKind::Sessions } else { ViewKind::Locks };
        assert_eq!(Sort::parse(kind, text), Ok(Sort { column, is_descending }), "{text}");
    }
    for text in ["--held", "held:desc", "-"] {
        assert!(Sort::parse(ViewKind::Locks, text).is_err(), "{text}");
    }
}

#[test]
fn rows_are_sorted_by_what_is_shown_of_them() {
    let one = |pid: i32, more: Value| with(holder(pid, "x", 1.0), &more);
    let states = [
        one(1, json!({ "state": "idle" })),
        one(2, json!({ "state": "active" })),
        with(prepared(Some("a")), &json!({})),
        one(4, json!({ "state": null })),
    ];
    assert_eq!(sorted(Sort::by(Column::State), &states), [2, 1, 0, 4]);
    let names = [
        one(1, json!({ "application_name": "report" })),
        one(2, json!({ "application_name": "billing" })),
        with(prepared(Some("a")), &json!({})),
    ];
    assert_eq!(sorted(Sort::by(Column::Application), &names), [2, 0, 1]);
    let clients = ["10.0.0.10", "10.0.0.9", "9.0.0.1"];
    let clients = [1, 2, 3]
        .map(|pid| one(pid, json!({ "client_addr": clients[usize::try_from(pid).unwrap() - 1] })));
    assert_eq!(sorted(Sort::by(Column::Client), &clients), [3, 2, 1]);
    let modes = [(1, "share"), (2, "exclusive"), (3, "share")];
    let modes = modes.map(|(pid, mode)| one(pid, json!({ "mode": mode })));
    assert_eq!(sorted(Sort::by(Column::Mode).inverted(), &modes), [2, 1, 3]);
}

/// The pids of waiters for one key, in this order.
fn sorted_waiters(sort: Sort, waiters: &[Value]) -> Vec<i32> {
    let key = with(lock(42, None), &json!({ "waiters": waiters }));
    sorted_places(sort, vec![key], (0..waiters.len()).map(|one| What::Waiter(0, one)))
}

#[test]
fn waiters_are_sorted_by_where_their_chains_end() {
    let waiting = |pid, root: i32| {
        let root = json!({ "roots": [{ "pid": root }], "roots_count": 1 });
        with(waiter(pid, "report", 1.0), &root)
    };
    let waiters = [waiting(1, 70), waiting(2, 9), waiting(3, 70), waiter(4, "report", 1.0)];
    assert_eq!(sorted_waiters(Sort::by(Column::Root), &waiters), [4, 2, 1, 3]);
}

#[test]
fn an_age_that_is_not_known_is_last_where_the_largest_is_first() {
    let undated = with(waiter(1, "report", 0.0), &json!({ "waited_seconds": null }));
    let waiters = [undated, waiter(2, "report", 0.0), waiter(3, "report", 9.0)];
    assert_eq!(sorted_waiters(Sort::by(Column::Wait), &waiters), [3, 2, 1]);
}

#[test]
fn the_next_column_to_sort_by_goes_round_and_the_tree_has_none() {
    let kind = ViewKind::Locks;
    let mut sort = Sort::by(Column::Server);
    for &column in kind.columns() {
        assert_eq!(sort, Sort::by(column));
        assert_eq!(
            sort.neighbour(kind, Direction::Next).neighbour(kind, Direction::Previous),
            sort
        );
        sort = sort.neighbour(kind, Direction::Next);
    }
    assert_eq!(sort, Sort::by(Column::Server));
    assert_eq!(sort.neighbour(ViewKind::Tree, Direction::Next), sort);
}

#[test]
fn tab_goes_round_the_views_both_ways() {
    for kind in ViewKind::ALL {
        assert_eq!(kind.neighbour(Direction::Next).neighbour(Direction::Previous), kind);
        let round = [Direction::Next; 3].into_iter().fold(kind, ViewKind::neighbour);
        assert_eq!(round, kind);
    }
}
