//! The one lasting connection to a server, and what is read through it.
//!
//! A poll is one write and one round trip: the transaction's begin, the lock table, activity and
//! the end are queued before the first answer is awaited. `query_typed` leaves no named statement
//! on the server, which matters behind a pooler. The exporter writes nothing and takes no
//! advisory lock. Decoding is in [`row`](super::row); what a sample means is decided elsewhere.

use std::collections::HashMap;
use std::error::Error;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use futures_util::future::OptionFuture;
use futures_util::join;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};
use tokio_postgres::error::{DbError, Severity, SqlState};
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Row, SimpleQueryMessage};

use super::connect::{Canceller, ConnectError, Connected, connect};
use super::dsn::{Dsn, DsnError};
use super::row::{self, Text};
use crate::registry::{HashCall, HashCheck, HashFunction};
use crate::sample::{
    DatabaseName, DatabaseOid, Facts, FailureReason, Names, Pid, RoleOid, Sample, WaitStatistics,
};
use crate::timestamp::Timestamp;

/// How much longer than the server's own limit we wait for its word: a limit that fires there
/// leaves the connection usable, one that fires here costs it.
const GRACE: Duration = Duration::from_millis(500);

/// The patience of what is read beside the poll: with somebody's lock on a catalog, and in all.
const ASIDE_LOCK_TIMEOUT: Duration = Duration::from_millis(100);
const ASIDE_LIMIT: Duration = Duration::from_secs(1);

/// How a transaction of ours begins. The isolation level is spelled out, since a server's default of
/// `serializable` would make the poll fail on a standby or wait. So is where functions and operators
/// are looked for: any user may have made one in a schema that the role searches, and would have it
/// run with our rights. `no_function_of_a_user_is_ever_called` pins it.
const BEGIN: &str = "BEGIN ISOLATION LEVEL READ COMMITTED READ ONLY; \
     SET LOCAL search_path = pg_catalog, pg_temp; ";

/// What the server sends is what it has.
const RAW_TEXT: &str = "SET LOCAL client_encoding = 'SQL_ASCII'; ";

/// The lock table's entries are counted at every so many polls.
const ENTRIES_EVERY: u64 = 15;

/// The server's own count of waits is read after every so many polls.
const STATISTICS_EVERY: u64 = 15;

const ACTIVITY_SQL: &str = include_str!("activity.sql");
const PREPARED_SQL: &str = include_str!("prepared.sql");
const ENTRIES_SQL: &str = include_str!("entries.sql");
const FACTS_SQL: &str = include_str!("facts.sql");
const STATISTICS_SQL: &str = include_str!("statistics.sql");

/// A connection that polls.
pub struct Connection {
    client: Client,
    driver: JoinHandle<Result<(), tokio_postgres::Error>>,
    canceller: Canceller,
    /// Names are read in the bytes they have, unconverted. They may have been made in a database of
    /// another encoding, and one that the server cannot convert fails the whole statement.
    reads_raw: bool,
    /// `locks.sql`, or its form for a server without `waitstart`.
    locks_sql: String,
    /// `SET LOCAL …` of every poll.
    settings: Settings,
    facts: Facts,
    is_utf8: bool,
    polls: u64,
    busy: Option<Duration>,
    awaited_relations: Vec<u32>,
    opened_at: Timestamp,
    /// The server has `pg_stat_lock`; `None` until it was asked.
    counts_waits: Option<bool>,
}

#[derive(Debug)]
struct Settings {
    statement_timeout: bool,
    lock_timeout: bool,
    work_mem: bool,
    jit: bool,
}

/// What stood between us and a sample.
#[derive(Debug, thiserror::Error)]
pub enum PollError {
    /// The connection string cannot be used (a password file that cannot be read).
    #[error("{}", render_chain(.0))]
    Dsn(#[from] DsnError),
    /// No connection: nobody answers, nobody who can be trusted, or the login was refused.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The server or the driver refused a statement.
    #[error("{}", render_chain(.0))]
    Postgres(#[from] tokio_postgres::Error),
    /// No connection in time.
    #[error("no connection within {0:?}")]
    ConnectTimeout(Duration),
    /// No answer in time, not even the server's own time-out.
    #[error("no answer within {0:?}")]
    PollTimeout(Duration),
    /// The answer was not what the question asks for.
    #[error(
        "the server answered the poll with something else: is this the admin console of a pooler?"
    )]
    Answer,
}

