//! Asks the databases of one server what the registry wants to know of them: when, and what to keep
//! when no answer comes.
//!
//! A task of its own beside the poller, which it never delays. One connection at a time, to one
//! database, for all that is due there; a question is asked again after its `refresh`, or after a
//! back-off when it failed. A failure keeps the last good answer, counts, and is one line in the log
//! until it changes. What is asked and how is `postgres::inspection`'s business; the answers go out
//! on a watch channel. `Schedule` is the pure part, with time as an argument.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use crate::backoff::Backoff;
use crate::config;
use crate::inspected::{
    Answers, DEFAULT_REFRESH, Inspected, LastSuccess, Question, SHORTEST_REFRESH, Source, Wanted,
};
use crate::poller::local_now;
use crate::postgres::{Inspection, InspectionError, PollError};
use crate::reload::Loaded;
use crate::timestamp::Timestamp;

/// Between two connections, so that the server has seen the end of the first.
const PAUSE: Duration = Duration::from_secs(1);

/// Of a long list, a line of the log shows so many.
const LISTED: usize = 10;

/// Asks one server for as long as the process lives.
pub struct Inspector {
    server: config::Server,
    loaded: watch::Receiver<Loaded>,
    schedule: Schedule,
    answers: Arc<Answers>,
    published: watch::Sender<Arc<Inspected>>,
    /// Databases that were last said to be missing under `inspect`.
    told_forbidden: BTreeMap<Arc<str>, BTreeSet<Arc<str>>>,
}

impl Inspector {
    /// An inspector and the channel on which it publishes; nothing is asked before it runs. It asks
    /// for the registry in use, and goes on with the last one when nobody is left to change it.
    pub fn new(
        server: config::Server,
        loaded: watch::Receiver<Loaded>,
    ) -> (Self, watch::Receiver<Arc<Inspected>>) {
        let schedule = Schedule::new(server.inspect.clone());
        let (published, receiver) = watch::channel(Arc::default());
        let mut inspector = Self {
            server,
            loaded,
            schedule,
            answers: Arc::default(),
            published,
            told_forbidden: BTreeMap::new(),
        };
        inspector.take_wanted();
        (inspector, receiver)
    }

    /// Never returns.
    pub async fn run(mut self) -> std::convert::Infallible {
        loop {
            tokio::select! {
                () = changed(&mut self.loaded) => self.take_wanted(),
                () = until(self.schedule.next()) => {
                    if let Some((database, due)) = self.schedule.due(now()) {
                        self.visit(&database, &due).await;
                        sleep(PAUSE).await;
                    }
                }
            }
        }
    }

    fn take_wanted(&mut self) {
        // A copy, since a reader of the channel must not hold up its writer.
        let registry = self.loaded.borrow_and_update().registry.clone();
        self.schedule.want(&registry.wanted(&self.server.name), now());
        let mut answers = Answers::clone(&self.answers);
        answers.retain(
            |database, sql| self.schedule.wants_query(database, sql),
            |database, table| self.schedule.wants_table(database, table),
        );
        self.set_answers(answers);
        self.log_forbidden();
        self.publish();
    }

    /// Asks what is due in one database, over one connection.
    async fn visit(&mut self, database: &Arc<str>, due: &[Item]) {
        let mut log = VisitLog::default();
        match self.connect(database, due).await {
            Err(error) => {
                for item in due {
                    self.observe_failure(item, &error, &mut log);
                }
            }
            Ok(inspection) => {
                self.ask(&inspection, due, &mut log).await;
                inspection.close().await;
            }
        }
        log.write(&self.server.name, database);
        self.publish();
    }

    /// Waits for one connect, whatever it takes: one that hangs has a server process already. Tells
    /// meanwhile that there is none.
    async fn connect(
        &mut self,
        database: &Arc<str>,
        due: &[Item],
    ) -> Result<Inspection, InspectionError> {
        let dsn = self.server.dsn.clone();
        let mut connecting = std::pin::pin!(Inspection::connect(&dsn, database));
        let mut patience = dsn.connect_patience();
        loop {
            if let Ok(outcome) = timeout(patience, &mut connecting).await {
                return outcome;
            }
            let error = PollError::ConnectTimeout(patience).into();
            let mut log = VisitLog::default();
            for item in due {
                self.observe_failure(item, &error, &mut log);
            }
            log.write(&self.server.name, database);
            self.publish();
            patience = patience.max(SHORTEST_REFRESH);
        }
    }

