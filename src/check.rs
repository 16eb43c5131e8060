//! `locks check`: one snapshot → a verdict, with the exit code of a monitoring plugin.
//!
//! It takes the findings as they were judged, adds what is to be said of a server as a whole (down,
//! lock table filling, privileges, a pooler in between, conflicts of the registry), and keeps apart
//! what could not be judged: silence there is no good news. What is said how is `render`'s. Pure:
//! who looks, and how often, is not known here.

pub mod privilege;
mod render;

use std::cmp::Reverse;
use std::sync::Arc;

use serde::Serialize;

use crate::finding::{FindingKind, Severity};
use crate::key::Key;
use crate::sample::Pid;
use crate::snapshot::{Finding, Gap, Lock, LockTable, Server, Snapshot};
use crate::timestamp::Timestamp;

/// What monitoring plugins say, from good to bad.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Status {
    /// Nothing was found.
    Ok,
    /// Something for working hours.
    Warning,
    /// It cannot be told. Worse than a warning: it may hide anything; but what was seen to be
    /// critical is critical whatever was not seen.
    Unknown,
    /// Something for now.
    Critical,
}

/// Everything there is to say.
#[derive(Debug)]
pub struct Verdict {
    /// The worst first.
    remarks: Vec<Remark>,
    unknown: Vec<Unknown>,
    not_judged: Vec<NotJudged>,
    servers: Vec<Looked>,
}

/// A finding, or something about a server as a whole.
#[derive(Debug)]
struct Remark {
    severity: Severity,
    /// A finding's name, or a word like it.
    name: Arc<str>,
    server: Arc<str>,
    subject: Option<Subject>,
    text: String,
    remedy: String,
    pids: Vec<Pid>,
}

/// The key that a finding is about.
#[derive(Debug)]
struct Subject {
    datname: Arc<str>,
    key: Key,
    lock: Option<Arc<str>>,
    display_name: Option<Arc<str>>,
    runbook: Option<Arc<str>>,
}

/// Why it cannot be told whether all is well.
#[derive(Debug)]
struct Unknown {
    /// `None` where it is about all of them.
    server: Option<Arc<str>>,
    /// The one that is required and was not judged.
    finding: Option<FindingKind>,
    reason: String,
}

/// A finding that could not be judged on a server.
#[derive(Debug)]
struct NotJudged {
    server: Arc<str>,
    gap: Gap,
    is_required: bool,
}

/// A server in figures.
#[derive(Debug)]
struct Looked {
    server: Arc<str>,
    error: Option<String>,
    version: Option<Arc<str>>,
    role: Option<Arc<str>>,
    polled_at: Option<Timestamp>,
    watching_since: Option<Timestamp>,
    lock_table: LockTable,
    /// `None` for one that is down.
    figures: Option<Figures>,
}

#[derive(Clone, Copy, Debug, Default, Serialize)]
struct Figures {
    holders: usize,
    waiters: usize,
    keys_held: usize,
    keys_awaited: usize,
    longest_hold_seconds: f64,
    longest_wait_seconds: f64,
}

impl Verdict {
    /// What is to be said of a snapshot. It cannot be told that all is well where one of these
    /// findings could not be judged.
    pub fn of(snapshot: &Snapshot, required: &[FindingKind]) -> Self {
        let mut verdict = Self {
            remarks: Vec::new(),
            unknown: Vec::new(),
            not_judged: Vec::new(),
            servers: Vec::new(),
        };
        for server in &snapshot.servers {
            verdict.observe(server, required);
        }
        if snapshot.servers.is_empty() {
            verdict.unknown.push(Unknown::general("there is no server to look at".to_owned()));
        }
        verdict.remarks.sort_by_key(|remark| Reverse(remark.severity));
        verdict
    }

    /// Nothing was seen at all.
    pub fn blind(reason: String) -> Self {
        Self {
            remarks: Vec::new(),
            unknown: vec![Unknown::general(reason)],
            not_judged: Vec::new(),
            servers: Vec::new(),
        }
    }

