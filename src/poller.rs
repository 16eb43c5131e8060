//! The loop around one server: tick, fetch, fold, publish, and back off when it is gone.
//!
//! An edge: it reads clocks and owns the connection. What a sample means is `fold`'s business.
//! Every poll, failed ones included, publishes a [`View`] on a watch channel; readers take the last
//! one and never wait. The weather out there (a server that stops, a login refused, a catalog
//! locked) never ends the loop; it is `up 0`, a counter by reason, and one line in the log.

use std::collections::{BTreeSet, HashSet, VecDeque};
use std::future::pending;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout};

use crate::backoff::Backoff;
use crate::config::{self, Applications, Limits, Thresholds};
use crate::event::{Event, EventKind, Length, Notice};
use crate::finding::Finding;
use crate::fold::{Fold, Nameless};
use crate::inspected::Inspected;
use crate::postgres::{Connection, PollError};
use crate::privilege;
use crate::registry::{Conflict, HashCheck, Registry};
use crate::reload::Loaded;
use crate::sample::{FailureReason, Pid, Sample};
use crate::series::LockSeries;
use crate::state::Section;
use crate::timestamp::Timestamp;
use crate::view::{Failure, Party, Picture, Polls, View};

/// Names are read again this often; what failed beside a poll is tried again sooner.
const NAMES_EVERY: Duration = Duration::from_secs(60);
const ASIDE_RETRY: Duration = Duration::from_secs(5);

/// However long polls take, the next one is not put off for longer.
const LONGEST_INTERVAL: Duration = Duration::from_secs(60);

/// Of a long list, a line of the log shows so many.
const LISTED: usize = 10;

/// No sign of a pooler means something only after a while.
const POOLER_GRACE: Duration = Duration::from_secs(60);

/// A backend older than our connection by more than this was not started for us.
const OLDER_BACKEND: Duration = Duration::from_secs(1);

/// Polls one server for as long as the process lives.
pub struct Poller {
    server: config::Server,
    rhythm: config::Poll,
    loaded: watch::Receiver<Loaded>,
    registry: Arc<Registry>,
    backoff: Backoff,
    fold: Fold,
    view: View,
    published: watch::Sender<Arc<View>>,
    inspected: Option<watch::Receiver<Arc<Inspected>>>,
    /// What the state file says of the server, until that tells who it is.
    recalled: Option<Section>,
    condition: Condition,
    names: NamesWatch,
    /// The hashes that this connection was asked for.
    hashes_asked: Option<Arc<[HashCheck]>>,
    stretch: Stretch,
    /// Where somebody sets the pace.
    turns: Option<Turns>,
    /// Where the configuration may change.
    rules: Option<watch::Receiver<config::Rules>>,
}

/// The rhythm as it is set while the poller runs. The server's own time still stretches it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// Between the starts of two polls.
    pub interval: Duration,
    /// Nothing is polled but what is asked for; the connection stays.
    pub is_paused: bool,
    /// Counts the polls that were asked for out of turn. Another number wakes a poller that is
    /// paused, waits for its turn or backs off.
    pub asked: u64,
}

/// Whose turn it is, at a pace that somebody sets.
pub(crate) struct Turns {
    pace: watch::Receiver<Pace>,
    /// Up to here everybody who asked was answered.
    asked: u64,
}

impl Turns {
    /// From the pace as it is now.
    pub(crate) fn new(pace: watch::Receiver<Pace>) -> Self {
        let asked = pace.borrow().asked;
        Self { pace, asked }
    }

    /// What comes now answers everybody who asked until now.
    pub(crate) fn observe_asked(&mut self) {
        self.asked = self.pace.borrow().asked;
    }

    /// Waits until the turn comes, which depends on the pace and on whether somebody asked out of
    /// turn; `None` is not before one of these changes.
    pub(crate) async fn wait(&mut self, mut turn: impl FnMut(Pace, bool) -> Option<Instant>) {
        loop {
            let pace = *self.pace.borrow_and_update();
            let due = turn(pace, pace.asked != self.asked);
            let due = async move {
                match due {
                    Some(due) => sleep_until(due).await,
                    None => pending().await,
                }
            };
            let mut due = pin!(due);
            tokio::select! {
                () = &mut due => return,
                changed = self.pace.changed() => if changed.is_err() {
                    // Nobody is left to change it: it stays as it is.
                    return due.await;
                }
            }
        }
    }
}