    async fn ask(&mut self, inspection: &Inspection, due: &[Item], log: &mut VisitLog) {
        let mut due = due.iter();
        while let Some(item) = due.next() {
            let mut answers = Answers::clone(&self.answers);
            let answered = match item {
                Item::Values { database, sql } => inspection
                    .fetch_values(sql)
                    .await
                    .map(|values| answers.insert_values(database, sql, values)),
                Item::Tables { database } => inspection
                    .fetch_tables(&self.schedule.tables(database))
                    .await
                    .map(|tables| answers.replace_tables(database, tables)),
            };
            match answered {
                Ok(()) => {
                    self.set_answers(answers);
                    if self.schedule.observe_answer(item, now(), local_now()) {
                        log.mended.extend(self.schedule.locks_of(item));
                    }
                }
                Err(error) => {
                    self.observe_failure(item, &error, log);
                    if error.ends_connection() {
                        for item in due.by_ref() {
                            self.observe_failure(item, &error, log);
                        }
                    }
                }
            }
        }
    }

    fn observe_failure(&mut self, item: &Item, error: &InspectionError, log: &mut VisitLog) {
        let text = error.to_string();
        if self.schedule.observe_failure(item, &text, now(), rand::random()) {
            log.faults.entry(text).or_default().extend(self.schedule.locks_of(item));
        }
    }

    fn set_answers(&mut self, answers: Answers) {
        if answers != *self.answers {
            self.answers = Arc::new(answers);
        }
    }

    fn publish(&self) {
        let inspected =
            Inspected { answers: self.answers.clone(), sources: self.schedule.sources() };
        self.published.send_replace(Arc::new(inspected));
    }

    fn log_forbidden(&mut self) {
        let forbidden = self.schedule.forbidden.clone();
        if !forbidden.is_empty() && forbidden != self.told_forbidden {
            let locks: BTreeSet<&str> = forbidden.values().flatten().map(|lock| &**lock).collect();
            let databases: Vec<&str> = forbidden.keys().map(|name| &**name).collect();
            tracing::warn!(
                server = %self.server.name,
                locks = list(&locks),
                count = locks.len(),
                inspect = format!("[{}]", databases.join(", ")),
                "entries of the registry need to ask databases that are not listed under `inspect` \
                 of this server; they are not asked"
            );
        }
        self.told_forbidden = forbidden;
    }
}

/// What is to be said after a visit: the same fault of several entries in one line.
#[derive(Default)]
struct VisitLog {
    faults: BTreeMap<String, BTreeSet<Arc<str>>>,
    mended: BTreeSet<Arc<str>>,
}

impl VisitLog {
    fn write(&self, server: &str, database: &str) {
        for (error, locks) in &self.faults {
            tracing::warn!(
                server,
                database,
                locks = list(locks),
                error,
                "the database does not tell what the registry asks; going on with what is known"
            );
        }
        if !self.mended.is_empty() {
            let locks = list(&self.mended);
            tracing::info!(server, database, locks, "the database answers the registry again");
        }
    }
}

/// Presets alone ask without an entry of anybody's file.
fn list(names: &BTreeSet<impl AsRef<str>>) -> String {
    if names.is_empty() {
        return "(those of presets)".to_owned();
    }
    let listed: Vec<&str> = names.iter().take(LISTED).map(AsRef::as_ref).collect();
    listed.join(", ")
}

/// Something to ask a database, whoever wants to know.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Item {
    Tables { database: Arc<str> },
    Values { database: Arc<str>, sql: Arc<str> },
}

impl Item {
    fn database(&self) -> &Arc<str> {
        match self {
            Self::Tables { database } | Self::Values { database, .. } => database,
        }
    }
}

