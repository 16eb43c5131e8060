//! Acting on a session: whether it may be done, what has to be known before, and what became of it.
//!
//! What is asked is pure: from the picture and the selected row to the text of the question. Only
//! [`Question::carry_out`] and [`fetch_queries`] go to the server, through `postgres`. A question is
//! about one backend with its start; whatever the rows do meanwhile, the answer is about that one, and
//! counts only while what was asked about is still so. A prepared transaction has no backend, and
//! never becomes a question.

use std::ptr;
use std::sync::Arc;
use std::time::Duration;

use super::app::{Backend, QueryText};
use super::source::{Origin, Watched};
use crate::duration::render_duration;
use crate::postgres::Dsn;
use crate::postgres::action::{self, Outcome, Signal};
use crate::sample::Pid;
use crate::snapshot::{Holder, Lock, Server, Waiter};
use crate::table::column::{Tone, application, render_held, render_waited, title};
use crate::table::list::keys_of;
use crate::table::row::{LockId, Party, PartyId, Place, What};
use crate::timestamp::Timestamp;
use crate::tracker::Scope;

/// Of the keys of a session so many are named.
const NAMED: usize = 3;

/// Where pictures are taken less often than this, it is said that one may be old.
const FRESH: Duration = Duration::from_secs(5);

/// Why nobody is acted upon.
const OLD: &str = "this picture is old: nobody is acted upon until there is a new one";

/// What somebody wants to do to a session.
pub type Verb = Signal;

/// A question that one key answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    verb: Verb,
    server: Arc<str>,
    pid: Pid,
    backend_start: Timestamp,
    application_name: String,
    reason: Reason,
    lines: Vec<(Tone, String)>,
}

/// Why somebody is asked about.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Reason {
    Holds(LockId, String),
    WaitsFor(LockId, String),
    WaitsElsewhere,
    KeepsOthersWaiting,
}

impl Question {
    /// About the selected row, or why it cannot be asked.
    pub fn of(verb: Verb, may_act: bool, all: &[Watched], place: &Place) -> Result<Self, String> {
        let watched = all.get(place.server).ok_or("there is no row to act upon")?;
        let party = target(all, place)?;
        let server = &watched.server;
        let Some(pid) = party.pid() else { return Err(prepared_remedy(party)) };
        let by_hand = match verb {
            Signal::Cancel => format!("SELECT pg_cancel_backend({})", pid.0),
            Signal::Terminate => format!("SELECT pg_terminate_backend({})", pid.0),
        };
        if let Origin::Exporter { .. } = watched.origin {
            return Err(format!("an exporter acts on nobody; on {}: {by_hand}", server.server));
        }
        if !may_act {
            return Err(format!("acting takes --allow-kill; by hand: {by_hand}"));
        }
        if watched.lost.is_some() {
            return Err(OLD.to_owned());
        }
        let Some(backend_start) = party.session().backend_start else {
            return Err(format!(
                "when session {} began is hidden from this role, so it cannot be told from a later \
                 one with its pid: GRANT pg_read_all_stats TO the role",
                pid.0
            ));
        };
        Ok(Self {
            verb,
            server: server.server.clone(),
            pid,
            backend_start,
            application_name: application(party.session().application_name.as_deref()).to_owned(),
            reason: Reason::of(server, party),
            lines: describe(verb, watched, party),
        })
    }

    /// Whether what it is about is still so, since nobody reads in no time; else why it is not.
    pub fn recheck(&self, all: &[Watched]) -> Result<(), String> {
        let watched = all.iter().find(|watched| watched.server.server == self.server);
        let Some(watched) = watched.filter(|watched| watched.lost.is_none()) else {
            return Err(OLD.to_owned());
        };
        if self.reason.is_so(&watched.server, self.pid, self.backend_start) {
            return Ok(());
        }
        let meanwhile = match &self.reason {
            Reason::Holds(_, title) => format!("does not hold {title} any more"),
            Reason::WaitsFor(_, title) => format!("does not wait for {title} any more"),
            Reason::WaitsElsewhere => "does not wait any more".to_owned(),
            Reason::KeepsOthersWaiting => "is not at the end of a chain any more".to_owned(),
        };
        let Self { pid, application_name, .. } = self;
        Err(format!("session {} ({application_name}) {meanwhile}: nothing was done", pid.0))
    }

