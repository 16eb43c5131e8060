//! What the rules could not judge: for each kind, what its predicate needs and the picture lacks.
//!
//! Silence of a rule is worth something only where it could have spoken. What is missing is either
//! hidden or not tracked (the state of other sessions), or lies before the first sample: how old a hold is that was
//! there from the start, which waits ended before, whether a job ran last night. A rule that no entry
//! asks for has no gap. Worked out when somebody asks, not at every poll; what only the memory of
//! `expectation` can tell is in the picture already. Pure.

use std::sync::Arc;
use std::time::Duration;

use super::{FindingKind, contended_for, cycle, idle_for, is_meant, longer};
use crate::duration::render_duration;
use crate::order;
use crate::registry::{DeclaredScope, Limit, Role};
use crate::sample::State;
use crate::tracker::{Scope, SessionId};
use crate::view::{Holder, Lock, Picture};

/// A rule that could not be judged, at all or for some keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gap {
    /// Which rule.
    pub kind: FindingKind,
    reason: Reason,
}

/// Something that an entry expects of a key, which was not watched for long enough to tell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Undecided {
    /// Which rule.
    pub kind: FindingKind,
    /// The lock.
    pub lock: Arc<str>,
    /// For so long it was watched,
    pub watched: Duration,
    /// and so long it takes.
    pub needs: Duration,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Reason {
    /// The role may not see what others do.
    StateHidden,
    /// What sessions do was not read.
    NoActivity,
    /// Holds of sessions of which the server does not know what they do: they have `track_activities`
    /// off, or are background processes that do not say.
    NotTracked(Holds),
    /// Holds that may be older than their limit.
    MayBeOlder(Holds),
    /// Waits whose start the server does not tell.
    NoWaitStart(Holds),
    /// Holds behind which others may have waited before the first sample.
    EarlierWaits { holds: Holds, watched: Duration },
    /// Session-level holds that may have had another name before the first sample.
    EarlierNames(Holds),
    /// Orders in which keys were taken before the first sample.
    EarlierOrders { watched: Duration },
    /// Prepared transactions of which nothing is known.
    NoPrepared(Holds),
    /// Holders without a name.
    NoName(Holds),
    /// Holds that may be the session's or the transaction's.
    ScopeNotProved(Holds),
    /// Which databases there are, in which something is expected.
    NoDatabases,
    /// Keys that were not watched for long enough.
    TooShort { first: Undecided, count: usize },
}

/// Holds or waits that a rule could not judge.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Holds {
    count: usize,
    /// The name of one of them.
    lock: Arc<str>,
}

impl Gap {
    /// Everything that was not judged, in the order of the rules.
    pub fn find_all(picture: &Picture) -> Vec<Self> {
        let gap = |kind: &FindingKind| Some(Self { kind: *kind, reason: kind.gap(picture)? });
        FindingKind::ALL.iter().filter_map(gap).collect()
    }

    /// Whether it was judged by all that is there now, and only what is over or not proved could
    /// add to it.
    pub const fn is_partial(&self) -> bool {
        match self.reason {
            Reason::EarlierWaits { .. }
            | Reason::EarlierNames(_)
            | Reason::EarlierOrders { .. }
            | Reason::ScopeNotProved(_) => true,
            Reason::StateHidden
            | Reason::NoActivity
            | Reason::NotTracked(_)
            | Reason::MayBeOlder(_)
            | Reason::NoWaitStart(_)
            | Reason::NoPrepared(_)
            | Reason::NoName(_)
            | Reason::NoDatabases
            | Reason::TooShort { .. } => false,
        }
    }