    /// A finding that is required and that no entry of the registry asks for: it would be silent for
    /// ever, whatever happens.
    pub fn observe_unasked(&mut self, finding: FindingKind) {
        let Some(field) = asked_by(finding) else { return };
        self.unknown.push(Unknown {
            server: None,
            finding: Some(finding),
            reason: format!(
                "no entry of the registry has {field}: name its file with --registry.file, or add \
                 it to an entry"
            ),
        });
    }

    /// The worst of all.
    pub fn status(&self) -> Status {
        let unknown = if self.unknown.is_empty() { Status::Ok } else { Status::Unknown };
        let remarks = self.remarks.iter().map(|remark| remark.severity.into());
        remarks.chain([unknown]).max().unwrap_or(Status::Ok)
    }

    fn observe(&mut self, server: &Server, required: &[FindingKind]) {
        let error = || server.error.clone().unwrap_or_else(|| "it is down".to_owned());
        let locks = server.locks.as_ref().filter(|_| server.up);
        self.servers.push(Looked {
            server: server.server.clone(),
            error: locks.is_none().then(error),
            version: server.version.clone(),
            role: server.role.clone(),
            polled_at: server.polled_at,
            watching_since: server.watching_since,
            lock_table: server.lock_table,
            figures: locks.map(|locks| Figures::of(locks)),
        });
        let Some(locks) = locks else {
            self.unknown.push(Unknown {
                server: Some(server.server.clone()),
                finding: None,
                reason: error(),
            });
            return;
        };
        for lock in locks {
            let remarks = lock.findings.iter().map(|finding| Remark::of(server, lock, finding));
            self.remarks.extend(remarks);
        }
        self.remarks.extend(conditions(server));
        self.observe_gaps(server, required);
    }

    fn observe_gaps(&mut self, server: &Server, required: &[FindingKind]) {
        let name = &server.server;
        let unknown = |kind: FindingKind, reason: &str| Unknown {
            server: Some(name.clone()),
            finding: Some(kind),
            reason: reason.to_owned(),
        };
        let Some(gaps) = &server.not_judged else {
            let reason = "the exporter does not tell what it judges: use the same version of locks \
                          on both sides";
            self.unknown.extend(required.iter().map(|kind| unknown(*kind, reason)));
            return;
        };
        for gap in gaps {
            let kind = required.iter().find(|kind| kind.as_str() == &*gap.finding);
            if let Some(kind) = kind
                && !gap.in_part
            {
                self.unknown.push(unknown(*kind, &gap.reason));
            }
            self.not_judged.push(NotJudged {
                server: name.clone(),
                gap: gap.clone(),
                is_required: kind.is_some(),
            });
        }
    }
}

/// The field of an entry without which a finding is never told; `None` where it needs none.
fn asked_by(finding: FindingKind) -> Option<&'static str> {
    [
        (FindingKind::Vacant, "must_be_held"),
        (FindingKind::Flapping, "must_be_held"),
        (FindingKind::Missed, "last_held_within"),
        (FindingKind::Repeated, "not_again_within"),
    ]
    .into_iter()
    .find_map(|(kind, field)| (kind == finding).then_some(field))
}

