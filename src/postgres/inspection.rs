//! The short second connection: what the registry may ask of a database beside the poll.
//!
//! It runs SQL that somebody wrote into a registry file, hence its guards. The query stands inside
//! a statement of ours, so that the server itself sees to it that it is one `SELECT` (or `VALUES`,
//! `TABLE`, `WITH`) with one column of text; it goes through the extended protocol, which takes one
//! statement and no more; and the transaction is read-only, short, and always rolled back, which
//! takes back what a function set for the session as well. A read-only transaction stops neither
//! programs nor files of the server's machine, so a role that may use these is refused. No statement
//! is named, for the sake of poolers.
//!
//! Errors are in our words: those of the server quote the query and its values. When to ask is the
//! inspector's business.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::TryStreamExt as _;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_postgres::error::{DbError, ErrorPosition};
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Row};

use super::connect::{Canceller, connect};
use super::connection::{PollError, without_comments};
use super::dsn::Dsn;

/// The server's limit for a statement.
const STATEMENT_TIMEOUT: Duration = Duration::from_secs(5);

/// How long we wait for all statements of one question together.
const PATIENCE: Duration = Duration::from_secs(12);

const MAX_ROWS: usize = 100_000;

/// Names of things are short; this is for the query that selects the wrong column.
const MAX_BYTES: usize = 16 << 20;

const BEGIN: &str =
    "BEGIN ISOLATION LEVEL READ COMMITTED READ ONLY; SET LOCAL statement_timeout = ";

/// Text that a query is put behind. `UNION` takes what has one column and can become text by
/// itself (`varchar`, `name`, `citext`), and nothing else. The query ends in a line of its own, lest
/// a comment swallow what follows.
const OPENING: &str = "SELECT NULL::pg_catalog.text WHERE false UNION ALL (\n";

/// A connection to one database, for a few questions.
pub struct Inspection {
    client: Client,
    driver: JoinSet<Result<(), tokio_postgres::Error>>,
    canceller: Canceller,
}

/// Why a question has no answer. Never a piece of the query, of a value, or of a password.
#[derive(Debug, thiserror::Error)]
pub enum InspectionError {
    /// No connection.
    #[error(transparent)]
    Connect(#[from] PollError),
    /// The connection went away.
    #[error("the connection was lost")]
    Lost,
    /// The server said nothing in time, not even that the time is over.
    #[error("no answer within {0:?}")]
    Timeout(Duration),
    /// The role can do anything.
    #[error(
        "role \"{0}\" is a superuser, whom a read-only transaction does not keep from running \
         programs on the server: connect as a role of its own for this exporter"
    )]
    Superuser(String),
    /// The role can do what a transaction does not bound.
    #[error(
        "role \"{role}\" is a member of \"{of}\", which a read-only transaction does not keep from \
         the files and programs of the server: REVOKE \"{of}\" FROM the role, or from those it is \
         in itself"
    )]
    Privileged {
        /// As whom we connect.
        role: String,
        /// The role that grants it.
        of: String,
    },
    /// The query would take advisory locks.
    #[error(
        "the query calls an advisory lock function, which takes a lock in a read-only transaction \
         too: leave it out"
    )]
    TakesLocks,
    /// The server does not run the query.
    #[error("{what}{}", place(*.position))]
    Refused {
        /// What is wrong and how to mend it.
        what: String,
        /// Where in the query, counted in characters from 1.
        position: Option<u32>,
    },
    /// The answer is too long.
    #[error("the query gives more than {MAX_ROWS} rows: narrow it down")]
    TooManyRows,
    /// The answer is too large.
    #[error("the query gives more than {} MiB: select the short column that is hashed", MAX_BYTES >> 20)]
    TooLarge,
    /// A value that is no text to us.
    #[error(
        "a value cannot be had as UTF-8: leave it out, or convert it in the query with \
         convert_from()"
    )]
    NotUtf8,
}

impl InspectionError {
    /// Whether the next question has to come over another connection.
    pub fn ends_connection(&self) -> bool {
        match self {
            Self::Connect(_) | Self::Lost | Self::Timeout(_) | Self::TooLarge => true,
            Self::Superuser(_)
            | Self::Privileged { .. }
            | Self::TakesLocks
            | Self::Refused { .. }
            | Self::TooManyRows
            | Self::NotUtf8 => false,
        }
    }
}

fn place(position: Option<u32>) -> String {
    position.map_or_else(String::new, |position| format!(" (at character {position} of the query)"))
}

