//! Views → the JSON snapshot (`schema` 1): what `/api/v1/locks` answers.
//!
//! Times are RFC 3339 in UTC on the server's clock, durations are seconds, and what is unknown is
//! null. What identifies persons and hosts is left out unless the reader may see details.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashSet};
use std::net::IpAddr;

use serde::Serialize;

use super::target::render_target;
use super::{Holder, Lock, NAMED, OtherWait, Picture, Prepared, Root, Session, View, Waiter};
use crate::blocking::{Blocker, BlockerKind};
use crate::finding::{Finding, Gap, render_inversion};
use crate::key::Key;
use crate::mode::Mode;
use crate::order::{Edge, Grade, Inversion};
use crate::registry::Limit;
use crate::sample::Pid;
use crate::timestamp::Timestamp;
use crate::tracker::{Scope, ScopeEvidence, SessionId};

/// Polls in a row outside a transaction that make "probably session level" worth saying.
const HINT_POLLS: u32 = 10;

/// So many pairs of keys that were taken in both orders are listed, the newest.
const LISTED_ORDERS: usize = 100;

/// The form of the JSON that is written and read.
pub const SCHEMA: u64 = 1;

/// Renders all servers into one JSON object. `now` is our clock, to tell a picture that is too old.
pub fn render_snapshot<'a>(
    views: impl IntoIterator<Item = &'a View>,
    now: Timestamp,
    details: bool,
) -> Vec<u8> {
    let snapshot = Snapshot {
        schema: SCHEMA,
        servers: views.into_iter().map(|view| ServerJson::of(view, now, details)).collect(),
    };
    render_json(&snapshot)
}

/// One line of JSON. What answers are made of is strings and numbers in plain structs: there is
/// nothing in it that could fail to serialize.
pub(crate) fn render_json(answer: &impl Serialize) -> Vec<u8> {
    let mut json = serde_json::to_vec(answer).unwrap_or_default();
    json.push(b'\n');
    json
}

#[derive(Serialize)]
struct Snapshot<'a> {
    schema: u64,
    servers: Vec<ServerJson<'a>>,
}

#[derive(Serialize)]
struct ServerJson<'a> {
    server: &'a str,
    up: bool,
    error: Option<&'a str>,
    version: Option<&'a str>,
    role: Option<&'static str>,
    system_identifier: Option<&'a str>,
    polled_at: Option<Timestamp>,
    clock_offset_seconds: Option<f64>,
    poll: Poll,
    looked_at: Option<LookedAt>,
    lock_table: LockTable,
    tcp_keepalives_idle_seconds: Option<u64>,
    pooled_connection: Option<bool>,
    registry_conflicts: usize,
    watching_since: Option<Timestamp>,
    not_judged: Option<Vec<GapJson>>,
    lock_orders: Option<Vec<InversionJson<'a>>>,
    lock_orders_count: Option<usize>,
    roots: Option<Vec<ChainRootJson<'a>>>,
    other_waits: Option<Vec<OtherWaitJson<'a>>>,
    locks: Option<Vec<LockJson<'a>>>,
}

#[derive(Serialize)]
struct Poll {
    interval_seconds: Option<f64>,
    duration_seconds: Option<f64>,
}

#[derive(Serialize)]
struct LookedAt {
    databases: usize,
    rows: usize,
    privileges: &'static str,
}

#[derive(Serialize)]
struct LockTable {
    entries: Option<u64>,
    capacity: Option<u64>,
}

#[derive(Serialize)]
struct LockJson<'a> {
    datname: &'a str,
    key: Key,
    lock: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    display_name: Option<Option<Cow<'a, str>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    parameters: Option<serde_json::Map<String, serde_json::Value>>,
    candidates: Vec<CandidateJson<'a>>,
    owner: Option<&'a str>,
    runbook: Option<&'a str>,
    description: Option<&'a str>,
    limits: Limits,
    holders: Vec<HolderJson<'a>>,
    waiters: Vec<WaiterJson<'a>>,
    findings: Vec<FindingJson>,
}

#[derive(Serialize)]
struct CandidateJson<'a> {
    lock: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    display_name: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

#[derive(Serialize)]
struct Limits {
    max_hold_seconds: LimitJson,
    max_wait_seconds: LimitJson,
}

/// Seconds, or the word the registry uses where there is no limit: null would mean unknown.
#[derive(Serialize)]
#[serde(untagged)]
enum LimitJson {
    Seconds(f64),
    Word(&'static str),
}

#[derive(Serialize)]
struct SessionJson<'a> {
    backend_start: Option<Timestamp>,
    application_name: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    usename: Option<Option<&'a str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    client_addr: Option<Option<IpAddr>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    client_port: Option<Option<i32>>,
    state: Option<&'a str>,
    state_since: Option<Timestamp>,
    wait_event: Option<&'a str>,
}

