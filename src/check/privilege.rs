//! `locks check --privileges`: what a role may do → what it lacks, has too much of, and the SQL that
//! mends it.
//!
//! Pure, as the rest of [`check`](super): who asks the servers is not known here.

use std::fmt::Write as _;

use serde::Serialize;

use super::Status;
use crate::printable::visible;
use crate::privilege::{Privileges, quote};
use crate::snapshot::{SCHEMA, render_json};

/// One connection that lasts, a short one beside it, and one of `locks top`.
const CONNECTIONS: u32 = 3;

/// One server, asked or not.
#[derive(Debug)]
pub struct Asked {
    /// The server's name.
    pub server: String,
    /// What it said, or why it did not.
    pub answer: Result<Privileges, String>,
    /// What proves a pooler between us and it.
    pub pooler: Option<&'static str>,
    /// The registry may ask its databases.
    pub is_inspected: bool,
}

/// All that there is to say about the privileges on some servers.
#[derive(Debug)]
pub struct Report {
    servers: Vec<Asked>,
}

/// Of what kind a line is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Mark {
    Ok,
    /// Something degrades without it.
    Missing,
    /// Better otherwise; nothing degrades.
    Advice,
}

/// One thing that a role has, lacks, or would better not have.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Point {
    mark: Mark,
    name: &'static str,
    text: String,
    /// What to run, where SQL mends it.
    sql: Option<String>,
}

impl Privileges {
    fn points(&self, is_inspected: bool) -> Vec<Point> {
        let role = quote(&self.role);
        let point = |mark, name, text: &str, sql: Option<String>| Point {
            mark,
            name,
            text: text.to_owned(),
            sql,
        };
        let grant = |name: &str| Some(format!("GRANT {name} TO {role};"));
        let mut points = Vec::new();
        points.push(match self.reads_all_stats.unwrap_or(self.is_superuser) {
            true => point(Mark::Ok, "pg_read_all_stats", "sees what other sessions do", None),
            false => point(
                Mark::Missing,
                "pg_read_all_stats",
                "without it the state of other sessions is hidden: what an idle holder is, since \
                 when, and from where, stays unknown",
                grant("pg_read_all_stats"),
            ),
        });
        if let Some(has_reserved) = self.uses_reserved_connections {
            let name = "pg_use_reserved_connections";
            points.push(match (has_reserved, self.reserved_connections) {
                (true, Some(0)) if !self.is_superuser => point(
                    Mark::Advice,
                    name,
                    "granted, and the server reserves no connection: it has to be restarted with \
                     reserved_connections above 0",
                    Some("ALTER SYSTEM SET reserved_connections = 3;".to_owned()),
                ),
                (true, _) => point(Mark::Ok, name, "can connect when the server is full", None),
                (false, _) => point(
                    Mark::Missing,
                    name,
                    "without it there is no way in when the server has too many connections, \
                     which is when it is needed",
                    grant(name),
                ),
            });
        }
        points.push(match self.signals_backends.unwrap_or(self.is_superuser) {
            true => point(Mark::Ok, "pg_signal_backend", "locks top --allow-kill can act", None),
            false => point(
                Mark::Ok,
                "pg_signal_backend",
                "not granted, and needed for locks top --allow-kill alone",
                None,
            ),
        });
        points.extend(self.dangers(is_inspected));
        points.push(match self.connection_limit {
            Some(limit) if limit < CONNECTIONS => point(
                Mark::Missing,
                "connection limit",
                &format!(
                    "{limit}, and one connection lasts, a short one comes and goes, and locks top \
                     is one more"
                ),
                Some(format!("ALTER ROLE {role} CONNECTION LIMIT 5;")),
            ),
            Some(limit) => point(Mark::Ok, "connection limit", &limit.to_string(), None),
            None => point(
                Mark::Advice,
                "connection limit",
                "none: a small one keeps a mistake small",
                Some(format!("ALTER ROLE {role} CONNECTION LIMIT 5;")),
            ),
        });
        points.push(match self.brings_statement_timeout {
            true => point(Mark::Ok, "statement_timeout", "set for the role", None),
            false => point(
                Mark::Advice,
                "statement_timeout",
                "not set for the role: each poll sets its own, which costs a little",
                Some(format!("ALTER ROLE {role} SET statement_timeout = '5s';")),
            ),
        });
        points
    }

