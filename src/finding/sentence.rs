//! The words of findings: the sentence a person reads and what may be done.
//!
//! They are made when they are asked for, not at every poll, and claim no more than was seen:
//! "since", "at least", "may", never "because". One line each, whatever a client called itself. A
//! gid and its database's owner are for those who may see details.

use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::pooled::{NameChange, Sharing, Sign};
use crate::duration::render_duration;
use crate::order::{Grade, Inversion};
use crate::registry::{DeclaredScope, Limit, Resolution};
use crate::sample::Pid;
use crate::series::Label;
use crate::timestamp::Timestamp;
use crate::tracker::{KeyId, Scope, SessionId};
use crate::view::{Holder, Picture, Root, Session, Waiter};

/// What was seen of the session that a finding is about.
#[derive(Clone, Debug)]
pub(super) enum Evidence {
    HeldTooLong {
        who: Who,
        doubt: NameDoubt,
        since: Timestamp,
        seen_for: Duration,
        limit: Limit,
        behind: usize,
        /// Where the holder's own chain ends, if it waits.
        end: Option<ChainEnd>,
    },
    WaitingTooLong {
        who: Who,
        waited: Duration,
        limit: Limit,
        end: Option<ChainEnd>,
    },
    /// `end` as above.
    KeepsOut {
        who: Who,
        doubt: NameDoubt,
        contended: Duration,
        gone: u32,
        limit: Limit,
        end: Option<ChainEnd>,
    },
    Stuck {
        who: Who,
        doubt: NameDoubt,
        contended: Duration,
        idle_for: Duration,
        limit: Limit,
        behind: usize,
    },
    HiddenCycle {
        waiter: Who,
        blocked: Who,
        root: Who,
        blocked_for: Duration,
        locktype: Arc<str>,
        limit: Limit,
    },
    IdleInTransaction {
        who: Who,
        idle_for: Duration,
        is_aborted: bool,
        limit: Limit,
    },
    Prepared {
        who: Who,
        prepared_for: Duration,
        limit: Limit,
    },
    PooledBackend {
        who: Who,
        since: Timestamp,
        sharing: Box<Sharing>,
    },
    HoldsBackVacuum {
        who: Who,
        age: u32,
        limit: u32,
    },
    TooManyKeys {
        who: Who,
        keys: usize,
        limit: usize,
    },
    UnexpectedHolder {
        who: Who,
        since: Timestamp,
    },
    UnexpectedScope {
        who: Who,
        since: Timestamp,
        declared: DeclaredScope,
    },
    Vacant {
        free_for: Duration,
        limit: Duration,
        was_held: bool,
    },
    Missed {
        missed_for: Duration,
        limit: Duration,
        was_held: bool,
    },
    Repeated {
        who: Who,
        since: Timestamp,
        previous: Timestamp,
        limit: Duration,
    },
    Flapping {
        count: u32,
        within: Duration,
    },
    OrderInversion {
        inversion: Arc<Inversion>,
        side: usize,
        more: usize,
    },
}

/// A session, as a sentence speaks of it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Who {
    Backend {
        pid: Pid,
        application_name: Option<Arc<str>>,
    },
    /// `None` where the gid is not known.
    Prepared {
        gid: Option<Arc<str>>,
    },
}

/// Where somebody's chain of waits ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ChainEnd {
    /// At one that waits for nobody.
    Root(Who),
    /// In a circle that this one is in, and maybe the first of the chain too.
    Circle(Who),
}

/// Whether the name of a holder may be somebody else's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NameDoubt {
    /// It was seen when the hold began, or goes with its transaction.
    None,
    /// Nobody saw the session take the lock.
    OfLaterUser,
}

/// What every way of taking a lock from its holder costs.
const NO_LEASE: &str = "the program may go on working without the lock";

