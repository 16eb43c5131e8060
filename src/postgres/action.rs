//! What somebody does to a session, and what they are shown of it when they asked: over a short
//! connection of its own, one statement each, so that the poll is never held up.
//!
//! A pid is given out again when its session ends. So the statement that sends the signal compares
//! the start of the backend first, and whoever has the pid meanwhile is left alone. The function is
//! called inside a `CASE`, which evaluates only the branch it takes; that is pinned by
//! `a_pid_that_was_given_to_somebody_else_is_left_alone`. Prepared transactions have no pid, and so no
//! way in here.

use std::pin::pin;
use std::sync::OnceLock;
use std::time::Duration;

use tokio::time::timeout;
use tokio_postgres::Client;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::{ToSql, Type};

use super::connect::{Connected, connect};
use super::connection::PollError;
use super::dsn::Dsn;
use crate::sample::Pid;
use crate::timestamp::Timestamp;

/// For connecting and for the statement together.
const PATIENCE: Duration = Duration::from_secs(10);

/// Of a query so many characters are fetched.
const QUERY_CHARS: i32 = 2000;

/// What is done to a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// Its statement is cancelled: `pg_cancel_backend()`.
    Cancel,
    /// It is ended: `pg_terminate_backend()`.
    Terminate,
}

/// What became of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The signal was sent; what it does shows at the next poll.
    Sent,
    /// There is no such session any more.
    Gone,
    /// The pid belongs to another session now. It was left alone.
    Reused,
    /// The start of the session is hidden from our role, so it cannot be told from another.
    Hidden,
    /// It is the session that asks: a pooler lent us the very backend. It was left alone.
    Own,
}

/// Why nothing became of it.
#[derive(Debug, thiserror::Error)]
pub enum ActionError {
    /// No connection, or it broke.
    #[error(transparent)]
    Connection(#[from] PollError),
    /// The server's words.
    #[error("the server refuses: {0}")]
    Refused(String),
    /// It may have been done or not.
    #[error("no answer within {} s: whether it was done shows at the next poll", PATIENCE.as_secs())]
    Timeout,
}

/// What a session runs, as far as our role may know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Query {
    /// The session.
    pub pid: Pid,
    /// `None` where it is hidden.
    pub text: Option<String>,
}

impl Signal {
    const fn statement(self) -> &'static str {
        match self {
            Self::Cancel => CANCEL,
            Self::Terminate => TERMINATE,
        }
    }
}

/// The statement, but for the function that it calls.
macro_rules! signal_statement {
    ($function:literal) => {
        concat!(
            "SELECT CASE ",
            "WHEN backend_start IS NULL THEN 'hidden' ",
            "WHEN backend_start OPERATOR(pg_catalog.<>) $2::pg_catalog.timestamptz THEN 'reused' ",
            "WHEN pid OPERATOR(pg_catalog.=) pg_catalog.pg_backend_pid() THEN 'own' ",
            "WHEN pg_catalog.",
            $function,
            "(pid) THEN 'sent' ELSE 'gone' END ",
            "FROM pg_catalog.pg_stat_get_activity($1) WHERE pid OPERATOR(pg_catalog.=) $1"
        )
    };
}

const CANCEL: &str = signal_statement!("pg_cancel_backend");
const TERMINATE: &str = signal_statement!("pg_terminate_backend");

const QUERIES: &str = "SELECT activity.pid, pg_catalog.left(activity.query, $3) \
     FROM pg_catalog.pg_stat_get_activity(NULL) AS activity \
     JOIN ROWS FROM (pg_catalog.unnest($1), pg_catalog.unnest($2)) AS asked (pid, begun) \
     ON activity.pid OPERATOR(pg_catalog.=) asked.pid \
     AND activity.backend_start OPERATOR(pg_catalog.=) asked.begun::pg_catalog.timestamptz";

/// What a role is shown of a session that it may not look into.
const HIDDEN_QUERY: &str = "<insufficient privilege>";

/// Sends a signal to a session, if it is still the one that began then.
pub async fn send_signal(
    dsn: &Dsn,
    signal: Signal,
    pid: Pid,
    backend_start: Timestamp,
) -> Result<Outcome, ActionError> {
    let begun = backend_start.to_string();
    let parameters: [(&(dyn ToSql + Sync), Type); 2] = [(&pid.0, Type::INT4), (&begun, Type::TEXT)];
    let rows =
        ask(dsn, async |client| client.query_typed(signal.statement(), &parameters).await).await?;
    let word = rows.first().map(|row| row.try_get::<_, &str>(0)).transpose();
    Ok(match word.map_err(PollError::from)? {
        Some("sent") => Outcome::Sent,
        Some("reused") => Outcome::Reused,
        Some("hidden") => Outcome::Hidden,
        Some("own") => Outcome::Own,
        Some(_) | None => Outcome::Gone,
    })
}

/// Fetches what sessions run. Sessions that are gone are left out.
pub async fn fetch_queries(
    dsn: &Dsn,
    sessions: &[(Pid, Timestamp)],
) -> Result<Vec<Query>, ActionError> {
    let (pids, begun): (Vec<i32>, Vec<String>) =
        sessions.iter().map(|(pid, begun)| (pid.0, begun.to_string())).unzip();
    let parameters: [(&(dyn ToSql + Sync), Type); 3] =
        [(&pids, Type::INT4_ARRAY), (&begun, Type::TEXT_ARRAY), (&QUERY_CHARS, Type::INT4)];
    let rows = ask(dsn, async |client| client.query_typed(QUERIES, &parameters).await).await?;
    let query = |row: &tokio_postgres::Row| {
        let text: Option<String> = row.try_get(1)?;
        Ok(Query { pid: Pid(row.try_get(0)?), text: text.filter(|text| text != HIDDEN_QUERY) })
    };
    let queries: Result<Vec<Query>, tokio_postgres::Error> = rows.iter().map(query).collect();
    Ok(queries.map_err(PollError::from)?)
}

/// One statement over a connection that ends with it. What hangs is called back, as far as that goes:
/// it must not be done when nobody expects it any more
/// (`what_did_not_happen_in_time_does_not_happen_later`).
async fn ask(
    dsn: &Dsn,
    statement: impl AsyncFnOnce(&Client) -> Result<Vec<tokio_postgres::Row>, tokio_postgres::Error>,
) -> Result<Vec<tokio_postgres::Row>, ActionError> {
    let asked = OnceLock::new();
    let asking = async {
        let Connected { client, driver, canceller, .. } =
            connect(dsn).await.map_err(PollError::from)?;
        let _ = asked.set(canceller);
        let answer = async {
            let answer = statement(&client).await;
            drop(client);
            answer
        };
        // The driver moves the bytes, and ends when the client is gone.
        let (answer, _) = futures_util::future::join(answer, driver).await;
        answer.map_err(refusal)
    };
    // Kept while it is called back: a pooler forgets whom it lent to a client that is gone.
    let mut asking = pin!(asking);
    if let Ok(answer) = timeout(PATIENCE, &mut asking).await {
        return answer;
    }
    if let Some(canceller) = asked.get() {
        canceller.cancel().await;
    }
    Err(ActionError::Timeout)
}

/// What the server does not allow is told in its words; everything else is weather.
fn refusal(error: tokio_postgres::Error) -> ActionError {
    match error.as_db_error() {
        Some(said) if *said.code() == SqlState::INSUFFICIENT_PRIVILEGE => {
            let detail = said.detail().map(|detail| format!(": {detail}")).unwrap_or_default();
            ActionError::Refused(format!("{}{detail}", said.message()))
        }
        Some(_) | None => ActionError::Connection(error.into()),
    }
}
