//! Since when a hold has kept others waiting.
//!
//! Contention belongs to a hold and ends with it: a key that changes hands under a full queue is
//! busy and healthy, while clients that wait ten seconds, give up and come back behind one and the
//! same hold are kept out all the time. A hold that nobody waits behind for a while is contended
//! anew when somebody comes, and what was in vain behind it hours ago is forgotten: a leader is not
//! to be blamed for its whole reign because three followers gave up at one roll-out. Pure; it is
//! told to the holders of the picture, and the rules judge it.

use std::time::Duration;

use crate::map::HashMap;
use crate::mode::Mode;
use crate::timestamp::Timestamp;
use crate::tracker::{Change, KeyId, SessionId, WaitOutcome};
use crate::view::{Holder, Lock, Picture, Waiter};

/// A contention lasts while no more time *and* no more polls than these pass without a waiter.
const LONGEST_BREAK: Duration = Duration::from_secs(30);
const BREAK_POLLS: u32 = 10;

/// Waits in vain add up while no more time than this passes without a waiter: long enough for a job
/// that tries once an hour.
const LONGEST_LULL: Duration = Duration::from_secs(2 * 3600);

/// Holds that keep others waiting, or did, by key.
#[derive(Debug, Default)]
pub(super) struct Contentions {
    holds: HashMap<KeyId, HashMap<SessionId, Contended>>,
    /// The last poll, on our clock.
    previous: Option<Timestamp>,
}

/// What a hold did to others.
#[derive(Clone, Debug)]
struct Contended {
    backend_start: Option<Timestamp>,
    /// The last poll that saw the hold: one that began later is another.
    seen_at: Timestamp,
    since: Option<Since>,
    /// Waits that ended without the lock behind it.
    waits_gone: u32,
    /// When somebody was last seen to wait behind it.
    awaited_at: Timestamp,
}

#[derive(Clone, Copy, Debug)]
struct Since {
    moment: Timestamp,
    /// On our clock, fixed when the moment is.
    local: Timestamp,
    last_waiter: Timestamp,
    polls_without: u32,
}

impl Contentions {
    /// Folds a picture in and tells its holders. `elapsed` is the time for which it stands.
    pub(super) fn observe(&mut self, picture: &mut Picture, changes: &[Change], elapsed: Duration) {
        let gone = waits_gone(changes);
        let (at, at_local) = (picture.at, picture.at_local);
        let since_previous =
            self.previous.replace(at_local).map_or(Duration::ZERO, |it| at_local.since(it));
        let blind_for = since_previous.saturating_sub(elapsed);
        let poll = Poll { at, at_local, blind_for };
        let mut before = std::mem::take(&mut self.holds);
        for lock in &mut picture.locks {
            let known = before.remove(&lock.id);
            if lock.waiters.is_empty() && known.is_none() {
                continue;
            }
            let gone = gone.get(&lock.id).map_or(&[][..], Vec::as_slice);
            let now = observe_lock(lock, known.unwrap_or_default(), gone, poll);
            if !now.is_empty() {
                self.holds.insert(lock.id, now);
            }
        }
    }
}

fn observe_lock(
    lock: &mut Lock,
    mut before: HashMap<SessionId, Contended>,
    gone: &[&SessionId],
    poll: Poll,
) -> HashMap<SessionId, Contended> {
    let first = FirstWaits::of(&lock.waiters, poll.at);
    let mut now = HashMap::default();
    for holder in &mut lock.holders {
        let mut contended = match before.remove(&holder.id) {
            Some(known) if known.is_of(holder) => known.outlasting(gone, holder),
            Some(_) | None => Contended::begin(holder, poll.at),
        };
        contended.observe(first.kept_out_by(holder), holder.since, poll);
        holder.contended_since = contended.since.map(|since| since.moment);
        holder.contended_since_local = contended.since.map(|since| since.local);
        holder.waits_gone = contended.waits_gone;
        if contended.since.is_some() || contended.waits_gone > 0 {
            now.insert(holder.id.clone(), contended);
        }
    }
    now
}

/// Who waited in vain, by key. While a wait like that went on its key had a holder that excluded
/// it throughout, and with exclusive and share alone every holder that stayed did.
fn waits_gone(changes: &[Change]) -> HashMap<KeyId, Vec<&SessionId>> {
    let mut gone: HashMap<KeyId, Vec<&SessionId>> = HashMap::default();
    for change in changes {
        if let Change::WaitEnded { id, outcome: WaitOutcome::Gone, .. } = change {
            gone.entry(id.key).or_default().push(&id.waiter);
        }
    }
    gone
}