    /// The server of the session.
    pub fn server(&self) -> &str {
        &self.server
    }

    /// In one line.
    pub fn title(&self) -> String {
        let Self { pid, application_name, server, .. } = self;
        let verb = match self.verb {
            Signal::Cancel => "Cancel the statement of",
            Signal::Terminate => "End",
        };
        format!("{verb} session {} ({application_name}) on {server}?", pid.0)
    }

    /// What has to be known before, the most important first.
    pub fn lines(&self) -> &[(Tone, String)] {
        &self.lines
    }

    /// Does it, and says what became of it.
    pub async fn carry_out(&self, dsn: &Dsn) -> Result<String, String> {
        let outcome = action::send_signal(dsn, self.verb, self.pid, self.backend_start).await;
        let (pid, name) = (self.pid.0, &self.application_name);
        let who = format!("session {pid} ({name})");
        match outcome {
            Ok(Outcome::Sent) => Ok(match self.verb {
                Signal::Cancel => format!("{who}: its statement was told to stop"),
                Signal::Terminate => format!("{who} was told to end"),
            }),
            Ok(Outcome::Gone) => Ok(format!("{who} is gone already")),
            Ok(Outcome::Reused) => Err(format!(
                "pid {pid} belongs to another session now, which was left alone; {name} is gone"
            )),
            Ok(Outcome::Hidden) => Err(format!(
                "when session {pid} began is hidden from this role: nothing was done; GRANT \
                 pg_read_all_stats TO the role"
            )),
            Ok(Outcome::Own) => Err(format!(
                "a pooler lent us session {pid} itself to ask with: nothing was done; connect past \
                 the pooler"
            )),
            Err(error) => Err(format!("{who}: {error}")),
        }
    }
}

impl Reason {
    fn of(server: &Server, party: Party<'_>) -> Self {
        let key = |lock| (LockId::of(server, lock), title(lock).into_owned());
        match party {
            Party::Holder(lock, _) => {
                let (id, title) = key(lock);
                Self::Holds(id, title)
            }
            Party::Waiter(lock, _) => {
                let (id, title) = key(lock);
                Self::WaitsFor(id, title)
            }
            Party::OtherWait(_) => Self::WaitsElsewhere,
            Party::Root(_) => Self::KeepsOthersWaiting,
        }
    }

    fn is_so(&self, server: &Server, pid: Pid, backend_start: Timestamp) -> bool {
        let id = PartyId::Backend(pid, Some(backend_start));
        let is_it = |party: Party<'_>| party.id() == id;
        let of_key = |key: &LockId, is_on: &dyn Fn(&Lock) -> bool| {
            server
                .locks
                .iter()
                .flatten()
                .any(|lock| LockId::of(server, lock) == *key && is_on(lock))
        };
        match self {
            Self::Holds(key, _) => of_key(key, &|lock| {
                lock.holders.iter().any(|holder| is_it(Party::Holder(lock, holder)))
            }),
            Self::WaitsFor(key, _) => of_key(key, &|lock| {
                lock.waiters.iter().any(|waiter| is_it(Party::Waiter(lock, waiter)))
            }),
            Self::WaitsElsewhere => {
                server.other_waits.iter().flatten().any(|wait| is_it(Party::OtherWait(wait)))
            }
            Self::KeepsOthersWaiting => {
                server.roots.iter().flatten().any(|root| is_it(Party::Root(root)))
            }
        }
    }
}

/// What sessions run, or why that is not known; those that are gone are left out.
pub async fn fetch_queries(dsn: &Dsn, backends: &[Backend]) -> Vec<(Backend, QueryText)> {
    let backend = |pid: Pid| backends.iter().find(|(known, _)| *known == pid).copied();
    match action::fetch_queries(dsn, backends).await {
        Ok(queries) => queries
            .into_iter()
            .filter_map(|query| {
                let hidden = || "hidden: GRANT pg_read_all_stats TO the role".into();
                Some((backend(query.pid)?, query.text.map(Arc::from).ok_or_else(hidden)))
            })
            .collect(),
        Err(error) => {
            let reason: Arc<str> = error.to_string().into();
            backends.iter().map(|backend| (*backend, Err(reason.clone()))).collect()
        }
    }
}

