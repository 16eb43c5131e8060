//! What happened, as `/api/v1/events` and the log tell it: a real hold and a real wait, seen by the
//! built binary.

use serde_json::Value;

use crate::support::{Exporter, Postgres, eventually, require};

const REGISTRY: &str = "locks: [{ name: nightly, key: 42 }]";

/// The events of one lock, the newest first.
async fn events(exporter: &Exporter, query: &str, headers: &[(&str, &str)]) -> Vec<Value> {
    let response = exporter.get(&format!("/api/v1/events{query}"), headers).await;
    assert_eq!(response.status, 200, "{}", response.text());
    let mut answer: Value = serde_json::from_slice(&response.body).expect("it is JSON");
    answer["events"].as_array_mut().expect("events are listed").drain(..).collect()
}

#[tokio::test]
async fn one_hold_and_one_wait_are_told_from_beginning_to_end() {
    require!(Postgres);
    let postgres = Postgres::start().await;
    let exporter = Exporter::watching(&postgres.dsn("postgres")).registry(REGISTRY).start().await;
    exporter.scrape_fresh().await;

    let first = postgres.holds("billing-a", "42").await;
    exporter.scrape_fresh().await;
    let waiter = postgres.waits("billing-b", "42").await;
    exporter.scrape_fresh().await;
    let first_pid = first.pid();
    first.run("SELECT pg_advisory_unlock(42)").await;
    waiter.statement.finish().await;
    exporter.scrape_fresh().await;
    waiter.session.run("SELECT pg_advisory_unlock(42)").await;
    exporter.scrape_fresh().await;

    let all = events(&exporter, "?lock=nightly", &[]).await;
    let told: Vec<_> = all
        .iter()
        .map(|event| {
            let name = event["application_name"].as_str().expect("it is known");
            (event["event"].as_str().expect("it has a name"), name)
        })
        .collect();
    let expected = [
        ("hold_ended", "billing-b"),
        ("holder_changed", "billing-b"),
        ("hold_began", "billing-b"),
        ("wait_ended", "billing-b"),
        ("hold_ended", "billing-a"),
        ("wait_began", "billing-b"),
        ("hold_began", "billing-a"),
    ];
    assert_eq!(told, expected);
    assert_eq!(all[1]["from"]["pid"], first_pid);
    assert_eq!(all[3]["outcome"], "granted");
    assert_eq!((&all[3]["datname"], &all[3]["key"]["text"]), (&"app".into(), &"42".into()));
    for event in &all {
        let moment = |field: &str| event[field].as_str().expect("it is known").to_owned();
        let (not_before, not_after) = (moment("not_before"), moment("not_after"));
        assert!(not_before <= not_after && not_after <= moment("at"), "{event}");
    }
    assert_eq!(events(&exporter, "?limit=1", &[]).await, all[..1]);
    let strangers = events(&exporter, "", &[("X-Forwarded-For", "203.0.113.9")]).await;
    let fields = strangers[0].as_object().expect("it is an object");
    assert!(!fields.contains_key("client_addr") && !fields.contains_key("usename"), "{fields:?}");
}

