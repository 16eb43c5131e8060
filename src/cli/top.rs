//! `locks top` as it is typed.
//!
//! It owns flags and their help only. What is shown is decided in [`top`](crate::top).

use std::time::Duration;

use clap::{Args, ValueEnum};

use super::survey::FromArgs;
use super::{ConnectionArgs, FileArgs, SecretText};
use crate::duration::parse_duration;
use crate::table::column::ViewKind;

/// Where an exporter on this machine listens unless it is told otherwise.
pub const LOCAL_EXPORTER: &str = "http://127.0.0.1:10187";

pub(super) const EXAMPLES: &str = "\
On a terminal it goes on until q; ? lists the keys. Anywhere else, and with --once, it prints one
table without colours and cuts nothing off: rows for a script, and unless --columns or --no-header
asks for rows alone, what is wrong and what to do about it below them.

An age is a bound: ≥ 12s was seen held at every poll for 12 seconds and may have been held for
longer; 12s has a beginning that is known; ? is not known. An exporter has watched for longer: where
one on this machine (--exporter) watches the same server, its ages, first names, findings and events
are shown, and the first lines say so.

Exit codes: 0, 1 when a server or the exporter could not be looked at, 2 a mistake in the command or
a file, 130 after Ctrl-C in a script. A signal that ends the view has its own: 128 and its number.

Examples:
  The local server:
    locks top
  What a running exporter sees, of all its servers:
    locks top --from http://db-1:10187
  With the right to cancel and end sessions, after a question:
    locks top --dsn postgresql://oncall@db-1/postgres --allow-kill
  For a ticket, and for a script:
    locks top --once
    locks top --json | jq -r '.servers[].locks[] | select(.waiters != []) | .lock'
    locks top --once --no-header --columns lock,waiters,wait --sort wait";

/// Flags of `locks top`.
#[derive(Args, Debug)]
pub struct TopArgs {
    /// Which server.
    #[command(flatten)]
    pub connection: ConnectionArgs,

    /// Which exporter instead.
    #[command(flatten)]
    pub from: FromArgs,

    /// Exporter to ask for what it remembers of the same server; none asks nobody
    ///
    /// It is the same server where the system identifier is the same. The connection stays our own:
    /// who holds and waits now is always asked of the server.
    #[arg(
        long,
        value_name = "URL",
        env = "LOCKS_EXPORTER",
        hide_env_values = true,
        help_heading = "Where to connect",
        default_value = LOCAL_EXPORTER
    )]
    pub exporter: SecretText,

    /// Which files.
    #[command(flatten)]
    pub files: FileArgs,

    /// Time between two looks [default: 1s]
    ///
    /// It stretches when polls take long. With --json, one object is printed at each look until
    /// Ctrl-C.
    #[arg(long, value_name = "DURATION", value_parser = parse_duration, help_heading = "View")]
    pub interval: Option<Duration>,

    /// What to show: locks, sessions or tree
    #[arg(
        long,
        value_enum,
        value_name = "VIEW",
        hide_possible_values = true,
        default_value = "locks",
        help_heading = "View"
    )]
    pub view: ViewKind,

    /// Column to sort by; a minus before it turns the order round
    ///
    /// The worst comes first unless told otherwise: what is critical, then who keeps most others
    /// waiting, then the longest.
    #[arg(long, value_name = "COLUMN", allow_hyphen_values = true, help_heading = "View")]
    pub sort: Option<String>,

    /// Show rows in which all of these words are found
    ///
    /// In names, keys, applications, databases, servers, states and findings; a number is a whole pid
    /// or a part of a key. app:, pid:, lock:, key:, db:, server:, state:, finding: and user: look in
    /// one place, ! before a word turns it round.
    #[arg(
        long,
        value_name = "WORDS",
        default_value = "",
        hide_default_value = true,
        help_heading = "View"
    )]
    pub filter: String,

    /// Show the query texts of sessions, on Enter
    ///
    /// They may hold secrets and personal data.
    #[arg(long, conflicts_with = "from", help_heading = "View")]
    pub show_queries: bool,

    /// When to use colours: auto, always or never
    ///
    /// auto follows NO_COLOR, CLICOLOR_FORCE and TERM. Nothing is told by colour alone.
    #[arg(
        long,
        value_enum,
        value_name = "WHEN",
        hide_possible_values = true,
        default_value = "auto",
        help_heading = "View"
    )]
    pub color: ColorChoice,

    /// Allow to cancel (C) and to end (K) the selected session, after a question
    ///
    /// The role needs the right to: pg_signal_backend, or to be that of the session.
    #[arg(long, conflicts_with = "from", help_heading = "Acting")]
    pub allow_kill: bool,

    /// Print one table and end, as --columns and --no-header do too
    #[arg(long, help_heading = "Scripts")]
    pub once: bool,

    /// Print the snapshot as JSON, as /api/v1/locks of an exporter has it
    #[arg(long, help_heading = "Scripts")]
    pub json: bool,

    /// Columns to print, separated by commas
    #[arg(long, value_name = "COLUMNS", value_delimiter = ',', help_heading = "Scripts")]
    pub columns: Vec<String>,

    /// Print rows alone
    #[arg(long, help_heading = "Scripts")]
    pub no_header: bool,
}