/// Whom the row is about: of a key its only holder.
fn target<'a>(all: &'a [Watched], place: &Place) -> Result<Party<'a>, String> {
    let choose = || "several sessions hold it: choose one in the Sessions view (2)".to_owned();
    match (&place.what, place.lock(all)) {
        (What::Server, _) => return Err("there is no row to act upon".to_owned()),
        (What::Lock(_), Some(lock)) => match &lock.holders[..] {
            [] => return Err("nobody holds it".to_owned()),
            [_] => {}
            _ => return Err(choose()),
        },
        (What::Fold(keys), Some(_)) => {
            let locks = all[place.server].server.locks.as_deref().unwrap_or_default();
            let holders = keys.iter().filter_map(|key| locks.get(*key)?.holders.first());
            let mut pids: Vec<Option<Pid>> = holders.map(|holder| holder.pid).collect();
            pids.dedup();
            if pids.len() != 1 {
                return Err(choose());
            }
        }
        (_, _) => {}
    }
    place.party(all).ok_or_else(|| "it is gone".to_owned())
}

fn prepared_remedy(party: Party<'_>) -> String {
    match party.prepared().and_then(|prepared| prepared.gid.as_deref()) {
        Some(gid) => {
            let gid = gid.replace('\'', "''");
            format!(
                "a prepared transaction has no session to end: COMMIT PREPARED '{gid}' or ROLLBACK \
                 PREPARED '{gid}' in its database, whichever its transaction manager decided"
            )
        }
        None => "a prepared transaction has no session to end: find its gid in \
                 pg_prepared_xacts, then COMMIT PREPARED or ROLLBACK PREPARED in its database"
            .to_owned(),
    }
}

/// What has to be known before somebody says yes.
fn describe(verb: Verb, watched: &Watched, party: Party<'_>) -> Vec<(Tone, String)> {
    let server = &watched.server;
    let mut lines = Vec::new();
    let (mut held, awaited) = keys_of(server, &party.id());
    if let Party::Holder(selected, _) = party {
        // Of many keys the one that somebody looks at is named.
        held.sort_by_key(|lock| !ptr::eq(*lock, selected));
    }
    let holder = held.iter().find_map(|lock| find_holder(lock, party));
    lines.push((Tone::Plain, describe_held(&held, holder)));
    for lock in &awaited {
        let waited = lock.waiters.iter().find(|waiter| waiter.pid == party.pid());
        let waited = waited.and_then(Waiter::waited);
        lines.push((
            Tone::Plain,
            format!("It waits {} for {}.", render_waited(waited), title(lock)),
        ));
    }
    if let Party::OtherWait(wait) = party {
        let waited = render_waited(wait.waited());
        lines.push((Tone::Plain, format!("It waits {waited} for {}.", wait.target)));
    }
    let blocks = match party {
        Party::Root(root) => root.blocks,
        Party::Holder(..) | Party::Waiter(..) | Party::OtherWait(_) => {
            holder.map_or(0, |holder| holder.blocks)
        }
    };
    let blocks = blocks.max(count_behind(server, party));
    lines.push((Tone::Plain, describe_freed(&held, party, blocks)));
    lines.extend(warn(verb, &held, &awaited, holder, party));
    if watched.interval > FRESH {
        let interval = render_duration(watched.interval);
        lines.push((
            Tone::Warning,
            format!("This picture may be {interval} old: r takes a new one."),
        ));
    }
    lines
}

/// Who is seen to wait for somebody directly: also for one who waits too, and is ahead in the queue.
fn count_behind(server: &Server, party: Party<'_>) -> usize {
    let waiters = server.locks.iter().flatten().flat_map(|lock| &lock.waiters);
    let waits = server.other_waits.iter().flatten();
    waiters
        .map(|waiter| &waiter.blocked_by)
        .chain(waits.map(|wait| &wait.blocked_by))
        .filter(|blockers| blockers.iter().any(|blocker| blocker.pid == party.pid()))
        .count()
}

fn find_holder<'a>(lock: &'a Lock, party: Party<'_>) -> Option<&'a Holder> {
    lock.holders.iter().find(|holder| holder.pid == party.pid())
}

