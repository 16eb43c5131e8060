//! What our role may do on a server, as plain values, and the SQL that grants what it should.
//!
//! Pure: who asked the server is not known here. The poller takes the words for its log from it, and
//! [`check::privilege`](crate::check::privilege) judges what lacks.

use std::fmt::Write as _;

/// The first version with `pg_use_reserved_connections`.
const RESERVED_SINCE: u32 = 16;

/// What the server says of the role we are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Privileges {
    /// `current_user`
    pub role: String,
    /// `server_version`
    pub version: String,
    /// `server_version_num`
    pub version_number: i32,
    /// `rolsuper`
    pub is_superuser: bool,
    /// `rolconnlimit`, if there is one.
    pub connection_limit: Option<u32>,
    /// Has the rights of `pg_read_all_stats`; `None` where there is no such role.
    pub reads_all_stats: Option<bool>,
    /// Has the rights of `pg_use_reserved_connections`, which came with 16.
    pub uses_reserved_connections: Option<bool>,
    /// Has the rights of `pg_signal_backend`.
    pub signals_backends: Option<bool>,
    /// The setting `reserved_connections`, which came with 16.
    pub reserved_connections: Option<i64>,
    /// The role's own settings, or the connection's, bound its statements.
    pub brings_statement_timeout: bool,
    /// Roles it is in that reach outside of the database.
    pub dangerous: Vec<String>,
}

/// The grants by which a role sees everything that is shown, as SQL.
pub fn render_grants(role: &str, version: Option<&str>) -> String {
    let role = quote(role);
    let mut sql = format!("GRANT pg_read_all_stats TO {role};");
    let digits = version.and_then(|version| version.split(|c: char| !c.is_ascii_digit()).next());
    let major = digits.and_then(|digits| digits.parse::<u32>().ok());
    if major.is_some_and(|major| major >= RESERVED_SINCE) {
        let _ = write!(sql, " GRANT pg_use_reserved_connections TO {role};");
    }
    sql
}

/// A name as SQL quotes it, always, so that no name is read as anything else.
pub(crate) fn quote(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grants_quote_any_name_and_follow_the_version() {
        let stats = r#"GRANT pg_read_all_stats TO "a ""b";"#;
        let both = format!(r#"{stats} GRANT pg_use_reserved_connections TO "a ""b";"#);
        for (version, sql) in [
            (Some("15.20 (Debian)"), stats),
            (Some("16.0"), &*both),
            (Some("19devel"), &*both),
            (None, stats),
            (Some("no number"), stats),
        ] {
            assert_eq!(render_grants(r#"a "b"#, version), sql, "{version:?}");
        }
    }
}
