//! What happened, as `/api/v1/events` of an exporter tells it, read back.

use std::sync::Arc;

use serde::Deserialize;

use super::{ParseSnapshotError, parse_schema};
use crate::sample::Pid;
use crate::timestamp::Timestamp;

/// Something that happened to a key between two polls.
#[derive(Clone, Debug, Deserialize)]
pub struct Event {
    /// The poll that showed it, on the server's clock.
    pub at: Timestamp,
    /// What, in a word.
    pub event: Arc<str>,
    /// The server.
    pub server: Arc<str>,
    /// The database.
    pub datname: Arc<str>,
    /// The mode held or asked for.
    #[serde(default)]
    pub mode: Option<Arc<str>>,
    /// Who.
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
    /// What was said of it.
    #[serde(default)]
    pub text: Option<String>,
    /// Nobody looked before.
    #[serde(default)]
    pub at_first_poll: bool,
    /// How long it lasted, at a guess between the bounds.
    #[serde(default)]
    pub duration_seconds: Option<f64>,
    /// For certain.
    #[serde(default)]
    pub at_least_seconds: Option<f64>,
    /// At most.
    #[serde(default)]
    pub at_most_seconds: Option<f64>,
}

/// Somebody, as they were then.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Party {
    /// `None` for a prepared transaction.
    #[serde(default)]
    pub pid: Option<Pid>,
    /// Of a prepared transaction, where this reader is told.
    #[serde(default)]
    pub gid: Option<Arc<str>>,
    /// A prepared transaction.
    #[serde(default)]
    pub prepared: bool,
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
