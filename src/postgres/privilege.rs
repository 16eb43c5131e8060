//! What the server says of our own role → [`Privileges`]. What lacks, and how to mend it, is decided
//! in [`privilege`](crate::privilege).

use super::connection::{Connection, PollError, without_comments};
use crate::privilege::Privileges;

const SQL: &str = include_str!("privilege.sql");

impl Connection {
    /// Reads [`Privileges`]. Not part of a poll.
    pub async fn fetch_privileges(&self) -> Result<Privileges, PollError> {
        // No limit of ours for the statement: the answer tells whose such a limit is.
        let rows = self.ask_within("", self.query(without_comments(SQL))).await??;
        let row = rows.first().ok_or(PollError::Answer)?;
        Ok(Privileges {
            role: row.try_get(0)?,
            version: row.try_get(1)?,
            version_number: row.try_get(2)?,
            is_superuser: row.try_get(3)?,
            // -1 is none.
            connection_limit: u32::try_from(row.try_get::<_, i32>(4)?).ok(),
            reads_all_stats: row.try_get(5)?,
            uses_reserved_connections: row.try_get(6)?,
            signals_backends: row.try_get(7)?,
            reserved_connections: row.try_get(8)?,
            brings_statement_timeout: row.try_get(9)?,
            dangerous: row.try_get(10)?,
        })
    }
}