/// When to ask what, and how it went.
#[derive(Debug)]
struct Schedule {
    allowed: BTreeSet<Arc<str>>,
    items: BTreeMap<Item, Asked>,
    entries: BTreeMap<Arc<str>, Entry>,
    /// Databases that entries need and may not ask, with the entries.
    forbidden: BTreeMap<Arc<str>, BTreeSet<Arc<str>>>,
    backoff: Backoff,
}

/// An entry of the registry that wants something.
#[derive(Debug, Default)]
struct Entry {
    items: BTreeSet<Item>,
    failures: u64,
}

/// How it goes with one item.
#[derive(Debug)]
struct Asked {
    refresh: Duration,
    /// Of an item that asks for tables.
    tables: BTreeSet<Arc<str>>,
    /// When it was asked, or became wanted.
    since: Instant,
    progress: Progress,
    last_success: Option<Timestamp>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Progress {
    New,
    Answered,
    Failed { attempt: u32, pause: Duration, fault: String },
}

impl Asked {
    fn due(&self) -> Instant {
        self.since
            + match self.progress {
                Progress::New => Duration::ZERO,
                Progress::Answered => self.refresh,
                Progress::Failed { pause, .. } => pause,
            }
    }
}

impl Schedule {
    fn new(allowed: BTreeSet<Arc<str>>) -> Self {
        Self {
            allowed,
            items: BTreeMap::new(),
            entries: BTreeMap::new(),
            forbidden: BTreeMap::new(),
            backoff: Backoff::new(SHORTEST_REFRESH, DEFAULT_REFRESH).unwrap_or_default(),
        }
    }

    /// Takes a new list. What was on the old one keeps its time and its counts; what is new is due
    /// at once.
    fn want(&mut self, wanted: &[Wanted], now: Instant) {
        let mut items: BTreeMap<Item, Asked> = BTreeMap::new();
        let mut entries: BTreeMap<Arc<str>, Entry> = BTreeMap::new();
        self.forbidden.clear();
        for wanted in wanted {
            let mut entry = wanted.lock.as_ref().map(|lock| {
                let failures = self.entries.get(lock).map_or(0, |entry| entry.failures);
                let new = || Entry { failures, ..Entry::default() };
                entries.entry(lock.clone()).or_insert_with(new)
            });
            for database in wanted
                .database
                .as_ref()
                .map_or_else(|| self.allowed.iter().collect::<Vec<_>>(), |database| vec![database])
            {
                if !self.allowed.contains(database) {
                    if let Some(lock) = &wanted.lock {
                        self.forbidden.entry(database.clone()).or_default().insert(lock.clone());
                    }
                    continue;
                }
                let (item, refresh, tables) = match &wanted.question {
                    Question::Values { sql, refresh } => {
                        let item = Item::Values { database: database.clone(), sql: sql.clone() };
                        (item, (*refresh).max(SHORTEST_REFRESH), &[][..])
                    }
                    Question::Tables(tables) => {
                        let item = Item::Tables { database: database.clone() };
                        (item, DEFAULT_REFRESH, &tables[..])
                    }
                };
                if let Some(entry) = &mut entry {
                    entry.items.insert(item.clone());
                }
                let asked = items.entry(item).or_insert_with(|| Asked {
                    refresh,
                    tables: BTreeSet::new(),
                    since: now,
                    progress: Progress::New,
                    last_success: None,
                });
                asked.refresh = asked.refresh.min(refresh);
                asked.tables.extend(tables.iter().cloned());
            }
        }
        for (item, asked) in &mut items {
            let Some(before) = self.items.remove(item) else { continue };
            asked.last_success = before.last_success;
            if asked.tables.is_subset(&before.tables) {
                asked.since = before.since;
                asked.progress = before.progress;
            }
        }
        self.items = items;
        self.entries = entries;
    }

    /// When something is due.
    fn next(&self) -> Option<Instant> {
        self.items.values().map(Asked::due).min()
    }

