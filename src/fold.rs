//! One server's memory: samples go in, pictures come out.
//!
//! Everything between reading and publishing meets here, in the order it depends on each other:
//! the tracker says what is one hold, the series say under which labels it counts, the picture is
//! drawn, and what changed is counted. Pure, so a test can drive it with samples and a clock of
//! its own.

use std::sync::Arc;
use std::time::Duration;

use crate::config::{Applications, Limits};
use crate::registry::Registry;
use crate::sample::{DatabaseOid, Names, Sample};
use crate::series::SeriesSet;
use crate::timestamp::Timestamp;
use crate::tracker::Tracker;
use crate::view::Picture;

/// What is known of one server, from the samples so far.
#[derive(Debug)]
pub struct Fold {
    registry: Arc<Registry>,
    names: Names,
    tracker: Tracker,
    series: SeriesSet,
    /// Told by every 15th sample only.
    table_entries: Option<u64>,
    previous: Option<Timestamp>,
    observed: Duration,
}

impl Fold {
    /// Nothing is known yet.
    pub fn new(
        server: Arc<str>,
        registry: Arc<Registry>,
        applications: Arc<Applications>,
        limits: &Limits,
    ) -> Self {
        Self {
            registry,
            names: Names::default(),
            tracker: Tracker::default(),
            series: SeriesSet::new(server, applications, limits),
            table_entries: None,
            previous: None,
            observed: Duration::ZERO,
        }
    }

    /// Series and counters as they are now.
    pub fn series(&self) -> &SeriesSet {
        &self.series
    }

    /// Time that the integrals cover.
    pub fn observed(&self) -> Duration {
        self.observed
    }

    /// Names as they were read last.
    pub fn names(&self) -> &Names {
        &self.names
    }

    /// New names: labels follow at the next sample.
    pub fn observe_names(&mut self, names: Names) {
        if names.databases != self.names.databases {
            self.series.forget_labels();
        }
        self.names = names;
    }

    /// Databases in the sample, and roles, whose names are not known.
    pub fn lacks_names(&self, sample: &Sample) -> bool {
        let unknown = |oid: &DatabaseOid| {
            *oid != DatabaseOid::SERVER_WIDE && !self.names.databases.contains_key(oid)
        };
        let is_involved = |pid| sample.advisory.iter().any(|group| group.pid == Some(pid));
        sample.advisory.iter().any(|group| unknown(&group.database))
            || sample.backends.iter().flatten().any(|backend| {
                backend.role.is_some_and(|role| !self.names.roles.contains_key(&role))
                    && is_involved(backend.pid)
            })
    }

    /// Folds one sample in and draws the picture after it. `longest_gap` caps the time for which
    /// the sample is taken to stand.
    pub fn observe(&mut self, sample: &Sample, longest_gap: Duration) -> Picture {
        let elapsed =
            self.previous.map_or(Duration::ZERO, |previous| sample.at_local.since(previous));
        let elapsed = elapsed.min(longest_gap);
        self.previous = Some(sample.at_local);
        self.observed += elapsed;
        self.table_entries = sample.table_entries.or(self.table_entries);

        let declared = |key| self.series.declared_scope(key, &self.names, &self.registry);
        let changes = self.tracker.observe(sample, declared);
        self.series.observe_labels(sample, &self.tracker, &self.names, &self.registry);
        let mut picture = Picture::draw(sample, &self.tracker, &self.names, &self.series);
        picture.table_entries = self.table_entries;
        self.series.count(&picture, &changes, elapsed);
        picture
    }
}

#[cfg(test)]
mod replay;
