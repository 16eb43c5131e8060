//! What happened, as far as polls show it: holds and waits that began and ended, holders that
//! changed, findings that began and ended. A bounded past for each server, so that somebody can ask
//! who held a lock last night.
//!
//! A poll sees that something changed since the one before, never when. So every event says between
//! which moments it happened, and every length has its bounds; what is not known is `None`. The
//! order of events of one poll is that of a handover (let go, let in, queue up, what is to be said of
//! it), and proves nothing.
//!
//! Pure. Its input is what the tracker says has changed, with the pictures before and after;
//! [`History`] is published with the view, and `json` makes the answer of `/api/v1/events` of it;
//! `notice` says what is worth a line in the log. It must not know who asks.

mod filter;
mod finding;
mod json;
mod notice;

use std::cmp::Reverse;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

pub use filter::{Filter, ParseFilterError};
pub use finding::Findings;
pub use json::render_events;
pub use notice::{LONG, Lasting, Notice, Notices};

use crate::finding::Finding;
use crate::key::Key;
use crate::mode::Mode;
use crate::series::{HolderChange, LockSeries};
use crate::timestamp::Timestamp;
use crate::tracker::{Change, KeyId, SessionId, WaitOutcome};
use crate::view::{Lock, Party, Picture};

/// Fewer events than this are kept of each server.
pub const CAPACITY: usize = 10_000;

/// So many are left when they get too many: room is made for many at once, which costs less.
const AFTER_TRIM: usize = CAPACITY / 5 * 4;

/// A display name may hold values of any length; so much of it is kept.
const DISPLAY_NAME_CHARS: usize = 256;

/// Something that happened between two polls.
#[derive(Clone, Debug)]
pub struct Event {
    /// The poll that showed it, on the server's clock.
    pub at: Timestamp,
    /// The same on our clock, by which events of several servers are put in order.
    pub at_local: Timestamp,
    /// It did not happen before this moment of the server's clock, if a bound is known.
    pub not_before: Option<Timestamp>,
    /// Nor after this one.
    pub not_after: Timestamp,
    /// The database's name, or what stands for one that has none.
    pub datname: Arc<str>,
    /// The key.
    pub key: Key,
    /// The series of its lock; `None` for a key without a name.
    pub series: Option<LockSeries>,
    /// The lock's name with its parameters, where it has any; cut where that is very long.
    pub display_name: Option<Arc<str>>,
    /// The mode held or asked for; `None` for a finding.
    pub mode: Option<Mode>,
    /// Who; `None` for a finding, which says itself whom it is about.
    pub party: Option<Party>,
    /// What.
    pub kind: EventKind,
}

/// What happened.
#[derive(Clone, Debug)]
pub enum EventKind {
    /// Somebody has taken the key.
    HoldBegan,
    /// Somebody has let go of it.
    HoldEnded(Length),
    /// Somebody was seen in the queue for the first time.
    WaitBegan,
    /// Somebody is not in the queue any more.
    WaitEnded(WaitOutcome, Length),
    /// Somebody else holds a key than the one that held it last. Told beside the hold that began,
    /// of keys that have a series of their own.
    HolderChanged {
        /// Who held it before.
        from: Party,
    },
    /// Something is to be said of the key that was not before.
    FindingBegan {
        /// As it was found.
        finding: Box<Finding>,
        /// Nobody looked before: it may have been so for any time.
        at_first_poll: bool,
    },
    /// It is not to be said any more; the finding as it was last.
    FindingEnded(Box<Finding>, Length),
}

/// How long a hold, a wait or a finding lasted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Length {
    /// The middle of what it may have been: what the duration histograms count.
    pub estimate: Option<Duration>,
    /// Of a hold: from its beginning, seen or proved, to the last poll that saw it. Of a finding: from
    /// the first poll that found it to the last.
    pub seen_for: Option<Duration>,
    /// For certain and without a gap.
    pub at_least: Option<Duration>,
    /// At most.
    pub at_most: Option<Duration>,
}

impl EventKind {
    /// Its name in JSON and log.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::HoldBegan => "hold_began",
            Self::HoldEnded(_) => "hold_ended",
            Self::WaitBegan => "wait_began",
            Self::WaitEnded(..) => "wait_ended",
            Self::HolderChanged { .. } => "holder_changed",
            Self::FindingBegan { .. } => "finding_began",
            Self::FindingEnded(..) => "finding_ended",
        }
    }
}