    /// Why, for a person: one line.
    pub fn render_reason(&self) -> String {
        match &self.reason {
            Reason::StateHidden => "the state of other sessions is hidden: GRANT \
                                    pg_read_all_stats TO the role that looks"
                .to_owned(),
            Reason::NoActivity => "what sessions do could not be read".to_owned(),
            Reason::NotTracked(holds) => format!(
                "the server does not tell what the sessions of {} do, as with `track_activities` off",
                holds.render("hold")
            ),
            Reason::MayBeOlder(holds) => format!(
                "{} may have been held for longer than was seen, and than max_hold",
                holds.render("hold")
            ),
            Reason::NoWaitStart(waits) => {
                format!("the server does not tell when {} began", waits.render("wait"))
            }
            Reason::EarlierWaits { holds, watched } => format!(
                "waits that ended before the first sample, {} ago, are not known; {} may have kept \
                 others waiting",
                render_duration(*watched),
                holds.render("hold")
            ),
            Reason::EarlierNames(holds) => format!(
                "names before the first sample are not known; {} may have begun under another",
                holds.render("hold")
            ),
            Reason::EarlierOrders { watched } => format!(
                "orders in which keys were taken before the first sample, {} ago, are not known",
                render_duration(*watched)
            ),
            Reason::NoPrepared(holds) => format!(
                "pg_prepared_xacts does not tell since when {} of prepared transactions last",
                holds.render("hold")
            ),
            Reason::NoName(holds) => {
                format!("the application name is not known for {}", holds.render("hold"))
            }
            Reason::ScopeNotProved(holds) => format!(
                "whether it is of the session or the transaction is not proved for {}",
                holds.render("hold")
            ),
            Reason::NoDatabases => "the names of databases could not be read".to_owned(),
            Reason::TooShort { first: Undecided { lock, watched, needs, .. }, count } => {
                let others = match count - 1 {
                    0 => String::new(),
                    1 => "; and another lock likewise".to_owned(),
                    others => format!("; and {others} other locks likewise"),
                };
                format!(
                    "it takes {} of watching {lock}, which was watched for {}{others}",
                    render_duration(*needs),
                    render_duration(*watched),
                )
            }
        }
    }
}

impl Holds {
    /// Those that a condition is true of.
    fn of(locks: &[Lock], count: impl Fn(&Lock) -> usize) -> Option<Self> {
        let mut found: Option<Self> = None;
        for lock in locks {
            let more = count(lock);
            if more > 0 {
                let name = || match &lock.label.resolution.lock {
                    Some(name) => name.clone(),
                    None => format!("key {}", lock.id.key).into(),
                };
                found.get_or_insert_with(|| Self { count: 0, lock: name() }).count += more;
            }
        }
        found
    }

    fn of_holders(picture: &Picture, is_meant: impl Fn(&Lock, &Holder) -> bool) -> Option<Self> {
        let count = |lock: &Lock| lock.holders.iter().filter(|it| is_meant(lock, it)).count();
        Self::of(&picture.locks, count)
    }

    fn render(&self, noun: &str) -> String {
        match self.count {
            1 => format!("1 {noun} ({})", self.lock),
            count => format!("{count} {noun}s ({} among them)", self.lock),
        }
    }
}

impl FindingKind {
    /// What keeps this rule from being judged. A new kind says here what it needs.
    fn gap(self, picture: &Picture) -> Option<Reason> {
        match self {
            Self::HeldTooLong => may_be_older(picture),
            Self::WaitingTooLong => {
                no_wait_start(picture, |_| true).or_else(|| earlier_waits(picture, |_, _| true))
            }
            Self::Stuck => unseen(picture).or_else(|| {
                earlier_waits(picture, |holder, limit| {
                    idle_for(holder, picture.at).is_some_and(|idle| longer(idle, limit).is_some())
                })
            }),
            Self::HiddenCycle => unseen(picture).or_else(|| {
                no_wait_start(picture, |lock| !cycle::idle_holders(lock, picture.at).is_empty())
            }),
            Self::HolderIdleInTransaction => unseen(picture),
            Self::WaiterHoldsBackVacuum => hidden(picture),
            Self::PooledBackend => unseen(picture).or_else(|| earlier_names(picture)),
            Self::OrderInversion => earlier_orders(picture),
            Self::HeldByPreparedTransaction => no_prepared(picture),
            Self::TooManyKeys => None,
            Self::UnexpectedHolder => no_name(picture),
            Self::UnexpectedScope => scope_not_proved(picture),
            Self::Vacant | Self::Missed | Self::Repeated | Self::Flapping => {
                too_short(self, picture)
            }
        }
    }
}

fn hidden(picture: &Picture) -> Option<Reason> {
    match picture.privileges_sufficient {
        Some(true) => None,
        Some(false) => Some(Reason::StateHidden),
        None => Some(Reason::NoActivity),
    }
}

/// What keeps us from seeing whether holders are idle. A backend that left between the two readings of
/// a poll is none of them: nothing at all is known of it.
fn unseen(picture: &Picture) -> Option<Reason> {
    let is_untracked = |_: &Lock, holder: &Holder| {
        holder.session.state == State::Unknown && holder.session.backend_start.is_some()
    };
    let untracked = || Holds::of_holders(picture, is_untracked).map(Reason::NotTracked);
    hidden(picture).or_else(untracked)
}

