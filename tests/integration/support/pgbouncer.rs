//! A PgBouncer that lives for one test, in front of a [`Postgres`] of the same test.

use std::fmt;
use std::fs;
use std::net::Ipv4Addr;

use tempfile::TempDir;
use tokio::net::TcpStream;

use super::port::Port;
use super::process::{Process, give_away, make_home, unprivileged_command};
use super::session::Session;
use super::{Postgres, Tool};

/// When a client gives its backend back.
#[derive(Clone, Copy, Debug)]
pub enum PoolMode {
    /// When it disconnects.
    Session,
    /// After each transaction.
    Transaction,
    /// After each statement.
    Statement,
}

impl fmt::Display for PoolMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            PoolMode::Session => "session",
            PoolMode::Transaction => "transaction",
            PoolMode::Statement => "statement",
        })
    }
}

/// A pooler of one's own, for all databases of the server behind it.
pub struct PgBouncer {
    // Dropped in this order: the pooler ends before its folder goes.
    _process: Process,
    port: Port,
    _home: TempDir,
}

impl PgBouncer {
    /// Starts a pooler with at most `backends` connections per database and role.
    pub async fn start(postgres: &Postgres, mode: PoolMode, backends: u32) -> PgBouncer {
        PgBouncer::start_with(postgres, mode, backends, "").await
    }

    /// [`PgBouncer::start`] with more lines of `pgbouncer.ini`.
    pub async fn start_with(
        postgres: &Postgres,
        mode: PoolMode,
        backends: u32,
        lines: &str,
    ) -> PgBouncer {
        let home = make_home();
        let port = Port::reserve();
        let users = home.path().join("users.txt");
        let settings = home.path().join("pgbouncer.ini");
        fs::write(&users, "\"postgres\" \"\"\n\"reader\" \"\"\n").expect("the folder is ours");
        fs::write(
            &settings,
            format!(
                "[databases]\n\
                 * = host=127.0.0.1 port={server}\n\
                 [pgbouncer]\n\
                 listen_addr = 127.0.0.1\n\
                 listen_port = {port}\n\
                 unix_socket_dir =\n\
                 auth_type = trust\n\
                 auth_file = {users}\n\
                 admin_users = postgres\n\
                 pool_mode = {mode}\n\
                 default_pool_size = {backends}\n\
                 {lines}\n",
                server = postgres.port(),
                port = port.number(),
                users = users.display(),
            ),
        )
        .expect("the folder is ours");
        give_away(&users);
        give_away(&settings);

        let mut command = unprivileged_command(&Tool::PgBouncer.path(), home.path());
        command.arg(&settings);
        // At SIGTERM it goes at once; at SIGINT it would wait for its clients.
        let mut process = Process::start(command, &home.path().join("pgbouncer.log"), "TERM");
        let address = (Ipv4Addr::LOCALHOST, port.number());
        process.until_ready(async |_| TcpStream::connect(address).await.is_ok()).await;
        PgBouncer { _process: process, port, _home: home }
    }

    /// A connection string through the pooler.
    pub fn dsn(&self, database: &str) -> String {
        format!("postgresql://postgres@127.0.0.1:{}/{database}", self.port.number())
    }

    /// A client of database `app` through the pooler.
    pub async fn session(&self, application: &str) -> Session {
        Session::connect_pooled(&self.dsn("app"), application).await
    }

    /// The pooler's own console, for `SHOW SERVERS` and the like.
    pub async fn console(&self) -> Session {
        Session::connect_pooled(&self.dsn("pgbouncer"), "console").await
    }
}