impl Evidence {
    pub(super) fn render_text(&self, details: bool) -> String {
        match self {
            Self::HeldTooLong { who, doubt, since, seen_for, limit, behind, end } => {
                format!(
                    "seen held by {} since {since:.0}, for {}; max_hold is {}{}{}{}",
                    who.render(details),
                    render_age(*seen_for),
                    render_limit(*limit),
                    render_behind(*behind),
                    render_own_end(end.as_ref(), details),
                    doubt.render(),
                )
            }
            Self::WaitingTooLong { who, waited, limit, end } => {
                let end = match end {
                    Some(end) => format!("; its chain ends {}", end.render(details)),
                    None => String::new(),
                };
                format!(
                    "{} has waited for {}; max_wait is {}{end}",
                    who.render(details),
                    render_age(*waited),
                    render_limit(*limit),
                )
            }
            Self::KeepsOut { who, doubt, contended, gone, limit, end } => {
                let gone = match gone {
                    0 => String::new(),
                    1 => "; 1 wait was seen to end without the lock meanwhile".to_owned(),
                    gone => format!("; {gone} waits were seen to end without the lock meanwhile"),
                };
                let kept_out = match contended {
                    &Duration::ZERO => "others waiting now and then".to_owned(),
                    contended => {
                        format!("others waiting for at least {}", render_age(*contended))
                    }
                };
                format!(
                    "{} was seen to keep {kept_out}; max_wait is {}{gone}{}{}",
                    who.render(details),
                    render_limit(*limit),
                    render_own_end(end.as_ref(), details),
                    doubt.render(),
                )
            }
            Self::Stuck { who, doubt, contended, idle_for, limit, behind } => format!(
                "{} has been idle for at least {} and was seen to keep others waiting for {}; \
                 max_wait is {}{}{}",
                who.render(details),
                render_age(*idle_for),
                render_age(*contended),
                render_limit(*limit),
                render_behind(*behind),
                doubt.render(),
            ),
            Self::HiddenCycle { waiter, blocked, root, blocked_for, locktype, limit } => format!(
                "{} has waited for {} (for a lock of type {locktype}), directly or through others, \
                 for {}, which waits for the key; its holder, {}, is of the same program and has been \
                 idle since before: no deadlock is reported, and it may last for ever; max_wait is {}",
                blocked.render(details),
                render_age(*blocked_for),
                waiter.render(details),
                root.render(details),
                render_limit(*limit),
            ),
            Self::IdleInTransaction { who, idle_for, is_aborted, limit } => format!(
                "held by {}, which has been idle in {} transaction for at least {}; the limit is {}",
                who.render(details),
                if *is_aborted { "a failed" } else { "its" },
                render_age(*idle_for),
                render_limit(*limit),
            ),
            Self::Prepared { who, prepared_for, limit } => format!(
                "held by {}, prepared {} ago and neither committed nor rolled back since; the limit \
                 is {}",
                who.render(details),
                render_age(*prepared_for),
                render_limit(*limit),
            ),
            Self::PooledBackend { who, since, sharing } => {
                let who = who.render(details);
                format!("held at session level by {who} since {since:.0}{}", sharing.render())
            }
            Self::HoldsBackVacuum { who, age, limit } => format!(
                "{} waits with a snapshot that is {age} transactions old; vacuum may not remove what \
                 was deleted since; the limit is {limit}",
                who.render(details),
            ),
            Self::TooManyKeys { who, keys, limit } => format!(
                "{} was seen holding {keys} advisory keys at once; the limit is {limit}",
                who.render(details),
            ),
            Self::Vacant { free_for, limit, was_held } => format!(
                "must be held, and was seen free at every poll for {}; vacant_for is {}{}",
                render_age(*free_for),
                render_duration(*limit),
                render_never(*was_held),
            ),
            Self::Missed { missed_for, limit, was_held } => format!(
                "not seen held for {}; last_held_within is {}{}; holds between two polls are not seen",
                render_age(*missed_for),
                render_duration(*limit),
                render_never(*was_held),
            ),
            Self::Repeated { who, since, previous, limit } => format!(
                "seen held by {} since {since:.0}, though another session's hold began at \
                 {previous:.0} or later; not_again_within is {}",
                who.render(details),
                render_duration(*limit),
            ),
            Self::Flapping { count, within } => format!(
                "seen to change hands more than {count} times within {}",
                render_duration(*within),
            ),
            Self::OrderInversion { inversion, side, more } => {
                let more = match more {
                    0 => String::new(),
                    1 => "; and 1 more key likewise".to_owned(),
                    more => format!("; and {more} more keys likewise"),
                };
                format!("{}{more}", render_inversion(inversion, *side, details))
            }
            Self::UnexpectedHolder { who, since } => format!(
                "seen held since {since:.0} by {}, a name that `holders` does not list",
                who.render(details),
            ),
            Self::UnexpectedScope { who, since, declared } => {
                let (declared, proved) = match declared {
                    DeclaredScope::Transaction => ("transaction", "at session level"),
                    DeclaredScope::Session => ("session", "in a prepared transaction"),
                };
                format!(
                    "held by {} since {since:.0}, {proved} for certain; declared is scope: {declared}",
                    who.render(details),
                )
            }
        }
    }