/// When to use colours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum ColorChoice {
    /// As the environment and the terminal say.
    #[default]
    Auto,
    /// On every terminal.
    Always,
    /// On none.
    Never,
}

impl ColorChoice {
    /// Whether colours are used, with the environment and what is known of standard output.
    pub fn is_colored(self, variable: impl Fn(&str) -> Option<String>, is_terminal: bool) -> bool {
        let is_set = |name: &str| variable(name).is_some_and(|value| !value.is_empty());
        // 0 forces nothing, which is not to forbid.
        let is_forced = variable("CLICOLOR_FORCE").is_some_and(|it| !["", "0"].contains(&&*it));
        match self {
            Self::Always => true,
            Self::Never => false,
            Self::Auto if is_set("NO_COLOR") => false,
            Self::Auto if is_forced => true,
            Self::Auto => is_terminal && variable("TERM").is_some_and(|term| term != "dumb"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_follow_the_flag_then_the_environment_then_the_terminal() {
        use ColorChoice::{Always, Auto, Never};
        let xterm = ("TERM", "xterm");
        for (choice, environment, is_terminal, expected) in [
            (Auto, &[xterm][..], true, true),
            (Auto, &[xterm], false, false),
            (Auto, &[("TERM", "dumb")], true, false),
            (Auto, &[], true, false),
            (Auto, &[xterm, ("NO_COLOR", "1")], true, false),
            (Auto, &[xterm, ("NO_COLOR", "")], true, true),
            (Auto, &[("CLICOLOR_FORCE", "1")], false, true),
            (Auto, &[xterm, ("CLICOLOR_FORCE", "0")], true, true),
            (Auto, &[xterm, ("CLICOLOR_FORCE", "0")], false, false),
            (Auto, &[xterm, ("CLICOLOR_FORCE", "")], true, true),
            (Auto, &[("TERM", "dumb"), ("CLICOLOR_FORCE", "1")], true, true),
            (Auto, &[("CLICOLOR_FORCE", "1"), ("NO_COLOR", "1")], true, false),
            (Always, &[("NO_COLOR", "1")], false, true),
            (Never, &[("CLICOLOR_FORCE", "1")], true, false),
        ] {
            let variable = |name: &str| {
                let found = environment.iter().find(|(known, _)| *known == name);
                found.map(|(_, value)| (*value).to_owned())
            };
            let is_colored = choice.is_colored(variable, is_terminal);
            assert_eq!(is_colored, expected, "{choice:?} {environment:?} {is_terminal}");
        }
    }
}
