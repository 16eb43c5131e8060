//! What of one server outlasts a restart of the exporter, as plain values.
//!
//! A fold gives it after each poll, with the view, and takes it back before its first. Each part
//! belongs to the module that knows what it means and what of it may be believed: sights to `series`,
//! expectations to `finding`, first names to `tracker`. A rule that has to remember something of its
//! own adds a part here, with `#[serde(default)]`, so that files without it can be read. All moments
//! are on the server's clock. There are names of databases, locks and applications in it, and gids;
//! no connection string, role or address. Pure: where it is kept is `state`'s business.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::finding::Expectation;
use crate::mode::Mode;
use crate::sample::{DatabaseOid, Pid};
use crate::series::LockSeries;
use crate::timestamp::Timestamp;
use crate::tracker::KeyId;

/// What is remembered of one server; empty of one that was never seen.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Memory {
    /// When keys of the registry were last seen held.
    pub last_held: Vec<LastHeld>,
    /// What was seen of keys of which an entry expects something.
    pub expectations: Vec<Expectation>,
    /// What present holders were called at first.
    pub first_names: Vec<FirstName>,
}

/// When the keys of one series were last seen held.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LastHeld {
    /// The series.
    #[serde(flatten)]
    pub series: LockSeries,
    /// The poll that saw it.
    pub at: Timestamp,
}

/// What a holder was called when it was first seen with a key.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FirstName {
    /// The OID of the key's database.
    pub database: DatabaseOid,
    /// The key as people write it.
    pub key: Arc<str>,
    /// The holder's backend, which it takes both to know again.
    pub pid: Pid,
    /// When it began.
    pub backend_start: Timestamp,
    /// The mode.
    pub mode: Mode,
    /// The name.
    pub application_name: Arc<str>,
    /// The hold was seen to begin; else the name may be that of a later user of the connection.
    #[serde(default)]
    pub seen_to_begin: bool,
    /// The name when the backend was first seen idle with the key, if it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_name: Option<Arc<str>>,
}

impl FirstName {
    /// The key and its database; `None` where the text is no key.
    pub fn key_id(&self) -> Option<KeyId> {
        Some(KeyId { database: self.database, key: self.key.parse().ok()? })
    }
}

/// So many first names are remembered, of the holds that are oldest.
pub const FIRST_NAMES: usize = 1000;

/// Clocks are set back, and a server's place may be taken by another that has a clock of its own:
/// what is later by no more than this was now.
const CLOCK_SLACK: Duration = Duration::from_secs(60);

/// A moment of the past; `None` for one that has not come yet or was before there were servers,
/// which nobody can remember.
pub fn past(moment: Timestamp, now: Timestamp) -> Option<Timestamp> {
    let remembered = Timestamp::from_unix_micros(0)..=now.after(CLOCK_SLACK);
    remembered.contains(&moment).then(|| moment.min(now))
}

/// A duration in seconds.
pub(crate) mod seconds {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