    /// All that is due in the database that waits longest.
    fn due(&self, now: Instant) -> Option<(Arc<str>, Vec<Item>)> {
        let due = || self.items.iter().filter(|(_, asked)| asked.due() <= now);
        let (first, _) = due().min_by_key(|(_, asked)| asked.due())?;
        let database = first.database();
        let items = due().map(|(item, _)| item).filter(|item| item.database() == database);
        Some((database.clone(), items.cloned().collect()))
    }

    /// Whether it had failed before.
    fn observe_answer(&mut self, item: &Item, now: Instant, at: Timestamp) -> bool {
        let Some(asked) = self.items.get_mut(item) else { return false };
        asked.since = now;
        asked.last_success = Some(at);
        let before = std::mem::replace(&mut asked.progress, Progress::Answered);
        matches!(before, Progress::Failed { .. })
    }

    /// Whether it is news. `random` is drawn evenly from 0..1.
    fn observe_failure(&mut self, item: &Item, text: &str, now: Instant, random: f64) -> bool {
        let Some(asked) = self.items.get_mut(item) else { return false };
        for entry in self.entries.values_mut().filter(|entry| entry.items.contains(item)) {
            entry.failures += 1;
        }
        asked.since = now;
        let (attempt, is_news) = match &asked.progress {
            Progress::Failed { attempt, fault, .. } => (attempt.saturating_add(1), fault != text),
            Progress::New | Progress::Answered => (0, true),
        };
        let pause = self.backoff.delay(attempt, random);
        asked.progress = Progress::Failed { attempt, pause, fault: text.to_owned() };
        is_news
    }

    /// The entries that want an item.
    fn locks_of(&self, item: &Item) -> BTreeSet<Arc<str>> {
        let entries = self.entries.iter().filter(|(_, entry)| entry.items.contains(item));
        entries.map(|(lock, _)| lock.clone()).collect()
    }

    fn tables(&self, database: &Arc<str>) -> Vec<Arc<str>> {
        let asked = self.items.get(&Item::Tables { database: database.clone() });
        asked.map(|asked| asked.tables.iter().cloned().collect()).unwrap_or_default()
    }

    fn wants_query(&self, database: &Arc<str>, sql: &Arc<str>) -> bool {
        let item = Item::Values { database: database.clone(), sql: sql.clone() };
        self.items.contains_key(&item)
    }

    fn wants_table(&self, database: &Arc<str>, table: &Arc<str>) -> bool {
        let asked = self.items.get(&Item::Tables { database: database.clone() });
        asked.is_some_and(|asked| asked.tables.contains(table))
    }

    fn sources(&self) -> BTreeMap<Arc<str>, Source> {
        let source = |entry: &Entry| {
            let successes = entry
                .items
                .iter()
                .filter_map(|item| self.items.get(item))
                .map(|asked| asked.last_success.map_or(LastSuccess::Never, LastSuccess::At));
            let last_success = successes.min().unwrap_or(LastSuccess::NotAsked);
            Source { failures: entry.failures, last_success }
        };
        self.entries.iter().map(|(lock, entry)| (lock.clone(), source(entry))).collect()
    }
}

/// Ends when the registry was read again; never, when nobody is left to read it.
async fn changed(loaded: &mut watch::Receiver<Loaded>) {
    if loaded.changed().await.is_err() {
        std::future::pending().await
    }
}

async fn until(moment: Option<Instant>) {
    match moment {
        Some(moment) => sleep_until(moment).await,
        None => std::future::pending().await,
    }
}

#[expect(clippy::disallowed_methods, reason = "an edge: here time enters")]
fn now() -> Instant {
    Instant::now()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    fn values(lock: &str, database: &str, refresh: Duration) -> Wanted {
        let sql = format!("SELECT name FROM {lock}").into();
        let question = Question::Values { sql, refresh };
        Wanted { lock: Some(lock.into()), database: Some(database.into()), question }
    }

    fn tables(lock: Option<&str>, database: Option<&str>, names: &[&str]) -> Wanted {
        let names = names.iter().map(|name| (*name).into()).collect();
        let (lock, database) = (lock.map(Arc::from), database.map(Arc::from));
        Wanted { lock, database, question: Question::Tables(names) }
    }

    #[test]
    fn a_fault_of_what_only_presets_ask_says_so() {
        assert_eq!(list(&BTreeSet::<Arc<str>>::new()), "(those of presets)");
        assert_eq!(list(&BTreeSet::from(["b", "a"])), "a, b");
    }

    /// A schedule for databases `app` and `shop`, and its first moment.
    fn schedule(wanted: &[Wanted]) -> (Schedule, Instant) {
        let mut schedule = Schedule::new(["app".into(), "shop".into()].into());
        let start = now();
        schedule.want(wanted, start);
        (schedule, start)
    }

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_unix_micros(seconds * 1_000_000)
    }