fn describe_held(held: &[&Lock], holder: Option<&Holder>) -> String {
    let Some(holder) = holder else { return "It holds no advisory lock.".to_owned() };
    let names: Vec<String> = held.iter().take(NAMED).map(|lock| title(lock).into_owned()).collect();
    let more = held.len().saturating_sub(NAMED);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("It holds {}{more}, the first for {}.", names.join(", "), render_held(holder))
}

/// Who would be let in, as far as that is known.
fn describe_freed(held: &[&Lock], party: Party<'_>, blocks: usize) -> String {
    let next: Vec<String> = held
        .iter()
        .filter_map(|lock| Some((lock, find_holder(lock, party)?.frees_next.as_ref()?)))
        .flat_map(|(lock, next)| {
            next.iter().flatten().map(move |pid| {
                let waiter = lock.waiters.iter().find(|waiter| waiter.pid == Some(*pid));
                let name = waiter.and_then(|waiter| waiter.session.application_name.as_deref());
                format!("{} ({}) gets {}", pid.0, application(name), title(lock))
            })
        })
        .collect();
    let behind = match blocks {
        0 => return "Nobody is seen to wait for it.".to_owned(),
        1 => "1 session waits behind it".to_owned(),
        many => format!("{many} sessions wait behind it"),
    };
    match &next[..] {
        [] => format!("{behind}."),
        next => {
            let shown: Vec<&str> = next.iter().take(NAMED).map(String::as_str).collect();
            let more = next.len().saturating_sub(NAMED);
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            format!("{behind}; once it lets go {}{more}.", shown.join(", "))
        }
    }
}

fn warn(
    verb: Verb,
    held: &[&Lock],
    awaited: &[&Lock],
    holder: Option<&Holder>,
    party: Party<'_>,
) -> Vec<(Tone, String)> {
    let mut lines = Vec::new();
    let mut warn = |text: &str| lines.push((Tone::Warning, text.to_owned()));
    let state = party.session().state.as_deref();
    let is_pooled = held.iter().flat_map(|lock| &lock.findings).any(|finding| {
        &*finding.finding == "pooled_backend"
            && party.pid().is_some_and(|pid| finding.pids.contains(&pid))
    });
    let renamed = holder.and_then(|holder| {
        let first = holder.first_application_name.as_deref()?;
        (Some(first) != holder.session.application_name.as_deref()).then_some(first)
    });
    if let Some(first) = renamed {
        warn(&format!(
            "It was called {} when it was first seen with the lock: it may be a pooled connection, \
             and another program's work on it ends too.",
            application(Some(first))
        ));
    } else if is_pooled {
        warn("It is a pooled connection: whatever runs on it now ends too.");
    }
    match (verb, state) {
        (Signal::Cancel, Some(state)) if state.starts_with("idle") => {
            warn(&format!("It is {state} and runs no statement: to cancel it changes nothing."));
        }
        (Signal::Cancel, _) if !awaited.is_empty() && held.is_empty() => {
            warn("Its statement fails, and the holder is left alone.");
        }
        (Signal::Cancel, _) => {
            let mut scopes = held.iter().filter_map(|lock| Some(find_holder(lock, party)?.scope));
            let first = scopes.next();
            warn(match first.filter(|first| scopes.all(|scope| scope == *first)) {
                Some(Scope::Session) => {
                    "Its statement fails, and what it holds stays held: only its end lets it go."
                }
                Some(Scope::Transaction) => {
                    "Its statement fails; what it holds is free when the transaction is rolled \
                     back."
                }
                Some(Scope::Unknown) | None => {
                    "Its statement fails. A session-level lock stays held; a transaction-level \
                     one is free when the transaction is rolled back."
                }
            });
        }
        (Signal::Terminate, _) => {
            if holder.is_some() {
                warn("The program may go on working without the lock.");
            }
            if holder.is_some_and(|holder| holder.has_written == Some(true)) {
                warn("What its transaction has written is rolled back.");
            } else if state.is_some_and(|state| state != "idle") {
                warn("Its transaction, if it is in one, is rolled back.");
            }
        }
    }
    if state.is_none() {
        warn("What it does at the moment is hidden from this role.");
    }
    lines
}

#[cfg(test)]
mod tests;
