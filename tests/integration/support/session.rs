//! A real client of a real server, with a name, a backend and statements that may wait. It is what
//! holds and waits in the tests; it does not know who watches.

use std::sync::Arc;
use std::time::SystemTime;

use tokio::task::JoinHandle;
use tokio_postgres::{Client, Config, Error, NoTls, SimpleQueryMessage};

/// One connection. Dropping it drops the socket, as a killed process does.
pub struct Session {
    client: Arc<Client>,
    /// Taken by [`Session::close`], which lets it end by itself.
    connection: Option<JoinHandle<()>>,
    backend: Option<Backend>,
}

#[derive(Clone, Copy)]
struct Backend {
    pid: i32,
    start: SystemTime,
}

impl Session {
    /// Connects directly to a server.
    pub async fn connect(dsn: &str, application: &str) -> Session {
        let mut session = Session::connect_pooled(dsn, application).await;
        let identity = session
            .client
            .query_one(
                "SELECT pid, backend_start FROM pg_stat_activity WHERE pid = pg_backend_pid()",
                &[],
            )
            .await
            .unwrap_or_else(|error| panic!("{application} does not find itself: {error}"));
        session.backend = Some(Backend { pid: identity.get(0), start: identity.get(1) });
        session
    }

    /// Connects to a pooler, where a session has no backend of its own. Nothing is sent yet.
    pub async fn connect_pooled(dsn: &str, application: &str) -> Session {
        let mut config: Config =
            dsn.parse().unwrap_or_else(|error| panic!("{dsn} is not understood: {error}"));
        config.application_name(application);
        let (client, connection) = config
            .connect(NoTls)
            .await
            .unwrap_or_else(|error| panic!("{application} cannot connect to {dsn}: {error}"));
        let connection = tokio::spawn(async move {
            // It ends by the server's death as well; the statements then say so.
            let _ = connection.await;
        });
        Session { client: Arc::new(client), connection: Some(connection), backend: None }
    }

    /// The process id of the backend.
    pub fn pid(&self) -> i32 {
        self.backend().pid
    }

    /// When the backend began, on the server's clock.
    pub fn backend_start(&self) -> SystemTime {
        self.backend().start
    }

    fn backend(&self) -> Backend {
        self.backend.expect("only a session without a pooler has a backend of its own")
    }

    /// The client itself, for what is not said here.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Runs SQL to its end, in the simple protocol, which every pooler passes on.
    pub async fn run(&self, sql: &str) {
        self.try_run(sql).await.unwrap_or_else(|error| panic!("{sql}: {}", explain(&error)));
    }

    /// Runs SQL that may fail. The server tells of an error before it has undone what failed; an
    /// empty statement behind it is answered after that.
    pub async fn try_run(&self, sql: &str) -> Result<(), Error> {
        let outcome = self.client.batch_execute(sql).await;
        if outcome.is_err() && !self.client.is_closed() {
            let _ = self.client.batch_execute("").await;
        }
        outcome
    }

    /// The first value of the first row, as text; `None` for NULL and for no row.
    pub async fn value(&self, sql: &str) -> Option<String> {
        self.rows(sql).await.into_iter().next()?.into_iter().next()?
    }

    /// All rows as text.
    pub async fn rows(&self, sql: &str) -> Vec<Vec<Option<String>>> {
        let messages = self.client.simple_query(sql).await;
        let messages = messages.unwrap_or_else(|error| panic!("{sql}: {}", explain(&error)));
        messages
            .into_iter()
            .filter_map(|message| {
                let SimpleQueryMessage::Row(row) = message else { return None };
                Some((0..row.len()).map(|column| row.get(column).map(str::to_owned)).collect())
            })
            .collect()
    }

    /// Starts a statement that is expected to wait.
    pub fn start(&self, sql: &str) -> Statement {
        let client = Arc::clone(&self.client);
        let text = sql.to_owned();
        let cancel = client.cancel_token();
        let running = tokio::spawn(async move { client.batch_execute(&text).await });
        Statement { sql: sql.to_owned(), running, cancel }
    }

    /// Says goodbye to the server and waits until the socket is closed.
    pub async fn close(mut self) {
        let connection = self.connection.take();
        // The goodbye is sent once the last handle on the client is gone.
        drop(self);
        if let Some(connection) = connection {
            let _ = connection.await;
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if let Some(connection) = &self.connection {
            connection.abort();
        }
    }
}

/// A statement on its way.
pub struct Statement {
    sql: String,
    running: JoinHandle<Result<(), Error>>,
    cancel: tokio_postgres::CancelToken,
}

impl Statement {
    /// Whether the server has answered.
    pub fn is_finished(&self) -> bool {
        self.running.is_finished()
    }

    /// Waits for success.
    pub async fn finish(self) {
        let sql = self.sql.clone();
        self.try_finish().await.unwrap_or_else(|error| panic!("{sql}: {}", explain(&error)));
    }

    /// Waits for the answer, for [`super::DEADLINE`] at most.
    pub async fn try_finish(self) -> Result<(), Error> {
        tokio::time::timeout(super::DEADLINE, self.running)
            .await
            .unwrap_or_else(|_| panic!("still runs: {}", self.sql))
            .expect("a statement does not panic")
    }

    /// Asks the server to cancel it and waits for the error.
    pub async fn cancel(self) {
        let asked = self.cancel.cancel_query(NoTls).await;
        asked.unwrap_or_else(|error| panic!("cannot cancel {}: {error}", self.sql));
        let sql = self.sql.clone();
        assert!(self.try_finish().await.is_err(), "finished before it was cancelled: {sql}");
    }
}

/// A session that waits for a key, and the statement it waits in.
pub struct Waiter {
    /// Who waits.
    pub session: Session,
    /// What waits.
    pub statement: Statement,
}

/// The driver's errors say only "db error" by themselves.
fn explain(error: &Error) -> String {
    error.as_db_error().map_or_else(|| error.to_string(), ToString::to_string)
}