impl Inspection {
    /// Connects to a database of the server, however long that takes: whoever calls should go on
    /// waiting for this connect rather than begin a second one.
    pub async fn connect(dsn: &Dsn, database: &str) -> Result<Self, InspectionError> {
        let connected = connect(&dsn.with_database(database)).await.map_err(PollError::from)?;
        let mut driver = JoinSet::new();
        driver.spawn(connected.driver);
        Ok(Self { client: connected.client, driver, canceller: connected.canceller })
    }

    /// Says goodbye and waits until it is sent.
    pub async fn close(self) {
        let Self { client, mut driver, .. } = self;
        drop(client);
        let _ = timeout(Duration::from_secs(1), driver.join_next()).await;
    }

    /// What a query of the registry gives: sorted, each value once. NULL is passed over, since
    /// nobody can lock it: the lock functions do nothing with a NULL.
    pub async fn fetch_values(&self, sql: &str) -> Result<Vec<Arc<str>>, InspectionError> {
        refuse_locks(sql)?;
        let mut values = self
            .ask(async {
                let role = self.refuse_privileged().await?;
                self.read_values(sql, &role).await
            })
            .await?;
        values.sort_unstable();
        values.dedup();
        Ok(values)
    }

    /// Which of these tables the database has, with their OIDs, in no order.
    pub async fn fetch_tables(
        &self,
        names: &[Arc<str>],
    ) -> Result<Vec<(Arc<str>, Option<u32>)>, InspectionError> {
        let names: Vec<&str> = names.iter().map(|name| &**name).collect();
        let parameters: [(&(dyn ToSql + Sync), Type); 1] = [(&names, Type::TEXT_ARRAY)];
        let sql = without_comments(include_str!("tables.sql"));
        let rows = self
            .ask(async {
                let rows = self.client.query_typed(sql, &parameters).await;
                rows.map_err(|error| refusal(&error, 0, ""))
            })
            .await?;
        let decode = |row: &Row| Ok((row.try_get::<_, &str>(0)?.into(), row.try_get(1)?));
        let tables = rows.iter().map(decode).collect::<Result<_, tokio_postgres::Error>>();
        tables.map_err(|error| refusal(&error, 0, ""))
    }

    /// Runs statements in a transaction that can only read and leaves nothing. It has begun for
    /// certain before they are sent: outside of it they could write.
    async fn ask<T>(
        &self,
        statements: impl Future<Output = Result<T, InspectionError>>,
    ) -> Result<T, InspectionError> {
        let begin = format!("{BEGIN}{}", STATEMENT_TIMEOUT.as_millis());
        let question = async {
            let begun = self.client.batch_execute(&begin).await;
            begun.map_err(|error| refusal(&error, 0, ""))?;
            let answer = statements.await;
            if answer.as_ref().is_err_and(InspectionError::ends_connection) {
                return answer;
            }
            let ended = self.client.batch_execute("ROLLBACK").await;
            ended.map_err(|_| InspectionError::Lost)?;
            answer
        };
        let answer = timeout(PATIENCE, question).await;
        let answer = answer.unwrap_or(Err(InspectionError::Timeout(PATIENCE)));
        if let Err(InspectionError::Timeout(_) | InspectionError::TooLarge) = answer {
            let canceller = self.canceller.clone();
            tokio::spawn(async move { canceller.cancel().await });
        }
        answer
    }

    /// The name of our role, if it is bound by the transaction.
    async fn refuse_privileged(&self) -> Result<String, InspectionError> {
        let sql = without_comments(include_str!("guard.sql"));
        let row = self.client.query_typed_one(sql, &[]).await;
        let row = row.map_err(|error| refusal(&error, 0, ""))?;
        let told = row.try_get(0).and_then(|role| Ok((role, row.try_get(1)?)));
        let (role, rights): (String, Vec<String>) = told.map_err(|error| refusal(&error, 0, ""))?;
        match rights.into_iter().next() {
            None => Ok(role),
            Some(of) if of == role => Err(InspectionError::Superuser(role)),
            Some(of) => Err(InspectionError::Privileged { role, of }),
        }
    }

