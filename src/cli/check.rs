//! `locks check` as it is typed.
//!
//! It owns flags and their help only. What is said of what was seen is decided in
//! [`check`](crate::check).

use clap::Args;

use super::survey::SurveyArgs;
use crate::finding::FindingKind;

pub(super) const EXAMPLES: &str = "\
Exit codes are those of monitoring plugins: 0 nothing found, 1 warning, 2 critical, 3 cannot tell: a
server or the exporter cannot be reached, a finding named with --require cannot be judged, or the
command or a file has a mistake in it. Of several the first of 2, 3, 1, 0 counts, so that trouble
that was seen is never hidden by a server that is down, nor a server that is down by a warning.

The first line is for a pager, with performance data behind it; every finding with its remedy
follows, then what could not be judged. From two samples it is not known what happened before
them. A running exporter (--from) has watched for longer and judges more.

Examples:
  The local server, with names and limits of a registry:
    locks check --registry.file registry.yaml
  As a monitoring plugin that must be able to see what it is there for:
    locks check --dsn-file /etc/locks/dsn --require stuck
  Through an exporter, which remembers when jobs ran:
    locks check --from http://db-1:10187 --require missed --samples 1
  Before the exporter is installed, as the role that it will have:
    locks check --dsn-file /etc/locks/dsn --privileges";

/// Flags of `locks check`.
#[derive(Args, Debug)]
pub struct CheckArgs {
    /// What is looked at.
    #[command(flatten)]
    pub survey: SurveyArgs,

    /// Finding that has to be judged, else the exit code is 3; may be given several times
    ///
    /// By its name, as in stuck or held_too_long. What is judged in part is enough.
    #[arg(
        long,
        value_name = "FINDING",
        value_parser = parse_finding,
        help_heading = "Verdict"
    )]
    pub require: Vec<FindingKind>,

    /// Tell what the role may do on each server, what it lacks, and the SQL that grants it
    ///
    /// Locks are not looked at. The exit code is 0 when nothing is missing, 1 when something
    /// degrades without what is missing, 3 when a server cannot be asked.
    #[arg(
        long,
        conflicts_with_all = ["from", "require", "samples", "interval"],
        help_heading = "Verdict"
    )]
    pub privileges: bool,

    /// Print JSON
    #[arg(long, help_heading = "Verdict")]
    pub json: bool,
}

fn parse_finding(name: &str) -> Result<FindingKind, String> {
    FindingKind::parse(name).ok_or_else(|| {
        let known: Vec<&str> = FindingKind::ALL.iter().map(|kind| kind.as_str()).collect();
        format!("no finding has this name; known are {}", known.join(", "))
    })
}
