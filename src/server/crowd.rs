//! Who is connected, and who has to go when all places are taken.
//!
//! It owns the number of connections and what each of them does; it moves no byte. A stranger who
//! opens a thousand connections and says nothing must not keep a scraper out until they time out,
//! so a newcomer takes the place of the one who can be spared most: of the peer that has the most
//! places, who has asked nothing yet or was answered some time ago, and longest.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::task::{AbortHandle, Id};
use tokio::time::Instant;

/// An answer may take so long to arrive before its connection counts as idle.
const GRACE: Duration = Duration::from_millis(250);

/// All connections.
pub(super) struct Crowd {
    max: usize,
    seats: HashMap<Id, (Arc<Seat>, AbortHandle)>,
}

/// One connection.
pub(super) struct Seat {
    peer: IpAddr,
    state: Mutex<(Doing, Instant)>,
}

/// What a connection does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Doing {
    /// Its answer is being made.
    Asking,
    /// Its answer is on its way, or arrived.
    Answered,
    /// Nothing was asked yet.
    Silent,
}

impl Seat {
    pub(super) fn new(peer: IpAddr, now: Instant) -> Self {
        Self { peer: peer.to_canonical(), state: Mutex::new((Doing::Silent, now)) }
    }

    pub(super) fn set(&self, doing: Doing, now: Instant) {
        *self.state.lock().unwrap_or_else(PoisonError::into_inner) = (doing, now);
    }

    /// What it does, and for how long it could be spared; `None` where it cannot.
    fn idle_for(&self, now: Instant) -> Option<(Doing, Duration)> {
        let (doing, since) = *self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let idle = now.saturating_duration_since(since);
        match doing {
            Doing::Asking => None,
            Doing::Answered => (idle >= GRACE).then_some((doing, idle)),
            Doing::Silent => Some((doing, idle)),
        }
    }
}

impl Crowd {
    pub(super) fn new(max: usize) -> Self {
        Self { max, seats: HashMap::new() }
    }

    /// Whether somebody can be let in, if need be for another one.
    pub(super) fn has_room(&self, now: Instant) -> bool {
        self.seats.len() < self.max || self.spare(now).is_some()
    }

    /// Cuts as many as it takes to let one in.
    pub(super) fn make_room(&mut self, now: Instant) {
        while self.seats.len() >= self.max {
            let Some(id) = self.spare(now) else { return };
            if let Some((seat, task)) = self.seats.remove(&id) {
                tracing::debug!(peer = %seat.peer, "cut an idle connection for a new one");
                task.abort();
            }
        }
    }

    pub(super) fn enter(&mut self, seat: Arc<Seat>, task: AbortHandle) {
        self.seats.insert(task.id(), (seat, task));
    }

    pub(super) fn leave(&mut self, id: Id) {
        self.seats.remove(&id);
    }

    /// Who can be spared most.
    fn spare(&self, now: Instant) -> Option<Id> {
        let mut of_peer: HashMap<IpAddr, usize> = HashMap::new();
        for (seat, _) in self.seats.values() {
            *of_peer.entry(seat.peer).or_default() += 1;
        }
        let spared = self.seats.iter().filter_map(|(id, (seat, _))| {
            let idle = seat.idle_for(now)?;
            Some((of_peer.get(&seat.peer).copied(), idle, *id))
        });
        spared.max_by_key(|(count, idle, _)| (*count, *idle)).map(|(_, _, id)| id)
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "some moment to begin at")]
mod tests {
    use super::*;
    use std::future::pending;
    use tokio::task::JoinSet;

    const SECOND: Duration = Duration::from_secs(1);

    /// Enters connections, each by the last number of its peer's address, what it does and since
    /// how many seconds; tells who is cut for the next one.
    async fn cut(max: usize, seats: &[(u8, Doing, u32)]) -> Option<usize> {
        let now = Instant::now() + 100 * SECOND;
        let mut tasks = JoinSet::new();
        let mut crowd = Crowd::new(max);
        let mut ids = Vec::new();
        for &(peer, doing, seconds) in seats {
            let seat = Seat::new([192, 0, 2, peer].into(), now);
            seat.set(doing, now - seconds * SECOND);
            let task = tasks.spawn(pending::<()>());
            ids.push(task.id());
            crowd.enter(Arc::new(seat), task);
        }
        let has_room = crowd.has_room(now);
        crowd.make_room(now);
        let left: Vec<_> =
            (0..ids.len()).filter(|&at| !crowd.seats.contains_key(&ids[at])).collect();
        assert!(left.len() <= 1);
        assert_eq!(has_room, seats.len() < max || left.len() == 1);
        if let Some(&at) = left.first() {
            let error = tasks.join_next().await.unwrap().unwrap_err();
            assert!(error.is_cancelled() && error.id() == ids[at]);
        }
        left.first().copied()
    }

    #[tokio::test]
    async fn nobody_is_cut_while_there_is_room() {
        assert_eq!(cut(3, &[(1, Doing::Silent, 9), (1, Doing::Silent, 9)]).await, None);
    }

    #[tokio::test]
    async fn who_has_been_silent_longest_is_cut_first() {
        use Doing::Silent;
        assert_eq!(cut(3, &[(1, Silent, 1), (2, Silent, 3), (3, Silent, 2)]).await, Some(1));
    }

    #[tokio::test]
    async fn the_peer_with_the_most_connections_gives_one_up_before_anybody_else() {
        use Doing::{Answered, Silent};
        let seats = [(1, Silent, 50), (2, Silent, 1), (2, Answered, 2), (3, Answered, 90)];
        assert_eq!(cut(4, &seats).await, Some(1));
    }

    #[tokio::test]
    async fn whose_answer_is_made_or_was_just_given_is_left_alone() {
        use Doing::{Answered, Asking};
        assert_eq!(cut(2, &[(1, Asking, 50), (1, Answered, 0)]).await, None);
        assert_eq!(cut(2, &[(1, Asking, 50), (2, Answered, 1)]).await, Some(1));
    }

    #[tokio::test]
    async fn an_address_is_the_same_peer_in_either_family() {
        let now = Instant::now();
        let mapped = Seat::new("::ffff:192.0.2.1".parse().unwrap(), now);
        assert_eq!(mapped.peer, Seat::new("192.0.2.1".parse().unwrap(), now).peer);
    }
}
