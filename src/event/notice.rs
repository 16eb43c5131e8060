//! Which events are worth a line in the log, and how many lines: a log is read by people and paid for
//! by the byte.
//!
//! By default that is a finding when it begins and when it ends, and a hold of a named lock that
//! lasts, once when it has, and once when it ends; all events where somebody asked for them. Each of
//! the three has a bound of its own, and what is past it is counted, so that a burst neither floods
//! the log nor hides what matters. Pure; the poller writes the lines.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use super::{Event, EventKind};
use crate::mode::Mode;
use crate::series::Label;
use crate::timestamp::Timestamp;
use crate::tracker::{KeyId, SessionId};
use crate::view::{Holder, Party, Picture};

/// A hold that was seen for so long is worth a line.
pub const LONG: Duration = Duration::from_secs(10);

/// Lines are written at this pace when there are too many.
const PACE: Duration = Duration::from_millis(100);

/// Lines that may come at once, as the time they take at this pace. What was left out is told as
/// often as that.
const BURST: Duration = Duration::from_secs(10);

/// A line for the log.
#[derive(Clone, Debug)]
pub enum Notice {
    /// A hold of a named lock has lasted for [`LONG`], and goes on.
    Lasts(Lasting),
    /// Something happened.
    Happened(Arc<Event>),
    /// So many lines were left out.
    LeftOut(u64),
}

/// A hold that goes on.
#[derive(Clone, Debug)]
pub struct Lasting {
    /// The key.
    pub key: KeyId,
    /// Its names.
    pub label: Arc<Label>,
    /// Who holds it.
    pub party: Party,
    /// How.
    pub mode: Mode,
    /// For how long it was seen or proved held.
    pub seen_for: Duration,
}

/// Decides on the lines about one server.
#[derive(Debug, Default)]
pub struct Notices {
    tells_all: bool,
    findings: Budget,
    lasting: Budget,
    others: Budget,
    lines: Vec<Notice>,
    left_out: u64,
    told_at: Option<Timestamp>,
}

impl Notices {
    /// Tells all events from now on.
    pub fn tell_all(&mut self) {
        self.tells_all = true;
    }

    /// Looks for holds that have lasted since the picture before. Comes before the events between
    /// the two; lines of earlier ones that nobody took are dropped.
    pub fn observe_picture(&mut self, before: Option<&Picture>, after: &Picture) {
        self.lines.clear();
        let is_long = |at: Timestamp, holder: &Holder| at.since(holder.since) >= LONG;
        for lock in after.locks.iter().filter(|lock| lock.label.resolution.lock.is_some()) {
            let mut long =
                lock.holders.iter().filter(|holder| is_long(after.at, holder)).peekable();
            if long.peek().is_none() {
                continue;
            }
            // Of one key there may be as many holders as sessions.
            let known: HashSet<&SessionId> = before
                .into_iter()
                .filter_map(|before| Some((before.at, before.lock(lock.id)?)))
                .flat_map(|(at, lock)| lock.holders.iter().filter(move |it| is_long(at, it)))
                .map(|holder| &holder.id)
                .collect();
            for holder in long {
                if !known.contains(&holder.id) {
                    let lasting = Lasting {
                        key: lock.id,
                        label: lock.label.clone(),
                        party: Party::of_holder(holder),
                        mode: holder.mode.clone(),
                        seen_for: after.at.since(holder.since),
                    };
                    let is_within = self.lasting.take(after.at_local);
                    self.push(is_within, Notice::Lasts(lasting));
                }
            }
        }
    }

    /// Takes note of something that happened.
    pub fn observe_event(&mut self, event: &Arc<Event>) {
        let budget = if event.finding().is_some() {
            &mut self.findings
        } else if is_end_of_lasting(event) {
            &mut self.lasting
        } else if self.tells_all {
            &mut self.others
        } else {
            return;
        };
        let is_within = budget.take(event.at_local);
        self.push(is_within, Notice::Happened(event.clone()));
    }

    /// The lines since the last call, and now and then how many were left out.
    pub fn take(&mut self, now: Timestamp) -> Vec<Notice> {
        let is_due = |told: Timestamp| told > now || now.since(told) >= BURST;
        if self.left_out > 0 && self.told_at.is_none_or(is_due) {
            self.told_at = Some(now);
            self.lines.push(Notice::LeftOut(std::mem::take(&mut self.left_out)));
        }
        std::mem::take(&mut self.lines)
    }

    fn push(&mut self, is_within: bool, notice: Notice) {
        if is_within {
            self.lines.push(notice);
        } else {
            self.left_out += 1;
        }
    }
}

fn is_end_of_lasting(event: &Event) -> bool {
    match &event.kind {
        EventKind::HoldEnded(length) => {
            event.series.is_some() && length.seen_for.is_some_and(|seen_for| seen_for >= LONG)
        }
        EventKind::HoldBegan
        | EventKind::WaitBegan
        | EventKind::WaitEnded(..)
        | EventKind::HolderChanged { .. }
        | EventKind::FindingBegan { .. }
        | EventKind::FindingEnded(..) => false,
    }
}

/// How many lines may still be written, as the moment at which those written so far would have
/// been done at the pace.
#[derive(Debug, Default)]
struct Budget {
    done_at: Option<Timestamp>,
}

impl Budget {
    /// Whether one more line is within the budget; if so it is taken.
    fn take(&mut self, now: Timestamp) -> bool {
        let end = now.after(BURST);
        // Our clock may have been set back: then the end is no later than a full burst ahead.
        let done_at = self.done_at.map_or(now, |done_at| done_at.clamp(now, end)).after(PACE);
        let is_within = done_at <= end;
        if is_within {
            self.done_at = Some(done_at);
        }
        is_within
    }
}