impl PollError {
    /// Its place in the fixed list.
    pub fn reason(&self) -> FailureReason {
        match self {
            Self::Dsn(_) => FailureReason::Login,
            Self::Connect(error) if error.is_unreachable() => FailureReason::Unreachable,
            Self::Connect(error) => {
                error.server_error().map_or(FailureReason::Login, |said| reason_of(said.code()))
            }
            Self::ConnectTimeout(_) => FailureReason::Unreachable,
            Self::PollTimeout(_) => FailureReason::Timeout,
            Self::Postgres(error) if error.is_closed() || is_io(error) => {
                FailureReason::ConnectionLost
            }
            Self::Postgres(error) => error.code().map_or(FailureReason::Error, reason_of),
            Self::Answer => FailureReason::Error,
        }
    }
}

/// By what the server said.
fn reason_of(code: &SqlState) -> FailureReason {
    // Class 28 is a refused login; 57P01 to 57P05 are a server that goes, went, is not up yet, or
    // ends a session.
    match code.code() {
        code if code.starts_with("28") => FailureReason::Login,
        "3D000" => FailureReason::Login,
        "53300" => FailureReason::TooManyConnections,
        code if code.starts_with("53") => FailureReason::OutOfMemory,
        "57014" | "55P03" => FailureReason::Timeout,
        "57P01" | "57P02" | "57P05" => FailureReason::ConnectionLost,
        "57P03" => FailureReason::Unreachable,
        _ => FailureReason::Error,
    }
}

fn is_io(error: &tokio_postgres::Error) -> bool {
    error.source().is_some_and(|source| source.is::<std::io::Error>())
}

/// Errors here do not print their causes; without them all one sees is "db error".
pub(super) fn render_chain(error: &dyn Error) -> String {
    let mut cause = error.source();
    // Of a server's error the driver prints no more than that it is one.
    let mut text = match (error.to_string(), cause) {
        (text, Some(inner)) if text == "db error" => {
            cause = inner.source();
            inner.to_string()
        }
        (text, _) => text,
    };
    while let Some(error) = cause {
        let next = error.to_string();
        if !text.contains(&next) {
            text.push_str(": ");
            text.push_str(&next);
        }
        cause = error.source();
    }
    if text.contains("unsupported startup parameter") {
        text.push_str("; this is a pooler: connect to the server itself");
    }
    text
}

impl Connection {
    /// Connects, however long that takes. A connect that hangs (behind somebody's lock on a catalog,
    /// say) has a server process already, and a second one beside it would be no quicker: whoever
    /// calls should go on waiting for the first.
    pub async fn connect(dsn: &Dsn) -> Result<Self, PollError> {
        let opened_at = local_now();
        let Connected { client, driver, canceller, parameters } = connect(dsn).await?;
        let version = parameters.get("server_version").unwrap_or_default();
        let server_encoding = parameters.get("server_encoding");
        let is_utf8 = server_encoding == Some("UTF8");
        let reads_raw = is_utf8 || server_encoding == Some("SQL_ASCII");
        Ok(Self {
            client,
            driver: tokio::spawn(driver),
            canceller,
            reads_raw,
            locks_sql: locks_sql(version),
            settings: Settings {
                statement_timeout: true,
                lock_timeout: true,
                work_mem: true,
                jit: true,
            },
            facts: Facts::default(),
            is_utf8,
            polls: 0,
            busy: None,
            awaited_relations: Vec::new(),
            opened_at,
            counts_waits: None,
        })
    }

    /// When we began to connect, on our clock. A backend that is older was not started for us.
    pub fn opened_at(&self) -> Timestamp {
        self.opened_at
    }

