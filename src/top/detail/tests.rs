//! What is said of a row, searched for the lines that matter.

use std::sync::Arc;
use std::time::Duration;

use super::*;
use crate::sample::Pid;
use crate::snapshot::parse_events;
use crate::table::column::ViewKind;
use crate::table::filter::Filter;
use crate::top::app::Options;
use crate::top::input::{Action, Motion};
use crate::top::testing;

/// The pictures beside the goldens.
fn app(name: &str, kind: ViewKind, filter: &str) -> App {
    let mut app = App::new(Options {
        filter: Filter::parse(filter),
        may_act: false,
        shows_queries: true,
        is_ascii: true,
        ..testing::options(kind)
    });
    app.observe(testing::servers(name).into_iter().map(testing::watched).collect());
    app
}

fn text(app: &App) -> String {
    let lines = lines(app, 1000);
    let line = |cells: Vec<Cell>| cells.into_iter().map(|cell| cell.text).collect::<String>();
    lines.into_iter().map(|cells| line(cells) + "\n").collect()
}

fn assert_says(app: &App, lines: &[&str]) {
    let text = text(app);
    for line in lines {
        assert!(text.contains(&format!("{line}\n")), "{line:?} is not in\n{text}");
    }
}

#[test]
fn a_key_is_there_in_every_form_and_how_it_is_let_go_is_no_remedy() {
    let locks = app("jam", ViewKind::Locks, "lock:signup-pooled");
    assert_says(
        &locks,
        &[
            "bigint       3527008159069678219",
            "pg_locks     classid/objid/objsubid 821195579/3644893835/1",
            "hexadecimal  0x30f2733bd940aa8b",
            "to see it    SELECT * FROM pg_locks WHERE locktype = 'advisory' AND (classid, objid, \
             objsubid) = (821195579, 3644893835, 1)",
            "to let go    pg_advisory_unlock works in the session that holds it alone, and is no \
             remedy from elsewhere",
        ],
    );
    let pair = app("night", ViewKind::Locks, "lock:tenant-reindex");
    assert_says(&pair, &["pair         7, 99", "hexadecimal  0x00000007, 0x00000063"]);
}

#[test]
fn a_name_of_before_and_what_is_not_told_are_said() {
    assert_says(
        &app("jam", ViewKind::Locks, "lock:signup-pooled"),
        &[
            "  it was called pod-a when it was first seen with the lock, which had begun before",
            "  user not shown by this exporter, client not shown by this exporter, connected at \
             2025-12-01 01:00:00Z",
        ],
    );
}

#[test]
fn a_session_has_its_chain_up_to_the_root_and_down() {
    let mut tree = app("jam", ViewKind::Tree, "pid:6103");
    tree.apply(Action::Move(Motion::Last));
    tree.apply(Action::Move(Motion::Up));
    assert_says(
        &tree,
        &[
            "session 6102 (report) on orders-2",
            "WHO WAITS FOR WHOM:",
            "6100 pod-c (was pod-a)  idle for 20m  3 behind it  held ≥ 20m: signup-pooled",
            "`- 6101 pod-d  waits 2m for signup-pooled (exclusive)",
            "   `- 6102 report  waits 1m40s for relation 16500 in app (AccessExclusiveLock)  held \
             ≥ 1m50s: key 8",
            "      `- 6103 report-mail  waits 1m for key 8 (exclusive)",
        ],
    );
}

#[test]
fn of_a_session_of_whom_nothing_is_said_there_is_what_is_said_of_its_key() {
    let mut tree = app("night", ViewKind::Tree, "pid:4721");
    tree.apply(Action::Move(Motion::Last));
    let text = text(&tree);
    assert!(text.starts_with("session 4721 (billing-c) on orders-1\nCRITICAL stuck:"), "{text}");
}

#[test]
fn a_long_list_says_how_many_are_left_out() {
    let tree = app("jam", ViewKind::Tree, "");
    assert_says(&tree, &["session 6200 (import) on orders-2", "and 11 more"]);
}

#[test]
fn a_fold_has_what_its_keys_have_in_common_and_some_of_them() {
    let crowd = app("crowd", ViewKind::Locks, "");
    let fold = crowd.rows().iter().position(|row| matches!(row.place.what, What::Fold(_)));
    let mut crowd = crowd;
    crowd.apply(Action::Move(Motion::First));
    for _ in 0..fold.unwrap() {
        crowd.apply(Action::Move(Motion::Down));
    }
    let text = text(&crowd);
    assert!(text.contains("IN COMMON:\neach held by "), "{text}");
    assert_eq!(text.matches("≥").count(), LISTED, "{text}");
}

#[test]
fn the_past_says_since_when_somebody_looked() {
    let mut locks = app("jam", ViewKind::Locks, "lock:signup-pooled");
    locks.apply(Action::Enter);
    assert_says(&locks, &["WHAT HAPPENED, THE NEWEST FIRST:", "being asked for"]);
    let wanted = locks.wanted_history().unwrap();
    locks.observe_history(wanted.clone(), Err("connection refused".into()));
    assert_says(&locks, &["not known: connection refused"]);
    let events = br#"{"schema":1,"servers":[],"events":[{"at":"2025-12-01T02:40:00Z",
        "server":"orders-2","datname":"app","event":"hold_began","pid":6100,
        "application_name":"pod-a"}]}"#;
    locks.observe_history(wanted, Ok(parse_events(events).unwrap()));
    assert_says(
        &locks,
        &[
            "2025-12-01 02:40:00Z  hold began  pod-a (pid 6100)",
            "nobody looked before 2025-12-01 02:00:00Z; of much only the last is kept",
        ],
    );
}

#[test]
fn query_texts_are_there_where_they_were_asked_for() {
    let mut locks = app("jam", ViewKind::Locks, "lock:signup-pooled");
    assert!(!text(&locks).contains("query:"));
    let query: (Arc<str>, Arc<str>) = ("SELECT\n  1".into(), "hidden".into());
    let lock = locks.selected().unwrap().place.lock(locks.watched()).unwrap();
    let backend = |pid: i32| {
        let holder = lock.holders.iter().find(|one| one.pid == Some(Pid(pid)));
        let waiter = lock.waiters.iter().find(|one| one.pid == Some(Pid(pid)));
        let session = holder.map(|one| &one.session).or(waiter.map(|one| &one.session));
        (Pid(pid), session.unwrap().backend_start.unwrap())
    };
    let (one, other) = (backend(6100), backend(6101));
    locks.observe_queries(
        "orders-2".into(),
        vec![(one, Ok(query.0.clone())), (other, Err(query.1))],
    );
    assert_says(&locks, &["  query: SELECT 1", "  query: hidden"]);
    // Of another backend that had the pid before.
    let before = (one.0, one.1.before(Duration::from_secs(1)));
    locks.observe_queries("orders-2".into(), vec![(before, Ok(query.0))]);
    assert!(!text(&locks).contains("SELECT 1"));
}

#[test]
fn whoever_is_gone_is_said_to_be_gone() {
    let mut locks = app("jam", ViewKind::Locks, "");
    locks.apply(Action::Enter);
    locks.observe(Vec::new());
    assert!(text(&locks).starts_with("it is gone:"), "{}", text(&locks));
}
