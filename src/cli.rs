//! The command line as it is typed.
//!
//! It owns the names of flags and of their environment variables, their help, and the form of each
//! single value. It must not know how flags, environment and file combine: that is `config`, which
//! takes what is parsed here. A flag that a file may set too has no default here, so that "not
//! given" stays visible.

pub mod check;
pub mod man;
pub mod registry;
pub mod survey;
pub mod top;

use std::convert::Infallible;
use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::builder::{BoolishValueParser, NonEmptyStringValueParser};
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::parser::ValueSource;
use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand};
use clap_complete::Shell;

use crate::duration::parse_duration;
use crate::logging::{LogFormat, LogLevel};

/// Makes PostgreSQL advisory locks visible: who holds which key, by name, since when, and who
/// waits.
#[derive(Debug, Parser)]
#[command(
    name = "locks",
    version,
    propagate_version = true,
    max_term_width = 100,
    disable_help_subcommand = true
)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands of `locks`.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the exporter: poll the servers and serve what is seen to Prometheus and to people.
    #[command(after_long_help = SERVE_EXAMPLES)]
    Serve(ServeArgs),

    /// Watch on a terminal who holds what, who waits, and who is at the root.
    #[command(after_long_help = top::EXAMPLES)]
    Top(Box<top::TopArgs>),

    /// Look now and say what is wrong, with the exit code of a monitoring plugin.
    #[command(after_long_help = check::EXAMPLES)]
    Check(check::CheckArgs),

    /// Say what a key is, or name every advisory lock in a log: needs no server.
    #[command(after_long_help = EXPLAIN_EXAMPLES)]
    Explain(ExplainArgs),

    /// Names for keys: check registry files, list what they name, suggest entries for the rest.
    Registry(registry::RegistryArgs),

    /// Print what a shell reads to complete commands and flags.
    #[command(after_long_help = COMPLETIONS_EXAMPLES)]
    Completions(CompletionsArgs),

    /// Print the man page, of all commands.
    #[command(after_long_help = MAN_EXAMPLES)]
    Man,
}

/// Flags of `locks completions`.
#[derive(Args, Debug)]
pub struct CompletionsArgs {
    /// The shell: bash, elvish, fish, powershell or zsh
    #[arg(value_enum, value_name = "SHELL", hide_possible_values = true)]
    pub shell: Shell,
}

const SERVE_EXAMPLES: &str = "\
Every flag has an environment variable, and many have a key in the configuration file. A flag wins
over its variable, the variable over the file, the file over the default. Durations are written as
in Prometheus: 500ms, 15m, 1h30m.

A role that sees everything and can do nothing, with a few connections of its own (leave the fourth
line out before PostgreSQL 16); locks check --privileges tells what a role lacks:
  CREATE ROLE locks LOGIN CONNECTION LIMIT 5;
  ALTER ROLE locks SET statement_timeout = '5s';
  GRANT pg_read_all_stats TO locks;
  GRANT pg_use_reserved_connections TO locks;

Examples:
  Watch the local server over its Unix socket:
    locks serve
  Watch another one, with the password in a file that may rotate:
    locks serve --dsn-file /run/secrets/locks-dsn
  Watch several, let others on the network scrape:
    locks serve --config.file locks.yaml --web.listen-address :10187";

const EXPLAIN_EXAMPLES: &str = "\
Examples:
  As the application wrote it, as pg_locks shows it, as a log names it:
    locks explain 42 -1 7,9
    locks explain 4294967295/4294967295/1
    locks explain 'advisory lock [16384,10,4294967294,2]'
  Which keys an application may have made of a text:
    locks explain cron:nightly
  A log with every advisory lock named, its deadlocks and waits below it:
    locks explain --registry.file registry.yaml < postgresql.log";

const COMPLETIONS_EXAMPLES: &str = "\
Examples:
  In this shell:
    source <(locks completions bash)
  Where each of the shells looks:
    locks completions bash > /usr/share/bash-completion/completions/locks
    locks completions zsh > /usr/share/zsh/site-functions/_locks
    locks completions fish > /usr/share/fish/vendor_completions.d/locks.fish";

const MAN_EXAMPLES: &str = "\
Examples:
  To read it:
    locks man | man -l -
  Where man looks:
    locks man > /usr/share/man/man1/locks.1";