/// Whether a hold may last longer than the limit, though it was not seen for as long.
fn may_last(holder: &Holder, limit: Limit, picture: &Picture) -> bool {
    let at_most = |limit| holder.not_before.is_none_or(|bound| picture.at.since(bound) > limit);
    match limit {
        Limit::Of(limit) => at_most(limit),
        Limit::Unlimited => false,
    }
}

fn may_be_older(picture: &Picture) -> Option<Reason> {
    let is_undecided = |lock: &Lock, holder: &Holder| {
        let limit = lock.label.resolution.max_hold;
        let is_seen_to_be = longer(picture.at.since(holder.since), limit).is_some();
        !is_seen_to_be && may_last(holder, limit, picture)
    };
    Holds::of_holders(picture, is_undecided).map(Reason::MayBeOlder)
}

/// Waits that would concern a rule, had they begun long ago.
fn no_wait_start(picture: &Picture, would_concern: impl Fn(&Lock) -> bool) -> Option<Reason> {
    let undecided = |lock: &Lock| match lock.label.resolution.max_wait {
        Limit::Of(_) if would_concern(lock) => {
            lock.waiters.iter().filter(|waiter| waiter.since.is_none()).count()
        }
        Limit::Of(_) | Limit::Unlimited => 0,
    };
    Holds::of(&picture.locks, undecided).map(Reason::NoWaitStart)
}

/// Holds that would concern a rule, had others waited behind them before the first sample.
fn earlier_waits(
    picture: &Picture,
    would_concern: impl Fn(&Holder, Limit) -> bool,
) -> Option<Reason> {
    let watched = picture.at.since(picture.watching_since);
    let is_undecided = |lock: &Lock, holder: &Holder| {
        let limit = lock.label.resolution.max_wait;
        let was_there = holder.not_before.is_none_or(|bound| bound < picture.watching_since);
        let is_decided = longer(watched, limit).is_some()
            || contended_for(holder, picture.at).is_some_and(|time| longer(time, limit).is_some());
        was_there && !is_decided && may_last(holder, limit, picture) && would_concern(holder, limit)
    };
    let holds = Holds::of_holders(picture, is_undecided)?;
    Some(Reason::EarlierWaits { holds, watched })
}

fn earlier_names(picture: &Picture) -> Option<Reason> {
    let is_unsure =
        |_: &Lock, holder: &Holder| holder.scope == Scope::Session && !holder.seen_to_begin;
    Holds::of_holders(picture, is_unsure).map(Reason::EarlierNames)
}

fn earlier_orders(picture: &Picture) -> Option<Reason> {
    let watched = picture.at.since(picture.watching_since);
    (watched < order::OPEN).then_some(Reason::EarlierOrders { watched })
}

fn no_prepared(picture: &Picture) -> Option<Reason> {
    let is_unknown = |_: &Lock, holder: &Holder| match holder.id {
        SessionId::Nameless(_) => true,
        SessionId::Prepared(_) | SessionId::Backend(_) => false,
    };
    Holds::of_holders(picture, is_unknown).map(Reason::NoPrepared)
}

fn is_judged(lock: &Lock, picture: &Picture) -> bool {
    is_meant(lock.label.resolution.role.unwrap_or(Role::Any), picture.in_recovery)
}

fn no_name(picture: &Picture) -> Option<Reason> {
    let is_nameless = |lock: &Lock, holder: &Holder| {
        lock.label.resolution.holders.is_some()
            && is_judged(lock, picture)
            && holder.id.pid().is_some()
            && holder.session.application_name.is_none()
    };
    Holds::of_holders(picture, is_nameless).map(Reason::NoName)
}

/// Where the transaction is declared. A hold that is declared the session's is only refuted by a
/// prepared transaction, and that is always seen.
fn scope_not_proved(picture: &Picture) -> Option<Reason> {
    let is_unproved = |lock: &Lock, holder: &Holder| {
        lock.label.resolution.scope == Some(DeclaredScope::Transaction)
            && is_judged(lock, picture)
            && holder.scope == Scope::Unknown
    };
    let holds = Holds::of_holders(picture, is_unproved)?;
    Some(hidden(picture).unwrap_or(Reason::ScopeNotProved(holds)))
}

fn too_short(kind: FindingKind, picture: &Picture) -> Option<Reason> {
    if picture.databases == 0 {
        return Some(Reason::NoDatabases);
    }
    let mut undecided = picture.undecided.iter().filter(|undecided| undecided.kind == kind);
    let first = undecided.next()?.clone();
    Some(Reason::TooShort { first, count: 1 + undecided.count() })
}
