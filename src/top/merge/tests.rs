//! Two pictures written by hand, at seconds of one minute on the server's clock, and what becomes of
//! them.

use serde_json::{Value, json};

use super::*;
use crate::snapshot::parse_snapshot;

fn at(second: f64) -> String {
    format!("2026-11-30T12:00:{second:09.6}Z")
}

fn time(second: f64) -> Option<Timestamp> {
    serde_json::from_value(at(second).into()).unwrap()
}

fn server_with(second: f64, locks: Value, more: Value) -> Server {
    let mut server = json!({
        "server": "main", "up": true, "role": "primary", "system_identifier": "7",
        "polled_at": at(second), "watching_since": at(second), "locks": locks,
    });
    server.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let json = json!({ "schema": 1, "servers": [server] });
    parse_snapshot(json.to_string().as_bytes()).unwrap().servers.remove(0)
}

/// A server polled at this second.
fn server(second: f64, locks: Value) -> Server {
    server_with(second, locks, json!({}))
}

fn key() -> Value {
    json!({ "classid": 0, "objid": 42, "objsubid": 1 })
}

/// A key with these fields besides.
fn lock(more: Value) -> Value {
    let mut lock = json!({ "datname": "app", "key": key() });
    lock.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    lock
}

/// Who began at second 0 and holds the key since this second.
fn holder(since: f64, more: Value) -> Value {
    let mut holder = json!({
        "pid": 7, "backend_start": at(0.0), "mode": "ExclusiveLock", "modes": ["ExclusiveLock"],
        "since": at(since),
    });
    holder.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    holder
}

fn held(since: f64, more: Value) -> Value {
    json!([lock(json!({ "holders": [holder(since, more)] }))])
}

fn merged_holder(own: Value, theirs: (f64, Value)) -> Holder {
    let merged = merge(server(50.0, own), &server(theirs.0, theirs.1));
    merged.locks.unwrap().remove(0).holders.remove(0)
}

#[track_caller]
fn assert_untouched(own: Value, theirs: (f64, Value)) {
    let before = format!("{:?}", server(50.0, own.clone()).locks.unwrap()[0].holders[0]);
    assert_eq!(format!("{:?}", merged_holder(own, theirs)), before);
}

#[test]
fn a_hold_that_the_exporter_saw_earlier_is_as_old_as_that_at_our_moment() {
    let theirs = held(10.0, json!({ "seen_for_seconds": 39.0 }));
    let holder = merged_holder(held(48.0, json!({ "seen_for_seconds": 2.0 })), (49.0, theirs));
    assert_eq!((holder.since, holder.seen_for_seconds), (time(10.0), 40.0));
    assert_eq!(holder.held_at_least_seconds, None, "nothing proves the second between");
}

#[test]
fn a_hold_that_we_saw_earlier_stays_as_old() {
    let theirs = held(30.0, json!({ "seen_for_seconds": 19.0 }));
    let holder = merged_holder(held(20.0, json!({ "seen_for_seconds": 30.0 })), (49.0, theirs));
    assert_eq!((holder.since, holder.seen_for_seconds), (time(20.0), 30.0));
}

#[test]
fn another_backend_of_the_same_pid_is_somebody_else() {
    let theirs = held(10.0, json!({ "backend_start": at(1.0) }));
    assert_untouched(held(48.0, json!({})), (49.0, theirs));
    let unknown = json!({ "backend_start": null });
    assert_untouched(held(48.0, unknown.clone()), (49.0, held(10.0, unknown)));
    assert_untouched(held(48.0, json!({})), (49.0, held(10.0, json!({ "pid": 8 }))));
}

#[test]
fn a_key_of_another_database_is_another_lock() {
    let mut theirs = held(10.0, json!({}));
    theirs[0]["datname"] = "app2".into();
    assert_untouched(held(48.0, json!({})), (49.0, theirs));
}

#[test]
fn a_key_that_is_there_twice_under_one_name_is_nobodys() {
    let mut theirs = held(10.0, json!({}));
    let again = theirs[0].clone();
    theirs.as_array_mut().unwrap().push(again);
    assert_untouched(held(48.0, json!({})), (49.0, theirs));
    let mut own = held(48.0, json!({}));
    own.as_array_mut().unwrap().push(held(48.0, json!({}))[0].clone());
    assert_untouched(own, (49.0, held(10.0, json!({}))));
}

#[test]
fn another_mode_is_another_hold() {
    let theirs = json!({ "mode": "ShareLock", "modes": ["ShareLock"] });
    assert_untouched(held(48.0, json!({})), (49.0, held(10.0, theirs)));
}

