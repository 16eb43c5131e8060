//! The JSON snapshot read back: what `/api/v1/locks` of an exporter says, as values.
//!
//! Commands that look at locks from outside (`registry suggest`) read nothing else, whether the
//! snapshot came over HTTP or was made by this process, so both ways show the same. What the JSON
//! has beside the fields here is ignored: a newer exporter of the same schema may say more. A
//! field that is left out for strangers reads like one that is unknown.

use std::sync::Arc;

use serde::{Deserialize, Deserializer};

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
    /// When it was polled, on its own clock.
    #[serde(default)]
    pub polled_at: Option<Timestamp>,
    /// Every key held or awaited; `None` after a failed poll.
    #[serde(default)]
    pub locks: Option<Vec<Lock>>,
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
    /// Names that it may have.
    #[serde(default)]
    pub candidates: Vec<Candidate>,
    /// Who holds it.
    #[serde(default)]
    pub holders: Vec<Holder>,
    /// Who waits for it.
    #[serde(default)]
    pub waiters: Vec<Waiter>,
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