    /// The holder that must not be ended.
    pub(super) fn spares(&self) -> Option<Pid> {
        let Self::HiddenCycle { root, .. } = self else { return None };
        root.pid()
    }

    /// Backends that its own remedy may end.
    pub(super) fn ends(&self) -> impl Iterator<Item = Pid> {
        let ended = match self {
            Self::HeldTooLong { who, end, .. } | Self::KeepsOut { who, end, .. } => match end {
                // One of the circle is cancelled, and nobody ended.
                Some(ChainEnd::Circle(_)) => [None, None],
                Some(ChainEnd::Root(root)) => [Some(who), Some(root)],
                None => [Some(who), None],
            },
            Self::WaitingTooLong { end: Some(ChainEnd::Root(root)), .. } => [Some(root), None],
            Self::WaitingTooLong { end: Some(ChainEnd::Circle(_)) | None, .. } => [None, None],
            Self::Stuck { who, .. }
            | Self::IdleInTransaction { who, .. }
            | Self::PooledBackend { who, .. }
            | Self::TooManyKeys { who, .. }
            | Self::UnexpectedHolder { who, .. }
            | Self::UnexpectedScope { who, .. } => [Some(who), None],
            Self::HiddenCycle { .. }
            | Self::Prepared { .. }
            | Self::HoldsBackVacuum { .. }
            | Self::Vacant { .. }
            | Self::Missed { .. }
            | Self::Repeated { .. }
            | Self::Flapping { .. }
            | Self::OrderInversion { .. } => [None, None],
        };
        ended.into_iter().flatten().filter_map(Who::pid)
    }

    pub(super) fn render_remedy(&self, details: bool) -> String {
        match self {
            Self::HeldTooLong { end: Some(ChainEnd::Circle(member)), .. }
            | Self::KeepsOut { end: Some(ChainEnd::Circle(member)), .. }
            | Self::WaitingTooLong { end: Some(ChainEnd::Circle(member)), .. } => format!(
                "the server breaks the circle once `deadlock_timeout` is over; to do so now, {}",
                member.render_cancel()
            ),
            Self::HeldTooLong { who, end: Some(ChainEnd::Root(root)), .. }
            | Self::KeepsOut { who, end: Some(ChainEnd::Root(root)), .. } => {
                format!("{}; or {}", root.render_release(details), who.render_release(details))
            }
            Self::HeldTooLong { who, .. }
            | Self::KeepsOut { who, .. }
            | Self::Stuck { who, .. }
            | Self::IdleInTransaction { who, .. }
            | Self::Prepared { who, .. } => who.render_release(details),
            Self::HiddenCycle { waiter, blocked, root, .. } => format!(
                "{}; that frees {}, and then {root} can unlock its key by itself; do not end {root}: \
                 its program would go on working without the lock",
                waiter.render_cancel(),
                blocked.render(details),
                root = root.render(details),
            ),
            Self::WaitingTooLong { who, end: None, .. } => who.render_cancel(),
            Self::WaitingTooLong { who, end: Some(ChainEnd::Root(root)), .. } => {
                format!("{}; or {}", root.render_release(details), who.render_cancel())
            }
            Self::PooledBackend { who, sharing, .. } => {
                let mend = if sharing.sign.is_some() {
                    "take such locks at transaction level, or past the pooler"
                } else {
                    "if the program renames itself, say so: `renames_itself: true` in `applications`"
                };
                let release = who.render_release(details);
                format!("{release}; restarting the applications does not free it; {mend}")
            }
            Self::HoldsBackVacuum { who, .. } => who.render_cancel(),
            Self::Vacant { .. } => {
                "see whether the program that should hold it runs and can connect; \
                                    a lock that was lost is not taken again by itself"
                    .to_owned()
            }
            Self::Missed { .. } => {
                "see whether the job ran; one that fails to get the lock, or holds \
                                    it for less than two polls, may have run unseen"
                    .to_owned()
            }
            Self::Repeated { .. } => {
                "see whether two schedulers start the job, and whether the first \
                                      run ended; it may go on working without the lock"
                    .to_owned()
            }
            Self::Flapping { .. } => {
                "look for restarts and lost connections in the logs of those who \
                                      held it; who lost it may go on working without the lock"
                    .to_owned()
            }
            Self::OrderInversion { inversion, .. } => {
                let [first, second] = [0, 1].map(|side| {
                    render_key(&inversion.labels[side], inversion.edges[side].held, details)
                });
                format!(
                    "let every program take these two in one order, say {first} before {second}"
                )
            }
            Self::UnexpectedHolder { who, .. } => {
                format!("add its name to `holders` if it may, else {}", who.render_release(details))
            }
            Self::UnexpectedScope { who, declared: DeclaredScope::Transaction, .. } => format!(
                "mend the program to call pg_advisory_xact_lock, or the entry; to free the key: {}",
                who.render_release(details)
            ),
            Self::UnexpectedScope { who, declared: DeclaredScope::Session, .. } => format!(
                "mend the program to take the lock outside of what it prepares, or the entry; to \
                 free the key: {}",
                who.render_release(details)
            ),
            Self::TooManyKeys { who, .. } => {
                format!("let it unlock what it no longer needs, or {}", who.render_release(details))
            }
        }
    }
}

