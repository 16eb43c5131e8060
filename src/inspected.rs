//! What the registry wants to know of databases, and what they answered. Plain values.
//!
//! The registry makes [`Wanted`] of its entries; the inspector asks and publishes [`Inspected`],
//! which the fold hands on to the names it gives and the view to the metrics. Neither side knows
//! the other, and nobody here reads a clock or a socket.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use crate::timestamp::Timestamp;

/// How often a question is asked unless its entry says otherwise, and always for tables.
pub const DEFAULT_REFRESH: Duration = Duration::from_secs(600);

/// No question is asked more often than this.
pub const SHORTEST_REFRESH: Duration = Duration::from_secs(60);

/// Something that an entry of the registry needs from a database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// The entry, by its name, under which failures are counted; `None` for a preset, which nobody
    /// wrote and nobody misses.
    pub lock: Option<Arc<str>>,
    /// The database to ask; `None` for each that the server's entry lists under `inspect`.
    pub database: Option<Arc<str>>,
    /// What to ask.
    pub question: Question,
}

/// What to ask a database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Question {
    /// The values of a placeholder: one column of text.
    Values {
        /// The query, as written in the registry.
        sql: Arc<str>,
        /// How often; at least [`SHORTEST_REFRESH`] is kept.
        refresh: Duration,
    },
    /// Whether these tables exist, and their OIDs. Names as SQL writes them, `schema.table` or
    /// found through the role's search path.
    Tables(Vec<Arc<str>>),
}

/// All that the databases of one server told, and how asking them goes.
#[derive(Clone, Debug, Default)]
pub struct Inspected {
    /// The last good answers. The same `Arc` as before while they are the same.
    pub answers: Arc<Answers>,
    /// How it goes, for each entry that wants something.
    pub sources: BTreeMap<Arc<str>, Source>,
}

/// How asking on behalf of one entry goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Source {
    /// Answers that did not come, or were refused.
    pub failures: u64,
    /// The last good answer; of several questions that of the one answered longest ago.
    pub last_success: LastSuccess,
}

/// When a question was last answered, in the order of what is to be told of several: the smallest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LastSuccess {
    /// It was not answered yet.
    Never,
    /// It was, on our clock.
    At(Timestamp),
    /// It is not asked here: the database is not under `inspect`.
    NotAsked,
}

impl Source {
    /// Both as one: what is told of an entry that several servers are asked for.
    pub fn combine(self, other: Self) -> Self {
        Self {
            failures: self.failures + other.failures,
            last_success: self.last_success.min(other.last_success),
        }
    }
}

/// The last good answers of a server's databases. What is not in it is not known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answers(HashMap<Arc<str>, DatabaseAnswers>);

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct DatabaseAnswers {
    values: HashMap<Arc<str>, Arc<[Arc<str>]>>,
    tables: HashMap<Arc<str>, Option<u32>>,
}

impl Answers {
    /// What a query gave: sorted, each value once.
    pub fn values(&self, database: &str, sql: &str) -> Option<&Arc<[Arc<str>]>> {
        self.0.get(database)?.values.get(sql)
    }

    /// Whether a table exists, by the name under which it was asked for.
    pub fn has_table(&self, database: &str, table: &str) -> Option<bool> {
        self.0.get(database)?.tables.get(table).map(Option::is_some)
    }

    /// The OID of a table that exists.
    pub fn table_oid(&self, database: &str, table: &str) -> Option<u32> {
        self.0.get(database)?.tables.get(table).copied().flatten()
    }

    /// Puts in what a query gave.
    pub fn insert_values(&mut self, database: &Arc<str>, sql: &Arc<str>, values: Vec<Arc<str>>) {
        self.0.entry(database.clone()).or_default().values.insert(sql.clone(), values.into());
    }

    /// Puts in which tables a database has, in the place of all it said before.
    pub fn replace_tables(
        &mut self,
        database: &Arc<str>,
        tables: impl IntoIterator<Item = (Arc<str>, Option<u32>)>,
    ) {
        self.0.entry(database.clone()).or_default().tables = tables.into_iter().collect();
    }

    /// Drops answers to what is not asked any more, told by database and query, or by database and
    /// table.
    pub fn retain(
        &mut self,
        mut is_query_wanted: impl FnMut(&Arc<str>, &Arc<str>) -> bool,
        mut is_table_wanted: impl FnMut(&Arc<str>, &Arc<str>) -> bool,
    ) {
        self.0.retain(|database, answers| {
            answers.values.retain(|sql, _| is_query_wanted(database, sql));
            answers.tables.retain(|table, _| is_table_wanted(database, table));
            !answers.values.is_empty() || !answers.tables.is_empty()
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_several_sources_failures_add_up_and_the_oldest_answer_counts() {
        let at = |seconds: i64| LastSuccess::At(Timestamp::from_unix_micros(seconds * 1_000_000));
        let source = |failures, last_success| Source { failures, last_success };
        let combined = source(1, at(20)).combine(source(2, at(10)));
        assert_eq!(combined, source(3, at(10)));
        let with_idle = combined.combine(source(0, LastSuccess::NotAsked));
        assert_eq!(with_idle, combined, "who is not asked has no say");
        let with_new = combined.combine(source(1, LastSuccess::Never));
        assert_eq!(
            with_new,
            source(4, LastSuccess::Never),
            "one that never answered is the oldest"
        );
    }

    #[test]
    fn a_table_is_there_or_not_or_unknown() {
        let mut answers = Answers::default();
        let app: Arc<str> = "app".into();
        answers.replace_tables(&app, [("a".into(), Some(7)), ("b".into(), None)]);
        let told = ["a", "b", "c"]
            .map(|table| (answers.has_table("app", table), answers.table_oid("app", table)));
        assert_eq!(told, [(Some(true), Some(7)), (Some(false), None), (None, None)]);
        assert_eq!(answers.has_table("other", "a"), None);
    }
}
