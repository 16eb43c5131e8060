//! What happened, as `/api/v1/events` of an exporter tells it, read back.
//!
//! Pure. Made by [`render_events`](crate::event::render_events); read by whoever tells people the past
//! of a key. A field that this reader does not know is ignored, and one that is missing, as those for
//! persons alone are for strangers, is unknown.

use std::sync::Arc;

use serde::{Deserialize, Deserializer};

use super::{ParseSnapshotError, parse_schema};
use crate::finding::Severity;
use crate::key::Key;
use crate::mode::Mode;
use crate::sample::Pid;
use crate::timestamp::Timestamp;

/// Something that happened to a key between two polls.
#[derive(Clone, Debug, Deserialize)]
pub struct Event {
    /// The poll that showed it, on the server's clock.
    pub at: Timestamp,
    /// What, in a word.
    pub event: Arc<str>,
    /// It did not happen before this moment of the server's clock.
    #[serde(default)]
    pub not_before: Option<Timestamp>,
    /// Nor after this one.
    #[serde(default)]
    pub not_after: Option<Timestamp>,
    /// The server.
    pub server: Arc<str>,
    /// The database.
    pub datname: Arc<str>,
    /// The key.
    #[serde(default, deserialize_with = "decode_known_key")]
    pub key: Option<Key>,
    /// The name of the lock.
    #[serde(default)]
    pub lock: Option<Arc<str>>,
    /// The same with its parameters, where this reader is told.
    #[serde(default)]
    pub display_name: Option<Arc<str>>,
    /// The mode held or asked for.
    #[serde(default)]
    pub mode: Option<Mode>,
    /// Who. Of a finding nobody in particular.
    #[serde(flatten)]
    pub party: Party,
    /// Who held it before.
    #[serde(default)]
    pub from: Option<Party>,
    /// How a wait ended.
    #[serde(default)]
    pub outcome: Option<Arc<str>>,
    /// The finding that began or ended.
    #[serde(default)]
    pub finding: Option<Arc<str>>,
    /// How urgent it is.
    #[serde(default, deserialize_with = "decode_known_severity")]
    pub severity: Option<Severity>,
    /// What was said of it.
    #[serde(default)]
    pub text: Option<String>,
    /// What was to be done about it.
    #[serde(default)]
    pub remedy: Option<String>,
    /// Nobody looked before.
    #[serde(default)]
    pub at_first_poll: bool,
    /// How long it lasted, at a guess between the bounds.
    #[serde(default)]
    pub duration_seconds: Option<f64>,
    /// From the first poll that showed it to the last.
    #[serde(default)]
    pub seen_for_seconds: Option<f64>,
    /// How long it lasted for certain.
    #[serde(default)]
    pub at_least_seconds: Option<f64>,
    /// And at most.
    #[serde(default)]
    pub at_most_seconds: Option<f64>,
}

/// Somebody, as they were then.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct Party {
    /// `None` for a prepared transaction, or where it is not known.
    #[serde(default)]
    pub pid: Option<Pid>,
    /// Of a prepared transaction, where this reader is told.
    #[serde(default)]
    pub gid: Option<Arc<str>>,
    /// A prepared transaction.
    #[serde(default)]
    pub prepared: bool,
    /// With the pid it tells backends apart.
    #[serde(default)]
    pub backend_start: Option<Timestamp>,
    /// As it was.
    #[serde(default)]
    pub application_name: Option<Arc<str>>,
}

/// Reads events, the newest first.
pub fn parse_events(json: &[u8]) -> Result<Vec<Event>, ParseSnapshotError> {
    #[derive(Deserialize)]
    struct Answer {
        events: Vec<Event>,
    }
    parse_schema(json)?;
    let answer: Answer = serde_json::from_slice(json).map_err(ParseSnapshotError::Broken)?;
    Ok(answer.events)
}

fn decode_known_key<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Key>, D::Error> {
    super::decode_key(deserializer).map(Some)
}

fn decode_known_severity<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Severity>, D::Error> {
    super::decode_severity(deserializer).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: &str = r#""at":"2026-11-30T03:12:40Z","server":"a","datname":"app""#;

    fn event(fields: &str) -> Event {
        let json = format!(r#"{{"schema":1,"servers":[],"events":[{{{AT}{fields}}}]}}"#);
        parse_events(json.as_bytes()).unwrap().remove(0)
    }

    #[test]
    fn an_event_is_read_with_all_its_fields() {
        let ended = event(
            r#","event":"wait_ended","not_before":"2026-11-30T03:12:39Z",
               "not_after":"2026-11-30T03:12:40Z",
               "key":{"text":"42","kind":"bigint","classid":0,"objid":42,"objsubid":1},
               "lock":"billing","display_name":"billing (tenant 9)","mode":"exclusive","pid":7,
               "prepared":false,"backend_start":"2026-11-30T03:00:00Z",
               "application_name":"billing-a","outcome":"acquired","duration_seconds":2.5,
               "seen_for_seconds":2.0,"at_least_seconds":2.0,"at_most_seconds":3.0"#,
        );
        assert_eq!((ended.key, ended.mode), (Some(Key::bigint(42)), Some(Mode::Exclusive)));
        assert_eq!(ended.lock.as_deref(), Some("billing"));
        assert_eq!(ended.display_name.as_deref(), Some("billing (tenant 9)"));
        assert!(ended.not_before < ended.not_after);
        assert_eq!(ended.party.pid, Some(Pid(7)));
        assert!(ended.party.backend_start.is_some() && !ended.party.prepared);
        assert_eq!(ended.outcome.as_deref(), Some("acquired"));
        assert_eq!((ended.duration_seconds, ended.seen_for_seconds), (Some(2.5), Some(2.0)));
        assert_eq!((ended.at_least_seconds, ended.at_most_seconds), (Some(2.0), Some(3.0)));

        let began = event(
            r#","event":"finding_began","finding":"stuck","severity":"warning","text":"idle",
               "remedy":"end it","at_first_poll":true"#,
        );
        assert_eq!((began.severity, began.at_first_poll), (Some(Severity::Warning), true));
        assert_eq!(began.remedy.as_deref(), Some("end it"));

        let changed = event(
            r#","event":"holder_changed","pid":8,"from":{"pid":null,"gid":"g","prepared":true}"#,
        );
        let from = changed.from.unwrap();
        assert!(from.prepared && from.gid.as_deref() == Some("g") && from.pid.is_none());
    }

    #[test]
    fn what_is_missing_is_unknown_and_what_is_new_is_ignored() {
        let new = event(r#","event":"hold_stolen","thief":{"pid":1},"mode":"sideways""#);
        assert_eq!(&*new.event, "hold_stolen");
        assert_eq!((new.key, new.severity, new.not_after), (None, None, None));
        assert_eq!(new.party, Party::default());
        assert_eq!((new.at_least_seconds, new.at_most_seconds), (None, None));
    }
}