/// What was last said in the log, so that it is said once.
#[derive(Debug, Default)]
struct Condition {
    /// Kinds of the present outage.
    told: HashSet<Outage>,
    was_up: bool,
    privileges_hidden: bool,
    pooled: bool,
    missing_databases: BTreeSet<Arc<str>>,
    past_bound: usize,
    past_max_keys: bool,
    conflicts: BTreeSet<LockSeries>,
}

/// Kinds of outage that deserve a line of their own. A server that stops is lost, then gone, then
/// starting: one story.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Outage {
    Gone,
    /// It lets us connect and says nothing.
    Silent,
    Refused,
    Full,
    Slow,
    Broken,
}

impl Outage {
    fn of(error: &PollError) -> Self {
        if matches!(error, PollError::ConnectTimeout(_)) {
            return Self::Silent;
        }
        match error.reason() {
            FailureReason::Unreachable | FailureReason::ConnectionLost => Self::Gone,
            FailureReason::Login => Self::Refused,
            FailureReason::TooManyConnections => Self::Full,
            FailureReason::Timeout => Self::Slow,
            FailureReason::OutOfMemory | FailureReason::Error => Self::Broken,
        }
    }
}

/// How long the server was busy with the last polls: while it copies the lock table, nobody can
/// take a lock.
#[derive(Debug, Default)]
struct Stretch {
    busy: VecDeque<Duration>,
}

impl Stretch {
    fn observe(&mut self, busy: Option<Duration>) {
        const POLLS: usize = 3;
        let Some(busy) = busy else { return };
        self.busy.truncate(POLLS - 1);
        self.busy.push_front(busy);
    }

    /// The interval that keeps polls below their share of the time. The shortest of three counts,
    /// since one stall is no trend. Polls that fail count as well: a table too large to be read in
    /// time would otherwise be read all the time.
    fn least(&self, max_share: f64) -> Duration {
        let busy = self.busy.iter().min().copied().unwrap_or_default().as_secs_f64();
        let share = Duration::try_from_secs_f64(busy / max_share).unwrap_or(Duration::MAX);
        share.min(LONGEST_INTERVAL)
    }

    fn interval(&self, rhythm: config::Poll) -> Duration {
        rhythm.interval.max(self.least(rhythm.max_share))
    }
}

/// When names were read, and for whom there were none.
#[derive(Debug, Default)]
struct NamesWatch {
    tried: Option<Instant>,
    has_failed: bool,
    nameless: HashSet<Nameless>,
}

impl NamesWatch {
    fn are_due(&self, nameless: &HashSet<Nameless>) -> bool {
        let Some(tried) = self.tried else { return true };
        if self.has_failed {
            tried.elapsed() >= ASIDE_RETRY
        } else {
            tried.elapsed() >= NAMES_EVERY || !nameless.is_subset(&self.nameless)
        }
    }

    fn read(&mut self, nameless: HashSet<Nameless>) {
        *self = Self { tried: Some(now()), has_failed: false, nameless };
    }

    /// Whether it is the first failure in a row.
    fn failed(&mut self) -> bool {
        self.tried = Some(now());
        !std::mem::replace(&mut self.has_failed, true)
    }
}

/// What a connection showed about who really is behind it.
#[derive(Debug)]
pub(crate) struct PoolerWatch {
    since: Instant,
    pid: Option<Pid>,
    /// What proves that it is a pooler.
    pub(crate) proof: Option<&'static str>,
}