impl ChainEnd {
    /// Of one whose chain has these roots: the first that it is not itself. Only in a circle is a
    /// waiter a root of its own.
    pub(super) fn of(id: &SessionId, roots: &[Root]) -> Option<Self> {
        let root = roots.iter().find(|root| root.id != *id)?;
        let who = Who::of_root(root);
        Some(if root.is_in_cycle { Self::Circle(who) } else { Self::Root(who) })
    }

    fn render(&self, details: bool) -> String {
        match self {
            Self::Root(who) => format!("at {}", who.render(details)),
            Self::Circle(who) => {
                format!("in a circle of waits, a deadlock, that {} is in", who.render(details))
            }
        }
    }
}

impl NameDoubt {
    pub(super) fn of(holder: &Holder) -> Self {
        let has_name = holder.session.application_name.as_ref().is_some_and(|it| !it.is_empty());
        if has_name && holder.scope == Scope::Session && !holder.seen_to_begin {
            Self::OfLaterUser
        } else {
            Self::None
        }
    }

    const fn render(self) -> &'static str {
        match self {
            Self::None => "",
            Self::OfLaterUser => {
                "; its name may be that of a later user of this connection, if it is pooled"
            }
        }
    }
}

impl Sharing {
    /// What speaks for it, behind the name of the hold.
    fn render(&self) -> String {
        let mut text = self.change.as_ref().map(NameChange::render).unwrap_or_default();
        let sign = self.sign.map(|sign| match sign {
            Sign::Listed => "its client address is listed in `poolers`",
            Sign::HostChanged => {
                "the client host and port that the pooler adds to the name changed"
            }
            Sign::OurPooler => "a pooler at its client address serves our own connection too",
        });
        if let Some(sign) = sign {
            let _ = write!(text, "; {sign}");
        }
        text += match self.sign {
            None => ": either the program renames itself or other clients use this connection",
            // No second client was seen.
            Some(_) if self.change.is_none() => ": other clients may use this connection",
            Some(_) => ": other clients seem to use this connection",
        };
        text + "; exclusion is not guaranteed on a shared backend"
    }
}

impl NameChange {
    fn render(&self) -> String {
        let Self { first, other, since, came_back, elsewhere } = self;
        let mut text = format!(
            ", first under the name {} and since {since:.0} under {}",
            render_name(first),
            render_name(other)
        );
        if let Some(name) = came_back {
            let _ = write!(text, "; {} came back", render_name(name));
        }
        if let Some(pid) = elsewhere {
            let _ = write!(
                text,
                "; {} is the name of session {pid} now, of the same role, database and address",
                render_name(first)
            );
        }
        text
    }
}

/// What was seen of two keys that were taken in both orders, the order first that holds the key of
/// this side.
pub(crate) fn render_inversion(inversion: &Inversion, side: usize, details: bool) -> String {
    let [here, there] = [side, 1 - side];
    let key =
        |side: usize| render_key(&inversion.labels[side], inversion.edges[side].held, details);
    let render = |side: usize| {
        let (edge, held, taken) = (&inversion.edges[side], key(side), key(1 - side));
        let who = Who::of(&edge.who.id, &edge.who.session).unwrap_or(Who::Prepared { gid: None });
        let did = match edge.grade {
            Grade::Certain => format!("was seen to hold {held} and wait for {taken}"),
            Grade::Hint => format!("was seen to hold {held} and then take {taken}"),
        };
        format!("{} {did} at {:.0}", who.render(details), edge.last.at)
    };
    format!("{}, and {}; if both do so at once they may deadlock", render(here), render(there))
}