#[test]
fn where_we_saw_it_let_go_nothing_is_taken() {
    // We saw it free at 47, and the exporter saw it held since 10: it was taken again.
    let own = held(48.0, json!({ "held_at_most_seconds": 3.0 }));
    assert_untouched(own, (49.0, held(10.0, json!({}))));
}

#[test]
fn where_the_exporter_saw_it_let_go_nothing_is_taken() {
    // We saw it at each of our polls since 20, and the exporter saw it free at 45.
    let theirs = held(46.0, json!({ "held_at_most_seconds": 4.0 }));
    assert_untouched(held(20.0, json!({})), (49.0, theirs));
}

#[test]
fn a_hold_that_began_after_our_picture_is_another() {
    let own = held(48.0, json!({}));
    assert_untouched(own, (52.0, held(51.0, json!({ "first_application_name": "later" }))));
}

#[test]
fn of_two_upper_bounds_the_smaller_one_counts_at_our_moment() {
    let theirs = held(10.0, json!({ "held_at_most_seconds": 40.0 }));
    let own = held(48.0, json!({ "held_at_most_seconds": 50.0 }));
    let holder = merged_holder(own, (49.0, theirs));
    assert_eq!(holder.held_at_most_seconds, Some(41.0), "not held at second 9");
    assert!(holder.held_at_most_seconds >= Some(holder.seen_for_seconds));
    let holder = merged_holder(
        held(48.0, json!({ "held_at_most_seconds": 45.0 })),
        (49.0, held(10.0, json!({}))),
    );
    assert_eq!(holder.held_at_most_seconds, Some(45.0));
}

#[test]
fn a_proof_counts_where_it_reaches_our_moment_without_a_gap() {
    let proof = |seconds: f64| json!({ "held_at_least_seconds": seconds });
    // Ours reaches back to second 45, before their picture.
    let holder = merged_holder(held(45.0, proof(5.0)), (49.0, held(10.0, proof(39.0))));
    assert_eq!(holder.held_at_least_seconds, Some(40.0));
    // Theirs ends at 44: of the second after that nothing is known.
    let holder = merged_holder(held(45.0, proof(5.0)), (44.0, held(10.0, proof(34.0))));
    assert_eq!(holder.held_at_least_seconds, Some(5.0));
    // Theirs was taken after ours.
    let holder = merged_holder(held(50.0, json!({})), (51.0, held(10.0, proof(41.0))));
    assert_eq!(holder.held_at_least_seconds, Some(40.0));
    // And began to prove only after ours.
    let holder = merged_holder(held(50.0, json!({})), (52.0, held(10.0, proof(1.0))));
    assert_eq!(holder.held_at_least_seconds, None);
}

#[test]
fn the_first_name_is_of_whoever_saw_it_first() {
    let name = |name: &str, seen: bool| json!({ "first_application_name": name, "seen_to_begin": seen, "application_name": "now" });
    let theirs = held(10.0, name("billing", true));
    let holder = merged_holder(held(48.0, name("stranger", false)), (49.0, theirs));
    assert_eq!(holder.first_application_name.as_deref(), Some("billing"));
    assert!(holder.seen_to_begin);
    assert_eq!(holder.session.application_name.as_deref(), Some("now"));
    // One that we saw begin ourselves has its first name from us.
    let own = held(20.0, name("billing", true));
    let holder = merged_holder(own, (49.0, held(21.0, name("stranger", false))));
    assert_eq!(holder.first_application_name.as_deref(), Some("billing"));
    assert!(holder.seen_to_begin);
}

#[test]
fn scope_is_taken_where_ours_is_unknown_and_how_it_is_now_never() {
    let theirs = json!({
        "scope": "session", "scope_evidence": "it outlived its transaction", "state": "active",
        "transactions_seen": 9,
    });
    let own = json!({ "scope": "unknown", "state": "idle", "transactions_seen": 2 });
    let holder = merged_holder(held(48.0, own), (49.0, held(10.0, theirs)));
    assert_eq!(holder.scope, Scope::Session);
    assert_eq!(holder.scope_evidence.as_deref(), Some("it outlived its transaction"));
    assert_eq!((holder.session.state.as_deref(), holder.transactions_seen), (Some("idle"), 9));
}

#[test]
fn contention_is_remembered_while_somebody_waits() {
    let theirs = held(10.0, json!({ "contended_since": at(12.0) }));
    let holder = merged_holder(held(48.0, json!({})), (49.0, theirs.clone()));
    assert_eq!(holder.contended_since, None, "nobody waits any more");
    let mut own = held(48.0, json!({}));
    own[0]["waiters"] = json!([{ "pid": 9 }]);
    let holder = merged_holder(own, (49.0, theirs));
    assert_eq!(holder.contended_since, time(12.0));
}