    async fn read_values(&self, sql: &str, role: &str) -> Result<Vec<Arc<str>>, InspectionError> {
        // One more than allowed, to know that there are more: the server stops by itself.
        let sql = format!("{OPENING}{}\n) LIMIT {}", without_end(sql), MAX_ROWS + 1);
        let refusal = |error| refusal(&error, OPENING.chars().count(), role);
        let no_parameters: [(&(dyn ToSql + Sync), Type); 0] = [];
        let rows = self.client.query_typed_raw(&sql, no_parameters).await.map_err(refusal)?;
        let mut rows = pin!(rows);
        let (mut values, mut bytes, mut seen) = (Vec::new(), 0, 0);
        while let Some(row) = rows.try_next().await.map_err(refusal)? {
            seen += 1;
            if seen > MAX_ROWS {
                return Err(InspectionError::TooManyRows);
            }
            match row.try_get(0) {
                Ok(None) => {}
                Ok(Some(value)) => {
                    let value: &str = value;
                    bytes += value.len();
                    if bytes > MAX_BYTES {
                        return Err(InspectionError::TooLarge);
                    }
                    values.push(value.into());
                }
                // A database of encoding SQL_ASCII sends whatever bytes it has.
                Err(_) => return Err(InspectionError::NotUtf8),
            }
        }
        Ok(values)
    }
}

/// A semicolon at the end is how people write queries; inside of ours it would be in the way.
fn without_end(sql: &str) -> &str {
    sql.trim_end_matches(|c: char| c == ';' || c.is_whitespace())
}

/// Catches who calls them in the query itself; a function or a view that does so cannot be seen.
fn refuse_locks(sql: &str) -> Result<(), InspectionError> {
    let sql = sql.to_ascii_lowercase();
    if sql.contains("pg_advisory") || sql.contains("pg_try_advisory") {
        return Err(InspectionError::TakesLocks);
    }
    Ok(())
}

/// The server's refusal of a query in our words, `before` characters of ours standing before it.
fn refusal(error: &tokio_postgres::Error, before: usize, role: &str) -> InspectionError {
    let Some(error) = error.as_db_error() else { return InspectionError::Lost };
    let position = match error.position() {
        Some(ErrorPosition::Original(position)) => {
            u32::try_from(before).ok().and_then(|before| position.checked_sub(before))
        }
        Some(ErrorPosition::Internal { .. }) | None => None,
    };
    let what = match error.code().code() {
        "22P05" | "22021" => return InspectionError::NotUtf8,
        "57P01" | "57P02" | "57P05" => return InspectionError::Lost,
        "57014" => format!(
            "the query was cancelled, most likely by its limit of {STATEMENT_TIMEOUT:?}: make it \
             quicker, as with an index"
        ),
        "25006" => "the query writes or locks rows, and may only read".to_owned(),
        "42501" => format!(
            "permission denied for something the query reads: GRANT SELECT on it, and USAGE on its \
             schema, TO \"{role}\""
        ),
        "42P01" => "a table of the query does not exist; write it as schema.table".to_owned(),
        "42703" => "a column of the query does not exist".to_owned(),
        "42883" => "a function or operator of the query does not exist for these types".to_owned(),
        "42804" => "the query must give one column of text: cast it, as in id::text".to_owned(),
        "0A000" => "the query must be one SELECT, VALUES, TABLE or WITH that only reads".to_owned(),
        "42601" => syntax_error(error).to_owned(),
        code => format!(
            "the server refuses the query (SQLSTATE {code}); run it by hand as this role to see why"
        ),
    };
    InspectionError::Refused { what, position: position.filter(|position| *position > 0) }
}

/// Told apart by the server's routine: its messages are translated, and quote the query.
fn syntax_error(error: &DbError) -> &'static str {
    match error.routine() {
        Some("transformSetOperationTree") => {
            "the query must give exactly one column, and have no INTO"
        }
        Some("exec_parse_message") => "the query must be one statement",
        Some(_) | None => {
            "syntax error: the query must be one SELECT, VALUES, TABLE or WITH, without a semicolon"
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_that_names_an_advisory_lock_function_is_refused() {
        for sql in [
            "SELECT pg_advisory_lock(1)::text",
            "SELECT PG_Try_Advisory_Xact_Lock(1)::text",
            "SELECT pg_catalog.pg_advisory_unlock_all()::text",
        ] {
            assert!(matches!(refuse_locks(sql), Err(InspectionError::TakesLocks)), "{sql}");
        }
        assert!(refuse_locks("SELECT name FROM advisory_locks").is_ok());
    }

    #[test]
    fn a_semicolon_at_the_end_is_left_out() {
        assert_eq!(without_end("SELECT 1 ;\n ; "), "SELECT 1");
        assert_eq!(without_end("SELECT ';'"), "SELECT ';'");
    }

    #[test]
    fn no_comment_is_sent_to_the_server() {
        for sql in [include_str!("guard.sql"), include_str!("tables.sql")].map(without_comments) {
            assert!(sql.starts_with("SELECT") && !sql.contains("--"), "{sql}");
        }
    }
}