#[tokio::test]
async fn a_named_lock_that_is_held_for_long_is_logged_when_it_has_been_and_when_it_ends() {
    require!(Postgres);
    let postgres = Postgres::start().await;
    let exporter = Exporter::watching(&postgres.dsn("postgres")).registry(REGISTRY).start().await;
    exporter.scrape_fresh().await;
    let holder = postgres.holds("billing-a", "42").await;
    let _unnamed = postgres.holds("other", "43").await;
    let of_holder = format!("lock=nightly key=42 mode=exclusive pid={}", holder.pid());

    let lasting = [r#"msg="hold lasts""#, &of_holder, "application_name=billing-a"];
    eventually("it has been held for 10 s", async || {
        assert_eq!(exporter.logged(&lasting).len(), 1);
    })
    .await;
    assert!(exporter.logged(&["hold ended"]).is_empty());
    holder.run("SELECT pg_advisory_unlock(42)").await;
    exporter.scrape_fresh().await;
    let ended = eventually("its end is logged", async || {
        let lines = exporter.logged(&[r#"msg="hold ended""#, &of_holder]);
        assert_eq!(lines.len(), 1);
        lines
    })
    .await;
    let seen_for = ended[0].split("seen_for_seconds=").nth(1).expect("the line says for how long");
    let seen_for: f64 = seen_for.split(' ').next().and_then(|text| text.parse().ok()).unwrap();
    assert!((10.0..60.0).contains(&seen_for), "{ended:?}");
    // Each once, and nothing of the other lock.
    assert_eq!(exporter.logged(&["key="]).len(), 2, "{}", exporter.log());
}

#[tokio::test]
async fn a_finding_is_told_and_logged_when_it_begins_and_when_it_ends() {
    require!(Postgres);
    let postgres = Postgres::start().await;
    let brief = "locks: [{ name: nightly, key: 42, max_hold: 500ms }]";
    let exporter = Exporter::watching(&postgres.dsn("postgres")).registry(brief).start().await;
    exporter.scrape_fresh().await;
    let holder = postgres.holds("billing-a", "42").await;
    let told = async |event: &str| {
        let all = events(&exporter, "?lock=nightly", &[]).await;
        all.into_iter().find(|it| it["event"] == event).unwrap_or_else(|| panic!("no {event}"))
    };
    let began = eventually("it is held for too long", async || told("finding_began").await).await;
    assert_eq!(
        (&began["finding"], &began["severity"]),
        (&"held_too_long".into(), &"warning".into())
    );
    assert_eq!((&began["pids"][0], &began["at_first_poll"]), (&holder.pid().into(), &false.into()));
    holder.run("SELECT pg_advisory_unlock(42)").await;
    exporter.scrape_fresh().await;
    let ended = told("finding_ended").await;
    assert!(ended["seen_for_seconds"].as_f64().is_some(), "{ended}");
    let of_finding = ["finding=held_too_long severity=warning", "datname=app lock=nightly key=42"];
    eventually("both are logged", async || {
        for (message, more) in
            [("finding began", "max_hold is 500ms"), ("finding ended", "seen_for_seconds=")]
        {
            let message = format!("msg=\"{message}\"");
            let lines = exporter.logged(&[&*message, more, of_finding[0], of_finding[1]]);
            assert_eq!(lines.len(), 1, "{message}: {}", exporter.log());
        }
    })
    .await;
}

#[tokio::test]
async fn with_log_events_everything_is_logged_and_a_burst_in_part() {
    require!(Postgres);
    let postgres = Postgres::builder().setting("max_locks_per_transaction", 400).start().await;
    let watching = Exporter::watching(&postgres.dsn("postgres")).argument("--log.events");
    let exporter = watching.registry(REGISTRY).start().await;
    exporter.scrape_fresh().await;
    let holder = postgres.holds("billing-a", "42").await;
    exporter.scrape_fresh().await;
    let waiter = postgres.waits("billing-b", "42").await;
    exporter.scrape_fresh().await;
    waiter.statement.cancel().await;
    exporter.scrape_fresh().await;
    for (message, more) in [
        ("hold began", "application_name=billing-a"),
        ("wait began", "application_name=billing-b"),
        ("wait ended", "application_name=billing-b outcome=gone"),
    ] {
        let message = format!("msg=\"{message}\"");
        eventually("it is logged", async || {
            let lines = exporter.logged(&[&message, "lock=nightly key=42", more]);
            assert_eq!(lines.len(), 1, "{message} {more}: {}", exporter.log());
        })
        .await;
    }

    holder.run("SELECT pg_advisory_lock(g) FROM generate_series(1000, 20999) g").await;
    exporter.scrape_fresh().await;
    let left_out = ["left out lines about findings, holds and waits", "lines="];
    eventually("what is left out is counted", async || {
        assert!(!exporter.logged(&left_out).is_empty());
    })
    .await;
    let began = exporter.logged(&[r#"msg="hold began""#]).len();
    assert!((50..1000).contains(&began), "{began} lines");
}
