//! Which keys are taken in both orders, told at each of them.
//!
//! What an inversion is, `order` knows. It is told at both keys, since whoever is kept waiting looks
//! at one of them: once at each, by its newest inversion, however many there are. An inversion
//! outlasts the holds that showed it, so that a key may be free that has one. Pure.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::sentence::Evidence;
use super::{Finding, FindingKind};
use crate::order::Inversion;
use crate::tracker::KeyId;
use crate::view::{Lock, Picture};

/// Puts the findings into a picture that has its inversions: to the key where somebody holds or
/// awaits it, else among those that are free.
pub(super) fn judge_inversions(picture: &mut Picture) {
    // By key: its side of the newest inversion, and how many others it has.
    let mut told: BTreeMap<KeyId, (Arc<Inversion>, usize, usize)> = BTreeMap::new();
    for inversion in picture.inversions.iter().filter(|inversion| inversion.is_certain) {
        for (side, edge) in inversion.edges.iter().enumerate() {
            let newest = || (inversion.clone(), side, 0);
            told.entry(edge.held).and_modify(|(.., more)| *more += 1).or_insert_with(newest);
        }
    }
    // Each key is told once, so those that are added need not be looked at.
    let free = picture.free.len();
    for (id, (inversion, side, more)) in told {
        let label = inversion.labels[side].clone();
        let evidence = Evidence::OrderInversion { inversion, side, more };
        let finding = Finding::of_key(FindingKind::OrderInversion, evidence);
        let find = |locks: &[Lock]| locks.binary_search_by_key(&id, |lock| lock.id);
        if let Ok(index) = find(&picture.locks) {
            picture.locks[index].findings.push(finding);
        } else if let Ok(index) = find(&picture.free[..free]) {
            picture.free[index].findings.push(finding);
        } else {
            picture.free.push(Lock::free(id, label, vec![finding]));
        }
    }
    picture.free.sort_by_key(|lock| lock.id);
}