#[derive(Serialize)]
struct HolderJson<'a> {
    pid: Option<Pid>,
    #[serde(flatten)]
    session: SessionJson<'a>,
    first_application_name: Option<&'a str>,
    seen_to_begin: bool,
    mode: &'a Mode,
    modes: Vec<&'a Mode>,
    scope: Scope,
    scope_evidence: String,
    since: Timestamp,
    seen_for_seconds: f64,
    held_at_least_seconds: Option<f64>,
    held_at_most_seconds: Option<f64>,
    transactions_seen: u32,
    contended_since: Option<Timestamp>,
    has_written: Option<bool>,
    other_locks: OtherLocks<'a>,
    prepared: Option<PreparedJson<'a>>,
    blocks: usize,
    blocks_through: Vec<&'a str>,
    frees_next: Option<Vec<Option<Pid>>>,
    frees_next_count: Option<usize>,
}

#[derive(Serialize)]
struct OtherLocks<'a> {
    count: usize,
    by_type: BTreeMap<&'a str, usize>,
}

#[derive(Serialize)]
struct PreparedJson<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    gid: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    owner: Option<Option<&'a str>>,
    prepared_at: Option<Timestamp>,
}

#[derive(Serialize)]
struct WaiterJson<'a> {
    pid: Option<Pid>,
    #[serde(flatten)]
    session: SessionJson<'a>,
    mode: &'a Mode,
    waiting_since: Option<Timestamp>,
    waited_seconds: Option<f64>,
    xmin_age: Option<u32>,
    blocked_by: Vec<BlockerJson<'a>>,
    blocked_by_count: usize,
    roots: Vec<RootJson<'a>>,
    roots_count: usize,
}

#[derive(Serialize)]
struct ChainRootJson<'a> {
    pid: Option<Pid>,
    #[serde(flatten)]
    session: SessionJson<'a>,
    prepared: Option<PreparedJson<'a>>,
    in_cycle: bool,
    blocks: usize,
}

#[derive(Serialize)]
struct OtherWaitJson<'a> {
    pid: Option<Pid>,
    #[serde(flatten)]
    session: SessionJson<'a>,
    locktype: &'a str,
    target: String,
    mode: &'a Mode,
    waiting_since: Option<Timestamp>,
    waited_seconds: Option<f64>,
    blocked_by: Vec<BlockerJson<'a>>,
    blocked_by_count: usize,
}

/// A finding in words.
#[derive(Serialize)]
pub(crate) struct FindingJson {
    finding: &'static str,
    severity: &'static str,
    text: String,
    remedy: String,
    pids: Vec<Pid>,
    sessions_count: usize,
}

/// Two keys that were seen taken in both orders.
#[derive(Serialize)]
struct InversionJson<'a> {
    datname: &'a str,
    /// Else it only may be an inversion.
    is_finding: bool,
    text: String,
    keys: [OrderedKeyJson<'a>; 2],
    orders: [EdgeJson<'a>; 2],
}

#[derive(Serialize)]
struct OrderedKeyJson<'a> {
    key: Key,
    lock: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    display_name: Option<Option<Cow<'a, str>>>,
}

#[derive(Serialize)]
struct EdgeJson<'a> {
    held: Key,
    held_modes: Vec<&'a Mode>,
    taken: Key,
    taken_modes: Vec<&'a Mode>,
    grade: Grade,
    times: u64,
    first_seen: Timestamp,
    last_seen: Timestamp,
    pid: Option<Pid>,
    #[serde(flatten)]
    session: SessionJson<'a>,
}

#[derive(Serialize)]
struct GapJson {
    finding: &'static str,
    in_part: bool,
    reason: String,
}

#[derive(Serialize)]
struct BlockerJson<'a> {
    pid: Option<Pid>,
    #[serde(skip_serializing_if = "Option::is_none")]
    gid: Option<&'a str>,
    kind: BlockerKind,
    certain: bool,
}

#[derive(Serialize)]
struct RootJson<'a> {
    pid: Option<Pid>,
    #[serde(skip_serializing_if = "Option::is_none")]
    gid: Option<&'a str>,
    application_name: Option<&'a str>,
    state: Option<&'a str>,
    holds_key: bool,
    in_cycle: bool,
    blocks: usize,
}