impl Poller {
    /// A poller and the channel on which it publishes.
    pub fn new(
        server: config::Server,
        rhythm: config::Poll,
        loaded: watch::Receiver<Loaded>,
        applications: Arc<Applications>,
        limits: &Limits,
        thresholds: Thresholds,
        backoff: Backoff,
    ) -> (Self, watch::Receiver<Arc<View>>) {
        let name: Arc<str> = server.name.as_str().into();
        let view = View {
            server: name.clone(),
            polls: Polls {
                interval_configured: rhythm.interval,
                interval: rhythm.interval,
                ..Polls::default()
            },
            ..View::default()
        };
        let (published, receiver) = watch::channel(Arc::new(view.clone()));
        let registry = loaded.borrow().registry.clone();
        let fold = Fold::new(name, registry.clone(), applications, limits, thresholds)
            .with_poolers(server.poolers.clone());
        let poller = Self {
            server,
            rhythm,
            loaded,
            registry,
            backoff,
            fold,
            view,
            published,
            inspected: None,
            recalled: None,
            condition: Condition::default(),
            names: NamesWatch::default(),
            hashes_asked: None,
            stretch: Stretch::default(),
            turns: None,
            rules: None,
        };
        (poller, receiver)
    }

    /// The same, with what databases tell the registry, as far as it is known at each poll.
    pub fn with_inspected(mut self, inspected: watch::Receiver<Arc<Inspected>>) -> Self {
        self.inspected = Some(inspected);
        self.take_inspected();
        self.published.send_replace(Arc::new(self.view.clone()));
        self
    }

    /// The same, going on from what the state file says of the server, and telling what it shall say.
    pub fn with_memory(mut self, recalled: Option<Section>) -> Self {
        self.fold.remember();
        self.recalled = recalled;
        self
    }

    /// The same, with a line in the log for everything that happens.
    pub fn with_events_logged(mut self) -> Self {
        self.fold.tell_all_events();
        self
    }

    /// The same, at a pace that may change at any time.
    pub fn with_pace(mut self, pace: watch::Receiver<Pace>) -> Self {
        self.take_pace(*pace.borrow());
        self.turns = Some(Turns::new(pace));
        self.published.send_replace(Arc::new(self.view.clone()));
        self
    }

    /// The same, by rules that may change at any time.
    pub fn with_rules(mut self, rules: watch::Receiver<config::Rules>) -> Self {
        self.rules = Some(rules);
        self
    }

    /// Goes on by the rules as they are now.
    fn take_rules(&mut self) {
        let Some(rules) = &mut self.rules else { return };
        let config::Rules { poll, applications, thresholds } = rules.borrow_and_update().clone();
        self.rhythm = poll;
        self.view.polls.interval_configured = poll.interval;
        self.view.polls.interval = self.stretch.interval(poll);
        self.fold.observe_rules(applications, thresholds);
    }

    /// Goes on with what databases told meanwhile.
    fn take_inspected(&mut self) {
        let Some(inspected) = &mut self.inspected else { return };
        let inspected = inspected.borrow_and_update().clone();
        if inspected.answers != self.view.inspected.answers {
            self.fold.observe_answers(inspected.answers.clone());
        }
        self.view.inspected = inspected;
    }

    /// Never returns.
    pub async fn run(mut self) -> std::convert::Infallible {
        let mut attempt = 0;
        self.rest(now(), Some(Duration::ZERO)).await;
        loop {
            self.observe_asked();
            match self.connect().await {
                Ok(connection) => {
                    let polls_before = self.view.polls.last_success;
                    let error = self.poll(connection).await;
                    if self.view.polls.last_success != polls_before {
                        attempt = 0;
                    }
                    self.publish_failure(&error);
                }
                Err(error) => self.publish_failure(&error),
            }
            let delay = self.backoff.delay(attempt, rand::random());
            self.rest(now(), Some(delay)).await;
            attempt = attempt.saturating_add(1);
        }
    }

    /// Waits for the turn of the next poll: after a back-off, or an interval after the last one,
    /// unless somebody wants it otherwise meanwhile. What is asked for out of turn still leaves the
    /// server its share of the time.
    async fn rest(&mut self, since: Instant, backoff: Option<Duration>) {
        let Some(mut turns) = self.turns.take() else {
            loop {
                let pause = backoff.unwrap_or(self.view.polls.interval);
                tokio::select! {
                    () = sleep_until(since + pause) => return,
                    () = changed(self.rules.as_mut()) => self.take_rules(),
                }
            }
        };
        turns
            .wait(|pace, is_asked| {
                self.take_pace(pace);
                if is_asked {
                    return Some(since + self.stretch.least(self.rhythm.max_share));
                }
                let pause = backoff.unwrap_or(self.view.polls.interval);
                (!pace.is_paused).then(|| since + pause)
            })
            .await;
        self.turns = Some(turns);
    }