    /// What is more than is needed.
    fn dangers(&self, is_inspected: bool) -> Vec<Point> {
        // The registry's queries are refused to such a role.
        let mark = if is_inspected { Mark::Missing } else { Mark::Advice };
        let refused = if is_inspected { ", and inspect is refused to it" } else { "" };
        if self.is_superuser {
            return vec![Point {
                mark,
                name: "superuser",
                text: format!("more than is needed{refused}: connect as a role of its own"),
                sql: None,
            }];
        }
        let revoke = |of: &String| Point {
            mark,
            name: "membership",
            text: format!("{} reaches outside of the database{refused}", quote(of)),
            sql: Some(format!("REVOKE {} FROM {};", quote(of), quote(&self.role))),
        };
        self.dangerous.iter().map(revoke).collect()
    }
}

impl Asked {
    fn points(&self) -> Vec<Point> {
        let Ok(privileges) = &self.answer else { return Vec::new() };
        let mut points = privileges.points(self.is_inspected);
        points.push(match self.pooler {
            Some(proof) => Point {
                mark: Mark::Missing,
                name: "direct connection",
                text: format!("{proof}, so there is a pooler: connect to the server itself"),
                sql: None,
            },
            None => Point {
                mark: Mark::Ok,
                name: "direct connection",
                text: "no sign of a pooler".to_owned(),
                sql: None,
            },
        });
        points
    }
}

impl Report {
    /// Of servers in this order.
    pub fn new(servers: Vec<Asked>) -> Self {
        Self { servers }
    }

    /// Whether something is missing, or cannot be told.
    pub fn status(&self) -> Status {
        let of = |asked: &Asked| match &asked.answer {
            Err(_) => Status::Unknown,
            Ok(_) if asked.missing() > 0 => Status::Warning,
            Ok(_) => Status::Ok,
        };
        // Nobody asked is nobody known.
        self.servers.iter().map(of).max().unwrap_or(Status::Unknown)
    }

    /// A line for a pager, then everything.
    pub fn render_text(&self) -> String {
        let mut text = format!(
            "LOCKS {} - {}\n",
            self.status().as_str().to_uppercase(),
            one_line(&self.headline())
        );
        for asked in &self.servers {
            let server = one_line(&asked.server);
            let privileges = match &asked.answer {
                Ok(privileges) => privileges,
                Err(reason) => {
                    let _ = writeln!(text, "{server}: {}", one_line(reason));
                    continue;
                }
            };
            let version = one_line(&privileges.version);
            let role = one_line(&quote(&privileges.role));
            let _ = writeln!(text, "{server}: PostgreSQL {version}, role {role}");
            for point in asked.points() {
                let mark = point.mark.as_str();
                let _ = writeln!(text, "  {mark:<8} {}: {}", point.name, one_line(&point.text));
                if let Some(sql) = &point.sql {
                    let _ = writeln!(text, "           {}", one_line(sql));
                }
            }
        }
        text
    }

    /// One JSON object.
    pub fn render_json(&self) -> Vec<u8> {
        let server = |asked: &Asked| {
            let privileges = asked.answer.as_ref().ok();
            serde_json::json!({
                "server": asked.server,
                "error": asked.answer.as_ref().err(),
                "version": privileges.map(|it| &it.version),
                "role": privileges.map(|it| &it.role),
                "privileges": asked.points(),
            })
        };
        render_json(&serde_json::json!({
            "schema": SCHEMA,
            "status": self.status().as_str(),
            "exit_code": self.status().exit_code(),
            "summary": self.headline(),
            "servers": self.servers.iter().map(server).collect::<Vec<_>>(),
        }))
    }

    fn headline(&self) -> String {
        if let Some((server, reason)) = self
            .servers
            .iter()
            .find_map(|asked| asked.answer.as_ref().err().map(|reason| (&asked.server, reason)))
        {
            return format!("{server}: {reason}");
        }
        match self.servers.iter().find(|asked| asked.missing() > 0) {
            Some(asked) => format!(
                "{}: {} to mend for role {}",
                asked.server,
                match asked.missing() {
                    1 => "1 thing".to_owned(),
                    missing => format!("{missing} things"),
                },
                asked.answer.as_ref().map(|it| quote(&it.role)).unwrap_or_default()
            ),
            None if self.servers.is_empty() => "there is no server to ask".to_owned(),
            None => "nothing is missing".to_owned(),
        }
    }
}

