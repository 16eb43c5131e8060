//! Pictures written by hand, what is asked about a row of them, and what is refused.

use serde_json::{Value, json};

use super::*;
use crate::table::testing::parse_server;
use crate::top::source::Lost;
use crate::top::testing;

const START: &str = "2026-11-30T12:00:00.000001Z";

fn watched(server: Value) -> Watched {
    let mut full = json!({ "server": "main", "up": true });
    full.as_object_mut().unwrap().extend(server.as_object().unwrap().clone());
    testing::watched(parse_server(&full))
}

fn with(mut base: Value, more: Value) -> Value {
    base.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    base
}

fn lock(objid: u32, more: Value) -> Value {
    let key = json!({ "classid": 0, "objid": objid, "objsubid": 1 });
    with(json!({ "datname": "app", "key": key }), more)
}

/// Session 7, idle, has held a session-level lock for ten seconds at least; nobody waits.
fn holder(more: Value) -> Value {
    let holder = json!({
        "pid": 7, "backend_start": START, "application_name": "billing", "state": "idle",
        "first_application_name": "billing", "scope": "session", "seen_for_seconds": 10.0,
    });
    with(holder, more)
}

/// Session 8 has waited for two seconds for session 7.
fn waiter(more: Value) -> Value {
    let waiter = json!({
        "pid": 8, "backend_start": START, "application_name": "report", "state": "active",
        "waited_seconds": 2.0, "blocked_by": [{ "pid": 7, "kind": "hard", "certain": true }],
    });
    with(waiter, more)
}

fn held(more: Value) -> Watched {
    watched(json!({ "locks": [lock(42, json!({ "holders": [holder(more)] }))] }))
}

fn place(what: What) -> Place {
    Place { server: 0, what }
}

fn ask(verb: Verb, watched: &Watched, what: What) -> Question {
    Question::of(verb, true, std::slice::from_ref(watched), &place(what)).unwrap()
}

fn refusal(may_act: bool, watched: &Watched, what: What) -> String {
    let all = std::slice::from_ref(watched);
    Question::of(Verb::Terminate, may_act, all, &place(what)).unwrap_err()
}

/// What is said, warnings with a sign before them.
fn said(question: &Question) -> Vec<String> {
    let render = |(tone, text): &(Tone, String)| match tone {
        Tone::Warning => format!("! {text}"),
        Tone::Plain | Tone::Dim | Tone::Critical => text.clone(),
    };
    question.lines().iter().map(render).collect()
}

fn warnings(verb: Verb, holder: Value) -> Vec<String> {
    let mut said = said(&ask(verb, &held(holder), What::Lock(0)));
    said.retain(|line| line.starts_with('!'));
    said
}

#[test]
fn the_question_names_the_session_what_it_holds_and_who_would_be_let_in() {
    let holder = holder(json!({ "blocks": 3, "frees_next": [8], "frees_next_count": 1 }));
    let locks = json!([
        lock(1, json!({ "holders": [self::holder(json!({}))] })),
        lock(42, json!({ "lock": "nightly", "holders": [holder], "waiters": [waiter(json!({}))] })),
    ]);
    let watched = watched(json!({ "locks": locks }));
    let question = ask(Verb::Terminate, &watched, What::Lock(1));
    assert_eq!(question.title(), "End session 7 (billing) on main?");
    let expected = [
        "It holds nightly, key 1, the first for ≥ 10s.",
        "3 sessions wait behind it; once it lets go 8 (report) gets nightly.",
        "! The program may go on working without the lock.",
    ];
    assert_eq!(said(&question), expected);
    // From the row of the holder it is the same question.
    assert_eq!(ask(Verb::Terminate, &watched, What::Holder(1, 0)), question);
}

#[test]
fn of_a_thousand_keys_the_selected_one_is_named() {
    let key = |objid| lock(objid, json!({ "holders": [holder(json!({}))] }));
    let watched = watched(json!({ "locks": (0..1000).map(key).collect::<Value>() }));
    let said = said(&ask(Verb::Terminate, &watched, What::Holder(700, 0)));
    assert_eq!(said[0], "It holds key 700, key 0, key 1 and 997 more, the first for ≥ 10s.");
    let fold = (0..1000).collect();
    assert_eq!(ask(Verb::Terminate, &watched, What::Fold(fold)).pid, Pid(7));
}

