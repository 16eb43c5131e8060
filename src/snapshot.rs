//! The JSON snapshot read back: what `/api/v1/locks` of an exporter says, as values.
//!
//! Commands that look at locks from outside (`check`, `registry suggest`) read nothing else, whether the
//! snapshot came over HTTP or was made by this process, so both ways show the same. What the JSON
//! has beside the fields here is ignored: a newer exporter of the same schema may say more. A
//! field that is left out for strangers reads like one that is unknown.

use std::sync::Arc;

use serde::{Deserialize, Deserializer};

use crate::finding::Severity;
use crate::key::Key;
use crate::sample::Pid;
use crate::timestamp::Timestamp;
use crate::tracker::Scope;
use crate::view::SCHEMA;

/// Every server that an exporter watches.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Snapshot {
    /// In the order of its configuration.
    pub servers: Vec<Server>,
}

/// One server.
#[derive(Clone, Debug, Deserialize)]
pub struct Server {
    /// The `server` label.
    pub server: Arc<str>,
    /// Whether the last poll was answered.
    pub up: bool,
    /// Why not.
    #[serde(default)]
    pub error: Option<String>,
    /// Its version, as it writes it.
    #[serde(default)]
    pub version: Option<Arc<str>>,
    /// `primary` or `standby`.
    #[serde(default)]
    pub role: Option<Arc<str>>,
    /// When it was polled, on its own clock.
    #[serde(default)]
    pub polled_at: Option<Timestamp>,
    /// How well it could be seen.
    #[serde(default)]
    pub looked_at: Option<LookedAt>,
    /// How full its lock table is.
    #[serde(default)]
    pub lock_table: LockTable,
    /// Whoever looks is behind a pooler.
    #[serde(default)]
    pub pooled_connection: Option<bool>,
    /// Keys of the registry that have several names there.
    #[serde(default)]
    pub registry_conflicts: usize,
    /// The first sample of whoever looks, on the server's clock.
    #[serde(default)]
    pub watching_since: Option<Timestamp>,
    /// The findings that could not be judged; `None` also from an exporter that does not tell.
    #[serde(default)]
    pub not_judged: Option<Vec<Gap>>,
    /// Every key held or awaited, and every other of which something is to be said; `None` after a
    /// failed poll.
    #[serde(default)]
    pub locks: Option<Vec<Lock>>,
}

/// How well a server could be seen.
#[derive(Clone, Debug, Deserialize)]
pub struct LookedAt {
    /// In words.
    #[serde(deserialize_with = "decode_privileges", rename = "privileges")]
    pub privileges_sufficient: Option<bool>,
}

/// Entries of the lock table.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
pub struct LockTable {
    /// Taken, when they were last counted.
    #[serde(default)]
    pub entries: Option<u64>,
    /// Promised.
    #[serde(default)]
    pub capacity: Option<u64>,
}

/// A rule that could not be judged.
#[derive(Clone, Debug, Deserialize)]
pub struct Gap {
    /// Which.
    pub finding: Arc<str>,
    /// It was judged by all that is there now.
    pub in_part: bool,
    /// Why not.
    pub reason: String,
}

/// Something about a key that somebody should look at.
#[derive(Clone, Debug, Deserialize)]
pub struct Finding {
    /// Which rule.
    pub finding: Arc<str>,
    /// How urgent.
    #[serde(deserialize_with = "decode_severity")]
    pub severity: Severity,
    /// What was seen, in a sentence.
    pub text: String,
    /// What may be done.
    pub remedy: String,
    /// Backends that it is about, the worst first.
    #[serde(default)]
    pub pids: Vec<Pid>,
}

/// One key with everybody on it.
#[derive(Clone, Debug, Deserialize)]
pub struct Lock {
    /// The name of its database, or what stands for one that has none.
    pub datname: Arc<str>,
    /// The key.
    #[serde(deserialize_with = "decode_key")]
    pub key: Key,
    /// Its name; `None` for an unregistered key.
    #[serde(default)]
    pub lock: Option<Arc<str>>,
    /// The same with its parameters; left out for strangers.
    #[serde(default)]
    pub display_name: Option<Arc<str>>,
    /// Where to read what to do, from the registry.
    #[serde(default)]
    pub runbook: Option<Arc<str>>,
    /// Names that it may have.
    #[serde(default)]
    pub candidates: Vec<Candidate>,
    /// Who holds it.
    #[serde(default)]
    pub holders: Vec<Holder>,
    /// Who waits for it.
    #[serde(default)]
    pub waiters: Vec<Waiter>,
    /// What is to be said of it.
    #[serde(default)]
    pub findings: Vec<Finding>,
}

/// A name that a key may have.
#[derive(Clone, Debug, Deserialize)]
pub struct Candidate {
    /// The name.
    pub lock: Arc<str>,
    /// What speaks for it.
    #[serde(default)]
    pub reason: Option<String>,
}

