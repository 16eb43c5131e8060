//! Where and how often a command looks that comes and goes, as it is typed.
//!
//! It owns flags and their help only. [`survey`](crate::survey) does the looking.

use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::{ConnectionArgs, FileArgs, SecretText};
use crate::duration::parse_duration;

/// What is looked at: servers, or a running exporter.
#[derive(Args, Debug)]
pub struct SurveyArgs {
    /// Which server.
    #[command(flatten)]
    pub connection: ConnectionArgs,

    /// Which exporter instead.
    #[command(flatten)]
    pub from: FromArgs,

    /// Which files.
    #[command(flatten)]
    pub files: FileArgs,

    /// How often to look
    #[arg(
        long,
        value_name = "N",
        default_value = "2",
        value_parser = parse_samples,
        help_heading = "Looking"
    )]
    pub samples: NonZeroU32,

    /// Time between two looks
    #[arg(
        long,
        value_name = "DURATION",
        default_value = "1s",
        value_parser = parse_duration,
        help_heading = "Looking"
    )]
    pub interval: Duration,
}

/// A running exporter.
#[derive(Args, Debug)]
#[command(next_help_heading = "Where to connect")]
pub struct FromArgs {
    /// Read a running exporter at this address instead of connecting to a server
    ///
    /// As in http://db-1:10187, or https://NAME:PASSWORD@proxy/locks where a proxy before it
    /// speaks TLS and asks for a password. With https it has to prove its name, always.
    #[arg(
        id = "from",
        long = "from",
        value_name = "URL",
        conflicts_with_all = ["dsn", "dsn_file"]
    )]
    pub url: Option<SecretText>,

    /// Certificates of issuers to trust at https://, in PEM, in place of those of this machine
    ///
    /// Without it SSL_CERT_FILE and SSL_CERT_DIR, where they are set, say whom this machine trusts.
    #[arg(long = "from.ca-file", value_name = "FILE")]
    pub ca_file: Option<PathBuf>,
}

fn parse_samples(text: &str) -> Result<NonZeroU32, &'static str> {
    text.parse().map_err(|_| "write how many times, 1 at least")
}