#[test]
fn to_cancel_an_idle_session_is_said_to_change_nothing() {
    let idle = "! It is idle and runs no statement: to cancel it changes nothing.";
    assert_eq!(warnings(Verb::Cancel, json!({})), [idle]);
    let aborted = json!({ "state": "idle in transaction (aborted)" });
    assert!(warnings(Verb::Cancel, aborted)[0].contains("It is idle in transaction (aborted)"));
}

#[test]
fn to_cancel_a_statement_frees_what_belongs_to_its_transaction() {
    for (scope, expected) in [
        (
            "session",
            "! Its statement fails, and what it holds stays held: only its end lets it go.",
        ),
        (
            "transaction",
            "! Its statement fails; what it holds is free when the transaction is rolled back.",
        ),
        (
            "unknown",
            "! Its statement fails. A session-level lock stays held; a transaction-level one is free \
             when the transaction is rolled back.",
        ),
    ] {
        let working = json!({ "state": "active", "scope": scope });
        assert_eq!(warnings(Verb::Cancel, working), [expected], "{scope}");
    }
}

#[test]
fn a_waiter_is_cancelled_without_harm_to_the_holder_and_who_queues_behind_it_is_counted() {
    let blocked_by = json!([{ "pid": 8, "kind": "soft", "certain": true }]);
    let behind = waiter(json!({ "pid": 9, "blocked_by": blocked_by }));
    let waiters = json!({ "holders": [holder(json!({}))], "waiters": [waiter(json!({})), behind] });
    let watched = watched(json!({ "locks": [lock(42, waiters)] }));
    let question = ask(Verb::Cancel, &watched, What::Waiter(0, 0));
    assert_eq!(question.title(), "Cancel the statement of session 8 (report) on main?");
    let expected = [
        "It holds no advisory lock.",
        "It waits 2.0s for key 42.",
        "1 session waits behind it.",
        "! Its statement fails, and the holder is left alone.",
    ];
    assert_eq!(said(&question), expected);
}

#[test]
fn a_pooled_connection_and_what_is_rolled_back_are_warned_of() {
    let renamed = json!({ "application_name": "web" });
    let expected = "! It was called billing when it was first seen with the lock: it may be a pooled \
                    connection, and another program's work on it ends too.";
    assert_eq!(warnings(Verb::Terminate, renamed)[0], expected);

    let finding = json!({
        "finding": "pooled_backend", "severity": "warning", "text": "", "remedy": "", "pids": [7],
    });
    let more = json!({ "holders": [holder(json!({}))], "findings": [finding] });
    let watched = watched(json!({ "locks": [lock(42, more)] }));
    let said = said(&ask(Verb::Terminate, &watched, What::Lock(0)));
    assert_eq!(said[2], "! It is a pooled connection: whatever runs on it now ends too.");

    let last = |holder| warnings(Verb::Terminate, holder).pop().unwrap();
    let written = json!({ "state": "active", "has_written": true });
    assert_eq!(last(written), "! What its transaction has written is rolled back.");
    let active = json!({ "state": "active" });
    assert_eq!(last(active), "! Its transaction, if it is in one, is rolled back.");
    let hidden = json!({ "state": null });
    assert_eq!(last(hidden), "! What it does at the moment is hidden from this role.");
}

#[test]
fn a_root_and_who_waits_for_another_lock_are_asked_about_without_a_key() {
    let session = json!({ "backend_start": START, "application_name": "ddl", "state": "active" });
    let root = with(session.clone(), json!({ "pid": 5, "blocks": 2 }));
    let wait = json!({ "pid": 6, "locktype": "relation", "target": "relation 16402 in app" });
    let watched =
        watched(json!({ "roots": [root], "other_waits": [with(session, wait)], "locks": [] }));
    let root = ask(Verb::Terminate, &watched, What::Root(0));
    assert_eq!(said(&root)[..2], ["It holds no advisory lock.", "2 sessions wait behind it."]);
    let wait = ask(Verb::Cancel, &watched, What::OtherWait(0));
    assert_eq!(
        said(&wait)[1..3],
        ["It waits ? for relation 16402 in app.", "Nobody is seen to wait for it."]
    );
}