/// Who holds a key.
#[derive(Clone, Debug, Deserialize)]
pub struct Holder {
    /// `None` for a prepared transaction.
    pub pid: Option<Pid>,
    /// When its backend began, on the server's clock.
    #[serde(default)]
    pub backend_start: Option<Timestamp>,
    /// As it is now.
    #[serde(default)]
    pub application_name: Option<Arc<str>>,
    /// As it was when the hold was first seen.
    #[serde(default)]
    pub first_application_name: Option<Arc<str>>,
    /// Proved scope.
    #[serde(deserialize_with = "decode_scope", default = "unknown_scope")]
    pub scope: Scope,
    /// Seen or proved held since, on the server's clock.
    #[serde(default)]
    pub since: Option<Timestamp>,
    /// The time since then.
    #[serde(default)]
    pub seen_for_seconds: f64,
}

/// Who waits for a key.
#[derive(Clone, Debug, Deserialize)]
pub struct Waiter {
    /// The process id of its backend.
    pub pid: Option<Pid>,
    /// When its backend began, on the server's clock.
    #[serde(default)]
    pub backend_start: Option<Timestamp>,
    /// As it is now.
    #[serde(default)]
    pub application_name: Option<Arc<str>>,
    /// On the server's clock, where it tells.
    #[serde(default)]
    pub waiting_since: Option<Timestamp>,
    /// The time since then.
    #[serde(default)]
    pub waited_seconds: Option<f64>,
}

/// Why bytes are no snapshot.
#[derive(Debug, thiserror::Error)]
pub enum ParseSnapshotError {
    /// Something else altogether.
    #[error("no snapshot of locks: is there another program at this address?")]
    Foreign,
    /// Another form.
    #[error(
        "a snapshot of schema {0}, and this program reads schema {SCHEMA}: use the same version \
         of locks on both sides"
    )]
    Schema(u64),
    /// It says to be a snapshot, and is none.
    #[error("a snapshot of schema {SCHEMA} with a fault in it")]
    Broken(#[source] serde_json::Error),
}

/// Reads a snapshot from its JSON.
pub fn parse_snapshot(json: &[u8]) -> Result<Snapshot, ParseSnapshotError> {
    #[derive(Deserialize)]
    struct Head {
        schema: u64,
    }
    // First of all: in another schema everything else may be of another form.
    let Head { schema } = serde_json::from_slice(json).map_err(|_| ParseSnapshotError::Foreign)?;
    if schema != SCHEMA {
        return Err(ParseSnapshotError::Schema(schema));
    }
    serde_json::from_slice(json).map_err(ParseSnapshotError::Broken)
}

fn decode_key<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Key, D::Error> {
    #[derive(Deserialize)]
    struct Columns {
        classid: u32,
        objid: u32,
        objsubid: u16,
    }
    let Columns { classid, objid, objsubid } = Columns::deserialize(deserializer)?;
    Ok(Key::from_columns(classid, objid, objsubid))
}

fn decode_scope<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Scope, D::Error> {
    Ok(match Option::<String>::deserialize(deserializer)?.as_deref() {
        Some("session") => Scope::Session,
        Some("transaction") => Scope::Transaction,
        Some(_) | None => Scope::Unknown,
    })
}

/// A word that this version does not know is not taken lightly.
fn decode_severity<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Severity, D::Error> {
    Ok(match &*String::deserialize(deserializer)? {
        "warning" => Severity::Warning,
        _ => Severity::Critical,
    })
}

fn decode_privileges<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<bool>, D::Error> {
    Ok(match Option::<String>::deserialize(deserializer)?.as_deref() {
        Some("sufficient") => Some(true),
        Some("unknown") | None => None,
        Some(_) => Some(false),
    })
}

fn unknown_scope() -> Scope {
    Scope::Unknown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_that_are_not_known_or_left_out_do_no_harm() {
        let json = br#"{"schema":1,"more":[1],"servers":[{"server":"a","up":true,"weather":"fine",
            "polled_at":"2026-11-30T12:00:00.000001Z","locks":[{"datname":"app",
            "key":{"text":"-1","kind":"bigint","classid":4294967295,"objid":4294967295,"objsubid":1},
            "lock":null,"holders":[{"pid":7,"scope":"cluster"}],"waiters":[{"pid":null}]}]},
            {"server":"b","up":false}]}"#;
        let snapshot = parse_snapshot(json).unwrap();
        let [a, b] = &snapshot.servers[..] else { panic!() };
        assert_eq!(a.polled_at.unwrap().to_string(), "2026-11-30T12:00:00.000001Z");
        let lock = &a.locks.as_ref().unwrap()[0];
        assert_eq!((lock.key, lock.lock.as_deref()), (Key::bigint(-1), None));
        assert_eq!(lock.holders[0].scope, Scope::Unknown);
        assert!(b.locks.is_none() && b.error.is_none());
    }

    #[test]
    fn what_is_no_snapshot_is_told_apart_from_one_of_another_form() {
        let cases = [
            ("", "no snapshot of locks"),
            ("<html>", "no snapshot of locks"),
            ("{\"status\":\"success\"}", "no snapshot of locks"),
            ("{\"schema\":2}", "a snapshot of schema 2, and this program reads schema 1"),
            ("{\"schema\":1}", "a snapshot of schema 1 with a fault in it"),
        ];
        for (json, message) in cases {
            let error = parse_snapshot(json.as_bytes()).unwrap_err().to_string();
            assert!(error.starts_with(message), "{json}: {error}");
        }
    }
}