impl<'a> ServerJson<'a> {
    fn of(view: &'a View, now: Timestamp, details: bool) -> Self {
        let picture = view.fresh_picture(now);
        Self {
            server: &view.server,
            up: picture.is_some(),
            error: match (picture, &view.failure) {
                (Some(_), _) => None,
                // The words may name hosts, roles and databases.
                (None, Some(failure)) if details => Some(&failure.text),
                (None, Some(failure)) => Some(failure.reason.as_str()),
                (None, None) => Some("no poll has been answered lately"),
            },
            version: view.facts.version.as_deref(),
            role: picture.map(|picture| picture.role()),
            system_identifier: view.facts.system_identifier.as_deref(),
            polled_at: picture.map(|picture| picture.at),
            clock_offset_seconds: picture.map(Picture::clock_offset_seconds),
            poll: Poll {
                // Whoever looks only now and then has none.
                interval_seconds: Some(view.polls.interval)
                    .filter(|interval| !interval.is_zero())
                    .map(|interval| interval.as_secs_f64()),
                duration_seconds: view.polls.duration.map(|duration| duration.as_secs_f64()),
            },
            looked_at: picture.map(|picture| LookedAt {
                databases: picture.databases,
                rows: picture.rows_granted + picture.rows_waiting,
                privileges: match picture.privileges_sufficient {
                    Some(true) => "sufficient",
                    Some(false) => "state of other sessions is hidden",
                    None => "unknown",
                },
            }),
            lock_table: LockTable {
                entries: picture.and(view.table_entries),
                capacity: view.facts.table_capacity,
            },
            tcp_keepalives_idle_seconds: view.facts.keepalive_after.map(|time| time.as_secs()),
            pooled_connection: picture.and(view.pooled_connection),
            registry_conflicts: view
                .registered
                .values()
                .filter(|registered| registered.resolution.is_conflict())
                .count(),
            watching_since: picture.map(|picture| picture.watching_since),
            not_judged: picture
                .map(|picture| Gap::find_all(picture).iter().map(GapJson::of).collect()),
            lock_orders: picture.map(|picture| {
                let newest = picture.inversions.iter().take(LISTED_ORDERS);
                newest.map(|one| InversionJson::of(one, details)).collect()
            }),
            lock_orders_count: picture.map(|picture| picture.inversions.len()),
            roots: picture.map(|picture| {
                picture.roots.iter().map(|root| ChainRootJson::of(root, details)).collect()
            }),
            other_waits: picture.map(|picture| {
                let all = picture.other_waits.iter();
                all.map(|wait| OtherWaitJson::of(wait, picture.at, details)).collect()
            }),
            locks: picture.map(|picture| {
                let all = picture.locks.iter().chain(&picture.free);
                all.map(|lock| LockJson::of(lock, picture.at, details)).collect()
            }),
        }
    }
}

impl<'a> LockJson<'a> {
    fn of(lock: &'a Lock, at: Timestamp, details: bool) -> Self {
        let resolution = &lock.label.resolution;
        Self {
            datname: &lock.label.datname,
            key: lock.id.key,
            lock: resolution.lock.as_deref(),
            display_name: details
                .then(|| resolution.lock.is_some().then(|| resolution.display_name())),
            parameters: details.then(|| {
                let parameter = |(name, value): &(std::sync::Arc<str>, String)| {
                    (name.to_string(), value.clone().into())
                };
                resolution.parameters.iter().map(parameter).collect()
            }),
            candidates: resolution
                .candidates
                .iter()
                .map(|candidate| CandidateJson {
                    lock: &candidate.name,
                    display_name: details.then(|| candidate.display_name()),
                    // Where it stands is the operator's business, and so is the text it hashes.
                    reason: if details {
                        Some(candidate.to_string())
                    } else {
                        candidate.doubt.map(|doubt| doubt.to_string())
                    },
                })
                .collect(),
            owner: resolution.owner.as_deref(),
            runbook: resolution.runbook.as_deref(),
            description: resolution.description.as_deref(),
            limits: Limits {
                max_hold_seconds: resolution.max_hold.into(),
                max_wait_seconds: resolution.max_wait.into(),
            },
            holders: lock.holders.iter().map(|one| HolderJson::of(one, at, details)).collect(),
            waiters: WaiterJson::all_of(lock, at, details),
            findings: lock.findings.iter().map(|one| FindingJson::of(one, details)).collect(),
        }
    }
}

impl<'a> SessionJson<'a> {
    fn of(session: &'a Session, details: bool) -> Self {
        Self {
            backend_start: session.backend_start,
            application_name: session.application_name.as_deref(),
            usename: details.then_some(session.usename.as_deref()),
            client_addr: details.then_some(session.client_addr),
            client_port: details.then_some(session.client_port),
            state: session.known_state(),
            state_since: session.state_since,
            wait_event: session.wait_event.as_deref(),
        }
    }
}

impl<'a> HolderJson<'a> {
    fn of(holder: &'a Holder, at: Timestamp, details: bool) -> Self {
        Self {
            pid: holder.id.pid(),
            session: SessionJson::of(&holder.session, details),
            first_application_name: holder.first_application_name.as_deref(),
            seen_to_begin: holder.seen_to_begin,
            mode: &holder.mode,
            modes: holder.modes().collect(),
            scope: holder.scope,
            scope_evidence: render_scope(holder),
            since: holder.since,
            seen_for_seconds: at.since(holder.since).as_secs_f64(),
            held_at_least_seconds: (holder.proved_since < at)
                .then(|| at.since(holder.proved_since).as_secs_f64()),
            held_at_most_seconds: holder.not_before.map(|start| at.since(start).as_secs_f64()),
            transactions_seen: holder.transactions_seen,
            contended_since: holder.contended_since,
            has_written: holder.has_written,
            other_locks: OtherLocks::of(holder),
            prepared: PreparedJson::of(&holder.id, holder.prepared.as_deref(), details),
            blocks: holder.blocks,
            blocks_through: holder.blocks_through.iter().map(|locktype| &**locktype).collect(),
            frees_next: holder
                .frees_next
                .as_ref()
                .map(|next| next.iter().take(NAMED).map(SessionId::pid).collect()),
            frees_next_count: holder.frees_next.as_ref().map(|next| next.len()),
        }
    }
}