/// A key by its name, with what tells it from others of that name.
fn render_key(label: &Label, id: KeyId, details: bool) -> String {
    let Resolution { lock, parameters, .. } = &*label.resolution;
    match lock {
        None => format!("key {}", id.key),
        Some(_) if details && !parameters.is_empty() => one_line(&label.resolution.display_name()),
        Some(lock) => format!("{lock} (key {})", id.key),
    }
}

impl Who {
    pub(super) fn of_holder(holder: &Holder) -> Self {
        Self::of(&holder.id, &holder.session).unwrap_or_else(|| Self::Prepared {
            gid: holder.prepared.as_ref().map(|prepared| prepared.transaction.gid.clone()),
        })
    }

    pub(super) fn of_waiter(waiter: &Waiter) -> Self {
        Self::of(&waiter.id, &waiter.session).unwrap_or(Self::Prepared { gid: None })
    }

    /// Any session of a picture.
    pub(super) fn of_session(id: &SessionId, picture: &Picture) -> Self {
        match id.pid() {
            Some(pid) => {
                let session = picture.sessions.get(&pid);
                let application_name = session.and_then(|one| one.application_name.clone());
                Self::Backend { pid, application_name }
            }
            None => Self::Prepared { gid: None },
        }
    }

    pub(super) fn of_root(root: &Root) -> Self {
        Self::of(&root.id, &root.session).unwrap_or_else(|| Self::Prepared {
            gid: root.prepared.as_ref().map(|prepared| prepared.transaction.gid.clone()),
        })
    }

    fn pid(&self) -> Option<Pid> {
        match self {
            Self::Backend { pid, .. } => Some(*pid),
            Self::Prepared { .. } => None,
        }
    }

    fn of(id: &SessionId, session: &Session) -> Option<Self> {
        let application_name = session.application_name.clone();
        Some(Self::Backend { pid: id.pid()?, application_name })
    }

    fn render(&self, details: bool) -> String {
        match self {
            Self::Backend { pid, application_name } => match application_name.as_deref() {
                None | Some("") => format!("session {pid}"),
                Some(name) => format!("session {pid} ({})", one_line(name)),
            },
            Self::Prepared { gid: Some(gid) } if details => {
                format!("the prepared transaction {}", quote(gid))
            }
            Self::Prepared { .. } => "a prepared transaction".to_owned(),
        }
    }

    /// How to take the lock from a holder.
    fn render_release(&self, details: bool) -> String {
        match self {
            Self::Backend { pid, .. } => {
                format!("SELECT pg_terminate_backend({pid}); {NO_LEASE}")
            }
            Self::Prepared { gid: Some(gid) } if details => {
                let gid = quote(gid);
                format!(
                    "COMMIT PREPARED {gid} or ROLLBACK PREPARED {gid} in its database, whichever \
                     its transaction manager decided"
                )
            }
            Self::Prepared { .. } => "COMMIT PREPARED or ROLLBACK PREPARED in its database, \
                                      whichever its transaction manager decided; the gid is in \
                                      pg_prepared_xacts"
                .to_owned(),
        }
    }

    /// How to end a wait.
    fn render_cancel(&self) -> String {
        match self {
            Self::Backend { pid, .. } => format!(
                "cancel the waiter: SELECT pg_cancel_backend({pid}); its statement fails, and the \
                 holder is left alone"
            ),
            Self::Prepared { .. } => "end the wait in the program that waits".to_owned(),
        }
    }
}

/// A text as SQL spells it, in one line and in letters that no output has to replace, so that it can
/// be copied from any of them.
fn quote(text: &str) -> String {
    let turns_text = |c| {
        matches!(
            c,
            '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}'
        )
    };
    let is_escaped = |c: char| c == '|' || c.is_control() || turns_text(c);
    if !text.contains(|c: char| c == '\\' || is_escaped(c)) {
        return format!("'{}'", text.replace('\'', "''"));
    }
    let mut quoted = "E'".to_owned();
    for c in text.chars() {
        match c {
            '\'' => quoted.push_str("''"),
            '\\' => quoted.push_str("\\\\"),
            c if is_escaped(c) => {
                let _ = write!(quoted, "\\u{:04X}", u32::from(c));
            }
            c => quoted.push(c),
        }
    }
    quoted + "'"
}

/// A client calls itself what it likes; control characters would tear a line or move a cursor.
fn one_line(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() { line.extend(c.escape_default()) } else { line.push(c) }
    }
    line
}

