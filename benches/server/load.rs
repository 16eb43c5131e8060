//! What is there to be read.

use crate::support::{Postgres, Session};

/// So many hold it together.
pub const SESSIONS: u32 = 50;

const TABLES: u32 = 2000;

#[derive(Clone, Copy)]
pub enum Load {
    /// So many advisory locks.
    Advisory(u32),
    /// 100,000 locks of tables, and ten advisory ones.
    Relations,
}

/// One whose lock table has room for all of it.
pub async fn large_server() -> Postgres {
    Postgres::builder()
        .setting("max_connections", 300)
        .setting("max_locks_per_transaction", 1024)
        .start()
        .await
}

impl Load {
    /// Sessions that hold it as long as they live.
    pub async fn make(self, postgres: &Postgres) -> Vec<Session> {
        if matches!(self, Self::Relations) {
            let sql = format!(
                "DO $$ BEGIN FOR n IN 1..{TABLES} LOOP \
                 EXECUTE format('CREATE TABLE IF NOT EXISTS bench_%s ()', n); COMMIT; \
                 END LOOP; END $$"
            );
            postgres.session("admin").await.run(&sql).await;
        }
        let mut sessions = Vec::new();
        for number in 0..SESSIONS {
            let session = postgres.session(&format!("pod-{number}")).await;
            match self {
                Self::Advisory(count) => {
                    let (from, to) = (number * count / SESSIONS, (number + 1) * count / SESSIONS);
                    let sql = "SELECT count(pg_advisory_lock(n)) FROM generate_series";
                    session.run(&format!("{sql}({from}, {to} - 1) AS n")).await;
                }
                Self::Relations => {
                    let tables: Vec<String> = (1..=TABLES).map(|n| format!("bench_{n}")).collect();
                    let tables = tables.join(", ");
                    session.run(&format!("BEGIN; LOCK TABLE {tables} IN ACCESS SHARE MODE")).await;
                    if number < 10 {
                        session.run(&format!("SELECT pg_advisory_lock({number})")).await;
                    }
                }
            }
            sessions.push(session);
        }
        sessions
    }
}