impl<'a> PreparedJson<'a> {
    /// `None` for a backend.
    fn of(id: &SessionId, prepared: Option<&'a Prepared>, details: bool) -> Option<Self> {
        match id {
            SessionId::Backend(_) => None,
            SessionId::Prepared(_) | SessionId::Nameless(_) => Some(Self {
                gid: prepared.filter(|_| details).map(|prepared| &*prepared.transaction.gid),
                owner: details.then(|| prepared.and_then(|prepared| prepared.owner.as_deref())),
                prepared_at: prepared.map(|prepared| prepared.transaction.prepared_at),
            }),
        }
    }
}

impl<'a> ChainRootJson<'a> {
    fn of(root: &'a Root, details: bool) -> Self {
        Self {
            pid: root.id.pid(),
            session: SessionJson::of(&root.session, details),
            prepared: PreparedJson::of(&root.id, root.prepared.as_deref(), details),
            in_cycle: root.is_in_cycle,
            blocks: root.blocks,
        }
    }
}

impl<'a> OtherWaitJson<'a> {
    fn of(wait: &'a OtherWait, at: Timestamp, details: bool) -> Self {
        Self {
            pid: wait.id.pid(),
            session: SessionJson::of(&wait.session, details),
            locktype: &wait.tag.locktype,
            target: render_target(&wait.tag, wait.datname.as_deref()),
            mode: &wait.mode,
            waiting_since: wait.since,
            waited_seconds: wait.since.map(|start| at.since(start).as_secs_f64()),
            blocked_by: wait.blocked_by.iter().map(|one| BlockerJson::of(one, details)).collect(),
            blocked_by_count: wait.blocker_count,
        }
    }
}

impl<'a> OtherLocks<'a> {
    fn of(holder: &'a Holder) -> Self {
        let by_type = holder.other_locks();
        Self { count: by_type.values().sum(), by_type }
    }
}

impl<'a> WaiterJson<'a> {
    fn all_of(lock: &'a Lock, at: Timestamp, details: bool) -> Vec<Self> {
        let holders: HashSet<&SessionId> = match &lock.waiters[..] {
            [] => return Vec::new(),
            _ => lock.holders.iter().map(|holder| &holder.id).collect(),
        };
        lock.waiters.iter().map(|waiter| Self::of(waiter, &holders, at, details)).collect()
    }

    fn of(waiter: &'a Waiter, holders: &HashSet<&SessionId>, at: Timestamp, details: bool) -> Self {
        Self {
            pid: waiter.id.pid(),
            session: SessionJson::of(&waiter.session, details),
            mode: &waiter.mode,
            waiting_since: waiter.since,
            waited_seconds: waiter.since.map(|start| at.since(start).as_secs_f64()),
            xmin_age: waiter.snapshot_age,
            blocked_by: waiter.blocked_by.iter().map(|one| BlockerJson::of(one, details)).collect(),
            blocked_by_count: waiter.blocker_count,
            roots: waiter
                .roots
                .iter()
                .take(NAMED)
                .map(|root| RootJson::of(root, holders.contains(&root.id), details))
                .collect(),
            roots_count: waiter.roots.len(),
        }
    }
}

impl FindingJson {
    pub(crate) fn of(finding: &Finding, details: bool) -> Self {
        Self {
            finding: finding.kind.as_str(),
            severity: finding.severity.as_str(),
            text: finding.render_text(details),
            remedy: finding.render_remedy(details),
            pids: finding.pids().take(NAMED).collect(),
            sessions_count: finding.session_count(),
        }
    }
}

impl<'a> InversionJson<'a> {
    fn of(inversion: &'a Inversion, details: bool) -> Self {
        Self {
            datname: &inversion.labels[0].datname,
            is_finding: inversion.is_certain,
            text: render_inversion(inversion, 0, details),
            keys: [0, 1].map(|side| {
                let resolution = &inversion.labels[side].resolution;
                OrderedKeyJson {
                    key: inversion.edges[side].held.key,
                    lock: resolution.lock.as_deref(),
                    display_name: details
                        .then(|| resolution.lock.is_some().then(|| resolution.display_name())),
                }
            }),
            orders: [0, 1].map(|side| EdgeJson::of(&inversion.edges[side], details)),
        }
    }
}

impl<'a> EdgeJson<'a> {
    fn of(edge: &'a Edge, details: bool) -> Self {
        Self {
            held: edge.held.key,
            held_modes: edge.held_modes.modes().collect(),
            taken: edge.taken.key,
            taken_modes: edge.taken_modes.modes().collect(),
            grade: edge.grade,
            times: edge.times,
            first_seen: edge.first.at,
            last_seen: edge.last.at,
            pid: edge.who.id.pid(),
            session: SessionJson::of(&edge.who.session, details),
        }
    }
}