/// What is to be said of a server as a whole.
fn conditions(server: &Server) -> Vec<Remark> {
    let warning = |name: &str, text: String, remedy: &str| Remark {
        severity: Severity::Warning,
        name: name.into(),
        server: server.server.clone(),
        subject: None,
        text,
        remedy: remedy.to_owned(),
        pids: Vec::new(),
    };
    let mut conditions = Vec::new();
    if let LockTable { entries: Some(entries), capacity: Some(capacity) } = server.lock_table
        && entries > LockTable::full_at(capacity)
    {
        conditions.push(warning(
            "lock_table_filling",
            format!(
                "the lock table has {entries} entries, more than {} % of the {capacity} it \
                 promises to hold",
                LockTable::FULL_PERCENT
            ),
            "raise max_locks_per_transaction, which takes a restart, or let programs take fewer \
             locks at once",
        ));
    }
    let looked_at = server.looked_at.as_ref();
    if looked_at.is_some_and(|looked_at| looked_at.privileges_sufficient == Some(false)) {
        conditions.push(warning(
            "privileges_insufficient",
            "the state of other sessions is hidden".to_owned(),
            "GRANT pg_read_all_stats TO the role that looks",
        ));
    }
    if server.pooled_connection == Some(true) {
        conditions.push(warning(
            "pooled_connection",
            "it is looked at through a pooler, whose sessions may be others at every look"
                .to_owned(),
            "connect to the server directly",
        ));
    }
    let conflicts = match server.registry_conflicts {
        0 => return conditions,
        1 => "1 key of the registry has more than one name".to_owned(),
        conflicts => format!("{conflicts} keys of the registry have more than one name"),
    };
    let remedy = "run locks registry check over its files";
    conditions.push(warning("registry_conflicts", conflicts, remedy));
    conditions
}

impl Status {
    /// The exit code of a monitoring plugin.
    pub const fn exit_code(self) -> u8 {
        match self {
            Self::Ok => 0,
            Self::Warning => 1,
            Self::Critical => 2,
            Self::Unknown => 3,
        }
    }

    const fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warning => "warning",
            Self::Critical => "critical",
            Self::Unknown => "unknown",
        }
    }
}

impl From<Severity> for Status {
    fn from(severity: Severity) -> Self {
        match severity {
            Severity::Warning => Self::Warning,
            Severity::Critical => Self::Critical,
        }
    }
}

impl Remark {
    fn of(server: &Server, lock: &Lock, finding: &Finding) -> Self {
        Self {
            severity: finding.severity,
            name: finding.finding.clone(),
            server: server.server.clone(),
            subject: Some(Subject {
                datname: lock.datname.clone(),
                key: lock.key,
                lock: lock.lock.clone(),
                display_name: lock.display_name.known().cloned(),
                runbook: lock.runbook.clone(),
            }),
            text: finding.text.clone(),
            remedy: finding.remedy.clone(),
            pids: finding.pids.clone(),
        }
    }
}

impl Unknown {
    const fn general(reason: String) -> Self {
        Self { server: None, finding: None, reason }
    }
}

impl Figures {
    fn of(locks: &[Lock]) -> Self {
        let holders = || locks.iter().flat_map(|lock| &lock.holders);
        let waiters = || locks.iter().flat_map(|lock| &lock.waiters);
        let seen_for = holders().map(|holder| holder.seen_for_seconds);
        let waited = waiters().filter_map(|waiter| Some(waiter.waited()?.seconds));
        Self {
            holders: holders().count(),
            waiters: waiters().count(),
            keys_held: locks.iter().filter(|lock| !lock.holders.is_empty()).count(),
            keys_awaited: locks.iter().filter(|lock| !lock.waiters.is_empty()).count(),
            longest_hold_seconds: seen_for.fold(0.0, f64::max),
            longest_wait_seconds: waited.fold(0.0, f64::max),
        }
    }