    /// For how long the last poll kept the server busy with the lock table, a repetition included,
    /// whether or not a sample came of it. By the server's own clock, so that a slow network, a busy
    /// exporter or a wait for somebody's catalog lock does not count. `None` where nothing is known.
    /// The count of entries, another pass at every 15th poll, is left out.
    pub fn busy(&self) -> Option<Duration> {
        self.busy
    }

    /// What is known so far of the server behind this connection.
    pub fn facts(&self) -> &Facts {
        &self.facts
    }

    /// One poll, in one round trip. When somebody waits for a relation nobody waited for before,
    /// the poll is repeated at once, since its holders were not asked for; what is returned is one
    /// poll, not a mixture.
    ///
    /// After an error, [`Connection::is_usable`] says whether to go on with this connection.
    pub async fn fetch_sample(&mut self, limit: Duration) -> Result<Sample, PollError> {
        self.busy = None;
        let sample = self.fetch_once(limit).await?;
        let mut awaited: Vec<u32> = sample
            .other_locks
            .iter()
            .filter(|row| !row.granted && &*row.tag.locktype == "relation")
            .filter_map(|row| row.tag.relation)
            .collect();
        awaited.sort_unstable();
        awaited.dedup();
        let is_new = awaited.iter().any(|relation| !self.awaited_relations.contains(relation));
        self.awaited_relations = awaited;
        if !is_new {
            return Ok(sample);
        }
        let again = self.fetch_once(limit).await?;
        Ok(Sample { table_entries: again.table_entries.or(sample.table_entries), ..again })
    }

    async fn fetch_once(&mut self, limit: Duration) -> Result<Sample, PollError> {
        match self.try_fetch_once(limit).await {
            Err(PollError::Postgres(error)) if error.is_closed() => {
                Err(PollError::Postgres(self.parting_words().await.unwrap_or(error)))
            }
            answer => answer,
        }
    }

    /// What the server said last: why it ended the connection.
    async fn parting_words(&mut self) -> Option<tokio_postgres::Error> {
        timeout(GRACE, &mut self.driver).await.ok()?.ok()?.err()
    }

    async fn try_fetch_once(&mut self, limit: Duration) -> Result<Sample, PollError> {
        let count_entries = self.polls.is_multiple_of(ENTRIES_EVERY);
        self.polls += 1;
        let read_prepared = self.facts.prepared_transactions_allowed != Some(false);
        let reads_raw = read_prepared && self.reads_raw;
        let begin = self.settings.render_begin(limit, reads_raw);
        let client = &self.client;
        let relations: [(&(dyn ToSql + Sync), Type); 1] =
            [(&self.awaited_relations, Type::OID_ARRAY)];
        let sent_at = local_now();
        let sent = now();
        let begin = async {
            let answer = client.simple_query(&begin).await;
            (answer, sent.elapsed())
        };
        let read_locks = async {
            let rows = client.query_typed(&self.locks_sql, &relations).await;
            (rows, sent.elapsed())
        };
        let answers = async {
            // Each future queues its message when it is first polled, and `join!` polls them in
            // this order before any answer can come: one write.
            join!(
                begin,
                read_locks,
                client.query_typed(without_comments(ACTIVITY_SQL), &[]),
                OptionFuture::from(
                    read_prepared.then(|| client.query_typed(without_comments(PREPARED_SQL), &[]))
                ),
                OptionFuture::from(
                    count_entries.then(|| client.query_typed(without_comments(ENTRIES_SQL), &[]))
                ),
                client.simple_query("COMMIT"),
            )
        };
        // The server's limit is for each statement: the lock table may take nearly all of its own
        // and activity still run into it, and then the locks are worth waiting for.
        let ((begun, round_trip), (locks, until_read), activity, prepared, entries, ended) =
            self.within(2 * limit, answers).await?;
        let begun = match begun {
            Err(error) if is_of_console(&error) => return Err(PollError::Answer),
            begun => decode_begin(&begun?)?,
        };
        // It read until the server stopped it. One that waited was stopped sooner, by `lock_timeout`.
        if locks.as_ref().is_err_and(|error| error.code() == Some(&SqlState::QUERY_CANCELED)) {
            self.add_busy(until_read.min(limit));
        }
        let (advisory, other_locks) = row::decode_locks(&locks?)?;
        // From here on the lock table is safe. What the server could not tell in time is unknown;
        // a connection that broke meanwhile is a failed poll.
        let (activity_began, backends) = known(activity)?
            .map(|rows| row::decode_activity(&rows))
            .transpose()?
            .map_or((None, None), |(began, backends)| (began, Some(backends)));
        let prepared = match prepared {
            Some(answer) => known(self.converted(answer))?
                .map(|rows| rows.iter().map(row::decode_prepared).collect::<Result<Vec<_>, _>>())
                .transpose()?,
            None => Some(Vec::new()),
        };
        let table_entries = match entries {
            Some(answer) => known(answer)?
                .and_then(|rows| rows.first().and_then(|row| row.try_get::<_, i64>(0).ok()))
                .and_then(|count| u64::try_from(count).ok()),
            None => None,
        };
        known(ended)?;
        // The server says it with activity. Without that, the answer came later than the table was
        // read, and the time since before the poll's own moment is a bound.
        let read_at = activity_began.unwrap_or_else(|| begun.at.after(until_read));
        self.add_busy(read_at.since(begun.at));
        Ok(Sample {
            at: begun.at,
            // Somewhere within the first round trip; its middle is off by half of it at most.
            at_local: sent_at.after(round_trip / 2),
            round_trip,
            read_at,
            own_pid: begun.own_pid,
            in_recovery: begun.in_recovery,
            advisory,
            other_locks,
            backends,
            prepared,
            table_entries,
        })
    }

