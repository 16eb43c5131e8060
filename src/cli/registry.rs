//! `locks registry …` as it is typed.
//!
//! It owns flags and their help only. What the commands do is in
//! [`registry_command`](crate::registry_command).

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::RegistryFileArgs;
use super::survey::SurveyArgs;

/// `locks registry`
#[derive(Args, Debug)]
pub struct RegistryArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: RegistryCommand,
}

/// The commands of `locks registry`.
#[derive(Debug, Subcommand)]
pub enum RegistryCommand {
    /// Check registry files: every fault with its place and its mend, and every conflict.
    #[command(after_long_help = CHECK_EXAMPLES)]
    Check(CheckArgs),
    /// List every name and the keys it names.
    #[command(after_long_help = LIST_EXAMPLES)]
    List(ListArgs),
    /// Write registry entries for the keys that are held or awaited now and have no name.
    #[command(after_long_help = SUGGEST_EXAMPLES)]
    Suggest(SuggestArgs),
}

const CHECK_EXAMPLES: &str = "\
Files are checked together, as the exporter loads them, since two of them may name one key.
Conflicts of a file show once it has no other faults. All that is wrong goes to standard error, with
exit code 1; when nothing is, a summary goes to standard output, with exit code 0. Values of one
name that hash alike are a warning.

Examples:
  Before a commit:
    locks registry check registry.yaml payments.yaml
  What another program wrote:
    render-registry | locks registry check -";

const LIST_EXAMPLES: &str = "\
A key of a preset with a small number is named only where there is a sign of the tool, and is a
candidate elsewhere. A key ? depends on the database: say which with --database.

Examples:
  All names of two files:
    locks registry list --registry.file a.yaml --registry.file b.yaml
  What may name a key in one database, for a script:
    locks registry list --registry.file a.yaml --database app --json";

const SUGGEST_EXAMPLES: &str = "\
The output is a registry file. Its names are placeholders, made of application names, and say
nothing about what a key means: rename them. What is more than seen is marked with \"guess:\".

Without --from it connects as `locks serve` does and looks twice, a second apart. A lock that is
held for a moment now and then takes more: --samples 600 looks for ten minutes, and Ctrl-C ends it
early with what was seen so far.

Examples:
  From an empty registry to a first one:
    locks registry suggest > registry.yaml
  What an exporter sees that no file names yet:
    locks registry suggest --from http://db-1:10187 --registry.file registry.yaml";

/// Flags of `locks registry check`.
#[derive(Args, Debug)]
pub struct CheckArgs {
    /// Registry files; - is standard input
    #[arg(value_name = "FILE", required = true)]
    pub files: Vec<PathBuf>,
}

/// Flags of `locks registry list`.
#[derive(Args, Debug)]
pub struct ListArgs {
    /// Which files.
    #[command(flatten)]
    pub registry: RegistryFileArgs,

    /// Only what may name a key in this database
    #[arg(long, value_name = "NAME")]
    pub database: Option<String>,

    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Flags of `locks registry suggest`.
#[derive(Args, Debug)]
pub struct SuggestArgs {
    /// What is looked at.
    #[command(flatten)]
    pub survey: SurveyArgs,
}