    /// Of two servers together.
    fn join(self, other: Self) -> Self {
        Self {
            holders: self.holders + other.holders,
            waiters: self.waiters + other.waiters,
            keys_held: self.keys_held + other.keys_held,
            keys_awaited: self.keys_awaited + other.keys_awaited,
            longest_hold_seconds: self.longest_hold_seconds.max(other.longest_hold_seconds),
            longest_wait_seconds: self.longest_wait_seconds.max(other.longest_wait_seconds),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::parse_snapshot;

    fn verdict(servers: &str, required: &[FindingKind]) -> Verdict {
        let json = format!(r#"{{"schema":1,"servers":[{servers}]}}"#);
        Verdict::of(&parse_snapshot(json.as_bytes()).unwrap(), required)
    }

    /// A server that is up and sees everything, with more to be said of it.
    fn up(more: &str) -> String {
        format!(
            r#"{{"server":"a","up":true,"looked_at":{{"privileges":"sufficient"}},
                "not_judged":[{{"finding":"missed","in_part":false,"reason":"too early"}},
                {{"finding":"stuck","in_part":true,"reason":"earlier waits"}}]{more}}}"#
        )
    }

    fn with_finding(severity: &str) -> String {
        up(&format!(
            r#","locks":[{{"datname":"app","key":{{"classid":0,"objid":42,"objsubid":1}},
                "findings":[{{"finding":"any","severity":"{severity}","text":"t","remedy":"r"}}]}}]"#
        ))
    }

    const NO_LOCKS: &str = r#","locks":[]"#;
    const DOWN: &str = r#"{"server":"b","up":false,"error":"gone"}"#;

    #[test]
    fn critical_counts_before_unknown_before_warning() {
        let cases = [
            (up(NO_LOCKS), Status::Ok, 0),
            (with_finding("warning"), Status::Warning, 1),
            (with_finding("critical"), Status::Critical, 2),
            (DOWN.to_owned(), Status::Unknown, 3),
            (String::new(), Status::Unknown, 3),
            (format!("{},{DOWN}", up(NO_LOCKS)), Status::Unknown, 3),
            (format!("{DOWN},{}", with_finding("warning")), Status::Unknown, 3),
            (format!("{DOWN},{}", with_finding("critical")), Status::Critical, 2),
            (format!("{},{}", up(NO_LOCKS), with_finding("warning")), Status::Warning, 1),
        ];
        for (servers, status, code) in cases {
            let verdict = verdict(&servers, &[]);
            assert_eq!(verdict.status(), status, "{servers}");
            assert_eq!(verdict.status().exit_code(), code);
        }
        assert_eq!(Verdict::blind("gone".to_owned()).status(), Status::Unknown);
    }

    #[test]
    fn a_finding_that_is_required_has_to_be_judged_on_every_server() {
        let status = |required| verdict(&up(NO_LOCKS), &[required]).status();
        assert_eq!(status(FindingKind::Missed), Status::Unknown);
        assert_eq!(status(FindingKind::Stuck), Status::Ok, "in part is enough");
        assert_eq!(status(FindingKind::Vacant), Status::Ok);
    }

    #[test]
    fn an_exporter_that_does_not_tell_what_it_judges_has_judged_nothing() {
        let server = r#"{"server":"a","up":true,"locks":[]}"#;
        assert_eq!(verdict(server, &[]).status(), Status::Ok);
        assert_eq!(verdict(server, &[FindingKind::Stuck]).status(), Status::Unknown);
    }

    #[test]
    fn what_is_said_of_a_server_as_a_whole_is_a_warning() {
        let cases = [
            (r#","lock_table":{"entries":70,"capacity":100}"#, None),
            (r#","lock_table":{"entries":71,"capacity":100}"#, Some("lock_table_filling")),
            (r#","lock_table":{"entries":71,"capacity":null}"#, None),
            (r#","pooled_connection":true"#, Some("pooled_connection")),
            (r#","pooled_connection":null"#, None),
            (r#","registry_conflicts":2"#, Some("registry_conflicts")),
        ];
        for (more, expected) in cases {
            let verdict = verdict(&up(&format!("{NO_LOCKS}{more}")), &[]);
            let names: Vec<&str> = verdict.remarks.iter().map(|it| &*it.name).collect();
            assert_eq!(names, Vec::from_iter(expected), "{more}");
            assert_eq!(verdict.status() == Status::Warning, expected.is_some());
        }
        let hidden = r#"{"server":"a","up":true,"locks":[],"not_judged":[],
            "looked_at":{"privileges":"state of other sessions is hidden"}}"#;
        assert_eq!(&*verdict(hidden, &[]).remarks[0].name, "privileges_insufficient");
    }
}