const WHAT_HELP: &str = "\
Keys and texts; nothing or - reads log text from standard input

A key is written 42, -1, (7,9), 7,9, as classid/objid/objsubid, as advisory lock [16384,0,42,1], as \
class 5: 0/102747, or as SQL that takes it. Any other text is hashed in every way that applications \
are known to make keys.";

/// Flags of `locks explain`.
#[derive(Args, Debug)]
pub struct ExplainArgs {
    /// Keys and texts; nothing or - reads log text from standard input
    #[arg(long_help = WHAT_HELP, value_name = "WHAT", allow_negative_numbers = true)]
    pub what: Vec<String>,

    /// Take every WHAT for a text, also one that looks like a key
    #[arg(long = "string")]
    pub string: bool,

    /// Database of the key: which entries name it, and what {database} stands for
    #[arg(long = "database", value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
    pub database: Option<String>,

    /// Which names.
    #[command(flatten)]
    pub registry: RegistryFileArgs,

    /// Print JSON, one object on a line; of a log only what was found in it
    #[arg(long = "json")]
    pub json: bool,
}

/// Flags of `locks serve`.
#[derive(Args, Debug)]
pub struct ServeArgs {
    /// Which server.
    #[command(flatten)]
    pub connection: ConnectionArgs,
    /// Which files.
    #[command(flatten)]
    pub files: FileArgs,
    /// What to remember.
    #[command(flatten)]
    pub state: StateArgs,
    /// How often.
    #[command(flatten)]
    pub poll: PollArgs,
    /// Over HTTP.
    #[command(flatten)]
    pub web: WebArgs,
    /// To standard error.
    #[command(flatten)]
    pub log: LogArgs,
}

/// Which server to watch. The environment variables are looked up by `config`, which must know
/// whether a password was typed where `ps` shows it.
#[derive(Args, Debug)]
#[command(next_help_heading = "Where to connect")]
pub struct ConnectionArgs {
    /// Connection string, as a URI or as key=value pairs
    ///
    /// What it leaves open comes from PGHOST, PGUSER, PGSSLMODE and so on, from service and password
    /// files, as with every client of PostgreSQL; with nothing set, the local server is watched. A
    /// password is safer in --dsn-file, in a password file or in the environment, since other users
    /// can read the arguments of a process.
    ///
    /// [env: DATA_SOURCE_NAME, or DATA_SOURCE_URI, DATA_SOURCE_USER and DATA_SOURCE_PASS, or these
    /// with _FILE]
    #[arg(long = "dsn", value_name = "DSN")]
    pub dsn: Option<SecretText>,

    /// File that holds the connection string
    ///
    /// Its password is read again at every connect, since passwords rotate.
    ///
    /// [env: LOCKS_DSN_FILE]
    #[arg(long = "dsn-file", value_name = "FILE", conflicts_with = "dsn")]
    pub dsn_file: Option<PathBuf>,
}

/// Which files to read.
#[derive(Args, Debug)]
#[command(next_help_heading = "Files")]
pub struct FileArgs {
    /// Configuration in YAML: several servers, application names, limits
    #[arg(
        long = "config.file",
        value_name = "FILE",
        env = "LOCKS_CONFIG_FILE",
        hide_env_values = true
    )]
    pub config_file: Option<PathBuf>,

    /// Which names.
    #[command(flatten)]
    pub registry: RegistryFileArgs,
}

/// Which registry files to read.
#[derive(Args, Debug)]
pub struct RegistryFileArgs {
    /// Registry in YAML: which key has which name; may be given several times
    ///
    /// In the environment, several are separated by commas.
    #[arg(
        long = "registry.file",
        value_name = "FILE",
        env = "LOCKS_REGISTRY_FILE",
        hide_env_values = true,
        value_delimiter = ','
    )]
    pub files: Vec<PathBuf>,
}

/// Where to remember.
#[derive(Args, Debug)]
#[command(next_help_heading = "Files")]
pub struct StateArgs {
    /// File that remembers over a restart what was seen of keys
    ///
    /// When registered keys were last held and by whom, how long they were free, and what present
    /// holders were called at first: a job that was missed or ran twice is found although the
    /// exporter was started again meanwhile. Made if it is not there, in a folder that this user
    /// can write to; each exporter needs a file of its own.
    #[arg(
        long = "state.file",
        value_name = "FILE",
        env = "LOCKS_STATE_FILE",
        hide_env_values = true
    )]
    pub file: Option<PathBuf>,
}

