//! What happened, as `/api/v1/events` and the log tell it: a real hold and a real wait, seen by the
//! built binary.

use serde_json::Value;

use crate::support::{Exporter, Postgres, require};

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