impl Asked {
    fn missing(&self) -> usize {
        self.points().iter().filter(|point| point.mark == Mark::Missing).count()
    }
}

impl Mark {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Missing => "missing",
            Self::Advice => "advice",
        }
    }
}

/// Names are others', and this is for a pager and a terminal; a `|` would begin performance data.
fn one_line(text: &str) -> String {
    visible(text).replace('|', "\u{a6}")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the documentation tells to grant.
    fn proper() -> Privileges {
        Privileges {
            role: "locks".to_owned(),
            version: "17.1".to_owned(),
            version_number: 170_001,
            is_superuser: false,
            connection_limit: Some(5),
            reads_all_stats: Some(true),
            uses_reserved_connections: Some(true),
            signals_backends: Some(false),
            reserved_connections: Some(3),
            brings_statement_timeout: true,
            dangerous: Vec::new(),
        }
    }

    fn report(privileges: Privileges, is_inspected: bool) -> Report {
        let asked =
            Asked { server: "db".to_owned(), answer: Ok(privileges), pooler: None, is_inspected };
        Report::new(vec![asked])
    }

    #[test]
    fn a_role_that_has_what_it_needs_and_no_more_is_ok() {
        let report = report(proper(), true);
        assert_eq!(report.status(), Status::Ok, "{}", report.render_text());
        assert!(report.render_text().starts_with("LOCKS OK - nothing is missing\ndb: PostgreSQL"));
    }

    #[test]
    fn what_degrades_is_a_warning_and_comes_with_its_sql() {
        let cases = [
            (
                Privileges { reads_all_stats: Some(false), ..proper() },
                "GRANT pg_read_all_stats TO \"locks\";",
            ),
            (
                Privileges { uses_reserved_connections: Some(false), ..proper() },
                "GRANT pg_use_reserved_connections TO \"locks\";",
            ),
            (
                Privileges { connection_limit: Some(1), ..proper() },
                "ALTER ROLE \"locks\" CONNECTION LIMIT 5;",
            ),
        ];
        for (privileges, sql) in cases {
            let report = report(privileges, false);
            assert_eq!(report.status().exit_code(), 1);
            assert!(report.render_text().contains(sql), "{}", report.render_text());
        }
    }

    #[test]
    fn too_much_is_advised_against_and_refused_where_the_registry_asks() {
        let superuser = Privileges { is_superuser: true, ..proper() };
        let member = Privileges { dangerous: vec!["pg_read_server_files".to_owned()], ..proper() };
        for privileges in [superuser, member.clone()] {
            assert_eq!(report(privileges.clone(), false).status(), Status::Ok);
            assert_eq!(report(privileges, true).status(), Status::Warning);
        }
        let text = report(member, false).render_text();
        assert!(text.contains("REVOKE \"pg_read_server_files\" FROM \"locks\";"), "{text}");
    }

    #[test]
    fn a_server_that_cannot_be_asked_is_unknown_whatever_others_lack() {
        let mut report = report(Privileges { reads_all_stats: Some(false), ..proper() }, false);
        report.servers.push(Asked {
            server: "other".to_owned(),
            answer: Err("refused".to_owned()),
            pooler: None,
            is_inspected: false,
        });
        assert_eq!(report.status().exit_code(), 3);
        assert!(report.render_text().starts_with("LOCKS UNKNOWN - other: refused\n"));
        assert_eq!(Report::new(Vec::new()).status(), Status::Unknown);
    }

    #[test]
    fn a_pooler_in_between_is_told() {
        let mut report = report(proper(), false);
        report.servers[0].pooler = Some("our backend is older than our connection");
        assert_eq!(report.status(), Status::Warning);
        assert!(report.render_text().contains("there is a pooler"));
    }

    #[test]
    fn no_name_breaks_a_line() {
        let report = report(Privileges { role: "a\n|\u{1b}".to_owned(), ..proper() }, false);
        assert!(!report.render_text().contains(['|', '\u{1b}']));
        assert_eq!(report.render_text().lines().count(), 8, "{}", report.render_text());
    }
}