#[test]
fn a_picture_that_is_taken_seldom_is_said_to_be_old_perhaps() {
    let mut seldom = held(json!({}));
    seldom.interval = Duration::from_secs(60);
    let said = said(&ask(Verb::Terminate, &seldom, What::Lock(0)));
    assert_eq!(said.last().unwrap(), "! This picture may be 1m old: r takes a new one.");
}

#[test]
fn nobody_is_asked_about_who_may_not_be_acted_upon() {
    let by_hand = "SELECT pg_terminate_backend(7)";
    let seen = held(json!({}));
    let expected = format!("acting takes --allow-kill; by hand: {by_hand}");
    assert_eq!(refusal(false, &seen, What::Lock(0)), expected);

    let mut from = seen.clone();
    from.origin = Origin::Exporter { exporter: "http://db-1:10187".into() };
    let expected = format!("an exporter acts on nobody; on main: {by_hand}");
    assert_eq!(refusal(true, &from, What::Lock(0)), expected);

    let mut lost = seen.clone();
    lost.lost = Some(Lost { since: Timestamp::from_unix_micros(0), reason: "refused".into() });
    assert!(refusal(true, &lost, What::Lock(0)).starts_with("this picture is old"));

    let hidden = held(json!({ "backend_start": null }));
    let refused = refusal(true, &hidden, What::Lock(0));
    assert!(refused.contains("when session 7 began is hidden"), "{refused}");
    assert!(refused.contains("GRANT pg_read_all_stats TO"), "{refused}");

    let two = json!({ "holders": [holder(json!({})), holder(json!({ "pid": 9 }))] });
    let two = watched(json!({ "locks": [lock(1, two), lock(2, json!({}))] }));
    assert!(refusal(true, &two, What::Lock(0)).contains("choose one in the Sessions view (2)"));
    assert_eq!(refusal(true, &two, What::Lock(1)), "nobody holds it");
    assert_eq!(refusal(true, &two, What::Server), "there is no row to act upon");
    assert_eq!(refusal(true, &two, What::Waiter(1, 0)), "it is gone");
}

#[test]
fn a_prepared_transaction_is_never_asked_about_and_its_remedy_is_told() {
    for (gid, expected) in [
        (json!("it's"), "COMMIT PREPARED 'it''s' or ROLLBACK PREPARED 'it''s' in its database"),
        (json!(null), "find its gid in pg_prepared_xacts"),
    ] {
        let prepared = json!({ "pid": null, "backend_start": null, "prepared": { "gid": gid } });
        let prepared = held(prepared);
        for what in [What::Lock(0), What::Holder(0, 0)] {
            let refused = refusal(true, &prepared, what);
            assert!(refused.contains(expected), "{refused}");
        }
    }
}

#[test]
fn an_answer_counts_only_while_what_was_asked_about_is_so() {
    let on = |holder: Value, waiter: Value| {
        let more = json!({ "lock": "nightly", "holders": [holder], "waiters": [waiter] });
        watched(json!({ "locks": [lock(42, more)] }))
    };
    let then = on(holder(json!({})), waiter(json!({})));
    let holds = ask(Verb::Terminate, &then, What::Lock(0));
    let waits = ask(Verb::Cancel, &then, What::Waiter(0, 0));
    let all = std::slice::from_ref(&then);
    assert_eq!((holds.recheck(all), waits.recheck(all)), (Ok(()), Ok(())));

    // The waiter has been let in.
    let now = on(holder(json!({ "pid": 8 })), waiter(json!({ "pid": 9 })));
    let expected = "session 7 (billing) does not hold nightly any more: nothing was done";
    assert_eq!(holds.recheck(std::slice::from_ref(&now)).unwrap_err(), expected);
    let expected = "session 8 (report) does not wait for nightly any more: nothing was done";
    assert_eq!(waits.recheck(&[now]).unwrap_err(), expected);
    // Somebody else has the pid.
    let later = json!({ "backend_start": "2026-11-30T12:00:00.000002Z" });
    assert!(holds.recheck(&[on(holder(later), waiter(json!({})))]).is_err());

    let mut lost = then;
    lost.lost = Some(Lost { since: Timestamp::from_unix_micros(0), reason: "refused".into() });
    assert!(holds.recheck(&[lost]).is_err());
    assert!(holds.recheck(&[]).is_err());
}