/// How often to look.
#[derive(Args, Debug)]
#[command(next_help_heading = "Polling")]
pub struct PollArgs {
    /// Time between the starts of two polls [default: 1s]
    ///
    /// A lock that is held for less may never be seen. The interval stretches when polls take long.
    #[arg(
        long = "poll.interval",
        value_name = "DURATION",
        env = "LOCKS_POLL_INTERVAL",
        hide_env_values = true,
        value_parser = parse_duration
    )]
    pub interval: Option<Duration>,

    /// Time after which a poll is given up and counted as failed [default: 5s]
    #[arg(
        long = "poll.timeout",
        value_name = "DURATION",
        env = "LOCKS_POLL_TIMEOUT",
        hide_env_values = true,
        value_parser = parse_duration
    )]
    pub timeout: Option<Duration>,
}

const LISTEN_ADDRESS_HELP: &str = "\
Address to listen on; may be given several times

HOST:PORT, [IPV6]:PORT, or :PORT for all interfaces. In the environment, several are \
separated by commas.";

/// What is served, and where.
#[derive(Args, Debug)]
#[command(next_help_heading = "HTTP")]
pub struct WebArgs {
    /// Address to listen on; may be given several times
    #[arg(
        long_help = LISTEN_ADDRESS_HELP,
        long = "web.listen-address",
        value_name = "ADDRESS",
        env = "LOCKS_WEB_LISTEN_ADDRESS",
        hide_env_values = true,
        value_delimiter = ',',
        default_value = "127.0.0.1:10187"
    )]
    pub listen_addresses: Vec<ListenAddress>,

    /// Listen on the sockets that systemd passes, instead of --web.listen-address
    #[arg(
        long = "web.systemd-socket",
        env = "LOCKS_WEB_SYSTEMD_SOCKET",
        hide_env_values = true,
        value_parser = BoolishValueParser::new()
    )]
    pub systemd_socket: bool,

    /// TLS, users and a rate limit, in YAML as the exporters of Prometheus read it
    ///
    /// Read again when it changes, and the certificates that it names with it.
    #[arg(
        long = "web.config.file",
        value_name = "FILE",
        env = "LOCKS_WEB_CONFIG_FILE",
        hide_env_values = true
    )]
    pub web_config_file: Option<PathBuf>,

    /// Path of the metrics
    #[arg(
        long = "web.telemetry-path",
        value_name = "PATH",
        env = "LOCKS_WEB_TELEMETRY_PATH",
        hide_env_values = true,
        default_value = "/metrics",
        value_parser = NonEmptyStringValueParser::new()
    )]
    pub telemetry_path: String,

    /// Show roles, client addresses and query texts to everybody
    ///
    /// Otherwise they are only shown to peers on this machine, and to those who logged in where
    /// --web.config.file asks for it.
    #[arg(
        long = "web.show-details",
        env = "LOCKS_WEB_SHOW_DETAILS",
        hide_env_values = true,
        value_parser = BoolishValueParser::new()
    )]
    pub show_details: bool,

    /// Name by which clients may reach this server; may be given several times
    ///
    /// IP addresses and localhost always work. Other names are refused unless listed here, so that
    /// a web page cannot read the metrics through the browser of somebody inside. In the
    /// environment, several are separated by commas.
    #[arg(
        long = "web.allowed-hosts",
        value_name = "NAME",
        env = "LOCKS_WEB_ALLOWED_HOSTS",
        hide_env_values = true,
        value_delimiter = ',',
        value_parser = NonEmptyStringValueParser::new()
    )]
    pub allowed_hosts: Vec<String>,
}

