//! Pictures → sentences: everything that is known of a key, of those on it and of its server, with
//! every bound.
//!
//! Pure. A line is a cell of its own; those about somebody are indented below who it is. What is not
//! told to this reader is said to be so, and what is not known is unknown.

use super::column::{
    Cell, Tone, application, render_age, render_client, render_held, render_waited,
};
use super::row::Party;
use crate::blocking::BlockerKind;
use crate::duration::render_duration;
use crate::finding::Severity;
use crate::key::Key;
use crate::registry::Limit;
use crate::snapshot::{Blocker, Detail, Finding, Holder, Lock, LockTable, Server, Session, Waiter};
use crate::timestamp::Timestamp;

/// A finding with its remedy.
pub fn finding(finding: &Finding) -> [Cell; 2] {
    let tone = match finding.severity {
        Severity::Critical => Tone::Critical,
        Severity::Warning => Tone::Warning,
    };
    let severity = finding.severity.as_str().to_uppercase();
    [
        Cell { text: format!("{severity} {}: {}", finding.finding, finding.text), tone },
        plain(format!("remedy: {}", finding.remedy)),
    ]
}

/// Findings by severity, in words.
pub fn count_findings<'a>(servers: impl Iterator<Item = &'a Server>) -> Cell {
    let (mut critical, mut warnings) = (0_usize, 0_usize);
    for finding in
        servers.flat_map(|server| server.locks.iter().flatten()).flat_map(|one| &one.findings)
    {
        match finding.severity {
            Severity::Critical => critical += 1,
            Severity::Warning => warnings += 1,
        }
    }
    let warned = count(warnings, "warning", "warnings");
    match (critical, warnings) {
        (0, 0) => plain("no findings"),
        (0, _) => Cell { text: warned, tone: Tone::Warning },
        (_, 0) => Cell { text: format!("{critical} critical"), tone: Tone::Critical },
        (_, _) => Cell { text: format!("{critical} critical, {warned}"), tone: Tone::Critical },
    }
}

/// What makes a picture less than it could be.
pub fn warnings(server: &Server) -> Vec<Cell> {
    let warning = |text: &str| Cell { text: text.to_owned(), tone: Tone::Warning };
    let mut told = Vec::new();
    let looked = server.looked_at.as_ref();
    if looked.is_some_and(|looked| looked.privileges_sufficient == Some(false)) {
        told.push(warning("the state of others is hidden: GRANT pg_read_all_stats TO this role"));
    }
    if server.pooled_connection == Some(true) {
        told.push(warning("seen through a pooler: connect to the server itself"));
    }
    told
}

/// Which PostgreSQL it is, without what it was built with.
pub fn version(server: &Server) -> Option<Cell> {
    let version = server.version.as_deref()?.split(' ').next()?;
    Some(plain(format!("PostgreSQL {version}")))
}

/// How full the lock table is, where that is known.
pub fn lock_table(table: LockTable) -> Option<Cell> {
    let LockTable { entries: Some(entries), capacity } = table else { return None };
    let Some(capacity) = capacity else { return Some(plain(format!("lock table {entries}"))) };
    let percent = entries.saturating_mul(100).checked_div(capacity)?;
    let is_full = entries > LockTable::full_at(capacity);
    let tone = if is_full { Tone::Warning } else { Tone::Plain };
    let percent = if percent > 0 { format!(" ({percent} %)") } else { String::new() };
    Some(Cell { text: format!("lock table {entries}/{capacity}{percent}"), tone })
}

/// What the registry says of a key, and the key in all its forms: names of fields with their values.
pub fn key(lock: &Lock) -> Vec<(&'static str, String)> {
    let mut told = Vec::new();
    told.push(match &lock.lock {
        Some(name) => ("name", name.to_string()),
        None => ("name", "unregistered: no entry of the registry names it".to_owned()),
    });
    for (field, value) in
        [("description", &lock.description), ("owner", &lock.owner), ("runbook", &lock.runbook)]
    {
        told.extend(value.as_ref().map(|value| (field, value.to_string())));
    }
    for candidate in &lock.candidates {
        let name = candidate.display_name.as_deref().unwrap_or(&candidate.lock);
        let reason = candidate.reason.as_deref().unwrap_or("");
        told.push(("may be", format!("{name} {reason}")));
    }
    let limits =
        [("max_hold", lock.limits.max_hold_seconds), ("max_wait", lock.limits.max_wait_seconds)];
    told.extend(limits.into_iter().filter_map(|(name, limit)| Some((name, render_limit(limit?)))));
    told.extend(key_forms(lock.key));
    told
}

