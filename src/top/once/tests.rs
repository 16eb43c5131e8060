//! Whole outputs of small pictures.

use std::sync::Arc;

use serde_json::{Value, json};

use super::*;
use crate::snapshot::Server;
use crate::table::testing::{finding, held, holder, lock, server, waiter, with};
use crate::top::testing;

fn watched(name: &str, locks: &Value) -> Watched {
    testing::watched(server(name, locks))
}

fn options(kind: ViewKind) -> Options {
    Options {
        kind,
        sort: Sort::default(),
        filter: Filter::default(),
        columns: Vec::new(),
        has_header: true,
    }
}

fn stuck() -> Value {
    with(
        held(42, Some("nightly-billing"), holder(7, "billing-b", 312.0)),
        &json!({
            "waiters": [waiter(8, "billing-a", 4.0)],
            "findings": [finding("waiting_too_long", "warning", &[8]),
                         finding("stuck", "critical", &[7])],
        }),
    )
}

#[test]
fn a_person_gets_the_rows_and_below_them_what_is_wrong_with_its_remedy() {
    let missed = json!({ "findings": [finding("missed", "critical", &[])] });
    let all = [watched("main", &json!([stuck(), with(lock(77, Some("leader")), &missed)]))];
    let text = render(&options(ViewKind::Locks), &all);
    let (table, findings) = text.split_once("\n\n").unwrap();
    let table: Vec<Vec<&str>> =
        table.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(table[0][..3], ["LOCK", "KEY", "DATABASE"]);
    assert_eq!(table[1][..3], ["nightly-billing", "42", "app"]);
    assert_eq!(table[2][..3], ["leader", "77", "app"]);
    assert_eq!(
        findings,
        "CRITICAL stuck: nightly-billing, key 42 in app on main\n  stuck of [7]\n  remedy: mend \
         stuck\n\nCRITICAL missed: leader, key 77 in app on main\n  missed of []\n  remedy: mend \
         missed\n\nWARNING waiting_too_long: nightly-billing, key 42 in app on main\n  \
         waiting_too_long of [8]\n  remedy: mend waiting_too_long\n"
    );
}

#[test]
fn a_finding_is_told_once_for_all_sessions_of_its_key() {
    let all = [watched("main", &json!([stuck()]))];
    let text = render(&options(ViewKind::Sessions), &all);
    assert_eq!(text.matches("CRITICAL stuck").count(), 1, "{text}");
}

#[test]
fn a_script_gets_the_rows_that_it_asked_for_and_nothing_else() {
    let all = [watched("main", &json!([stuck()]))];
    let columns = vec![Column::Lock, Column::Waiters, Column::Findings];
    let named = Options { columns, ..options(ViewKind::Locks) };
    assert_eq!(
        render(&named, &all),
        "LOCK             WAITERS  FINDINGS\nnightly-billing        1  !stuck, waiting_too_long\n"
    );
    let bare = Options { has_header: false, ..named };
    assert_eq!(render(&bare, &all), "nightly-billing  1  !stuck, waiting_too_long\n");
    let unnamed = Options { has_header: false, ..options(ViewKind::Locks) };
    assert_eq!(render(&unnamed, &all).lines().count(), 1);
}

#[test]
fn many_keys_that_say_the_same_are_a_row_each() {
    let locks: Vec<Value> = (0..1000).map(|key| held(key, None, holder(7, "queue", 1.0))).collect();
    let all = [watched("main", &locks.into())];
    let rows = Options {
        columns: vec![Column::Key],
        sort: Sort::by(Column::Key),
        has_header: false,
        ..options(ViewKind::Locks)
    };
    let expected: String = (0..1000).map(|key| format!("{key}\n")).collect();
    assert_eq!(render(&rows, &all), expected);
}

#[test]
fn nothing_to_show_is_said_in_words_to_a_person_only() {
    let all = [watched("main", &json!([]))];
    for (kind, said) in [
        (ViewKind::Locks, "no advisory lock is held or awaited on main\n"),
        (ViewKind::Sessions, "no session holds or awaits an advisory lock on main\n"),
        (ViewKind::Tree, "nobody waits on main\n"),
    ] {
        let text = render(&options(kind), &all);
        assert!(text.ends_with(said), "{text}");
        let bare = Options { has_header: false, ..options(kind) };
        assert_eq!(render(&bare, &all), "", "{kind:?}");
    }
    let filter = Filter::parse("foo");
    let text = render(&Options { filter, ..options(ViewKind::Tree) }, &all);
    assert_eq!(text, "no row matches foo\n");
}

#[test]
fn nothing_is_said_of_a_server_that_was_not_seen() {
    let mut blind = watched("blind", &json!([]));
    blind.server = Arc::new(Server { up: false, locks: None, ..Server::clone(&blind.server) });
    assert_eq!(render(&options(ViewKind::Tree), &[blind.clone()]), "");
    let text = render(&options(ViewKind::Tree), &[blind, watched("main", &json!([]))]);
    assert_eq!(text, "nobody waits on main\n");
}

#[test]
fn texts_of_others_are_whole_and_stay_in_their_line() {
    let name = format!("{}\u{202e}\u{1b}[31m\n鍵", "x".repeat(300));
    let all = [watched("main", &json!([held(1, None, holder(7, &name, 1.0))]))];
    let rows = Options {
        columns: vec![Column::Application, Column::Key],
        has_header: false,
        ..options(ViewKind::Locks)
    };
    let shown = format!("{}\\u{{202e}}\\u{{1b}}[31m\\n鍵  1\n", "x".repeat(300));
    assert_eq!(render(&rows, &all), shown);
}

#[test]
fn of_several_servers_each_row_and_finding_says_which() {
    let all = [watched("one", &json!([stuck()])), watched("two", &json!([stuck()]))];
    let text = render(&options(ViewKind::Locks), &all);
    assert!(text.starts_with("SERVER  LOCK "), "{text}");
    assert!(text.contains("\none     nightly-billing") && text.contains("\ntwo     nightly"));
    assert!(text.contains("in app on one\n") && text.contains("in app on two\n"));
}