/// How to log.
#[derive(Args, Clone, Copy, Debug)]
#[command(next_help_heading = "Log")]
pub struct LogArgs {
    /// Least important messages to print
    #[arg(
        long = "log.level",
        value_name = "LEVEL",
        env = "LOCKS_LOG_LEVEL",
        hide_env_values = true,
        value_enum,
        hide_possible_values = true,
        help = "Least important messages to print: debug, info, warn or error",
        default_value = "info"
    )]
    pub level: LogLevel,

    /// Form of each line
    #[arg(
        long = "log.format",
        value_name = "FORMAT",
        env = "LOCKS_LOG_FORMAT",
        hide_env_values = true,
        value_enum,
        hide_possible_values = true,
        help = "Form of each line: logfmt or json",
        default_value = "logfmt"
    )]
    pub format: LogFormat,

    /// Log every hold and wait that is seen to begin or end
    ///
    /// Otherwise only findings when they begin and end, and holds of named locks that last 10 s or
    /// longer, once they have and when they end. Of very many at once a part is logged, and how many
    /// lines were left out.
    #[arg(
        long = "log.events",
        env = "LOCKS_LOG_EVENTS",
        hide_env_values = true,
        value_parser = BoolishValueParser::new()
    )]
    pub events: bool,
}

/// A text as it was typed that may hold a password, kept out of debug output.
#[derive(Clone, PartialEq, Eq)]
pub struct SecretText(String);

impl SecretText {
    /// The text with whatever secret is in it.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl FromStr for SecretText {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(Self(text.to_owned()))
    }
}

impl fmt::Debug for SecretText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretText(..)")
    }
}

/// Where to listen, not looked up yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenAddress {
    /// Name or address, an IPv6 one without brackets; `None` is every interface.
    pub host: Option<String>,
    /// 0 is any port that is free.
    pub port: u16,
}

/// Why a text is not a place to listen on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("write HOST:PORT, [IPV6]:PORT, or :PORT for all interfaces, as in 127.0.0.1:10187")]
pub struct ParseListenAddressError;

impl FromStr for ListenAddress {
    type Err = ParseListenAddressError;

    fn from_str(text: &str) -> Result<Self, ParseListenAddressError> {
        let (host, port) = text.rsplit_once(':').ok_or(ParseListenAddressError)?;
        let port = port.parse().map_err(|_| ParseListenAddressError)?;
        let host = match host.strip_prefix('[') {
            Some(inner) => {
                let address = inner.strip_suffix(']').ok_or(ParseListenAddressError)?;
                let _: std::net::Ipv6Addr = address.parse().map_err(|_| ParseListenAddressError)?;
                address
            }
            // An IPv6 address without brackets, or a URL.
            None if host.contains([':', '/', '[', ']', ' ']) => {
                return Err(ParseListenAddressError);
            }
            None => host,
        };
        Ok(Self { host: (!host.is_empty()).then(|| host.to_owned()), port })
    }
}

/// As it is written.
impl fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.as_deref() {
            Some(host) if host.contains(':') => write!(f, "[{host}]:{}", self.port),
            host => write!(f, "{}:{}", host.unwrap_or_default(), self.port),
        }
    }
}

/// Parses the arguments, the name of the program first, and the environment variables of flags
/// that are not given.
///
/// The error may also be a help text or a version; it knows its exit code, 2 for a mistake. A
/// stray argument is not quoted in it, since a connection string that the shell took apart leaves
/// pieces of its password there.
pub fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Cli, clap::Error> {
    let command = without_empty_variables(Cli::command());
    let arguments = arguments.into_iter().map(with_parentheses);
    let matches = command.try_get_matches_from(arguments).map_err(redact)?;
    // Its variable says whom to ask in general, and is no reason against another wish.
    if let Some(("top", top)) = matches.subcommand()
        && top.contains_id("from")
        && top.value_source("exporter") == Some(ValueSource::CommandLine)
    {
        let text = "--exporter cannot be used with --from, which shows one exporter alone";
        return Err(Cli::command().error(ErrorKind::ArgumentConflict, text));
    }
    Cli::from_arg_matches(&matches)
}

/// What a shell reads to complete commands and flags.
pub fn render_completions(shell: Shell) -> String {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "locks", &mut script);
    String::from_utf8_lossy(&script).into_owned()
}

/// The pair `-7,9` would be taken for flags, which a number is not: it is put into parentheses,
/// which the shell would have made somebody quote.
fn with_parentheses(argument: OsString) -> OsString {
    let is_number = |text: &str| text.parse::<i32>().is_ok();
    match argument.to_str().and_then(|text| text.split_once(',')) {
        Some((first, second))
            if first.starts_with('-') && is_number(first) && is_number(second.trim()) =>
        {
            format!("({first},{})", second.trim()).into()
        }
        Some(_) | None => argument,
    }
}