/// Who holds a key, and everything that is known of it.
pub fn holder(server: &Server, lock: &Lock, holder: &Holder) -> Vec<Cell> {
    let party = Party::Holder(lock, holder);
    let mut told =
        vec![plain(format!("{}  {}  {}", who(party), holder.mode.as_str(), render_held(holder)))];
    told.extend(session(server, party));
    let mut bounds =
        format!("  seen held at every poll for {}", render_age(holder.seen_for_seconds));
    if let Some(least) = holder.held_at_least_seconds {
        bounds.push_str(&format!("; proved for {}", render_age(least)));
    }
    match holder.held_at_most_seconds {
        Some(most) => bounds.push_str(&format!("; at most {}", render_age(most))),
        None => bounds.push_str("; how much longer is not known"),
    }
    told.push(plain(bounds));
    if holder.transactions_seen > 1 {
        told.push(plain(format!("  seen in {} transactions", holder.transactions_seen)));
    }
    let scope = holder.scope_evidence.as_deref().unwrap_or(holder.scope.as_str());
    told.push(plain(format!("  scope: {scope}")));
    let first = holder.first_application_name.as_deref();
    if first.is_some() && first != holder.session.application_name.as_deref() {
        let text = format!(
            "  it was called {} when it was first seen with the lock{}",
            application(first),
            if holder.seen_to_begin { "" } else { ", which had begun before" },
        );
        told.push(Cell { text, tone: Tone::Warning });
    }
    if holder.other_locks.count > 0 {
        let types = holder.other_locks.by_type.iter();
        let types: Vec<String> = types.map(|(kind, count)| format!("{count} {kind}")).collect();
        told.push(plain(format!("  also holds {}", types.join(", "))));
    }
    if holder.has_written == Some(true) {
        told.push(plain("  its transaction has written"));
    }
    if holder.blocks > 0 {
        let through: Vec<&str> = holder.blocks_through.iter().map(|kind| &**kind).collect();
        let through = match through.is_empty() {
            true => String::new(),
            false => format!(" (through {})", through.join(", ")),
        };
        let waiting = count(holder.blocks, "session waits", "sessions wait");
        told.push(plain(format!("  {waiting} behind it{through}")));
        told.push(plain(format!("  once it lets go: {}", render_next(holder))));
    }
    told
}

/// Who waits for a key, behind whom, and where that ends.
pub fn waiter(server: &Server, lock: &Lock, waiter: &Waiter) -> Vec<Cell> {
    let party = Party::Waiter(lock, waiter);
    let waited = render_waited(waiter.waited());
    let mut told = vec![plain(format!("{}  {}  waits {waited}", who(party), waiter.mode.as_str()))];
    told.extend(session(server, party));
    let blockers = blockers(&waiter.blocked_by, waiter.blocked_by_count);
    told.push(plain(format!("  waits for {blockers}")));
    let named = waiter.roots.iter().take(3).map(|root| {
        let circle = if root.in_cycle { ", in a circle" } else { "" };
        let state = root.state.as_deref().unwrap_or("state unknown");
        match root.pid {
            Some(pid) => format!(
                "{} {} ({state}{circle})",
                pid.0,
                application(root.application_name.as_deref())
            ),
            None => format!("prepared {}", root.gid.as_deref().unwrap_or("transaction")),
        }
    });
    let roots: Vec<String> = named.collect();
    if !roots.is_empty() {
        let more = and_more(waiter.roots_count.saturating_sub(roots.len()));
        told.push(plain(format!("  its chain ends at {}{more}", roots.join(", "))));
    }
    if let Some(age) = waiter.xmin_age {
        let text = format!("  its snapshot is {age} transactions old");
        told.push(Cell { text, tone: Tone::Dim });
    }
    told
}

/// What is known of a backend, or of a prepared transaction.
pub fn session(server: &Server, party: Party<'_>) -> Vec<Cell> {
    if let Some(prepared) = party.prepared() {
        let owner = detail(&prepared.owner);
        let at = prepared.prepared_at.map(|at| format!(", prepared at {}", render_moment(at)));
        return vec![plain(format!("  owner {owner}{}", at.unwrap_or_default()))];
    }
    let session = party.session();
    let state = session.state.as_deref().unwrap_or("state unknown");
    let since = match (session.state_since, server.polled_at) {
        (Some(since), Some(polled)) => {
            format!(" for {}", render_age(polled.since(since).as_secs_f64()))
        }
        (_, _) => String::new(),
    };
    let event = session.wait_event.as_deref().map(|event| format!(", {event}"));
    let connected = session.backend_start.map(|at| format!(", connected at {}", render_moment(at)));
    vec![
        plain(format!("  {state}{since}{}", event.unwrap_or_default())),
        plain(format!(
            "  user {}, client {}{}",
            detail(&session.usename),
            client(session),
            connected.unwrap_or_default()
        )),
    ]
}