#[test]
fn a_prepared_transaction_is_known_by_its_gid() {
    let prepared = |gid: Value| json!({ "pid": null, "prepared": { "gid": gid } });
    let theirs = (49.0, held(10.0, prepared("a".into())));
    let holder = merged_holder(held(48.0, prepared("a".into())), theirs.clone());
    assert_eq!(holder.since, time(10.0));
    assert_untouched(held(48.0, prepared("b".into())), theirs);
    assert_untouched(held(48.0, prepared(Value::Null)), (49.0, held(10.0, prepared(Value::Null))));
}

#[test]
fn who_holds_is_ours_to_say() {
    let own = server(50.0, json!([lock(json!({ "holders": [] }))]));
    let merged = merge(own, &server(49.0, held(10.0, json!({}))));
    assert!(merged.locks.unwrap()[0].holders.is_empty());
    let theirs = server(49.0, held(10.0, json!({})));
    assert!(merge(server(50.0, json!([])), &theirs).locks.unwrap().is_empty(), "it was let go");
}

#[test]
fn a_name_is_taken_where_ours_has_none() {
    let named = |name: &str| {
        json!([lock(json!({
            "lock": name, "display_name": format!("{name}!"), "owner": "team", "runbook": "url",
            "limits": { "max_hold_seconds": 5.0, "max_wait_seconds": "unlimited" },
        }))])
    };
    let merged = |own: Value| {
        merge(server(50.0, own), &server(49.0, named("billing"))).locks.unwrap().remove(0)
    };
    let lock = merged(json!([lock(json!({ "lock": null }))]));
    assert_eq!((lock.lock.as_deref(), lock.owner.as_deref()), (Some("billing"), Some("team")));
    assert!(lock.limits.max_hold_seconds.is_some());
    assert_eq!(merged(named("ours")).lock.as_deref(), Some("ours"));
}

fn finding(kind: &str, pids: &[i32], text: &str) -> Value {
    json!({ "finding": kind, "severity": "warning", "text": text, "remedy": "", "pids": pids })
}

fn texts(server: &Server) -> Vec<&str> {
    let locks = server.locks.iter().flatten();
    locks.flat_map(|lock| lock.findings.iter().map(|finding| &*finding.text)).collect()
}

#[test]
fn of_one_finding_the_exporters_words_are_shown_and_others_join_in_the_order_of_the_rules() {
    let mut own = held(48.0, json!({}));
    own[0]["findings"] = json!([
        finding("held_too_long", &[7], "ours"),
        finding("order_inversion", &[7], "only ours"),
    ]);
    let mut theirs = held(10.0, json!({}));
    theirs[0]["findings"] = json!([
        finding("held_too_long", &[7], "theirs"),
        finding("pooled_backend", &[7], "only theirs"),
    ]);
    let merged = merge(server(50.0, own), &server(49.0, theirs));
    assert_eq!(texts(&merged), ["theirs", "only theirs", "only ours"]);
}

#[test]
fn a_finding_about_those_who_are_gone_is_over() {
    let mut theirs = held(10.0, json!({}));
    theirs[0]["findings"] = json!([
        finding("held_too_long", &[7], "of another backend"),
        finding("waiting_too_long", &[9], "of somebody who waits no more"),
        finding("stuck", &[7], "nobody waits"),
        finding("held_by_prepared_transaction", &[], "nobody prepared"),
        finding("vacant", &[], "it is held"),
        finding("flapping", &[], "of the key"),
    ]);
    let own = held(48.0, json!({ "backend_start": at(1.0) }));
    let merged = merge(server(50.0, own), &server(49.0, theirs));
    assert_eq!(texts(&merged), ["of the key"]);
}

#[test]
fn a_key_that_is_missed_is_missed_while_nobody_holds_it() {
    let theirs = server(
        49.0,
        json!([lock(json!({
            "lock": "leader", "findings": [finding("vacant", &[], "vacant")],
        }))]),
    );
    let merged = merge(server(50.0, json!([])), &theirs);
    assert_eq!(texts(&merged), ["vacant"]);
    let merged = merge(server(50.0, held(50.0, json!({}))), &theirs);
    assert!(texts(&merged).is_empty(), "somebody holds it now");
    let mut awaited = held(50.0, json!({}));
    awaited[0]["holders"] = json!([]);
    awaited[0]["waiters"] = json!([{ "pid": 9 }]);
    assert_eq!(texts(&merge(server(50.0, awaited), &theirs)), ["vacant"]);
}