impl Contended {
    fn begin(holder: &Holder, at: Timestamp) -> Self {
        let backend_start = holder.session.backend_start;
        Self { backend_start, seen_at: at, since: None, waits_gone: 0, awaited_at: at }
    }

    /// Whether this is the hold that was seen before. A hold only ever turns out to be older.
    fn is_of(&self, holder: &Holder) -> bool {
        let start = holder.session.backend_start;
        let is_same_backend =
            self.backend_start.is_none() || start.is_none() || self.backend_start == start;
        is_same_backend && holder.since <= self.seen_at
    }

    /// Counts the waits of others that ended in vain, if the hold is certain not to have been let go
    /// meanwhile.
    fn outlasting(mut self, gone: &[&SessionId], holder: &Holder) -> Self {
        if holder.proved_since <= self.seen_at {
            let others = gone.iter().filter(|waiter| ***waiter != holder.id).count();
            let others = u32::try_from(others).unwrap_or(u32::MAX);
            self.waits_gone = self.waits_gone.saturating_add(others);
        }
        self
    }

    /// `first` is the earliest wait behind the hold now.
    fn observe(&mut self, first: Option<Timestamp>, held_since: Timestamp, poll: Poll) {
        // What was while no poll was answered is not known, unless somebody waited before and after.
        let is_bridged = first.is_some_and(|first| first <= self.seen_at);
        if poll.blind_for > LONGEST_BREAK && !is_bridged {
            self.since = None;
        }
        self.seen_at = poll.at;
        if first.is_some() {
            self.awaited_at = poll.at;
        } else if poll.at.since(self.awaited_at) > LONGEST_LULL {
            self.waits_gone = 0;
        }
        match (first, &mut self.since) {
            (Some(first), since) => {
                // When a wait began says nothing of who held the key then.
                let moment = first.max(held_since);
                let known = since.filter(|known| known.moment <= moment);
                *since = Some(Since {
                    moment: known.map_or(moment, |known| known.moment),
                    local: known.map_or_else(|| poll.local(moment), |known| known.local),
                    last_waiter: poll.at,
                    polls_without: 0,
                });
            }
            (None, Some(since)) => {
                since.polls_without += 1;
                let is_over = poll.at.since(since.last_waiter) > LONGEST_BREAK
                    && since.polls_without > BREAK_POLLS;
                if is_over {
                    self.since = None;
                }
            }
            (None, None) => {}
        }
    }
}

/// The moment of a poll on both clocks.
#[derive(Clone, Copy)]
struct Poll {
    at: Timestamp,
    at_local: Timestamp,
    /// The time before it for which no poll stands.
    blind_for: Duration,
}

impl Poll {
    fn local(self, moment: Timestamp) -> Timestamp {
        self.at_local.before(self.at.since(moment))
    }
}

/// The earliest waits of each mode, two of them: a session does not wait behind itself.
struct FirstWaits<'a>(HashMap<&'a Mode, [Option<(Timestamp, &'a SessionId)>; 2]>);

impl<'a> FirstWaits<'a> {
    /// A wait of which no start is known waits now, and no more is certain.
    fn of(waiters: &'a [Waiter], at: Timestamp) -> Self {
        let mut by_mode: HashMap<&Mode, [Option<(Timestamp, &SessionId)>; 2]> = HashMap::default();
        for waiter in waiters {
            let wait = (waiter.since.unwrap_or(at), &waiter.id);
            let [first, second] = by_mode.entry(&waiter.mode).or_default();
            match first {
                Some(known) if *known <= wait => {
                    if second.is_none_or(|known| wait < known) {
                        *second = Some(wait);
                    }
                }
                Some(_) | None => {
                    *second = *first;
                    *first = Some(wait);
                }
            }
        }
        Self(by_mode)
    }

    fn kept_out_by(&self, holder: &Holder) -> Option<Timestamp> {
        self.0
            .iter()
            .filter(|(mode, _)| holder.modes().any(|held| held.conflicts_with(mode)))
            .flat_map(|(_, waits)| waits.iter().flatten())
            .filter(|(_, waiter)| **waiter != holder.id)
            .map(|(since, _)| *since)
            .min()
    }
}