    fn add_busy(&mut self, time: Duration) {
        self.busy = Some(self.busy.unwrap_or_default() + time);
    }

    /// Reads [`Facts`]. Not part of a poll: a failure leaves them unknown.
    pub async fn fetch_facts(&mut self) -> Result<(), PollError> {
        let query = self.client.query_typed(without_comments(FACTS_SQL), &[]);
        // No limit of the server's for the statement: the answer tells whose such a limit is, and it
        // would be ours.
        let rows = self.ask_within("", query).await??;
        let row = rows.first().ok_or(PollError::Answer)?;
        self.facts = Facts {
            version: Some(row.try_get::<_, &str>(0)?.into()),
            table_capacity: u64::try_from(row.try_get::<_, i64>(1)?).ok(),
            prepared_transactions_allowed: Some(row.try_get::<_, i64>(2)? > 0),
            system_identifier: row.try_get::<_, Option<&str>>(3)?.map(Arc::from),
            keepalive_after: u64::try_from(row.try_get::<_, i64>(5)?)
                .ok()
                .filter(|seconds| *seconds > 0)
                .map(Duration::from_secs),
            started_at: Some(Timestamp::from_unix_micros(row.try_get(6)?)),
        };
        let brought: Vec<&str> = row.try_get(4)?;
        self.settings = Settings {
            statement_timeout: !brought.contains(&"statement_timeout"),
            lock_timeout: !brought.contains(&"lock_timeout"),
            work_mem: !brought.contains(&"work_mem"),
            jit: !brought.contains(&"jit"),
        };
        Ok(())
    }

    /// Reads [`Names`].
    pub async fn fetch_names(&mut self) -> Result<Names, PollError> {
        let queries = async {
            join!(
                self.client.query_typed(
                    "SELECT oid, datname, pg_encoding_to_char(encoding) FROM pg_database",
                    &[]
                ),
                self.client.query_typed("SELECT oid, rolname FROM pg_roles", &[]),
            )
        };
        let raw = if self.reads_raw { RAW_TEXT } else { "" };
        let limit = format!("{raw}{}", aside_limit());
        let (databases, roles) = self.ask_within(&limit, queries).await?;
        let mut names = Names::default();
        for row in self.converted(databases)? {
            let name = DatabaseName {
                name: row.try_get::<_, Text>(1)?.0,
                encoding: row.try_get::<_, &str>(2)?.into(),
            };
            names.databases.insert(DatabaseOid(row.try_get(0)?), name);
        }
        for row in self.converted(roles)? {
            names.roles.insert(RoleOid(row.try_get(0)?), row.try_get::<_, Text>(1)?.0);
        }
        Ok(names)
    }