    /// Goes on at this pace.
    fn take_pace(&mut self, pace: Pace) {
        self.rhythm.interval = pace.interval;
        self.view.polls.interval_configured = pace.interval;
        self.view.polls.interval = self.stretch.interval(self.rhythm);
    }

    /// What comes now answers everybody who asked until now.
    fn observe_asked(&mut self) {
        if let Some(turns) = &mut self.turns {
            turns.observe_asked();
        }
    }

    /// Waits for one connect, whatever it takes, and tells meanwhile that there is none.
    async fn connect(&mut self) -> Result<Connection, PollError> {
        let dsn = self.server.dsn.clone();
        let patience = dsn.connect_patience();
        let mut connecting = pin!(Connection::connect(&dsn));
        loop {
            match timeout(patience, &mut connecting).await {
                Ok(outcome) => return outcome,
                Err(_) => {
                    self.observe_asked();
                    self.publish_failure(&PollError::ConnectTimeout(patience));
                }
            }
        }
    }

    /// Polls until the connection is of no more use; the error that ended it is not published yet.
    async fn poll(&mut self, mut connection: Connection) -> PollError {
        let mut pooler = PoolerWatch::new();
        let mut facts_tried = None;
        self.hashes_asked = None;
        loop {
            self.take_rules();
            self.take_registry();
            self.take_inspected();
            self.observe_asked();
            let started = now();
            match connection.fetch_sample(self.rhythm.timeout).await {
                Ok(sample) => {
                    let duration = started.elapsed();
                    // Whatever comes of the questions beside it, the sample is worth publishing.
                    let asked = self.ask_aside(&mut connection, &sample, &mut facts_tried).await;
                    pooler.observe(&sample, connection.opened_at());
                    self.stretch.observe(connection.busy());
                    self.publish_success(&sample, duration, &pooler);
                    if let Err(error) = asked {
                        return error;
                    }
                }
                Err(error) if connection.is_usable(&error) => {
                    self.stretch.observe(connection.busy());
                    self.view.polls.interval = self.stretch.interval(self.rhythm);
                    self.publish_failure(&error);
                }
                Err(error) => return error,
            }
            self.rest(started, None).await;
        }
    }

    /// Goes on with a new registry from the next poll on.
    fn take_registry(&mut self) {
        let registry = self.loaded.borrow().registry.clone();
        if Arc::ptr_eq(&registry, &self.registry) {
            return;
        }
        self.fold.observe_registry(registry.clone());
        self.registry = registry;
        self.hashes_asked = None;
        self.view.hash_mismatches = None;
        // Databases that it names in vain are told after names are read, which is due again: who adds
        // an entry may just have made the database.
        self.condition.missing_databases.clear();
        self.condition.conflicts.clear();
        self.names = NamesWatch::default();
    }

    /// What is asked beside the poll: facts once for each connection, names when the sample speaks of
    /// somebody new, hashes also after the registry or the databases changed. What the server does not tell stays
    /// unknown; only a connection that broke over it is an error.
    async fn ask_aside(
        &mut self,
        connection: &mut Connection,
        sample: &Sample,
        facts_tried: &mut Option<Instant>,
    ) -> Result<(), PollError> {
        let is_due = facts_tried.is_none_or(|tried: Instant| tried.elapsed() >= ASIDE_RETRY);
        if connection.facts().version.is_none() && is_due {
            *facts_tried = Some(now());
            let asked = self.fetch_facts(connection).await;
            self.forgive(connection, asked, "cannot read the server's settings yet")?;
        }
        self.refresh_names(connection, sample).await?;
        if connection.are_statistics_due() {
            let asked = self.fetch_wait_statistics(connection).await;
            self.forgive(connection, asked, "cannot read the server's own count of waits")?;
        }
        let checks = self.fold.hash_checks();
        if connection.facts().version.is_some() && self.hashes_asked.as_ref() != Some(checks) {
            self.hashes_asked = Some(checks.clone());
            let asked = self.fetch_hash_mismatches(connection).await;
            self.forgive(connection, asked, "cannot compare hashes with the server's")?;
        }
        Ok(())
    }