    fn answer_all(schedule: &mut Schedule, now: Instant, at: Timestamp) -> Vec<String> {
        let mut visited = Vec::new();
        while let Some((database, due)) = schedule.due(now) {
            for item in &due {
                schedule.observe_answer(item, now, at);
            }
            visited.push(format!("{database} {}", due.len()));
        }
        visited
    }

    fn source(schedule: &Schedule, lock: &str) -> (u64, LastSuccess) {
        let source = schedule.sources()[lock];
        (source.failures, source.last_success)
    }

    #[test]
    fn what_is_new_is_asked_at_once_one_database_at_a_time() {
        let (mut schedule, start) = schedule(&[
            values("a", "app", MINUTE),
            values("b", "app", MINUTE),
            values("c", "shop", MINUTE),
            tables(None, None, &["public.x"]),
        ]);
        assert_eq!(schedule.next(), Some(start));
        assert_eq!(answer_all(&mut schedule, start, at(1)), ["app 3", "shop 2"]);
    }

    #[test]
    fn a_question_is_asked_again_after_its_refresh_and_no_sooner_than_a_minute() {
        let (mut schedule, start) =
            schedule(&[values("quick", "app", MINUTE / 60), values("slow", "app", 5 * MINUTE)]);
        answer_all(&mut schedule, start, at(0));
        assert_eq!(schedule.next(), Some(start + MINUTE));
        assert_eq!(schedule.due(start + MINUTE * 59 / 60), None);
        assert_eq!(answer_all(&mut schedule, start + MINUTE, at(60)), ["app 1"]);
        assert_eq!(answer_all(&mut schedule, start + 5 * MINUTE, at(300)), ["app 2"]);
    }

    #[test]
    fn a_failure_is_tried_again_later_each_time_and_never_within_a_minute() {
        let (mut schedule, mut now) = schedule(&[values("a", "app", MINUTE)]);
        let mut pauses = Vec::new();
        for _ in 0..6 {
            let (_, due) = schedule.due(now).unwrap();
            schedule.observe_failure(&due[0], "no", now, 0.0);
            let next = schedule.next().unwrap();
            pauses.push((next - now).as_secs());
            now = next;
        }
        assert_eq!(pauses, [60, 60, 120, 240, 300, 300]);
        let (_, due) = schedule.due(now).unwrap();
        schedule.observe_answer(&due[0], now, at(9));
        assert_eq!(schedule.next(), Some(now + MINUTE), "an answer ends the back-off");
    }

    #[test]
    fn a_fault_is_news_once_and_again_when_it_changes_or_comes_back() {
        let (mut schedule, start) = schedule(&[values("a", "app", MINUTE)]);
        let (_, due) = schedule.due(start).unwrap();
        let mut fails = |text| schedule.observe_failure(&due[0], text, start, 0.5);
        assert_eq!([fails("x"), fails("x"), fails("y"), fails("y")], [true, false, true, false]);
        assert!(schedule.observe_answer(&due[0], start, at(1)), "it had failed");
        assert!(!schedule.observe_answer(&due[0], start, at(1)));
        assert!(schedule.observe_failure(&due[0], "y", start, 0.5));
        assert_eq!(source(&schedule, "a"), (5, LastSuccess::At(at(1))), "all are counted");
    }