    /// Whether it is time for [`Connection::fetch_wait_statistics`], after the last poll.
    pub fn are_statistics_due(&self) -> bool {
        self.counts_waits != Some(false) && self.polls % STATISTICS_EVERY == 1
    }

    /// Reads [`WaitStatistics`]; `None` where the server has none. By what there is, not by version:
    /// only a superuser can put a view where it is looked for.
    pub async fn fetch_wait_statistics(&mut self) -> Result<Option<WaitStatistics>, PollError> {
        if self.counts_waits.is_none() {
            let sql = "SELECT to_regclass('pg_catalog.pg_stat_lock') IS NOT NULL";
            let rows = self.ask(self.client.query_typed(sql, &[])).await??;
            self.counts_waits = rows.first().map(|row| row.try_get(0)).transpose()?;
        }
        if self.counts_waits != Some(true) {
            return Ok(None);
        }
        let query = self.client.query_typed(without_comments(STATISTICS_SQL), &[]);
        let rows = self.ask(query).await??;
        let Some(row) = rows.first() else { return Ok(None) };
        let waits = row.try_get::<_, Option<i64>>(0)?.and_then(|waits| u64::try_from(waits).ok());
        let millis: Option<f64> = row.try_get(1)?;
        Ok(waits
            .zip(millis)
            .map(|(waits, millis)| WaitStatistics { waits, wait_seconds: millis / 1000.0 }))
    }

    /// Asks the server for the hashes the registry has computed; returns those that
    /// differ, with the server's value. Meant for one call after connecting or loading a registry.
    pub async fn fetch_hash_mismatches(
        &self,
        checks: &[HashCheck],
    ) -> Result<HashMap<HashCall, i64>, PollError> {
        let mut mismatches = HashMap::new();
        for function in [HashFunction::Hashtext, HashFunction::Hashtextextended] {
            // Text is sent in UTF-8 and hashed in the bytes of the connected database.
            let comparable = |check: &&HashCheck| self.is_utf8 || check.call.is_ascii();
            let ours: Vec<&HashCheck> = checks
                .iter()
                .filter(|check| check.call.function == function)
                .filter(comparable)
                .collect();
            if ours.is_empty() {
                continue;
            }
            let texts: Vec<&str> = ours.iter().map(|check| &*check.call.text).collect();
            let seeds: Vec<i64> = ours.iter().map(|check| check.call.seed).collect();
            let sql = match function {
                HashFunction::Hashtext => {
                    "SELECT hashtext(t)::int8 FROM unnest($1, $2) WITH ORDINALITY AS v(t, s, n) ORDER BY n"
                }
                HashFunction::Hashtextextended => {
                    "SELECT hashtextextended(t, s) FROM unnest($1, $2) WITH ORDINALITY AS v(t, s, n) ORDER BY n"
                }
            };
            let parameters: [(&(dyn ToSql + Sync), Type); 2] =
                [(&texts, Type::TEXT_ARRAY), (&seeds, Type::INT8_ARRAY)];
            let rows = self.ask(self.client.query_typed(sql, &parameters)).await??;
            for (check, row) in ours.into_iter().zip(rows) {
                let value = row.try_get::<_, i64>(0)?;
                if value != check.value {
                    mismatches.insert(check.call.clone(), value);
                }
            }
        }
        Ok(mismatches)
    }

    /// Statements beside the poll, in a transaction of their own and with little patience: what
    /// they read may stand behind somebody's lock on a catalog, and is not worth a poll.
    async fn ask<T>(&self, statements: impl Future<Output = T>) -> Result<T, PollError> {
        self.ask_within(&aside_limit(), statements).await
    }

    /// Remembers for the next time that this server cannot convert what it has.
    fn converted<T>(
        &mut self,
        answer: Result<T, tokio_postgres::Error>,
    ) -> Result<T, tokio_postgres::Error> {
        self.reads_raw |= answer.as_ref().is_err_and(is_conversion);
        answer
    }

    /// A statement without parameters, for [`Connection::ask_within`].
    pub(super) async fn query(&self, sql: &str) -> Result<Vec<Row>, tokio_postgres::Error> {
        self.client.query_typed(sql, &[]).await
    }