    /// What failed beside a poll costs no poll, unless the connection broke over it.
    fn forgive(
        &self,
        connection: &Connection,
        asked: Result<(), PollError>,
        message: &str,
    ) -> Result<(), PollError> {
        match asked {
            Err(error) if connection.is_usable(&error) => {
                tracing::debug!(server = %self.server.name, %error, "{message}");
                Ok(())
            }
            outcome => outcome,
        }
    }

    async fn fetch_facts(&mut self, connection: &mut Connection) -> Result<(), PollError> {
        connection.fetch_facts().await?;
        let facts = connection.facts().clone();
        let before = std::mem::replace(&mut self.view.facts, facts).system_identifier;
        let cluster = &self.view.facts.system_identifier;
        if before.is_some() && cluster.is_some() && before != *cluster {
            tracing::warn!(
                server = %self.server.name,
                system_identifier = cluster.as_deref(),
                before = before.as_deref(),
                "another cluster answers under this name: when its keys were held before is not known"
            );
            self.fold.observe_other_cluster();
        }
        self.fold.observe_table_capacity(self.view.facts.table_capacity);
        self.recall();
        Ok(())
    }

    async fn fetch_wait_statistics(
        &mut self,
        connection: &mut Connection,
    ) -> Result<(), PollError> {
        self.view.wait_statistics = connection.fetch_wait_statistics().await?;
        Ok(())
    }

    /// Another cluster under the same name has another past.
    fn recall(&mut self) {
        let Some(cluster) = &self.view.facts.system_identifier else { return };
        let Some(recalled) = self.recalled.take() else { return };
        if recalled.system_identifier == *cluster {
            self.fold.restore(recalled.memory);
        } else {
            tracing::warn!(
                server = %self.server.name,
                system_identifier = &**cluster,
                remembered = &*recalled.system_identifier,
                "the state file is about another cluster under this name: nothing is taken over"
            );
        }
    }

    async fn fetch_hash_mismatches(
        &mut self,
        connection: &mut Connection,
    ) -> Result<(), PollError> {
        let mismatches = connection.fetch_hash_mismatches(self.fold.hash_checks()).await?;
        for (call, value) in &mismatches {
            tracing::error!(
                server = %self.server.name,
                %call,
                value,
                "the server computes another hash: its value is used in the names of its keys"
            );
        }
        self.view.hash_mismatches = Some(mismatches.len());
        self.fold.observe_server_hashes(mismatches);
        Ok(())
    }