impl GapJson {
    fn of(gap: &Gap) -> Self {
        Self { finding: gap.kind.as_str(), in_part: gap.is_partial(), reason: gap.render_reason() }
    }
}

impl<'a> BlockerJson<'a> {
    fn of(blocker: &'a Blocker, details: bool) -> Self {
        Self {
            pid: blocker.id.pid(),
            gid: shown_gid(&blocker.id, details),
            kind: blocker.kind,
            certain: blocker.is_certain,
        }
    }
}

impl<'a> RootJson<'a> {
    fn of(root: &'a Root, holds_key: bool, details: bool) -> Self {
        Self {
            pid: root.id.pid(),
            gid: root
                .prepared
                .as_ref()
                .filter(|_| details)
                .map(|prepared| &*prepared.transaction.gid),
            application_name: root.session.application_name.as_deref(),
            state: root.session.known_state(),
            holds_key,
            in_cycle: root.is_in_cycle,
            blocks: root.blocks,
        }
    }
}

/// The gid of a prepared transaction, to those who may see details.
fn shown_gid(id: &SessionId, details: bool) -> Option<&str> {
    match id {
        SessionId::Prepared(gid) if details => Some(gid),
        SessionId::Prepared(_) | SessionId::Nameless(_) | SessionId::Backend(_) => None,
    }
}

/// What is known of a hold's scope, in words.
fn render_scope(holder: &Holder) -> String {
    match holder.scope_evidence {
        Some(ScopeEvidence::IdleOutsideTransaction) => {
            "session: the backend was idle outside a transaction".to_owned()
        }
        Some(ScopeEvidence::OutlivedFailedTransaction) => {
            "session: it outlived a failed transaction".to_owned()
        }
        Some(ScopeEvidence::OutlivedTransactionUnderWaiter) => {
            "session: the holder's transaction changed while somebody waited".to_owned()
        }
        Some(ScopeEvidence::Prepared) => "transaction: it is prepared".to_owned(),
        None if holder.session.known_state().is_none()
            && holder.polls_outside_transaction >= HINT_POLLS =>
        {
            format!(
                "probably session level: outside a transaction in {} polls in a row",
                holder.polls_outside_transaction
            )
        }
        None => "session or transaction".to_owned(),
    }
}

