//! Histories → the JSON (`schema` 1) that `/api/v1/events` answers.
//!
//! As in the snapshot: times are RFC 3339 in UTC on the server's clock, durations are seconds, what
//! is unknown is null, and what identifies persons, hosts and data is left out unless the reader may
//! see details.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;

use super::{Event, EventKind, Filter};
use crate::key::Key;
use crate::mode::Mode;
use crate::sample::Pid;
use crate::snapshot::{Finding, SCHEMA, render_json};
use crate::timestamp::Timestamp;
use crate::tracker::SessionId;
use crate::view::{Party, View};

/// Renders the events of all servers that the filter asks for into one JSON object, the newest
/// first.
pub fn render_events<'a>(
    views: impl IntoIterator<Item = &'a View>,
    filter: &Filter,
    details: bool,
) -> Vec<u8> {
    let views: Vec<&View> =
        views.into_iter().filter(|view| filter.wants_server(&view.server)).collect();
    let servers = views
        .iter()
        .map(|view| ServerJson { server: &view.server, forgotten: view.events.forgotten() });
    let mut queues: Vec<_> = views
        .iter()
        .map(|view| {
            let wanted = |event: &&Arc<Event>| filter.wants(&view.server, event);
            let mut queue = view.events.newest_first().filter(wanted);
            (&*view.server, queue.next(), queue)
        })
        .collect();
    // Merged by our clock; within a server the order stays, even where our clock was set back.
    let newest = std::iter::from_fn(|| {
        let (server, next, queue) =
            queues.iter_mut().max_by_key(|(_, next, _)| next.map(|event| event.at_local))?;
        let event = std::mem::replace(next, queue.next())?;
        Some(EventJson::of(server, event, details))
    });
    let events = newest.take(filter.limit).collect();
    render_json(&Answer { schema: SCHEMA, servers: servers.collect(), events })
}

#[derive(Serialize)]
struct Answer<'a> {
    schema: u64,
    servers: Vec<ServerJson<'a>>,
    events: Vec<EventJson<'a>>,
}

#[derive(Serialize)]
struct ServerJson<'a> {
    server: &'a str,
    /// Events that were seen and are not kept any more.
    forgotten: u64,
}

#[derive(Serialize)]
struct EventJson<'a> {
    at: Timestamp,
    event: &'static str,
    not_before: Option<Timestamp>,
    not_after: Timestamp,
    server: &'a str,
    datname: &'a str,
    key: Key,
    lock: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    display_name: Option<Option<&'a str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mode: Option<&'a Mode>,
    #[serde(flatten)]
    party: Option<PartyJson<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    from: Option<PartyJson<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    outcome: Option<&'static str>,
    #[serde(flatten)]
    finding: Option<Finding>,
    #[serde(skip_serializing_if = "Option::is_none")]
    at_first_poll: Option<bool>,
    #[serde(flatten)]
    length: Option<LengthJson>,
}

#[derive(Serialize)]
struct PartyJson<'a> {
    pid: Option<Pid>,
    #[serde(skip_serializing_if = "Option::is_none")]
    gid: Option<&'a str>,
    prepared: bool,
    backend_start: Option<Timestamp>,
    application_name: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    usename: Option<Option<&'a str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    client_addr: Option<Option<IpAddr>>,
}

#[derive(Serialize)]
struct LengthJson {
    duration_seconds: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    seen_for_seconds: Option<f64>,
    at_least_seconds: Option<f64>,
    at_most_seconds: Option<f64>,
}

impl<'a> EventJson<'a> {
    fn of(server: &'a str, event: &'a Event, details: bool) -> Self {
        let (mut from, mut outcome, mut at_first_poll, mut length) = (None, None, None, None);
        match &event.kind {
            EventKind::HoldBegan | EventKind::WaitBegan => {}
            EventKind::HoldEnded(lasted) | EventKind::FindingEnded(_, lasted) => {
                length = Some(lasted);
            }
            EventKind::WaitEnded(how, lasted) => {
                (outcome, length) = (Some(how.as_str()), Some(lasted));
            }
            EventKind::HolderChanged { from: party } => from = Some(party),
            EventKind::FindingBegan { at_first_poll: is_first, .. } => {
                at_first_poll = Some(*is_first);
            }
        }
        let seconds = |duration: Option<Duration>| duration.map(|one| one.as_secs_f64());
        Self {
            at: event.at,
            event: event.kind.as_str(),
            not_before: event.not_before,
            not_after: event.not_after,
            server,
            datname: &event.datname,
            key: event.key,
            lock: event.lock(),
            display_name: details.then(|| event.display_name.as_deref().or(event.lock())),
            mode: event.mode.as_ref(),
            party: event.party.as_ref().map(|party| PartyJson::of(party, details)),
            from: from.map(|from| PartyJson::of(from, details)),
            outcome,
            finding: event.finding().map(|finding| Finding::of(finding, details)),
            at_first_poll,
            length: length.map(|length| LengthJson {
                duration_seconds: seconds(length.estimate),
                seen_for_seconds: seconds(length.seen_for),
                at_least_seconds: seconds(length.at_least),
                at_most_seconds: seconds(length.at_most),
            }),
        }
    }
}

impl<'a> PartyJson<'a> {
    fn of(party: &'a Party, details: bool) -> Self {
        let session = &party.session;
        Self {
            pid: party.id.pid(),
            gid: match &party.id {
                SessionId::Prepared(gid) if details => Some(gid),
                SessionId::Prepared(_) | SessionId::Nameless(_) | SessionId::Backend(_) => None,
            },
            prepared: party.id.pid().is_none(),
            backend_start: session.backend_start,
            application_name: session.application_name.as_deref(),
            usename: details.then_some(session.usename.as_deref()),
            client_addr: details.then_some(session.client_addr),
        }
    }
}