    /// Reads names when the sample speaks of somebody new, and now and then. Somebody's lock on a
    /// catalog costs names, never a poll.
    async fn refresh_names(
        &mut self,
        connection: &mut Connection,
        sample: &Sample,
    ) -> Result<(), PollError> {
        let nameless = self.fold.nameless(sample);
        if !self.names.are_due(&nameless) {
            return Ok(());
        }
        match connection.fetch_names().await {
            Ok(names) => {
                self.fold.observe_names(names);
                self.log_missing_databases();
                // Who has no name even now was dropped; asking at every poll brings nothing.
                self.names.read(self.fold.nameless(sample));
                Ok(())
            }
            Err(error) if connection.is_usable(&error) => {
                if self.names.failed() {
                    tracing::warn!(
                        server = %self.server.name,
                        %error,
                        "cannot read the names of databases and roles; going on with what is known"
                    );
                }
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    fn publish_success(&mut self, sample: &Sample, duration: Duration, pooler: &PoolerWatch) {
        self.fold.observe_pooled_connection(pooler.proof.is_some());
        let picture = self.fold.observe(sample, 2 * self.view.polls.interval);
        self.log_recovery(&picture, pooler);
        let polls = &mut self.view.polls;
        polls.total += 1;
        polls.duration = Some(duration);
        polls.last_success = Some(sample.at_local);
        polls.interval = self.stretch.interval(self.rhythm);
        self.view.failure = None;
        self.view.pooled_connection = pooler.verdict();
        self.view.picture = Some(picture);
        self.publish();
        self.log_conflicts();
        self.log_notices();
    }

    fn publish_failure(&mut self, error: &PollError) {
        self.take_inspected();
        let reason = error.reason();
        self.log_outage(error, reason);
        let polls = &mut self.view.polls;
        polls.total += 1;
        *polls.failures.entry(reason).or_default() += 1;
        self.view.failure = Some(Failure { reason, text: error.to_string().into() });
        self.view.picture = None;
        self.publish();
    }

    fn publish(&mut self) {
        self.fold.fill(&mut self.view);
        self.published.send_replace(Arc::new(self.view.clone()));
    }

    /// Conflicts that show only when a key is looked up on the server.
    fn log_conflicts(&mut self) {
        for (series, registered) in self.view.registered.iter() {
            let resolution = &registered.resolution;
            if self.registry.is_news(resolution) && self.condition.conflicts.insert(series.clone())
            {
                let conflict = Conflict {
                    key: series.key.clone(),
                    databases: vec![series.datname.clone()],
                    candidates: resolution.candidates.clone(),
                };
                tracing::warn!(
                    server = %self.server.name,
                    %conflict,
                    "a key of the registry has several names; its label shows all"
                );
            }
        }
    }

    /// Findings, holds that last, and where it was asked for all that happens. What names persons and
    /// data (roles, addresses, gids, parameters) is for those who ask the server, not for a log.
    fn log_notices(&mut self) {
        let server = &self.server.name;
        for notice in self.fold.take_notices() {
            match notice {
                Notice::Lasts(hold) => tracing::info!(
                    %server,
                    datname = &*hold.label.datname,
                    lock = hold.label.resolution.lock.as_deref(),
                    key = %hold.key.key,
                    mode = hold.mode.as_str(),
                    pid = hold.party.id.pid().map(|pid| pid.0),
                    application_name = hold.party.session.application_name.as_deref(),
                    seen_for_seconds = hold.seen_for.as_secs_f64(),
                    "hold lasts"
                ),
                Notice::Happened(event) => log_event(server, &event),
                Notice::LeftOut(lines) => tracing::info!(
                    %server,
                    lines,
                    "left out lines about findings, holds and waits, of which there are too many"
                ),
            }
        }
    }

    fn log_missing_databases(&mut self) {
        let missing = self.fold.missing_databases();
        let new: Vec<&str> =
            missing.difference(&self.condition.missing_databases).map(|name| &**name).collect();
        if !new.is_empty() {
            tracing::warn!(
                server = %self.server.name,
                databases = new.iter().take(LISTED).copied().collect::<Vec<_>>().join(", "),
                count = new.len(),
                "the registry has entries for databases that the server does not have; they name \
                 nothing here"
            );
        }
        self.condition.missing_databases = missing;
    }

    fn log_outage(&mut self, error: &PollError, reason: FailureReason) {
        if self.condition.told.insert(Outage::of(error)) {
            tracing::warn!(
                server = %self.server.name,
                user = self.server.dsn.user(),
                database = self.server.dsn.database(),
                reason = reason.as_str(),
                %error,
                "cannot poll the server; trying again"
            );
        }
    }

    fn log_recovery(&mut self, picture: &Picture, pooler: &PoolerWatch) {
        let server = &self.server.name;
        let is_back = !self.condition.told.is_empty();
        self.condition.told.clear();
        if is_back || !std::mem::replace(&mut self.condition.was_up, true) {
            let version = self.view.facts.version.as_deref().unwrap_or("unknown");
            tracing::info!(%server, version, role = picture.role(), "polling the server");
        }
        let past_bound = self.fold.past_bound();
        if past_bound > std::mem::replace(&mut self.condition.past_bound, past_bound) {
            tracing::warn!(
                %server,
                keys = past_bound,
                "the registry has more keys than limits.registered_keys: these have no series of \
                 their own"
            );
        }
        let past_max_keys = self.fold.is_past_max_keys();
        if past_max_keys && !self.condition.past_max_keys {
            tracing::warn!(
                %server,
                "what databases told of the registry's values makes more keys than limits.values: \
                 some have no name"
            );
        }
        self.condition.past_max_keys = past_max_keys;
        let hidden = picture.privileges_sufficient == Some(false);
        if hidden && !self.condition.privileges_hidden {
            tracing::warn!(
                %server,
                "the state of other sessions is hidden: run {}",
                privilege::render_grants(self.server.dsn.user(), self.view.facts.version.as_deref())
            );
        }
        if picture.privileges_sufficient.is_some() {
            self.condition.privileges_hidden = hidden;
        }
        if let Some(proof) = pooler.proof
            && !std::mem::replace(&mut self.condition.pooled, true)
        {
            tracing::warn!(
                %server,
                proof,
                "our own connection goes through a pooler: connect to the server directly"
            );
        }
    }
}

/// Waits until the rules are others than those that were taken last.
async fn changed(rules: Option<&mut watch::Receiver<config::Rules>>) {
    let Some(rules) = rules else { return pending().await };
    if rules.changed().await.is_err() {
        // Nobody is left to change them: they stay as they are.
        pending().await
    }
}

fn log_event(server: &str, event: &Event) {
    let (mut from, mut outcome, mut length) = (None, None, Length::default());
    match &event.kind {
        EventKind::HoldBegan | EventKind::WaitBegan => {}
        EventKind::HoldEnded(lasted) => length = *lasted,
        EventKind::WaitEnded(how, lasted) => (outcome, length) = (Some(how.as_str()), *lasted),
        EventKind::HolderChanged { from: party } => from = Some(party),
        EventKind::FindingBegan { finding, at_first_poll } => {
            let first = at_first_poll.then_some(true);
            return log_finding(server, event, finding, first, &length);
        }
        EventKind::FindingEnded(finding, lasted) => {
            return log_finding(server, event, finding, None, lasted);
        }
    }
    let pid = |party: &Party| party.id.pid().map(|pid| pid.0);
    let name = |party: &Party| party.session.application_name.clone();
    let party = event.party.as_ref();
    tracing::info!(
        server,
        datname = &*event.datname,
        lock = event.lock(),
        key = %event.key,
        mode = event.mode.as_ref().map(|mode| mode.as_str()),
        pid = party.and_then(pid),
        application_name = party.and_then(name).as_deref(),
        from_pid = from.and_then(pid),
        from_application_name = from.and_then(name).as_deref(),
        outcome,
        seen_for_seconds = seconds(length.seen_for),
        at_least_seconds = seconds(length.at_least),
        at_most_seconds = seconds(length.at_most),
        "{}",
        event.kind.as_str().replace('_', " ")
    );
}

fn log_finding(
    server: &str,
    event: &Event,
    finding: &Finding,
    at_first_poll: Option<bool>,
    length: &Length,
) {
    tracing::info!(
        server,
        finding = finding.kind.as_str(),
        severity = finding.severity.as_str(),
        datname = &*event.datname,
        lock = event.lock(),
        key = %event.key,
        text = finding.render_text(false),
        at_first_poll,
        seen_for_seconds = seconds(length.seen_for),
        at_most_seconds = seconds(length.at_most),
        "{}",
        event.kind.as_str().replace('_', " ")
    );
}

fn seconds(duration: Option<Duration>) -> Option<f64> {
    duration.map(|duration| duration.as_secs_f64())
}

impl PoolerWatch {
    /// For a new connection.
    pub(crate) fn new() -> Self {
        Self { since: now(), pid: None, proof: None }
    }

    /// Looks for proof of a pooler in a sample that the connection fetched.
    pub(crate) fn observe(&mut self, sample: &Sample, opened_at: Timestamp) {
        let changed = self.pid.replace(sample.own_pid).map(|pid| pid != sample.own_pid);
        if self.proof.is_some() {
            return;
        }
        let own = sample.backends.iter().flatten().find(|backend| backend.pid == sample.own_pid);
        let is_older = || {
            own.and_then(|backend| backend.backend_start).is_some_and(|start| {
                let older = opened_at.since(sample.local(start));
                older > OLDER_BACKEND + sample.round_trip
            })
        };
        self.proof = if changed == Some(true) {
            Some("our backend changed under our connection")
        } else if changed.is_none() && is_older() {
            // Judged at the first poll only: later our clock may have been set back.
            Some("our backend is older than our connection")
        } else if sample.advisory.iter().any(|group| group.pid == Some(sample.own_pid)) {
            Some("our own backend holds an advisory lock, and we take none")
        } else {
            None
        };
    }

    /// Proved, or no sign of it for a while; `None` before.
    fn verdict(&self) -> Option<bool> {
        match self.proof {
            Some(_) => Some(true),
            None if self.since.elapsed() >= POOLER_GRACE => Some(false),
            None => None,
        }
    }
}

/// Our clock, for those who compare it with the moments of a view.
#[expect(clippy::disallowed_methods, reason = "an edge: here time enters")]
pub fn local_now() -> Timestamp {
    SystemTime::now().into()
}

#[expect(clippy::disallowed_methods, reason = "an edge: here time enters")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::{Backend, State};

    fn rhythm() -> config::Poll {
        config::Poll {
            interval: Duration::from_secs(1),
            timeout: Duration::from_secs(5),
            max_share: 0.02,
        }
    }

    /// A sample of nothing.
    fn sample() -> Sample {
        let at = Timestamp::from_unix_micros(0);
        Sample {
            at,
            at_local: at,
            round_trip: Duration::ZERO,
            read_at: at,
            own_pid: Pid(1),
            in_recovery: false,
            advisory: Vec::new(),
            other_locks: Vec::new(),
            backends: None,
            prepared: None,
            table_entries: None,
        }
    }

    /// What our own backend shows at the first poll: since when it lives, in seconds.
    fn own_backend(start: i64, round_trip: Duration) -> Sample {
        let at = Timestamp::from_unix_micros(100_000_000);
        let backend = Backend {
            pid: Pid(1),
            database: None,
            role: None,
            application_name: None,
            state: State::Active,
            state_change: None,
            wait_event: None,
            backend_start: Some(Timestamp::from_unix_micros(start * 1_000_000)),
            client_addr: None,
            client_port: None,
            snapshot_age: None,
            backend_type: None,
            leader: None,
        };
        Sample {
            at,
            at_local: at,
            read_at: at,
            round_trip,
            backends: Some(vec![backend]),
            ..sample()
        }
    }

    #[test]
    fn a_backend_older_than_our_connection_is_a_poolers() {
        let opened_at = Timestamp::from_unix_micros(99_000_000);
        let proof = |start, round_trip| {
            let mut pooler = PoolerWatch::new();
            pooler.observe(&own_backend(start, round_trip), opened_at);
            pooler.proof.is_some()
        };
        let quick = Duration::from_millis(1);
        assert!(proof(90, quick));
        assert!(!proof(99, quick));
        assert!(!proof(97, Duration::from_secs(2)), "our clock is no better known than that");
    }

    #[test]
    fn a_backend_that_changes_under_our_connection_is_a_poolers() {
        let mut pooler = PoolerWatch::new();
        pooler.observe(&sample(), Timestamp::from_unix_micros(0));
        assert_eq!((pooler.proof, pooler.verdict()), (None, None), "too early to say");
        let other = Sample { own_pid: Pid(2), ..sample() };
        pooler.observe(&other, Timestamp::from_unix_micros(0));
        assert_eq!(pooler.verdict(), Some(true));
    }

    #[test]
    fn the_interval_stretches_when_polls_keep_the_server_busy() {
        let mut stretch = Stretch::default();
        stretch.observe(Some(Duration::from_millis(100)));
        assert_eq!(stretch.interval(rhythm()), Duration::from_secs(5));
        stretch.observe(Some(Duration::from_millis(1)));
        assert_eq!(
            stretch.interval(rhythm()),
            Duration::from_secs(1),
            "never below what is configured"
        );
    }

    #[test]
    fn one_stall_among_quick_polls_does_not_stretch_the_interval() {
        let mut stretch = Stretch::default();
        for time in [1, 1, 2000, 1, 3000, 1] {
            stretch.observe(Some(Duration::from_millis(time)));
            assert_eq!(stretch.interval(rhythm()), Duration::from_secs(1), "{time} ms");
        }
    }

    #[test]
    fn the_interval_ends_at_its_bound_however_small_the_share() {
        let rhythm = config::Poll { max_share: 1e-300, ..rhythm() };
        let mut stretch = Stretch::default();
        stretch.observe(Some(Duration::from_secs(1)));
        assert_eq!(stretch.interval(rhythm), LONGEST_INTERVAL);
    }
}