    pub(super) async fn ask_within<T>(
        &self,
        limit: &str,
        statements: impl Future<Output = T>,
    ) -> Result<T, PollError> {
        let begin =
            format!("{BEGIN}SET LOCAL lock_timeout = {}; {limit}", ASIDE_LOCK_TIMEOUT.as_millis(),);
        let answers = async {
            join!(
                self.client.batch_execute(&begin),
                statements,
                self.client.batch_execute("COMMIT")
            )
        };
        let (begun, answer, _) = self.within(2 * ASIDE_LIMIT, answers).await?;
        begun?;
        Ok(answer)
    }

    /// Answers in time, or a time-out after which the connection is of no more use: the server is
    /// told that nobody waits any more. Dropping the query alone would leave it running, and the
    /// next connection would make it two.
    async fn within<T>(
        &self,
        limit: Duration,
        answers: impl Future<Output = T>,
    ) -> Result<T, PollError> {
        let patience = limit + GRACE;
        if let Ok(answers) = timeout(patience, answers).await {
            return Ok(answers);
        }
        let canceller = self.canceller.clone();
        tokio::spawn(async move { canceller.cancel().await });
        Err(PollError::PollTimeout(patience))
    }

    /// Whether a connection that gave this error can poll on. One that did not answer in time
    /// cannot: its answer may still come, and would be taken for the next one's.
    pub fn is_usable(&self, error: &PollError) -> bool {
        match error {
            PollError::Postgres(error) => {
                // After anything worse than an error the server hangs up. Poolers leave the
                // severity that is not translated out.
                let is_error = |error: &DbError| match error.parsed_severity() {
                    Some(severity) => severity == Severity::Error,
                    None => error.severity() == "ERROR",
                };
                !self.client.is_closed() && error.as_db_error().is_some_and(is_error)
            }
            PollError::Dsn(_)
            | PollError::Connect(_)
            | PollError::ConnectTimeout(_)
            | PollError::PollTimeout(_)
            | PollError::Answer => false,
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

impl Settings {
    /// The first message of a poll. Everything is `LOCAL`: behind a transaction pooler a session's
    /// setting would be a stranger's.
    fn render_begin(&self, limit: Duration, reads_raw: bool) -> String {
        let mut sql = BEGIN.to_owned();
        if reads_raw {
            sql.push_str(RAW_TEXT);
        }
        if self.statement_timeout {
            sql.push_str(&format!("SET LOCAL statement_timeout = {}; ", limit.as_millis().max(1)));
        }
        if self.lock_timeout {
            // Sooner than the limit of the statement, so that the one that fires tells whether the
            // server worked or waited.
            let patience = limit * 3 / 4;
            sql.push_str(&format!("SET LOCAL lock_timeout = {}; ", patience.as_millis().max(1)));
        }
        if self.work_mem {
            // With the default 4 MB the lock table goes through a temporary file from about
            // 20,000 rows on, at every poll.
            sql.push_str("SET LOCAL work_mem = '64MB'; ");
        }
        if self.jit {
            sql.push_str("SET LOCAL jit = off; ");
        }
        sql.push_str(
            "SELECT (extract(epoch FROM transaction_timestamp()) * 1000000)::int8, \
             pg_backend_pid(), pg_is_in_recovery()",
        );
        sql
    }
}

struct Begun {
    at: Timestamp,
    own_pid: Pid,
    in_recovery: bool,
}

fn decode_begin(messages: &[SimpleQueryMessage]) -> Result<Begun, PollError> {
    messages
        .iter()
        .find_map(|message| {
            let SimpleQueryMessage::Row(row) = message else { return None };
            Some(Begun {
                at: Timestamp::from_unix_micros(row.get(0)?.parse().ok()?),
                own_pid: Pid(row.get(1)?.parse().ok()?),
                in_recovery: row.get(2)? == "t",
            })
        })
        .ok_or(PollError::Answer)
}

/// PgBouncer's console refuses what is none of its commands as a violation of the protocol, which no
/// server does for the text of a statement. In its pools the same code is fatal.
fn is_of_console(error: &tokio_postgres::Error) -> bool {
    error.as_db_error().is_some_and(|error| {
        *error.code() == SqlState::PROTOCOL_VIOLATION && error.severity() == "ERROR"
    })
}

/// An answer that may be missing: an error that leaves the connection alive is `None`.
fn known<T>(answer: Result<T, tokio_postgres::Error>) -> Result<Option<T>, tokio_postgres::Error> {
    match answer {
        Ok(answer) => Ok(Some(answer)),
        Err(error) if is_survivable(&error) || is_conversion(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The server cannot write a name in our encoding.
fn is_conversion(error: &tokio_postgres::Error) -> bool {
    error.code().is_some_and(|state| {
        *state == SqlState::CHARACTER_NOT_IN_REPERTOIRE
            || *state == SqlState::UNTRANSLATABLE_CHARACTER
    })
}

fn aside_limit() -> String {
    format!("SET LOCAL statement_timeout = {}", ASIDE_LIMIT.as_millis())
}

/// The statement ran into one of its limits, or stands behind one that did in the same transaction.
fn is_survivable(error: &tokio_postgres::Error) -> bool {
    error.code().is_some_and(|state| {
        *state == SqlState::QUERY_CANCELED
            || *state == SqlState::LOCK_NOT_AVAILABLE
            || *state == SqlState::IN_FAILED_SQL_TRANSACTION
    })
}

/// `waitstart` came with 14. On an older server the column is a NULL in the same text, which costs
/// nothing at run time and cannot drift from the other form.
fn locks_sql(server_version: &str) -> String {
    let sql = without_comments(include_str!("locks.sql"));
    match server_version.split(|c: char| !c.is_ascii_digit()).next().map(str::parse::<u32>) {
        Some(Ok(major)) if major < 14 => {
            sql.replace("granted, waitstart,", "granted, NULL::timestamptz,")
        }
        Some(Ok(_) | Err(_)) | None => sql.to_owned(),
    }
}

/// The statement below the comment that every `.sql` file opens with, which is for readers of the
/// file: the server would parse it at every poll.
pub(super) fn without_comments(sql: &'static str) -> &'static str {
    sql.find("SELECT").map_or(sql, |start| &sql[start..]).trim_end()
}

#[expect(clippy::disallowed_methods, reason = "when a poll was sent is part of what it says")]
fn local_now() -> Timestamp {
    SystemTime::now().into()
}

#[expect(clippy::disallowed_methods, reason = "how long the answer took is part of what it says")]
fn now() -> Instant {
    Instant::now()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_without_waitstart_is_asked_for_a_null() {
        assert!(locks_sql("13.23").contains("granted, NULL::timestamptz,"));
        for version in ["14.0", "15.20 (Debian 15.20-0+deb12u1)", "18beta1", ""] {
            assert!(locks_sql(version).contains("granted, waitstart,"), "{version}");
        }
    }

    #[test]
    fn no_comment_is_sent_to_the_server() {
        assert!(locks_sql("15.0").starts_with("SELECT locktype"));
        for sql in [ACTIVITY_SQL, PREPARED_SQL, ENTRIES_SQL, FACTS_SQL, STATISTICS_SQL]
            .map(without_comments)
        {
            assert!(sql.starts_with("SELECT") && !sql.contains("--"), "{sql}");
        }
    }

    #[test]
    fn settings_that_the_role_brings_are_left_to_it() {
        let all =
            Settings { statement_timeout: true, lock_timeout: true, work_mem: true, jit: true };
        let begin = all.render_begin(Duration::from_secs(5), false);
        assert!(begin.contains("SET LOCAL statement_timeout = 5000;"), "{begin}");
        assert!(begin.contains("SET LOCAL lock_timeout = 3750;"), "{begin}");
        let none =
            Settings { statement_timeout: false, lock_timeout: false, work_mem: false, jit: false };
        let begin = none.render_begin(Duration::from_secs(5), false);
        assert_eq!(begin.matches("SET").count(), BEGIN.matches("SET").count(), "{begin}");
    }
}