    #[test]
    fn every_entry_has_its_count_from_the_start() {
        let (mut schedule, start) = schedule(&[
            values("a", "app", MINUTE),
            values("elsewhere", "other", MINUTE),
            tables(Some("oid"), Some("app"), &["x"]),
        ]);
        assert_eq!(source(&schedule, "a"), (0, LastSuccess::Never));
        assert_eq!(source(&schedule, "elsewhere"), (0, LastSuccess::NotAsked));
        assert_eq!(source(&schedule, "oid"), (0, LastSuccess::Never));
        answer_all(&mut schedule, start, at(7));
        assert_eq!(source(&schedule, "oid"), (0, LastSuccess::At(at(7))));
    }

    #[test]
    fn an_entry_with_several_questions_is_as_old_as_its_oldest_answer() {
        let two = [values("a", "app", MINUTE), values("a", "shop", 3 * MINUTE)];
        let (mut schedule, start) = schedule(&two);
        answer_all(&mut schedule, start, at(0));
        answer_all(&mut schedule, start + MINUTE, at(60));
        assert_eq!(source(&schedule, "a"), (0, LastSuccess::At(at(0))));
    }

    #[test]
    fn a_query_that_several_entries_share_is_asked_once_and_fails_for_all() {
        let shared =
            |lock: &str, refresh| Wanted { lock: Some(lock.into()), ..values("t", "app", refresh) };
        let (mut schedule, start) = schedule(&[shared("a", 5 * MINUTE), shared("b", 2 * MINUTE)]);
        let (_, due) = schedule.due(start).unwrap();
        assert_eq!(due.len(), 1);
        schedule.observe_failure(&due[0], "no", start, 0.0);
        assert_eq!((source(&schedule, "a").0, source(&schedule, "b").0), (1, 1));
        schedule.observe_answer(&due[0], start, at(0));
        assert_eq!(
            schedule.next(),
            Some(start + 2 * MINUTE),
            "as often as the one in more of a hurry"
        );
    }

    #[test]
    fn a_database_that_is_not_allowed_is_not_asked_and_told_with_its_entries() {
        let (schedule, _) = schedule(&[
            values("a", "other", MINUTE),
            tables(Some("b"), Some("other"), &["x"]),
            tables(None, Some("third"), &["x"]),
        ]);
        assert_eq!(schedule.next(), None);
        let told: Vec<_> =
            schedule.forbidden.iter().map(|(db, locks)| (&**db, list(locks))).collect();
        assert_eq!(told, [("other", "a, b".to_owned())], "a preset asks for no permission");
    }

    #[test]
    fn a_new_list_keeps_time_and_counts_of_what_was_on_the_old_one() {
        let (mut schedule, start) =
            schedule(&[values("a", "app", 5 * MINUTE), values("gone", "app", MINUTE)]);
        let (_, due) = schedule.due(start).unwrap();
        schedule.observe_failure(&due[0], "no", start, 0.0);
        answer_all(&mut schedule, start + MINUTE, at(60));
        let later = start + 2 * MINUTE;
        schedule.want(&[values("new", "app", MINUTE), values("a", "app", 2 * MINUTE)], later);
        assert_eq!(source(&schedule, "a"), (1, LastSuccess::At(at(60))));
        assert_eq!(schedule.sources().len(), 2, "what nobody wants is gone");
        assert_eq!(answer_all(&mut schedule, later, at(120)), ["app 1"], "only the new one");
        assert_eq!(answer_all(&mut schedule, later + MINUTE, at(180)), ["app 2"]);
    }

    #[test]
    fn a_new_table_is_looked_up_at_once_and_one_less_is_no_reason_to_ask() {
        let (mut schedule, start) = schedule(&[tables(None, None, &["x", "y"])]);
        answer_all(&mut schedule, start, at(0));
        let later = start + MINUTE / 2;
        schedule.want(&[tables(None, None, &["x"])], later);
        assert_eq!(schedule.due(later), None);
        schedule.want(&[tables(None, None, &["x"]), tables(None, Some("app"), &["z"])], later);
        assert_eq!(answer_all(&mut schedule, later, at(30)), ["app 1"]);
        assert_eq!(schedule.tables(&"app".into()), ["x".into(), "z".into()] as [Arc<str>; 2]);
    }
}