impl From<Limit> for LimitJson {
    fn from(limit: Limit) -> Self {
        match limit {
            Limit::Of(duration) => Self::Seconds(duration.as_secs_f64()),
            Limit::Unlimited => Self::Word("unlimited"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::sync::Arc;
    use std::time::Duration;

    use serde_json::{Value, json};

    use super::*;
    use crate::config;
    use crate::fold::Fold;
    use crate::registry::{Registry, Source};
    use crate::sample::FailureReason;
    use crate::sample::{
        Backend, DatabaseName, DatabaseOid, KeyGroup, LockRow, LockTag, Names, PreparedTransaction,
        RoleOid, Sample, State, TransactionId, VirtualTransaction,
    };
    use crate::view::Failure;

    const APP: DatabaseOid = DatabaseOid(5);

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_unix_micros(seconds * 1_000_000)
    }

    fn group(pid: Option<i32>, transaction: &str, granted: bool) -> KeyGroup {
        KeyGroup {
            database: APP,
            pid: pid.map(Pid),
            transaction: VirtualTransaction::from_server(transaction),
            mode: if granted { Mode::Share } else { Mode::Exclusive },
            granted,
            wait_start: (!granted).then(|| at(96)),
            keys: vec![Key::bigint(42)],
        }
    }

    /// An idle holder, a prepared one, and a waiter of which nothing is to be seen.
    fn sample() -> Sample {
        let tag = LockTag::of_transaction(TransactionId(731));
        Sample {
            at: at(100),
            at_local: at(90),
            round_trip: Duration::ZERO,
            read_at: at(100),
            own_pid: Pid(1),
            in_recovery: false,
            advisory: vec![
                group(Some(7), "3/0", true),
                group(None, "4/9", true),
                group(Some(8), "5/1", false),
            ],
            other_locks: vec![LockRow {
                tag,
                pid: None,
                transaction: VirtualTransaction::from_server("4/9"),
                mode: Mode::Exclusive,
                granted: true,
                wait_start: None,
            }],
            backends: Some(vec![Backend {
                pid: Pid(7),
                database: Some(APP),
                role: Some(RoleOid(10)),
                application_name: Some("pod-a".into()),
                state: State::Idle,
                state_change: Some(at(95)),
                wait_event: Some("Client/ClientRead".into()),
                backend_start: Some(at(60)),
                client_addr: Some([10, 0, 0, 7].into()),
                client_port: Some(4711),
                snapshot_age: None,
                backend_type: Some("client backend".into()),
                leader: None,
            }]),
            prepared: Some(vec![PreparedTransaction {
                transaction: TransactionId(731),
                gid: "order-4711".into(),
                prepared_at: at(92),
                owner: RoleOid(10),
                database: APP,
            }]),
            table_entries: None,
        }
    }

    fn view() -> View {
        view_with(Registry::empty()).0
    }

    fn view_with(registry: Registry) -> (View, Fold) {
        let limits = config::Limits {
            keys: 10,
            applications: 10,
            databases: 10,
            registered_keys: 10,
            values: 10,
        };
        let thresholds =
            config::Thresholds { prepared: Duration::from_secs(5), ..Default::default() };
        let mut fold =
            Fold::new("orders-1".into(), Arc::new(registry), Arc::default(), &limits, thresholds);
        let app = DatabaseName { name: "app".into(), encoding: "UTF8".into() };
        fold.observe_names(Names {
            databases: HashMap::from([(APP, app)]),
            roles: HashMap::from([(RoleOid(10), "billing".into())]),
        });
        let picture = fold.observe(&sample(), Duration::from_secs(1));
        (View { server: "orders-1".into(), picture: Some(picture), ..View::default() }, fold)
    }

    fn render(view: &View, now: Timestamp, details: bool) -> Value {
        let json = render_snapshot([view], now, details);
        serde_json::from_slice::<Value>(&json).unwrap()["servers"][0].take()
    }

    #[test]
    fn ages_are_taken_at_the_poll_and_what_is_not_proved_is_null() {
        let server = render(&view(), at(91), false);
        let [prepared, idle] = [0, 1].map(|index| &server["locks"][0]["holders"][index]);
        assert_eq!(prepared["pid"], Value::Null);
        assert_eq!(prepared["held_at_least_seconds"], json!(8.0));
        assert_eq!(prepared["held_at_most_seconds"], Value::Null);
        assert_eq!(prepared["scope"], "transaction");
        assert_eq!(prepared["state"], Value::Null);
        assert_eq!(idle["since"], "1970-01-01T00:01:35.000000Z");
        assert_eq!(idle["held_at_least_seconds"], json!(5.0));
        assert_eq!(idle["held_at_most_seconds"], json!(40.0));
        assert_eq!(idle["scope"], "session");
        let waiter = &server["locks"][0]["waiters"][0];
        assert_eq!(waiter["waited_seconds"], json!(4.0));
        assert_eq!(waiter["application_name"], Value::Null);
        assert_eq!(waiter["state"], Value::Null);
        assert_eq!(server["clock_offset_seconds"], json!(10.0));
    }

    #[test]
    fn who_blocks_whom_is_told_in_both_directions() {
        let server = render(&view(), at(91), true);
        let [prepared, idle] = [0, 1].map(|index| &server["locks"][0]["holders"][index]);
        assert_eq!(prepared["blocks"], json!(1));
        assert_eq!(prepared["blocks_through"], json!(["advisory"]));
        // The other share still keeps the waiter out.
        assert_eq!(
            (&prepared["frees_next"], &prepared["frees_next_count"]),
            (&json!([]), &json!(0))
        );
        let others = json!({ "count": 1, "by_type": { "transactionid": 1 } });
        assert_eq!(prepared["other_locks"], others);
        assert_eq!(idle["other_locks"], json!({ "count": 0, "by_type": {} }));
        let waiter = &server["locks"][0]["waiters"][0];
        let blocked_by = json!([
            { "pid": 7, "kind": "hard", "certain": true },
            { "pid": null, "gid": "order-4711", "kind": "hard", "certain": true },
        ]);
        assert_eq!((&waiter["blocked_by"], &waiter["blocked_by_count"]), (&blocked_by, &json!(2)));
        let idle_root = json!({
            "pid": 7, "application_name": "pod-a", "state": "idle",
            "holds_key": true, "in_cycle": false, "blocks": 1,
        });
        assert_eq!((&waiter["roots"][0], &waiter["roots_count"]), (&idle_root, &json!(2)));
        assert_eq!(waiter["roots"][1]["gid"], "order-4711");
    }

    #[test]
    fn findings_come_with_their_sentence_and_remedy() {
        let server = render(&view(), at(91), true);
        let findings = &server["locks"][0]["findings"];
        let prepared = json!([{
            "finding": "held_by_prepared_transaction",
            "severity": "warning",
            "text": "held by the prepared transaction 'order-4711', prepared 8s ago and neither \
                     committed nor rolled back since; the limit is 5s",
            "remedy": "COMMIT PREPARED 'order-4711' or ROLLBACK PREPARED 'order-4711' in its \
                       database, whichever its transaction manager decided",
            "pids": [],
            "sessions_count": 1,
        }]);
        assert_eq!(findings, &prepared);
    }

    #[test]
    fn where_chains_end_is_told_of_the_whole_server() {
        let (mut view, mut fold) = view_with(Registry::empty());
        let mut sample = sample();
        // 9 waits for the prepared one by another way, and 6 for somebody who is on no key.
        let row = |pid: Option<i32>, id, granted: bool| LockRow {
            tag: LockTag::of_transaction(TransactionId(id)),
            pid: pid.map(Pid),
            granted,
            wait_start: (!granted).then(|| at(97)),
            ..sample.other_locks[0].clone()
        };
        let rows = [row(Some(9), 731, false), row(Some(5), 732, true), row(Some(6), 732, false)];
        sample.at = at(101);
        sample.other_locks.extend(rows);
        view.picture = Some(fold.observe(&sample, Duration::from_secs(1)));
        view.polls.interval = Duration::from_secs(2);
        view.polls.duration = Some(Duration::from_millis(3));

        let server = render(&view, at(91), true);
        assert_eq!(server["poll"], json!({ "interval_seconds": 2.0, "duration_seconds": 0.003 }));
        let [prepared, idle] = [0, 1].map(|index| &server["roots"][index]);
        assert_eq!(server["roots"].as_array().unwrap().len(), 2);
        assert_eq!((&prepared["pid"], &prepared["blocks"]), (&Value::Null, &json!(2)));
        let transaction = json!({
            "gid": "order-4711", "owner": "billing", "prepared_at": "1970-01-01T00:01:32.000000Z",
        });
        assert_eq!(prepared["prepared"], transaction);
        assert_eq!((&idle["pid"], &idle["blocks"]), (&json!(7), &json!(1)));
        assert_eq!((&idle["usename"], &idle["in_cycle"]), (&json!("billing"), &json!(false)));
        assert_eq!(idle["prepared"], Value::Null);
        let waits = server["other_waits"].as_array().unwrap();
        let [wait] = &waits[..] else { panic!("{waits:?}") };
        assert_eq!((&wait["pid"], &wait["target"]), (&json!(9), &json!("transaction 731")));
        assert_eq!(
            (&wait["locktype"], &wait["mode"]),
            (&json!("transactionid"), &json!("exclusive"))
        );
        assert_eq!(wait["waited_seconds"], json!(4.0));
        let blocker = json!({ "pid": null, "gid": "order-4711", "kind": "hard", "certain": true });
        assert_eq!(
            (&wait["blocked_by"], &wait["blocked_by_count"]),
            (&json!([blocker]), &json!(1))
        );

        let server = render(&view, at(91), false);
        assert_eq!(server["roots"][0]["prepared"].get("gid"), None);
        assert_eq!(server["roots"][1].get("usename"), None);
        assert_eq!(server["other_waits"][0]["blocked_by"][0].get("gid"), None);
        let down = View { picture: None, ..view };
        assert_eq!(render(&down, at(91), false)["roots"], Value::Null);
    }

    #[test]
    fn keys_taken_in_both_orders_are_listed_with_both_and_who_did_so() {
        let text =
            "locks: [{ name: row, key: { range: [1, 9] }, databases: [app], parameter: id }]";
        let source = Source { name: "registry.yaml".into(), text: text.into() };
        let (mut view, mut fold) = view_with(Registry::parse(&[source]).unwrap());
        let mut sample = sample();
        let group = |pid, key, granted| KeyGroup {
            pid: Some(Pid(pid)),
            mode: Mode::Exclusive,
            granted,
            keys: vec![Key::bigint(key)],
            ..sample.advisory[0].clone()
        };
        let deadlock =
            vec![group(7, 1, true), group(8, 2, true), group(7, 2, false), group(8, 1, false)];
        sample.at = at(101);
        sample.advisory = deadlock;
        view.picture = Some(fold.observe(&sample, Duration::from_secs(1)));
        let server = render(&view, at(91), true);
        assert_eq!(server["lock_orders_count"], 1);
        let orders = &server["lock_orders"][0];
        assert_eq!((&orders["datname"], &orders["is_finding"]), (&json!("app"), &json!(true)));
        assert_eq!(orders["keys"][1]["display_name"], "row (id 2)");
        let [first, second] = [0, 1].map(|side| &orders["orders"][side]);
        assert_eq!((&first["held"]["text"], &first["taken"]["text"]), (&json!("1"), &json!("2")));
        assert_eq!((&first["pid"], &second["pid"]), (&json!(7), &json!(8)));
        assert_eq!(first["application_name"], "pod-a");
        assert_eq!((&first["grade"], &first["times"]), (&json!("certain"), &json!(1)));
        assert_eq!(first["held_modes"], json!(["exclusive"]));
        assert_eq!(first["last_seen"], "1970-01-01T00:01:41.000000Z");
        assert_eq!(first["usename"], "billing");

        let orders = render(&view, at(91), false)["lock_orders"][0].take();
        assert_eq!(orders["orders"][0].get("usename"), None);
        assert_eq!(orders["keys"][1].get("display_name"), None);
        let text = orders["text"].as_str().unwrap();
        assert!(text.contains("hold row (key 1) and wait for row (key 2)"), "{text}");
    }

    #[test]
    fn a_key_that_nobody_holds_is_listed_while_something_is_to_be_said_of_it() {
        let text = "locks: [{ name: leader, key: 77, databases: [app], must_be_held: true, \
                    vacant_for: 5s }]";
        let source = Source { name: "registry.yaml".into(), text: text.into() };
        let mut view = view_with(Registry::parse(&[source]).unwrap());
        let leader = |view: &View| {
            let server = render(view, at(91), false);
            let locks = server["locks"].as_array().unwrap().clone();
            locks.into_iter().find(|lock| lock["lock"] == "leader")
        };
        assert_eq!(leader(&view.0), None);
        let mut later = sample();
        later.at = at(106);
        let picture = view.1.observe(&later, Duration::from_secs(5));
        view.0.picture = Some(picture);
        assert_eq!(leader(&view.0), None, "on our clock no time has passed");
        later.at_local = at(96);
        view.0.picture = Some(view.1.observe(&later, Duration::from_secs(5)));
        let leader = leader(&view.0).unwrap();
        assert_eq!((&leader["holders"], &leader["waiters"]), (&json!([]), &json!([])));
        assert_eq!(leader["key"]["text"], "77");
        assert_eq!(leader["findings"][0]["finding"], "vacant");
        assert_eq!(leader["findings"][0]["severity"], "critical");
    }

    #[test]
    fn what_could_not_be_judged_is_listed_with_the_reason() {
        let text = "locks: [{ name: report, key: 42, max_wait: 1h }]";
        let source = Source { name: "registry.yaml".into(), text: text.into() };
        let (view, mut fold) = view_with(Registry::parse(&[source]).unwrap());
        let server = render(&view, at(91), false);
        assert_eq!(server["watching_since"], "1970-01-01T00:01:40.000000Z");
        assert_eq!(server["registry_conflicts"], 0);
        // The prepared one, of which it is not known how long before that it took the lock.
        let gaps = json!([
            {
                "finding": "held_too_long",
                "in_part": false,
                "reason": "1 hold (report) may have been held for longer than was seen, and than \
                           max_hold",
            },
            {
                "finding": "waiting_too_long",
                "in_part": true,
                "reason": "waits that ended before the first sample, 0s ago, are not known; 1 hold \
                           (report) may have kept others waiting",
            },
            {
                "finding": "pooled_backend",
                "in_part": true,
                "reason": "names before the first sample are not known; 1 hold (report) may have \
                           begun under another",
            },
            {
                "finding": "order_inversion",
                "in_part": true,
                "reason": "orders in which keys were taken before the first sample, 0s ago, are not \
                           known",
            },
        ]);
        assert_eq!(server["not_judged"], gaps);

        fold.observe_names(Names::default());
        let picture = fold.observe(&sample(), Duration::from_secs(1));
        let server = render(&View { picture: Some(picture), ..view.clone() }, at(91), false);
        let gaps = server["not_judged"].as_array().unwrap();
        let vacant = gaps.iter().find(|gap| gap["finding"] == "vacant").unwrap();
        assert_eq!(vacant["reason"], "the names of databases could not be read");
        let down = View { picture: None, ..view };
        assert_eq!(render(&down, at(91), false)["not_judged"], Value::Null);
    }

    #[test]
    fn a_virtual_transaction_never_passes_for_a_gid() {
        let nameless = SessionId::Nameless(VirtualTransaction::from_server("4/56"));
        assert_eq!(shown_gid(&nameless, true), None);
        let prepared = SessionId::Prepared("4/56".into());
        assert_eq!(shown_gid(&prepared, true), Some("4/56"));
        assert_eq!(shown_gid(&prepared, false), None);
    }

    #[test]
    fn persons_and_hosts_are_for_those_who_may_see_details() {
        let secrets = ["billing", "10.0.0.7", "4711", "order-4711"];
        let shown = |details| render(&view(), at(91), details).to_string();
        for secret in secrets {
            assert!(!shown(false).contains(secret), "{secret}");
            assert!(shown(true).contains(secret), "{secret}");
        }
    }

    #[test]
    fn the_words_of_a_failure_are_for_those_who_may_see_details() {
        let text = "no pg_hba.conf entry for host \"10.0.0.7\", user \"billing\"";
        let failure = Failure { reason: FailureReason::Login, text: text.into() };
        let view = View { picture: None, failure: Some(failure), ..view() };
        assert_eq!(render(&view, at(91), false)["error"], "login");
        assert_eq!(render(&view, at(91), true)["error"], text);
        assert_eq!(render(&view, at(91), true)["up"], false);
    }

    #[test]
    fn a_picture_that_is_too_old_is_not_shown() {
        let mut view = view();
        view.polls.interval = Duration::from_secs(2);
        assert_eq!(render(&view, at(96), false)["up"], true);
        let late = render(&view, at(97), false);
        assert_eq!(late["up"], false);
        assert_eq!(late["locks"], Value::Null);
        assert_eq!(late["error"], "no poll has been answered lately");
    }
}