/// The name of a client, which may be empty.
fn render_name(name: &str) -> String {
    if name.is_empty() { "\"\"".to_owned() } else { one_line(name) }
}

fn render_never(was_held: bool) -> &'static str {
    if was_held { "" } else { "; never seen held so far" }
}

fn render_behind(behind: usize) -> String {
    match behind {
        0 => String::new(),
        1 => "; 1 session waits behind it".to_owned(),
        behind => format!("; {behind} sessions wait behind it"),
    }
}

/// A holder that waits is held up itself: ending it would free its keys, and change nothing for
/// whoever comes next.
fn render_own_end(end: Option<&ChainEnd>, details: bool) -> String {
    end.map_or_else(String::new, |end| {
        format!("; it waits itself, and its chain ends {}", end.render(details))
    })
}

fn render_limit(limit: Limit) -> String {
    match limit {
        Limit::Of(limit) => render_duration(limit),
        Limit::Unlimited => "unlimited".to_owned(),
    }
}

/// An age, rounded down: nobody needs the seconds of a day.
fn render_age(age: Duration) -> String {
    const MINUTE: u64 = 60;
    const HOUR: u64 = 60 * MINUTE;
    const DAY: u64 = 24 * HOUR;
    let seconds = age.as_secs();
    let unit = match seconds {
        0 => return render_duration(age),
        1..HOUR => 1,
        HOUR..DAY => MINUTE,
        DAY.. => HOUR,
    };
    render_duration(Duration::from_secs(seconds - seconds % unit))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(who: Who, behind: usize) -> Evidence {
        Evidence::HeldTooLong {
            who,
            doubt: NameDoubt::None,
            since: Timestamp::from_unix_micros(1_500_000),
            seen_for: Duration::from_secs(3_725),
            limit: Limit::Of(Duration::from_secs(900)),
            behind,
            end: None,
        }
    }

    #[test]
    fn a_sentence_says_who_since_when_and_what_the_limit_is() {
        let who = Who::Backend { pid: Pid(7), application_name: Some("pod-a".into()) };
        assert_eq!(
            held(who.clone(), 2).render_text(false),
            "seen held by session 7 (pod-a) since 1970-01-01T00:00:01Z, for 1h2m; max_hold is 15m; \
             2 sessions wait behind it"
        );
        assert_eq!(
            held(who, 0).render_remedy(false),
            "SELECT pg_terminate_backend(7); the program may go on working without the lock"
        );
    }

    #[test]
    fn a_name_with_control_characters_stays_in_its_line() {
        let name = "pod\n\u{1b}[2Ja\u{9b}";
        let who = Who::Backend { pid: Pid(7), application_name: Some(name.into()) };
        let text = held(who, 0).render_text(true);
        assert!(!text.contains(char::is_control), "{text:?}");
        assert!(text.contains("(pod\\n\\u{1b}[2Ja\\u{9b})"), "{text}");
    }

    #[test]
    fn a_gid_is_quoted_as_sql_wants_it_and_told_to_those_who_may_see_it() {
        for (gid, quoted) in [
            ("order-4711", "'order-4711'"),
            ("it's", "'it''s'"),
            ("a\\b'c", "E'a\\\\b''c'"),
            ("two\nlines\u{85}", "E'two\\u000Alines\\u0085'"),
            ("x|y\u{202e}", "E'x\\u007Cy\\u202E'"),
        ] {
            let who = Who::Prepared { gid: Some(gid.into()) };
            let limit = Limit::Of(Duration::from_secs(60));
            let evidence = Evidence::Prepared { who, prepared_for: Duration::from_secs(61), limit };
            let remedy = evidence.render_remedy(true);
            assert!(remedy.contains(&format!("ROLLBACK PREPARED {quoted} ")), "{remedy}");
            assert!(evidence.render_text(true).contains(quoted));
            for text in [evidence.render_text(false), evidence.render_remedy(false)] {
                assert!(!text.contains(gid), "{text}");
            }
        }
    }

    #[test]
    fn ages_are_rounded_down_to_what_is_worth_reading() {
        for (millis, age) in [
            (250, "250ms"),
            (59_900, "59s"),
            (3_599_000, "59m59s"),
            (3_661_000, "1h1m"),
            (90_061_000, "1d1h"),
        ] {
            assert_eq!(render_age(Duration::from_millis(millis)), age);
        }
    }
}
