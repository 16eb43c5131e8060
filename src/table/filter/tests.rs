//! What is found by which words.

use serde_json::json;

use super::*;
use crate::table::column::{Sort, ViewKind};
use crate::table::list::flat_rows;
use crate::table::testing::{finding, held, holder, lock, server, waiter, with};

/// Two servers: a lock that is stuck and awaited, a free one that is missed, a prepared
/// transaction, and somebody with an umlaut.
fn servers() -> [Server; 2] {
    let user = json!({ "usename": "ledger" });
    let stuck = with(
        held(4711, Some("nightly-billing"), with(holder(311, "pod-c", 312.0), &user)),
        &json!({
            "display_name": "nightly-billing (tenant 7)",
            "waiters": [waiter(312, "billing-worker", 4.0)],
            "findings": [finding("stuck", "critical", &[311])],
        }),
    );
    let pooled = json!({ "first_application_name": "pod-a", "state": "idle in transaction" });
    let missed =
        with(lock(77, Some("leader")), &json!({ "findings": [finding("missed", "warning", &[])] }));
    let prepared = json!({ "pid": null, "mode": "exclusive", "prepared": { "gid": "order-47" } });
    [
        server(
            "orders-1",
            &json!([stuck, held(12, None, with(holder(5, "pod-b", 1.0), &pooled)), missed,]),
        ),
        server(
            "billing-2",
            &json!([
                with(held(99, None, prepared), &json!({ "datname": "archive" })),
                held(100, None, holder(6, "Größe", 1.0)),
            ]),
        ),
    ]
}

/// The keys of the rows that are shown.
fn keys(kind: ViewKind, text: &str) -> Vec<String> {
    let all = servers();
    let rows = flat_rows(kind, &all, &Filter::parse(text), Sort::parse(kind, "key").unwrap());
    rows.iter().map(|row| row.place.lock(&all).unwrap().key.to_string()).collect()
}

#[track_caller]
fn assert_finds(text: &str, expected: &[&str]) {
    assert_eq!(keys(ViewKind::Locks, text), expected, "/{text}");
}

const ALL: &[&str] = &["12", "77", "99", "100", "4711"];

#[test]
fn a_word_is_looked_for_everywhere_whatever_its_case() {
    for (text, expected) in [
        ("", ALL),
        ("nightly", &["4711"]),
        ("NIGHTLY", &["4711"]),
        ("tenant", &["4711"]),
        ("pod", &["12", "4711"]),
        ("worker", &["4711"]),
        ("ledger", &["4711"]),
        ("archive", &["99"]),
        ("orders", &["12", "77", "4711"]),
        ("transaction", &["12"]),
        ("stuck", &["4711"]),
        ("critical", &["4711"]),
        ("order-47", &["99"]),
        ("prepared", &["99"]),
        ("unregistered", &["12", "99", "100"]),
        ("größe", &["100"]),
        ("GRÖSSE", &[]),
        ("GRÖßE", &["100"]),
        ("nowhere", &[]),
    ] {
        assert_finds(text, expected);
    }
}

#[test]
fn all_words_have_to_be_found() {
    assert_finds("pod nightly", &["4711"]);
    assert_finds("  pod   orders  ", &["12", "4711"]);
    assert_finds("pod archive", &[]);
}

#[test]
fn a_place_before_a_word_looks_there_alone() {
    for (text, expected) in [
        ("app:pod", &["12", "4711"][..]),
        ("application:pod-a", &["12"]),
        ("app:billing", &["4711"]),
        ("lock:billing", &["4711"]),
        ("server:billing", &["99", "100"]),
        ("db:archive", &["99"]),
        ("database:app", &["12", "77", "100", "4711"]),
        ("state:prepared", &["99"]),
        ("lock:unregistered", &["12", "99", "100"]),
        ("state:idle", &["12", "100", "4711"]),
        ("finding:missed", &["77"]),
        ("finding:warning", &["77"]),
        ("user:ledger", &["4711"]),
        ("key:77", &["77"]),
        ("key:7", &["77", "4711"]),
        ("APP:pod-c", &["4711"]),
        ("pid:311", &["4711"]),
        ("pid:312", &["4711"]),
    ] {
        assert_finds(text, expected);
    }
}

#[test]
fn a_number_is_a_whole_pid_or_a_part_of_a_key_or_name() {
    assert_finds("311", &["4711"]);
    assert_finds("31", &[]);
    assert_finds("pid:31", &[]);
    assert_finds("471", &["4711"]);
}

#[test]
fn a_mark_before_a_word_takes_away_what_has_it() {
    assert_finds("!pod", &["77", "99", "100"]);
    assert_finds("orders !finding:stuck", &["12", "77"]);
    assert_finds("!app:pod-c !app:pod-b !orders-1", &["99", "100"]);
}

#[test]
fn what_is_half_typed_hides_nothing() {
    for text in ["!", "app:", "!app:", "pid: ", " "] {
        assert_finds(text, ALL);
        assert!(Filter::parse(text).is_empty(), "/{text}");
    }
}

#[test]
fn a_colon_after_no_place_is_a_part_of_the_word() {
    assert_finds("host:5432", &[]);
    let all = [server("main", &json!([held(1, None, holder(7, "sidekiq:5432", 1.0))]))];
    let rows = |text| flat_rows(ViewKind::Locks, &all, &Filter::parse(text), Sort::default()).len();
    assert_eq!((rows("sidekiq:5"), rows("app:sidekiq:5"), rows("sidekiq:6")), (1, 1, 0));
}

#[test]
fn a_session_is_found_by_itself_and_its_key_but_not_by_others_on_it() {
    let pids = |text| {
        let all = servers();
        let rows = flat_rows(ViewKind::Sessions, &all, &Filter::parse(text), Sort::default());
        let pid = |place: &crate::table::row::Place| place.party(&all).unwrap().pid().unwrap().0;
        let mut pids: Vec<i32> = rows.iter().map(|row| pid(&row.place)).collect();
        pids.sort_unstable();
        pids
    };
    assert_eq!(pids("nightly"), [311, 312]);
    assert_eq!(pids("pid:312"), [312]);
    assert_eq!(pids("worker"), [312]);
    assert_eq!(pids("stuck"), [311], "it is said of the holder");
    assert_eq!(pids("nightly !worker"), [311]);
}

#[test]
fn the_text_stays_as_it_was_typed() {
    assert_eq!(Filter::parse(" App:Pod  !x ").text(), " App:Pod  !x ");
}