    pub(crate) fn serialize<S: Serializer>(
        duration: &Option<Duration>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        duration.map(|duration| duration.as_secs_f64()).serialize(serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Duration>, D::Error> {
        let seconds = Option::<f64>::deserialize(deserializer)?;
        seconds.map(Duration::try_from_secs_f64).transpose().map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;
    use crate::config::{Limits, Thresholds};
    use crate::fold::Fold;
    use crate::key::Key;
    use crate::mode::Mode;
    use crate::registry::{Registry, Source};
    use crate::sample::{
        Backend, DatabaseName, KeyGroup, Names, Sample, State, VirtualTransaction,
    };
    use crate::view::Picture;

    const REGISTRY: &str = "
presets: none
locks: [{ name: leader, key: 7, databases: [app], must_be_held: true, last_held_within: 60s }]
";

    fn fold() -> Fold {
        let source = Source { name: "registry.yaml".into(), text: REGISTRY.into() };
        let limits =
            Limits { keys: 10, applications: 10, databases: 10, registered_keys: 10, values: 10 };
        let registry = Arc::new(Registry::parse(&[source]).unwrap());
        let thresholds = Thresholds::default();
        Fold::new("orders-1".into(), registry, Arc::default(), &limits, thresholds)
    }

    fn poll(fold: &mut Fold, seconds: i64) -> Arc<Picture> {
        fold.observe(&sample(seconds), Duration::from_secs(2))
    }

    fn sample(seconds: i64) -> Sample {
        let at = Timestamp::from_unix_micros(seconds * 1_000_000);
        Sample {
            at,
            at_local: at,
            round_trip: Duration::ZERO,
            read_at: at,
            own_pid: Pid(1),
            in_recovery: false,
            advisory: Vec::new(),
            other_locks: Vec::new(),
            backends: Some(Vec::new()),
            prepared: Some(Vec::new()),
            table_entries: None,
        }
    }

    fn name_databases(fold: &mut Fold) {
        let app = DatabaseName { name: "app".into(), encoding: "UTF8".into() };
        let databases = HashMap::from([(DatabaseOid(5), app)]);
        fold.observe_names(Names { databases, ..Names::default() });
    }

    #[test]
    fn a_memory_waits_until_databases_have_names_and_is_not_lost_meanwhile() {
        let mut before = fold();
        name_databases(&mut before);
        poll(&mut before, 100);
        let memory = before.memory();
        assert_eq!(memory.expectations.len(), 1);

        let mut after = fold();
        after.restore(memory.clone());
        let picture = poll(&mut after, 161);
        assert!(picture.free.is_empty());
        assert_eq!(after.memory(), memory);
        name_databases(&mut after);
        let picture = poll(&mut after, 162);
        assert_eq!(picture.free[0].findings.len(), 1, "missed since 100");
    }

    #[test]
    fn the_memory_of_another_cluster_is_forgotten() {
        let mut fold = fold();
        name_databases(&mut fold);
        poll(&mut fold, 100);
        fold.observe_other_cluster();
        let picture = poll(&mut fold, 162);
        assert!(picture.free.is_empty(), "counted from then");
        assert_eq!(picture.watching_since, picture.at);
    }

    #[test]
    fn an_order_seen_on_another_cluster_makes_no_inversion_here() {
        let group = |key, granted| KeyGroup {
            database: DatabaseOid(5),
            pid: Some(Pid(7)),
            transaction: VirtualTransaction::from_server("7/1"),
            mode: Mode::Exclusive,
            granted,
            wait_start: None,
            keys: vec![Key::bigint(key)],
        };
        let inversions = |fold: &mut Fold, seconds, held, awaited| {
            let advisory = vec![group(held, true), group(awaited, false)];
            fold.observe(&Sample { advisory, ..sample(seconds) }, Duration::ZERO).inversions.len()
        };
        for (is_other, expected) in [(false, 1), (true, 0)] {
            let mut fold = fold();
            inversions(&mut fold, 100, 1, 2);
            if is_other {
                fold.observe_other_cluster();
            }
            assert_eq!(inversions(&mut fold, 101, 2, 1), expected);
        }
    }

    #[test]
    fn a_view_tells_what_to_remember_once_all_of_it_is_known() {
        let mut fold = fold();
        let told = |fold: &Fold| {
            let mut view = crate::view::View::default();
            fold.fill(&mut view);
            view.memory
        };
        name_databases(&mut fold);
        poll(&mut fold, 100);
        assert_eq!(told(&fold), None, "nobody keeps it");
        fold.remember();
        assert_eq!(told(&fold), None);
        poll(&mut fold, 101);
        assert_eq!(told(&fold).as_deref(), Some(&fold.memory()));
        fold.restore(Memory::default());
        assert_eq!(told(&fold), None, "what was known before is still missing");
    }

    #[test]
    fn of_very_many_holders_the_oldest_keep_their_first_names() {
        let mut fold = fold();
        let at = |seconds: i64| Timestamp::from_unix_micros(seconds * 1_000_000);
        let holds = |pid: i32| KeyGroup {
            database: DatabaseOid(5),
            pid: Some(Pid(pid)),
            transaction: VirtualTransaction::from_server(&format!("{pid}/1")),
            mode: Mode::Share,
            granted: true,
            wait_start: None,
            keys: vec![Key::bigint(7)],
        };
        let backend = |pid: i32| Backend {
            pid: Pid(pid),
            database: None,
            role: None,
            application_name: Some(format!("pod-{pid}").into()),
            state: State::Active,
            state_change: None,
            wait_event: None,
            backend_start: Some(at(1)),
            client_addr: None,
            client_port: None,
            snapshot_age: None,
            backend_type: None,
            leader: None,
        };
        let pids = |last: i32| 1000..=last;
        let oldest = 1500;
        for (seconds, last) in [(100, oldest), (101, 4000)] {
            let mut sample = sample(seconds);
            sample.advisory = pids(last).rev().map(holds).collect();
            sample.backends = Some(pids(last).map(backend).collect());
            fold.observe(&sample, Duration::from_secs(2));
        }
        let names = fold.memory().first_names;
        assert_eq!(names.len(), FIRST_NAMES);
        assert!(pids(oldest).all(|pid| names.iter().any(|name| name.pid == Pid(pid))));
        assert_eq!((&*names[0].key, &*names[0].application_name), ("7", "pod-1000"));
    }

    #[test]
    fn what_has_not_come_yet_is_not_remembered() {
        let at = |seconds: i64| Timestamp::from_unix_micros(seconds * 1_000_000);
        assert_eq!(past(at(100), at(100)), Some(at(100)));
        assert_eq!(past(at(130), at(100)), Some(at(100)), "the clock was set back a little");
        assert_eq!(past(at(161), at(100)), None);
        for infinity in [i64::MIN, i64::MAX] {
            assert_eq!(past(Timestamp::from_unix_micros(infinity), at(100)), None);
        }
    }
}