impl Event {
    /// The lock's name; `None` for a key without one.
    pub fn lock(&self) -> Option<&str> {
        self.series.as_ref().map(|series| &*series.lock)
    }

    /// The finding that began or ended, if it is one.
    pub const fn finding(&self) -> Option<&Finding> {
        match &self.kind {
            EventKind::FindingBegan { finding, .. } | EventKind::FindingEnded(finding, _) => {
                Some(finding)
            }
            EventKind::HoldBegan
            | EventKind::HoldEnded(_)
            | EventKind::WaitBegan
            | EventKind::WaitEnded(..)
            | EventKind::HolderChanged { .. } => None,
        }
    }

    /// What one poll changed, the first first. `holder_changes` are told of where they are counted.
    /// One at a time: there may be very many, of which few are kept.
    pub fn draw_all<'a>(
        before: Option<&'a Picture>,
        after: &'a Picture,
        changes: &'a [Change],
        holder_changes: &'a [HolderChange],
    ) -> impl Iterator<Item = Self> + 'a {
        // The server's clock may have been set back: then the picture before bounds nothing.
        let bound = before.map(|before| before.at).filter(|at| *at <= after.at);
        let scene = Scene { before, bound, after };
        let mut changes: Vec<&Change> = changes.iter().collect();
        // The tracker's order is that of a hash map.
        changes.sort_by_key(|change| (rank(change), change.key(), session_id(change)));
        let is_begun_wait = |change: &&Change| matches!(change, Change::WaitBegan { .. });
        let late = changes.split_off(changes.partition_point(|change| !is_begun_wait(change)));
        let holder_changes = holder_changes.iter();
        changes
            .into_iter()
            .filter_map(move |change| scene.draw(change))
            .chain(holder_changes.filter_map(move |change| scene.draw_holder_change(change)))
            .chain(late.into_iter().filter_map(move |change| scene.draw(change)))
    }
}

/// The order of a handover.
const fn rank(change: &Change) -> u8 {
    match change {
        Change::HoldEnded { .. } => 0,
        Change::WaitEnded { .. } => 1,
        Change::HoldBegan { .. } => 2,
        Change::WaitBegan { .. } => 3,
    }
}

const fn session_id(change: &Change) -> &SessionId {
    match change {
        Change::HoldBegan { id } | Change::HoldEnded { id, .. } => &id.holder,
        Change::WaitBegan { id } | Change::WaitEnded { id, .. } => &id.waiter,
    }
}

/// The two pictures between which something happened.
#[derive(Clone, Copy)]
struct Scene<'a> {
    before: Option<&'a Picture>,
    /// What happened did not happen before this moment, on the server's clock.
    bound: Option<Timestamp>,
    after: &'a Picture,
}

impl Scene<'_> {
    /// `None` only for what the pictures do not show, which is nothing that the tracker tells of.
    fn draw(self, change: &Change) -> Option<Event> {
        let after = self.after;
        match change {
            Change::HoldBegan { id } => self.draw_began(id.key, &id.holder, EventKind::HoldBegan),
            Change::HoldEnded { id, duration } => {
                let before = self.before?;
                let lock = before.lock(id.key)?;
                let holder = lock.holders.iter().find(|holder| holder.id == id.holder)?;
                let length = Length {
                    estimate: *duration,
                    seen_for: Some(before.at.since(holder.since)),
                    at_least: (holder.proved_since < before.at)
                        .then(|| before.at.since(holder.proved_since)),
                    at_most: self.bound.and(holder.not_before).map(|start| after.at.since(start)),
                };
                let (mode, kind) = (id.mode.clone(), EventKind::HoldEnded(length));
                let event = self.event(lock, mode, Party::of_holder(holder), kind);
                Some(Event { not_before: self.bound, ..event })
            }
            Change::WaitBegan { id } => {
                let lock = after.lock(id.key)?;
                let waiter = lock.waiters.iter().find(|waiter| waiter.id == id.waiter)?;
                let party = Party::of_waiter(waiter);
                let event = self.event(lock, id.mode.clone(), party, EventKind::WaitBegan);
                Some(match waiter.since {
                    Some(start) => Event { not_before: Some(start), not_after: start, ..event },
                    None => Event { not_before: self.bound, ..event },
                })
            }
            Change::WaitEnded { id, outcome, duration } => {
                let before = self.before?;
                let lock = before.lock(id.key)?;
                let waiter = lock.waiters.iter().find(|waiter| waiter.id == id.waiter)?;
                let length = Length {
                    estimate: Some(*duration),
                    seen_for: None,
                    at_least: waiter.since.map(|start| before.at.since(start)),
                    at_most: self.bound.and(waiter.since).map(|start| after.at.since(start)),
                };
                let (mode, kind) = (id.mode.clone(), EventKind::WaitEnded(*outcome, length));
                let event = self.event(lock, mode, Party::of_waiter(waiter), kind);
                Some(Event { not_before: self.bound, ..event })
            }
        }
    }

    fn draw_holder_change(self, change: &HolderChange) -> Option<Event> {
        let kind = EventKind::HolderChanged { from: change.from.clone() };
        self.draw_began(change.key, &change.to, kind)
    }

    fn draw_began(self, key: KeyId, holder: &SessionId, kind: EventKind) -> Option<Event> {
        let lock = self.after.lock(key)?;
        let holder = lock.holders.iter().find(|one| one.id == *holder)?;
        let event = self.event(lock, holder.mode.clone(), Party::of_holder(holder), kind);
        Some(Event { not_before: holder.not_before, not_after: holder.since, ..event })
    }

    fn event(self, lock: &Lock, mode: Mode, party: Party, kind: EventKind) -> Event {
        Event { mode: Some(mode), party: Some(party), ..Event::about(lock, self.after, kind) }
    }
}

