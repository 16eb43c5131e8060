//! Servers for tests, of values written by hand.

use serde_json::{Value, json};

use crate::snapshot::{Server, parse_snapshot};

/// A server as its JSON tells it.
pub fn parse_server(value: &Value) -> Server {
    let json = json!({ "schema": 1, "servers": [value] });
    parse_snapshot(json.to_string().as_bytes()).unwrap().servers.remove(0)
}

/// A server with these locks.
pub fn server(name: &str, locks: &Value) -> Server {
    parse_server(&json!({ "server": name, "up": true, "locks": locks }))
}

/// The same value with these fields.
pub fn with(mut value: Value, more: &Value) -> Value {
    value.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    value
}

/// A key that nobody is on.
pub fn lock(number: u32, name: Option<&str>) -> Value {
    let key = json!({ "classid": 0, "objid": number, "objsubid": 1 });
    json!({ "datname": "app", "key": key, "lock": name })
}

/// A session that holds a key for so many seconds.
pub fn holder(pid: i32, application: &str, seconds: f64) -> Value {
    json!({
        "pid": pid, "application_name": application, "first_application_name": application,
        "state": "idle", "mode": "exclusive", "seen_for_seconds": seconds,
    })
}

/// A key with one holder.
pub fn held(number: u32, name: Option<&str>, holder: Value) -> Value {
    with(lock(number, name), &json!({ "holders": [holder] }))
}

/// A session that waits for a key.
pub fn waiter(pid: i32, application: &str, seconds: f64) -> Value {
    json!({ "pid": pid, "application_name": application, "state": "active",
            "waited_seconds": seconds })
}

/// What is said of somebody.
pub fn finding(name: &str, severity: &str, pids: &[i32]) -> Value {
    json!({ "finding": name, "severity": severity, "text": format!("{name} of {pids:?}"),
            "remedy": format!("mend {name}"), "pids": pids })
}