#[test]
fn watching_began_with_whoever_watched_first_who_tells_what_could_not_be_judged() {
    let theirs = json!({
        "watching_since": at(1.0),
        "not_judged": [{ "finding": "missed", "in_part": false, "reason": "theirs" }],
    });
    let own =
        json!({ "not_judged": [{ "finding": "vacant", "in_part": false, "reason": "ours" }] });
    let theirs = server_with(49.0, json!([]), theirs);
    let merged = merge(server_with(50.0, json!([]), own), &theirs);
    assert_eq!(merged.watching_since, time(1.0));
    assert_eq!(merged.not_judged.unwrap()[0].reason, "theirs");
}

#[test]
fn a_server_is_the_same_by_its_system_identifier_and_role() {
    let own = server(50.0, json!([]));
    let with = |second: f64, more: Value| server_with(second, json!([]), more);
    assert!(find_same(&own, &[with(49.0, json!({}))]).is_ok());
    let cases = [
        (vec![with(49.0, json!({ "system_identifier": "8" }))], Mismatch::Other),
        (vec![with(49.0, json!({ "role": "standby" }))], Mismatch::Other),
        (vec![with(49.0, json!({ "system_identifier": null }))], Mismatch::UnknownTheirs),
        (vec![], Mismatch::Other),
        (vec![with(49.0, json!({ "up": false, "locks": null, "role": null }))], Mismatch::Down),
        (vec![with(46.0, json!({}))], Mismatch::Stale(Duration::from_secs(4))),
        (vec![with(54.0, json!({}))], Mismatch::Stale(Duration::from_secs(4))),
    ];
    for (theirs, mismatch) in cases {
        assert_eq!(find_same(&own, &theirs).unwrap_err(), mismatch);
    }
    let unknown = server_with(50.0, json!([]), json!({ "system_identifier": null }));
    let theirs = [with(49.0, json!({ "system_identifier": null }))];
    assert_eq!(find_same(&unknown, &theirs).unwrap_err(), Mismatch::UnknownOwn);
}

#[test]
fn a_picture_of_a_slow_exporter_may_be_older() {
    let own = server(50.0, json!([]));
    let slow = json!({ "poll": { "interval_seconds": 5.0 } });
    assert!(find_same(&own, &[server_with(36.0, json!([]), slow.clone())]).is_ok());
    let stale = [server_with(34.0, json!([]), slow)];
    assert_eq!(find_same(&own, &stale).unwrap_err(), Mismatch::Stale(Duration::from_secs(16)));
}

#[test]
fn of_one_server_under_two_names_the_one_that_remembers_most_is_taken() {
    let own = server(50.0, json!([]));
    let named = |name: &str, more: Value| {
        let mut server = server_with(49.0, json!([]), more);
        server.server = name.into();
        server
    };
    let all = [
        named("down", json!({ "up": false, "locks": null, "watching_since": at(0.0) })),
        named("late", json!({ "watching_since": at(40.0) })),
        named("early", json!({ "watching_since": at(4.0) })),
        named("unknown", json!({ "watching_since": null })),
    ];
    assert_eq!(&*find_same(&own, &all).unwrap().server, "early");
}

#[test]
fn a_standby_is_the_same_where_a_session_shows_it() {
    let standby = |second: f64, locks: Value, since: f64| {
        let more = json!({ "role": "standby", "watching_since": at(since) });
        server_with(second, locks, more)
    };
    let own = standby(50.0, held(48.0, json!({})), 50.0);
    let other = standby(49.0, held(10.0, json!({ "pid": 8 })), 1.0);
    let same = standby(49.0, held(10.0, json!({})), 9.0);
    assert_eq!(find_same(&own, std::slice::from_ref(&other)).unwrap_err(), Mismatch::AnyStandby);
    let all = [other, same];
    assert_eq!(find_same(&own, &all).unwrap().watching_since, time(9.0));
}

#[test]
fn a_copy_of_the_cluster_was_started_at_another_moment() {
    let started = |second: f64, moment: f64, role: &str| {
        server_with(second, json!([]), json!({ "started_at": at(moment), "role": role }))
    };
    let own = started(50.0, 3.0, "primary");
    assert_eq!(find_same(&own, &[started(49.0, 4.0, "primary")]).unwrap_err(), Mismatch::Other);
    assert!(find_same(&own, &[started(49.0, 3.0, "primary")]).is_ok());
    assert!(find_same(&own, &[server(49.0, json!([]))]).is_ok(), "an older exporter");
    // A standby proves itself too, and may have been promoted between the pictures.
    let own = started(50.0, 3.0, "standby");
    assert!(find_same(&own, &[started(49.0, 3.0, "standby")]).is_ok());
    assert!(find_same(&own, &[started(49.0, 3.0, "primary")]).is_ok());
}