impl Event {
    /// What a picture shows of a key, whoever did it.
    fn about(lock: &Lock, after: &Picture, kind: EventKind) -> Self {
        let (label, resolution) = (&lock.label, &lock.label.resolution);
        Self {
            at: after.at,
            at_local: after.at_local,
            not_before: None,
            not_after: after.at,
            datname: label.datname.clone(),
            key: lock.id.key,
            series: resolution.lock.is_some().then(|| label.series.clone()),
            display_name: (!resolution.parameters.is_empty()).then(|| {
                resolution
                    .display_name()
                    .chars()
                    .take(DISPLAY_NAME_CHARS)
                    .collect::<String>()
                    .into()
            }),
            mode: None,
            party: None,
            kind,
        }
    }
}

/// The last events of one server.
///
/// Fewer than [`CAPACITY`], however busy some locks are: what is too much is taken from those
/// that have most, so a job's few events outlast the thousands of a lock that changes hands all
/// day, and its findings outlast its holds. All keys without a name share one part.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// The oldest first.
    events: VecDeque<Arc<Event>>,
    forgotten: u64,
}

impl History {
    /// Adds the newest event.
    pub fn push(&mut self, event: Arc<Event>) {
        self.events.push_back(event);
        if self.events.len() >= CAPACITY {
            self.trim();
        }
    }

    fn trim(&mut self) {
        let mut parts: HashMap<(Option<&LockSeries>, bool), usize> = HashMap::new();
        let mut sizes: Vec<usize> = Vec::new();
        let mut part_of = Vec::with_capacity(self.events.len());
        for event in &self.events {
            let part = (event.series.as_ref(), event.finding().is_some());
            let part = *parts.entry(part).or_insert(sizes.len());
            if part == sizes.len() {
                sizes.push(0);
            }
            sizes[part] += 1;
            part_of.push(part);
        }
        let (level, before) = (level(sizes.clone(), AFTER_TRIM), self.events.len());
        let mut part_of = part_of.into_iter();
        // The oldest come first, so of each part they go.
        self.events.retain(|_| {
            let size = part_of.next().and_then(|part| sizes.get_mut(part));
            size.is_none_or(|size| {
                let is_kept = *size <= level;
                *size -= usize::from(!is_kept);
                is_kept
            })
        });
        // With more locks than places the newest stay.
        self.events.drain(..self.events.len().saturating_sub(AFTER_TRIM));
        self.forgotten += (before - self.events.len()) as u64;
    }

    /// All of them, the newest first.
    pub fn newest_first(&self) -> impl Iterator<Item = &Arc<Event>> {
        self.events.iter().rev()
    }

    /// How many there were beside those that are kept.
    pub const fn forgotten(&self) -> u64 {
        self.forgotten
    }
}

/// The most that each part may keep so that all of them together keep no more than `capacity`; one
/// at least.
fn level(mut sizes: Vec<usize>, capacity: usize) -> usize {
    sizes.sort_by_key(|size| Reverse(*size));
    let mut left = capacity;
    while let Some(smallest) = sizes.pop() {
        let share = left / (sizes.len() + 1);
        if smallest > share {
            return share.max(1);
        }
        left -= smallest;
    }
    capacity
}

#[cfg(test)]
mod tests;