/// Templates write variables whether they have a value or not; an empty one says nothing.
fn without_empty_variables(command: clap::Command) -> clap::Command {
    let command = command.mut_args(|argument| match argument.get_env() {
        Some(name) if std::env::var_os(name).is_some_and(|value| value.is_empty()) => {
            argument.env(None::<&str>)
        }
        Some(_) | None => argument,
    });
    command.mut_subcommands(without_empty_variables)
}

#[expect(clippy::wildcard_enum_match_arm, reason = "no other kind quotes a stray argument")]
fn redact(error: clap::Error) -> clap::Error {
    let (context, what) = match error.kind() {
        ErrorKind::UnknownArgument => (ContextKind::InvalidArg, "argument"),
        ErrorKind::InvalidSubcommand => (ContextKind::InvalidSubcommand, "command"),
        _ => return error,
    };
    // What comes after a blank of a connection string has no dashes in front.
    let is_name = |text: &str| {
        let name = text.strip_prefix("--").or((what == "command").then_some(text));
        name.is_some_and(|name| {
            name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'.' || byte == b'-')
        })
    };
    match error.get(context) {
        Some(ContextValue::String(text)) if is_name(text) => error,
        _ => Cli::command().error(
            error.kind(),
            format!(
                "unexpected {what}, not shown since it may be part of a password; \
                 quote a connection string that holds spaces"
            ),
        ),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn parse_line(line: &str) -> Result<Cli, clap::Error> {
        parse(line.split(' ').map(OsString::from))
    }

    fn serve(line: &str) -> ServeArgs {
        let line = format!("locks serve {line}").trim_end().replace("  ", " ");
        match parse_line(&line).unwrap().command {
            Command::Serve(args) => args,
            other @ (Command::Top(_)
            | Command::Check(_)
            | Command::Explain(_)
            | Command::Registry(_)
            | Command::Completions(_)
            | Command::Man) => panic!("{other:?}"),
        }
    }

    #[test]
    fn flags_are_well_formed() {
        Cli::command().debug_assert();
    }

    /// After a change: `UPDATE_GOLDEN=1 cargo test --lib help`, then review the diff.
    #[test]
    fn the_help_of_every_command_is_the_one_reviewed() {
        let mut root = Cli::command().term_width(100);
        root.build();
        for path in [
            "serve",
            "top",
            "check",
            "registry",
            "registry check",
            "registry list",
            "registry suggest",
            "explain",
            "completions",
            "man",
        ] {
            let mut command = &mut root;
            for name in path.split(' ') {
                command = command.find_subcommand_mut(name).unwrap();
            }
            let help = command.render_long_help().to_string();
            let help: String = help.lines().map(|line| format!("{}\n", line.trim_end())).collect();
            let file = format!("tests/golden/{}-help.txt", path.replace(' ', "-"));
            let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
            if std::env::var_os("UPDATE_GOLDEN").is_some() {
                std::fs::write(&golden, &help).unwrap();
            }
            assert_eq!(help, std::fs::read_to_string(&golden).unwrap(), "{path}");
        }
    }

    #[test]
    fn nothing_needs_to_be_given() {
        let args = serve("");
        assert_eq!(args.connection.dsn, None);
        assert_eq!(args.poll.interval, None);
        assert_eq!(args.web.listen_addresses[0].to_string(), "127.0.0.1:10187");
        assert_eq!(args.web.telemetry_path, "/metrics");
        assert!(!args.web.show_details);
        assert_eq!((args.log.level, args.log.format), (LogLevel::Info, LogFormat::Logfmt));
        assert!(!args.log.events);
    }

    #[test]
    fn flags_that_repeat_keep_their_order() {
        let args = serve(
            "--registry.file a.yaml --registry.file=b.yaml \
             --web.listen-address :1 --web.listen-address [::1]:2 --poll.interval 500ms",
        );
        assert_eq!(args.files.registry.files, ["a.yaml", "b.yaml"].map(PathBuf::from));
        let addresses: Vec<String> =
            args.web.listen_addresses.iter().map(ToString::to_string).collect();
        assert_eq!(addresses, [":1", "[::1]:2"]);
        assert_eq!(args.poll.interval, Some(Duration::from_millis(500)));
    }

    #[test]
    fn places_to_listen_are_written_as_for_other_exporters() {
        let expected = [
            (":10187", None, 10187),
            ("0.0.0.0:0", Some("0.0.0.0"), 0),
            ("localhost:9", Some("localhost"), 9),
            ("[::]:10187", Some("::"), 10187),
        ];
        for (text, host, port) in expected {
            let address: ListenAddress = text.parse().unwrap();
            assert_eq!((address.host.as_deref(), address.port), (host, port), "{text}");
            assert_eq!(address.to_string(), text);
        }
        for text in [
            "",
            "10187",
            "localhost",
            "h:",
            "h:x",
            "h:65536",
            "::1:1",
            "[::1]",
            "[x]:1",
            "http://h:1",
        ] {
            assert_eq!(text.parse::<ListenAddress>(), Err(ParseListenAddressError), "{text}");
        }
    }

    #[test]
    fn numbers_with_a_minus_are_no_flags() {
        let line = "locks explain -1 -9223372036854775808 -7,9 7,-9 - --json -2147483648";
        let Command::Explain(args) = parse_line(line).unwrap().command else {
            panic!("explain was asked for");
        };
        let what = ["-1", "-9223372036854775808", "(-7,9)", "7,-9", "-", "-2147483648"];
        assert_eq!(args.what, what);
        assert!(args.json);
    }

    #[test]
    fn mistakes_exit_with_2_and_help_with_0() {
        for line in [
            "locks",
            "locks listen",
            "locks serve --poll.interval 5",
            "locks serve --poll.interva 5s",
            "locks serve --log.level loud",
            "locks serve --web.listen-address 10187",
            "locks serve --dsn a --dsn-file b",
            "locks serve --dsn host=h user=u",
            "locks explain --jason",
            "locks explain -x",
            "locks check --require stack",
            "locks check --privileges --from http://h",
            "locks check --privileges --require stuck",
            "locks check --privileges --samples 1",
            "locks top --from http://h --exporter http://h",
            "locks top --from http://h --allow-kill",
            "locks top --from http://h --show-queries",
            "locks top --from http://h --dsn host=h",
            "locks top --view stack",
            "locks top --color sometimes",
        ] {
            assert_eq!(parse_line(line).unwrap_err().exit_code(), 2, "{line}");
        }
        for line in
            ["locks --help", "locks serve --help", "locks --version", "locks serve --version"]
        {
            assert_eq!(parse_line(line).unwrap_err().exit_code(), 0, "{line}");
        }
    }

    #[test]
    fn a_bare_number_is_refused_with_the_mend() {
        let error = parse_line("locks serve --poll.interval 5").unwrap_err().to_string();
        assert!(error.contains("write 5s for seconds"), "{error}");
    }

    #[test]
    fn a_flag_that_does_not_exist_is_named() {
        let error = parse_line("locks serve --poll.interva 5s").unwrap_err().to_string();
        assert!(error.contains("--poll.interval"), "{error}");
    }

    #[test]
    fn pieces_of_a_connection_string_are_not_shown() {
        for line in [
            "locks serve --dsn host=h password=S3cr3t-canary",
            "locks serve --dsn password='my S3cr3t-canary'",
            "locks serve --dsn password=my canary",
            "locks serve --dsn password=my -S3cr3t-canary",
            "locks serve --dsn password=my --S3cr3t-canary",
            "locks serve --dns=postgresql://u:S3cr3t-canary@h",
            "locks serve --dns postgresql://u:S3cr3t-canary@h",
            "locks serve postgresql://u:S3cr3t-canary@h",
            "locks postgresql://u:S3cr3t-canary@h",
            "locks serve --dsn a --dsn S3cr3t-canary",
            "locks serve --dsn S3cr3t-canary --dsn-file x",
            "locks serve --dsn S3cr3t-canary --log.level loud",
        ] {
            let error = parse_line(line).unwrap_err();
            assert!(!format!("{error} {error:?}").contains("canary"), "{line}: {error} {error:?}");
        }
        let args = serve("--dsn password=S3cr3t-canary");
        assert!(!format!("{args:?}").contains("S3cr3t"));
        assert_eq!(args.connection.dsn.unwrap().expose(), "password=S3cr3t-canary");
    }
}
