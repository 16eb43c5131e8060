//! Findings that begin and end, as events.
//!
//! A finding is told apart by its key and its rule. Another severity, another session at its head or
//! another name of the key makes no new one, and a poll that failed was not judged and changes
//! nothing. What the first poll finds is told as begun, with no bound before it. The rules are
//! `finding`'s business; what is told here goes where all events go.

use std::collections::{BTreeMap, HashMap};

use super::{Event, EventKind, Length};
use crate::finding::{Finding, FindingKind};
use crate::timestamp::Timestamp;
use crate::tracker::KeyId;
use crate::view::{Lock, Picture};

/// Findings that go on.
#[derive(Debug, Default)]
pub struct Findings(HashMap<Id, Since>);

type Id = (KeyId, FindingKind);

#[derive(Clone, Copy, Debug)]
struct Since {
    /// The poll that found it first.
    found_at: Timestamp,
    /// The poll before that, which did not.
    not_before: Option<Timestamp>,
}

impl Findings {
    /// What has changed between two pictures that are judged: what is over first, each in the order
    /// of keys.
    pub fn observe(&mut self, before: Option<&Picture>, after: &Picture) -> Vec<Event> {
        // The server's clock may have been set back: then the picture before bounds nothing.
        let bound = before.map(|before| before.at).filter(|at| *at <= after.at);
        let mut known = std::mem::take(&mut self.0);
        let mut begun = Vec::new();
        for (id, (lock, finding)) in found(after) {
            let since = known.remove(&id).unwrap_or_else(|| {
                let finding = Box::new(finding.brief());
                let kind = EventKind::FindingBegan { finding, at_first_poll: before.is_none() };
                begun.push(Event { not_before: bound, ..Event::about(lock, after, kind) });
                Since { found_at: after.at, not_before: bound }
            });
            self.0.insert(id, since);
        }
        if known.is_empty() {
            return begun;
        }
        let last = before.map(|before| (before, found(before)));
        let mut over: Vec<(Id, Since)> = known.into_iter().collect();
        over.sort_by_key(|(id, _)| *id);
        let over = over.into_iter().filter_map(|(id, since)| {
            let (before, found) = last.as_ref()?;
            let (lock, finding) = found.get(&id)?;
            let length = Length {
                seen_for: Some(before.at.since(since.found_at)),
                at_most: bound.and(since.not_before).map(|start| after.at.since(start)),
                ..Length::default()
            };
            let kind = EventKind::FindingEnded(Box::new(finding.brief()), length);
            Some(Event { not_before: bound, ..Event::about(lock, after, kind) })
        });
        over.chain(begun).collect()
    }
}

/// All that is to be said of keys, held or free.
fn found(picture: &Picture) -> BTreeMap<Id, (&Lock, &Finding)> {
    picture
        .locks
        .iter()
        .chain(&picture.free)
        .flat_map(|lock| lock.findings.iter().map(move |it| ((lock.id, it.kind), (lock, it))))
        .collect()
}