/// Somebody, as a sentence begins.
pub fn who(party: Party<'_>) -> String {
    match (party.pid(), party.prepared().and_then(|prepared| prepared.gid.as_deref())) {
        (Some(pid), _) => {
            let name = application(party.session().application_name.as_deref());
            format!("session {} ({name})", pid.0)
        }
        (None, Some(gid)) => format!("prepared transaction {gid}"),
        (None, None) => "a prepared transaction".to_owned(),
    }
}

/// Those whom somebody waits for, some of so many, and how.
pub fn blockers(blockers: &[Blocker], count: usize) -> String {
    if blockers.is_empty() {
        return "nobody that was seen".to_owned();
    }
    let named = blockers.iter().take(5).map(|blocker| {
        let who = match (blocker.pid, &blocker.gid) {
            (Some(pid), _) => pid.0.to_string(),
            (None, Some(gid)) => format!("prepared {gid}"),
            (None, None) => "a prepared transaction".to_owned(),
        };
        let how = match blocker.kind {
            BlockerKind::Hard => "holds it",
            BlockerKind::Soft => "ahead in the queue",
        };
        let doubt = if blocker.certain { "" } else { ", not certain" };
        format!("{who} ({how}{doubt})")
    });
    let named: Vec<String> = named.collect();
    let more = and_more(count.saturating_sub(named.len()));
    format!("{}{more}", named.join(", "))
}

/// A moment to the second, in UTC. Of today or not is for the reader to see.
pub fn render_moment(at: Timestamp) -> String {
    let text = at.to_string();
    let whole = text.split('.').next().unwrap_or(&text).replacen('T', " ", 1);
    format!("{whole}Z")
}

/// A number of things, in words.
pub fn count(count: usize, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

fn plain(text: impl Into<String>) -> Cell {
    Cell { text: text.into(), tone: Tone::Plain }
}

fn and_more(more: usize) -> String {
    if more > 0 { format!(" and {more} more") } else { String::new() }
}

fn detail<T: ToString>(field: &Detail<T>) -> String {
    match field {
        Detail::Hidden => "not shown by this exporter".to_owned(),
        Detail::Told(None) => "unknown".to_owned(),
        Detail::Told(Some(value)) => value.to_string(),
    }
}

fn client(session: &Session) -> String {
    match render_client(session) {
        Some(client) => client,
        None if session.client_addr.is_hidden() => "not shown by this exporter".to_owned(),
        None => "unknown".to_owned(),
    }
}

fn render_limit(limit: Limit) -> String {
    match limit {
        Limit::Of(duration) => render_duration(duration),
        Limit::Unlimited => "unlimited".to_owned(),
    }
}

fn render_next(holder: &Holder) -> String {
    match &holder.frees_next {
        None => "who comes next is not known".to_owned(),
        Some(next) if next.is_empty() => "nobody gets in at once".to_owned(),
        Some(next) => {
            let pids: Vec<String> = next.iter().flatten().map(|pid| pid.0.to_string()).collect();
            let more = and_more(holder.frees_next_count.unwrap_or(0).saturating_sub(next.len()));
            let verb = if holder.frees_next_count == Some(1) { "gets" } else { "get" };
            format!("{}{more} {verb} in", pids.join(", "))
        }
    }
}

/// The same key as programs, `pg_locks` and a log write it.
fn key_forms(key: Key) -> Vec<(&'static str, String)> {
    let columns = format!("{}/{}/{}", key.classid(), key.objid(), key.objsubid());
    let mut forms = Vec::new();
    if let Some(number) = key.as_bigint() {
        forms.push(("bigint", number.to_string()));
    }
    if let Some((first, second)) = key.as_pair() {
        forms.push(("pair", format!("{first}, {second}")));
    }
    forms.push(("pg_locks", format!("classid/objid/objsubid {columns}")));
    forms.push((
        "hexadecimal",
        match key.as_pair() {
            Some(_) => format!("0x{:08x}, 0x{:08x}", key.classid(), key.objid()),
            None => format!("0x{:08x}{:08x}", key.classid(), key.objid()),
        },
    ));
    forms.push((
        "to see it",
        format!(
            "SELECT * FROM pg_locks WHERE locktype = 'advisory' AND (classid, objid, objsubid) = \
             ({}, {}, {})",
            key.classid(),
            key.objid(),
            key.objsubid()
        ),
    ));
    forms.push((
        "to let go",
        "pg_advisory_unlock works in the session that holds it alone, and is no remedy from \
         elsewhere"
            .to_owned(),
    ));
    forms
}
