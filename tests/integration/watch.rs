//! The library driven by hand, one poll at a time: what the exporter does at each tick, but at a
//! moment that the test chooses and with everything in between to look at.

use std::time::{Duration, SystemTime};

use pg_locks_exporter::key::Key;
use pg_locks_exporter::postgres::{Connection, dsn::Dsn};
use pg_locks_exporter::sample::{KeyGroup, Pid, Sample};
use pg_locks_exporter::timestamp::Timestamp;
use pg_locks_exporter::tracker::{Change, Hold, HoldId, SessionId, Tracker, Wait};

use crate::support::{DEADLINE, Session};

/// A connection, and what its samples say together.
pub struct Watch {
    pub connection: Connection,
    pub tracker: Tracker,
}

/// Connects as the exporter does, with nothing from the environment.
pub async fn connect(dsn: &str) -> Connection {
    let dsn = Dsn::parse(dsn, &|_| None).expect("a connection string");
    Connection::connect(&dsn).await.expect("a connection")
}

impl Watch {
    pub async fn start(dsn: &str) -> Watch {
        Watch { connection: connect(dsn).await, tracker: Tracker::default() }
    }

    /// One poll, folded in. No key's scope is declared.
    pub async fn poll(&mut self) -> (Sample, Vec<Change>) {
        let sample = self.connection.fetch_sample(DEADLINE).await.expect("a sample");
        let changes = self.tracker.observe(&sample, |_| None);
        (sample, changes)
    }

    /// The only hold of this key by this session, if there is one.
    pub fn hold(&self, session: &Session, key: Key) -> Option<&Hold> {
        let is_it =
            |id: &HoldId| id.key.key == key && id.holder == SessionId::Backend(Pid(session.pid()));
        let mut holds = self.tracker.holds().iter().filter(|(id, _)| is_it(id));
        let hold = holds.next().map(|(_, hold)| hold);
        assert!(holds.next().is_none(), "several modes of {key}");
        hold
    }

    /// The only wait of this session, if it waits.
    pub fn wait(&self, session: &Session) -> Option<&Wait> {
        let mut waits = self
            .tracker
            .waits()
            .iter()
            .filter(|(id, _)| id.waiter.pid().map(|pid| pid.0) == Some(session.pid()));
        let wait = waits.next().map(|(_, wait)| wait);
        assert!(waits.next().is_none(), "a session waits for one lock at a time");
        wait
    }
}

/// The groups of a sample that hold this key.
pub fn holding(sample: &Sample, key: Key) -> impl Iterator<Item = &KeyGroup> {
    sample.advisory.iter().filter(move |group| group.granted && group.keys.contains(&key))
}

/// This machine's clock, which the test's servers read too.
#[expect(clippy::disallowed_methods, reason = "a test compares the product with the clock")]
pub fn now() -> Timestamp {
    SystemTime::now().into()
}

/// The time since `start` on this machine's clock.
pub fn elapsed(start: Timestamp) -> Duration {
    now().since(start)
}

/// A moment as the server writes it with `extract(epoch FROM …) * 1000000`, cast to `int8`.
pub fn moment(text: Option<String>) -> Timestamp {
    let micros = text.as_deref().and_then(|text| text.parse().ok());
    Timestamp::from_unix_micros(micros.unwrap_or_else(|| panic!("no moment: {text:?}")))
}

/// SQL for the server's clock now, as [`moment`] reads it.
pub const CLOCK: &str = "(extract(epoch FROM clock_timestamp()) * 1000000)::int8";
