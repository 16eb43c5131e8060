//! The configuration: what was typed, what the environment says and what a file says, made one.
//!
//! Everything is validated here, before a port is bound or a server is asked, and a mistake is
//! answered with its place and its mend. `Config` has no other constructor, so whoever has one may
//! rely on it. The core reads nothing by itself: environment and files are arguments. No error
//! quotes a connection string, nor a piece of the file that might be one.

mod application;
pub(crate) mod file;
mod pooler;

use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

pub use application::{Application, ApplicationError, Applications};
pub use pooler::{Pooler, PoolerError, Poolers};

use crate::cli::{ConnectionArgs, FileArgs, ListenAddress, PollArgs, ServeArgs};
use crate::duration::{ParseDurationError, parse_duration};
use crate::postgres::dsn::{Dsn, DsnError, Login};
use crate::registry::MAX_KEYS;
use file::{ConfigFile, Entry, HolderChangesSection, ServerEntry};

/// All that `locks serve` needs to know.
#[derive(Debug)]
#[expect(
    clippy::manual_non_exhaustive,
    reason = "the rest of the crate shall not make one either, which the attribute would allow"
)]
pub struct Config {
    /// The servers to watch, at least one, each with a name of its own.
    pub servers: Vec<Server>,
    /// Whether the file lists them; else it is the one that flags and environment name.
    pub lists_servers: bool,
    /// The rhythm of polls.
    pub poll: Poll,
    /// Registry files, in the order in which they apply.
    pub registry_files: Vec<PathBuf>,
    /// Where to remember over a restart what was seen, if anywhere.
    pub state_file: Option<PathBuf>,
    /// How application names become labels.
    pub applications: Applications,
    /// How many different values labels may take.
    pub limits: Limits,
    /// What is a finding where no entry of the registry says otherwise.
    pub thresholds: Thresholds,
    /// What is served.
    pub web: Web,
    /// Whether everything that happens is worth a line in the log.
    pub logs_events: bool,
    /// What is accepted, yet better done otherwise: to be logged once.
    pub warnings: Vec<Warning>,
    /// Only this file can write it, so only `new` makes a `Config`.
    _validated: (),
}

/// What every command that connects needs to know; `serve` finds it in its [`Config`].
#[derive(Debug)]
pub struct Targets {
    /// The servers to look at, each with a name of its own; at least one unless an exporter is
    /// asked.
    pub servers: Vec<Server>,
    /// Whether the file lists them.
    lists_servers: bool,
    /// The rhythm of polls.
    pub poll: Poll,
    /// Registry files, in the order in which they apply.
    pub registry_files: Vec<PathBuf>,
    /// The state file that the configuration names, which only `serve` has a use for.
    state_file: Option<PathBuf>,
    /// How application names become labels.
    pub applications: Applications,
    /// How many different values labels may take.
    pub limits: Limits,
    /// What is a finding where no entry of the registry says otherwise.
    pub thresholds: Thresholds,
    /// What is accepted, yet better done otherwise: to be said once.
    pub warnings: Vec<Warning>,
}

/// One server to watch.
#[derive(Clone, Debug, PartialEq)]
pub struct Server {
    /// The `server` label.
    pub name: String,
    /// How to reach it.
    pub dsn: Dsn,
    /// Databases in which queries of the registry may run, and tables may be looked up.
    pub inspect: BTreeSet<Arc<str>>,
    /// Whose connections are shared by many clients.
    pub poolers: Poolers,
}

/// How all servers are polled, labelled and judged. It may change while the program runs.
#[derive(Clone, Debug, PartialEq)]
pub struct Rules {
    /// The rhythm of polls.
    pub poll: Poll,
    /// How application names become labels.
    pub applications: Arc<Applications>,
    /// What is a finding where no entry of the registry says otherwise.
    pub thresholds: Thresholds,
}

/// The rhythm of polls.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Poll {
    /// Between the starts of two polls, at least 10 ms.
    pub interval: Duration,
    /// After which a poll is given up, above 0.
    pub timeout: Duration,
    /// The largest part of the time that polls may take, above 0 and up to 1; beyond it the
    /// interval stretches.
    pub max_share: f64,
}

/// How many different values labels may take over the life of the process, and how many keys the
/// registry may compute; each at least 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Keys without a name, per server.
    pub keys: usize,
    /// Application names, per server.
    pub applications: usize,
    /// Databases, per server.
    pub databases: usize,
    /// Keys that the registry names, per server.
    pub registered_keys: usize,
    /// Keys that the registry may compute, once and for each set of answers from databases.
    pub values: usize,
}

/// Beyond these something is a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Thresholds {
    /// For holders that are idle in a transaction, where the entry of the key does not say.
    pub idle_in_transaction: Duration,
    /// For holders that are prepared transactions.
    pub prepared: Duration,
    /// For the snapshots of waiters, in transactions.
    pub snapshot_age: u32,
    /// For the keys of one session; a tenth of the lock table if that is less.
    pub keys_per_session: usize,
    /// For changes of the session that holds a key that must be held.
    pub holder_changes: HolderChanges,
}

/// More changes than `count` in a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HolderChanges {
    /// So many are no finding.
    pub count: u32,
    /// Within this.
    pub within: Duration,
}

impl Default for Thresholds {
    fn default() -> Self {
        Self {
            idle_in_transaction: Duration::from_secs(60),
            prepared: Duration::from_secs(60),
            snapshot_age: 1_000_000,
            keys_per_session: 1000,
            holder_changes: HolderChanges { count: 5, within: Duration::from_secs(600) },
        }
    }
}

/// What is served over HTTP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Web {
    /// Where to listen, at least one place.
    pub listen_addresses: Vec<ListenAddress>,
    /// Whether to listen on the sockets that systemd passes, and nowhere else.
    pub systemd_socket: bool,
    /// TLS, users and limits, in a file that `server` reads.
    pub config_file: Option<PathBuf>,
    /// The path of the metrics, beginning with `/`.
    pub telemetry_path: String,
    /// Whether strangers see roles, client addresses and query texts.
    pub show_details: bool,
    /// Names by which clients may reach this server, beside IP addresses and `localhost`.
    pub allowed_hosts: Vec<String>,
}

/// Something that works, yet is better done otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Warning {
    /// Every user of the machine can read the arguments of a process.
    PasswordInArguments,
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PasswordInArguments => f.write_str(
                "--dsn holds a password, which every user of this machine can read in the list of \
                 processes; put the connection string into a file and name it with --dsn-file",
            ),
        }
    }
}

/// A mistake in what was typed, in the environment or in a file: where it is and how to mend it.
/// It belongs to the usage of the program, so `main` exits with 2.
#[derive(Debug)]
pub struct ConfigError {
    place: Place,
    fault: Fault,
}

#[derive(Debug)]
enum Place {
    /// A flag or a variable.
    Name(&'static str),
    /// A file as a whole.
    File(PathBuf),
    /// A place in a file, counted from 1.
    Line { file: PathBuf, line: u64, column: u64 },
}

/// What is wrong, with the mend. `file` adds the faults of YAML.
#[derive(Debug, thiserror::Error)]
enum Fault {
    #[error("cannot read the file")]
    Read(#[source] io::Error),
    #[error(transparent)]
    Yaml(#[from] file::YamlError),
    #[error(transparent)]
    Dsn(#[from] DsnError),
    #[error(transparent)]
    Duration(#[from] ParseDurationError),
    #[error(transparent)]
    Application(#[from] ApplicationError),
    #[error(transparent)]
    Pooler(#[from] PoolerError),
    #[error("must be at least {0}")]
    TooSmall(&'static str),
    #[error("the file is empty; write the connection string into it")]
    EmptyFile,
    #[error("must be at most {0}")]
    TooLarge(&'static str),
    #[error("must be above 0 and at most 1, as in 0.02 for 2 % of the time")]
    NotAShare,
    #[error(
        "{path:?} is served by the exporter itself or is no plain path; write one like /metrics"
    )]
    TelemetryPath { path: String },
    #[error("a server cannot have an empty name; leave `name` out for the host and port")]
    EmptyName,
    /// It would be in every label.
    #[error(
        "a name is shown to everybody, and this one, not shown here, is a connection string; write a \
         short name, as in orders-primary, or leave `name` out for the host and port"
    )]
    NameIsDsn,
    #[error("a database cannot have an empty name; write the names of databases, as in [app]")]
    EmptyDatabase,
    #[error("a second server is called {name:?}; give each a `name` of its own")]
    DuplicateServer { name: String },
    #[error("the `dsn` of this server holds a password too; leave one of the two out")]
    TwoPasswords,
    #[error("{file} lists `servers` too; drop one of the two", file = file.display())]
    ServersToo { file: PathBuf },
    #[error("{0} is set too; drop one of the two")]
    Both(&'static str),
    #[error("is not set, and a login is: write HOST:PORT/DBNAME into it")]
    NoUri,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.fault)
    }
}

impl std::error::Error for ConfigError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.fault.source()
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => f.write_str(name),
            Self::File(file) => write!(f, "{}", file.display()),
            Self::Line { file, line, column } => write!(f, "{}:{line}:{column}", file.display()),
        }
    }
}

/// Shorter polls would measure themselves.
const SHORTEST_INTERVAL: Duration = Duration::from_millis(10);

/// The server takes no more than 24 days; nobody waits for a day.
const LONGEST_TIMEOUT: Duration = Duration::from_secs(24 * 3600);

/// The world outside: looks up environment variables and reads files.
#[derive(Clone, Copy)]
pub struct World<'a> {
    /// The value of an environment variable.
    pub variable: &'a dyn Fn(&str) -> Option<String>,
    /// The text of a file.
    pub read: &'a dyn Fn(&Path) -> io::Result<String>,
}

impl Config {
    /// The configuration of this process.
    pub fn load(args: &ServeArgs) -> Result<Self, ConfigError> {
        in_this_process(|world| Self::new(args, world))
    }

    /// Combines and validates.
    pub fn new(args: &ServeArgs, world: World<'_>) -> Result<Self, ConfigError> {
        let targets = Targets::new(Some(&args.connection), &args.files, &args.poll, world)?;
        let Targets { servers, poll, registry_files, state_file, applications, .. } = targets;
        Ok(Self {
            servers,
            lists_servers: targets.lists_servers,
            poll,
            registry_files,
            state_file: args.state.file.clone().or(state_file),
            applications,
            limits: targets.limits,
            thresholds: targets.thresholds,
            web: web(args)?,
            logs_events: args.log.events,
            warnings: targets.warnings,
            _validated: (),
        })
    }

    /// What of it applies to all servers at once.
    pub fn rules(&self) -> Rules {
        Rules {
            poll: self.poll,
            applications: Arc::new(self.applications.clone()),
            thresholds: self.thresholds,
        }
    }
}

impl Targets {
    /// The targets of a command of this process that looks at its own pace.
    pub fn load(
        connection: Option<&ConnectionArgs>,
        files: &FileArgs,
    ) -> Result<Self, ConfigError> {
        let poll = PollArgs { interval: None, timeout: None };
        in_this_process(|world| Self::new(connection, files, &poll, world))
    }

    /// Combines and validates. Without `connection` there are no servers: a running exporter is
    /// asked, and whatever is said of servers belongs to others.
    pub fn new(
        connection: Option<&ConnectionArgs>,
        files: &FileArgs,
        poll_args: &PollArgs,
        world: World<'_>,
    ) -> Result<Self, ConfigError> {
        let file = match &files.config_file {
            Some(path) => ConfigFile::parse(path, &world.read_file(path)?)?,
            None => ConfigFile::default(),
        };
        let mut warnings = Vec::new();
        let servers = match connection {
            None => Vec::new(),
            Some(connection) if file.servers.is_empty() => {
                let dsn = single_dsn(connection, world, &mut warnings)?;
                let name = dsn.server_label().to_owned();
                vec![Server { name, dsn, inspect: BTreeSet::new(), poolers: Poolers::default() }]
            }
            Some(connection) => {
                if let Some(source) = DsnSource::find(connection, world)? {
                    let fault = Fault::ServersToo { file: file.path.clone() };
                    return Err(source.name().fault(fault));
                }
                servers(&file, world)?
            }
        };
        Ok(Self {
            servers,
            lists_servers: !file.servers.is_empty(),
            poll: poll(poll_args, &file)?,
            registry_files: if files.registry.files.is_empty() {
                file.registry.iter().map(|entry| file.beside(&entry.value)).collect()
            } else {
                files.registry.files.clone()
            },
            state_file: file.state_file.as_ref().map(|path| file.beside(path)),
            applications: applications(&file)?,
            limits: limits(&file)?,
            thresholds: thresholds(&file)?,
            warnings,
        })
    }
}

fn in_this_process<T>(
    read: impl FnOnce(World<'_>) -> Result<T, ConfigError>,
) -> Result<T, ConfigError> {
    let variable = |name: &str| std::env::var(name).ok();
    let read_file = |path: &Path| std::fs::read_to_string(path);
    read(World { variable: &variable, read: &read_file })
}

impl World<'_> {
    fn read_file(&self, path: &Path) -> Result<String, ConfigError> {
        let fault = |error| Place::File(path.to_owned()).fault(Fault::Read(error));
        (self.read)(path).map_err(fault)
    }

    fn set(&self, name: &str) -> Option<String> {
        (self.variable)(name).filter(|value| !value.is_empty())
    }
}

impl Place {
    fn fault(self, fault: impl Into<Fault>) -> ConfigError {
        ConfigError { place: self, fault: fault.into() }
    }
}

/// Where the connection string of a single server comes from.
enum DsnSource {
    Flag(String),
    Variable(String),
    File(&'static str, PathBuf),
    /// The variables of `postgres_exporter`: a URI without a scheme, and the login beside it.
    Uri(UriSource),
}

/// What the variables of `postgres_exporter` say, each of which may be the content of a file.
struct UriSource {
    name: &'static str,
    uri: String,
    login: Login,
    password_file: Option<PathBuf>,
}

impl DsnSource {
    const FLAG: &str = "--dsn";
    const VARIABLE: &str = "DATA_SOURCE_NAME";
    const FILE_VARIABLE: &str = "LOCKS_DSN_FILE";

    /// A flag wins over the variables; two of a rank are a mistake.
    fn find(args: &ConnectionArgs, world: World<'_>) -> Result<Option<Self>, ConfigError> {
        if let Some(path) = &args.dsn_file {
            return Ok(Some(Self::File("--dsn-file", path.clone())));
        }
        if let Some(text) = &args.dsn {
            return Ok(Some(Self::Flag(text.expose().to_owned())));
        }
        let mut named = [Self::VARIABLE, Self::FILE_VARIABLE]
            .into_iter()
            .chain(UriSource::VARIABLES)
            .filter(|name| world.set(name).is_some());
        let first = named.next();
        if let (Some(first @ (Self::VARIABLE | Self::FILE_VARIABLE)), Some(second)) =
            (first, named.next())
        {
            return Err(Place::Name(first).fault(Fault::Both(second)));
        }
        Ok(match (world.set(Self::VARIABLE), world.set(Self::FILE_VARIABLE)) {
            (Some(text), _) => Some(Self::Variable(text)),
            (None, Some(path)) => Some(Self::File(Self::FILE_VARIABLE, path.into())),
            (None, None) if first.is_some() => Some(Self::Uri(UriSource::fetch(world)?)),
            (None, None) => None,
        })
    }

    fn name(&self) -> Place {
        Place::Name(match self {
            Self::Flag(_) => Self::FLAG,
            Self::Variable(_) => Self::VARIABLE,
            Self::File(name, _) => name,
            Self::Uri(source) => source.name,
        })
    }
}

impl UriSource {
    const VARIABLES: [&'static str; 6] = [
        "DATA_SOURCE_URI",
        "DATA_SOURCE_URI_FILE",
        "DATA_SOURCE_USER",
        "DATA_SOURCE_USER_FILE",
        "DATA_SOURCE_PASS",
        "DATA_SOURCE_PASS_FILE",
    ];

    fn fetch(world: World<'_>) -> Result<Self, ConfigError> {
        let [uri, uri_file, user, user_file, password, password_file] = Self::VARIABLES;
        for (plain, file) in [(uri, uri_file), (user, user_file), (password, password_file)] {
            if world.set(plain).is_some() && world.set(file).is_some() {
                return Err(Place::Name(plain).fault(Fault::Both(file)));
            }
        }
        let read = |plain: &'static str, file: &'static str| match world.set(file) {
            Some(path) => {
                world.read_file(Path::new(&path)).map(|text| Some(text.trim().to_owned()))
            }
            None => Ok(world.set(plain)),
        };
        let login = Login { user: read(user, user_file)?, password: world.set(password) };
        let password_file = world.set(password_file).map(PathBuf::from);
        if let Some(path) = &password_file {
            // Only to learn now that it cannot be read; each connect reads it again.
            world.read_file(path)?;
        }
        let name = if world.set(uri_file).is_some() { uri_file } else { uri };
        let Some(uri) = read(uri, uri_file)? else {
            return Err(Place::Name(uri).fault(Fault::NoUri));
        };
        Ok(Self { name, uri, login, password_file })
    }
}

/// The server named by flag or environment, or the one libpq would connect to.
fn single_dsn(
    args: &ConnectionArgs,
    world: World<'_>,
    warnings: &mut Vec<Warning>,
) -> Result<Dsn, ConfigError> {
    let parse = |text: &str, place: Place| {
        Dsn::parse(text, world.variable).map_err(|error| place.fault(error))
    };
    let Some(source) = DsnSource::find(args, world)? else {
        return parse("", Place::Name("environment"));
    };
    let place = source.name();
    match source {
        DsnSource::Flag(text) => {
            let dsn = parse(&text, place)?;
            if dsn.has_password() {
                warnings.push(Warning::PasswordInArguments);
            }
            Ok(dsn)
        }
        DsnSource::Variable(text) => parse(&text, place),
        DsnSource::File(_, path) => {
            let text = world.read_file(&path)?;
            if text.trim().is_empty() {
                return Err(Place::File(path).fault(Fault::EmptyFile));
            }
            Ok(parse(&text, Place::File(path.clone()))?.with_dsn_file(path))
        }
        DsnSource::Uri(UriSource { uri, login, password_file, .. }) => {
            let uri = match uri.split_once("://") {
                Some(_) => uri,
                None => format!("postgresql://{uri}"),
            };
            let dsn = Dsn::parse_with_login(&uri, &login, world.variable);
            let dsn = dsn.map_err(|error| place.fault(error))?;
            Ok(match password_file {
                Some(path) => dsn.with_password_file(path),
                None => dsn,
            })
        }
    }
}

fn servers(file: &ConfigFile, world: World<'_>) -> Result<Vec<Server>, ConfigError> {
    let mut names = BTreeSet::new();
    let mut servers = Vec::new();
    for server in &file.servers {
        let whole = file.place(server);
        let (text, place) = match &server.value.dsn {
            Some(dsn) => (dsn.value.as_str(), file.place(dsn)),
            None => ("", file.place(server)),
        };
        let mut dsn = Dsn::parse(text, world.variable).map_err(|error| place.fault(error))?;
        if let Some(entry) = &server.value.password_file {
            if dsn.has_password() {
                return Err(file.place(entry).fault(Fault::TwoPasswords));
            }
            let path = file.beside(&entry.value);
            // Only to learn now that it cannot be read; each connect reads it again.
            (world.read)(&path).map_err(|source| {
                file.place(entry).fault(DsnError::PasswordFile { path: path.clone(), source })
            })?;
            dsn = dsn.with_password_file(path);
        }
        let (name, place) = match &server.value.name {
            Some(name) if is_connection_string(&name.value) => {
                return Err(file.place(name).fault(Fault::NameIsDsn));
            }
            Some(name) => (name.value.trim().to_owned(), file.place(name)),
            None => (dsn.server_label().to_owned(), whole),
        };
        if name.is_empty() {
            return Err(place.fault(Fault::EmptyName));
        }
        if !names.insert(name.clone()) {
            return Err(place.fault(Fault::DuplicateServer { name }));
        }
        servers.push(Server {
            name,
            dsn,
            inspect: inspected_databases(&server.value, file)?,
            poolers: poolers(&server.value, file)?,
        });
    }
    Ok(servers)
}

/// Whether it may have a password in it, as far as that can be told of any text.
fn is_connection_string(name: &str) -> bool {
    let has_login = name.rsplit_once('@').is_some_and(|(before, _)| before.contains(':'));
    let has_password = name.replace(' ', "").to_lowercase().contains("password=");
    name.contains("://") || has_login || has_password
}

fn inspected_databases(
    server: &ServerEntry,
    file: &ConfigFile,
) -> Result<BTreeSet<Arc<str>>, ConfigError> {
    let names = server.inspect.iter().flatten().map(|entry| {
        if entry.value.is_empty() {
            return Err(file.place(entry).fault(Fault::EmptyDatabase));
        }
        Ok(entry.value.as_str().into())
    });
    names.collect()
}

fn poolers(server: &ServerEntry, file: &ConfigFile) -> Result<Poolers, ConfigError> {
    let poolers =
        server.poolers.iter().flatten().map(|entry| {
            entry.value.parse::<Pooler>().map_err(|error| file.place(entry).fault(error))
        });
    poolers.collect::<Result<_, _>>().map(Poolers::new)
}

fn poll(args: &PollArgs, file: &ConfigFile) -> Result<Poll, ConfigError> {
    let pick = |flag: (&'static str, Option<Duration>), entry: &Option<Entry<String>>, default| {
        Ok(match (flag, entry) {
            ((name, Some(duration)), _) => (duration, Place::Name(name)),
            ((_, None), Some(entry)) => {
                let place = file.place(entry);
                match parse_duration(&entry.value) {
                    Ok(duration) => (duration, place),
                    Err(error) => return Err(place.fault(error)),
                }
            }
            ((name, None), None) => (default, Place::Name(name)),
        })
    };
    let (interval, place) =
        pick(("--poll.interval", args.interval), &file.poll.interval, Duration::from_secs(1))?;
    if interval < SHORTEST_INTERVAL {
        return Err(place.fault(Fault::TooSmall("10ms")));
    }
    let (timeout, place) =
        pick(("--poll.timeout", args.timeout), &file.poll.timeout, Duration::from_secs(5))?;
    if timeout.is_zero() {
        return Err(place.fault(Fault::TooSmall("1ms")));
    }
    if timeout > LONGEST_TIMEOUT {
        return Err(place.fault(Fault::TooLarge("1d")));
    }
    let max_share = match &file.poll.max_share {
        Some(entry) if entry.value > 0.0 && entry.value <= 1.0 => entry.value,
        Some(entry) => return Err(file.place(entry).fault(Fault::NotAShare)),
        None => 0.02,
    };
    Ok(Poll { interval, timeout, max_share })
}

fn applications(file: &ConfigFile) -> Result<Applications, ConfigError> {
    let rules = file.applications.iter().map(|rule| {
        let application = Application::new(&rule.pattern.value, &rule.name.value);
        let application = application.map_err(|error| {
            let entry = match error {
                ApplicationError::Pattern(..) => &rule.pattern,
                ApplicationError::NoGroup(_) | ApplicationError::NoName => &rule.name,
            };
            file.place(entry).fault(error)
        })?;
        Ok(application.renaming_itself(rule.renames_itself))
    });
    rules.collect::<Result<_, _>>().map(Applications::new)
}

fn limits(file: &ConfigFile) -> Result<Limits, ConfigError> {
    let pick = |entry: &Option<Entry<usize>>, default| number_or(file, entry.as_ref(), default);
    Ok(Limits {
        keys: pick(&file.limits.keys, 100)?,
        applications: pick(&file.limits.applications, 100)?,
        databases: pick(&file.limits.databases, 500)?,
        registered_keys: pick(&file.limits.registered_keys, 10_000)?,
        values: pick(&file.limits.values, MAX_KEYS)?,
    })
}

fn thresholds(file: &ConfigFile) -> Result<Thresholds, ConfigError> {
    let (section, default) = (&file.thresholds, Thresholds::default());
    let time = |entry: &Option<Entry<String>>, default| time_or(file, entry.as_ref(), default);
    let HolderChangesSection { count, within } = &section.holder_changes;
    Ok(Thresholds {
        idle_in_transaction: time(&section.idle_in_transaction, default.idle_in_transaction)?,
        prepared: time(&section.prepared, default.prepared)?,
        snapshot_age: number_or(file, section.snapshot_age.as_ref(), default.snapshot_age)?,
        keys_per_session: number_or(
            file,
            section.keys_per_session.as_ref(),
            default.keys_per_session,
        )?,
        holder_changes: HolderChanges {
            count: number_or(file, count.as_ref(), default.holder_changes.count)?,
            within: time(within, default.holder_changes.within)?,
        },
    })
}

/// A time above 0.
fn time_or(
    file: &ConfigFile,
    entry: Option<&Entry<String>>,
    default: Duration,
) -> Result<Duration, ConfigError> {
    let Some(entry) = entry else { return Ok(default) };
    match parse_duration(&entry.value) {
        Ok(Duration::ZERO) => Err(file.place(entry).fault(Fault::TooSmall("1ms"))),
        Ok(time) => Ok(time),
        Err(error) => Err(file.place(entry).fault(error)),
    }
}

/// A number above 0.
fn number_or<T: Copy + Default + PartialEq>(
    file: &ConfigFile,
    entry: Option<&Entry<T>>,
    default: T,
) -> Result<T, ConfigError> {
    match entry {
        Some(entry) if entry.value == T::default() => {
            Err(file.place(entry).fault(Fault::TooSmall("1")))
        }
        Some(entry) => Ok(entry.value),
        None => Ok(default),
    }
}

fn web(args: &ServeArgs) -> Result<Web, ConfigError> {
    let path = args.web.telemetry_path.clone();
    let is_plain = path.starts_with('/')
        && path.bytes().all(|byte| byte.is_ascii_graphic() && !b"?#%\"<>\\".contains(&byte));
    let is_taken =
        path == "/" || path == "/probe" || path.starts_with("/-/") || path.starts_with("/api/");
    if !is_plain || is_taken {
        return Err(Place::Name("--web.telemetry-path").fault(Fault::TelemetryPath { path }));
    }
    Ok(Web {
        listen_addresses: args.web.listen_addresses.clone(),
        systemd_socket: args.web.systemd_socket,
        config_file: args.web.web_config_file.clone(),
        telemetry_path: path,
        show_details: args.web.show_details,
        allowed_hosts: args.web.allowed_hosts.clone(),
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::error::Error as _;
    use std::ffi::OsString;

    use proptest::prelude::*;

    use super::*;
    use crate::cli::{self, Command};

    /// A world in which `USER` is `me` and `/etc/locks.yaml` is given by `--config.file`.
    #[derive(Default)]
    struct Case {
        flags: Vec<String>,
        variables: BTreeMap<String, String>,
        files: BTreeMap<PathBuf, String>,
    }

    fn case(flags: &str) -> Case {
        let flags = flags.split_whitespace().map(str::to_owned).collect();
        Case { flags, ..Case::default() }.variable("USER", "me").variable("PGHOST", "env-host")
    }

    fn yaml(text: &str) -> Case {
        case("--config.file /etc/locks.yaml").file("/etc/locks.yaml", text)
    }

    impl Case {
        fn variable(mut self, name: &str, value: &str) -> Self {
            self.variables.insert(name.to_owned(), value.to_owned());
            self
        }

        fn file(mut self, path: &str, text: &str) -> Self {
            self.files.insert(path.into(), text.to_owned());
            self
        }

        fn flag(mut self, flag: &str) -> Self {
            self.flags.push(flag.to_owned());
            self
        }

        fn config(&self) -> Result<Config, ConfigError> {
            let arguments = ["locks", "serve"].map(OsString::from).into_iter();
            let arguments = arguments.chain(self.flags.iter().map(OsString::from));
            let Command::Serve(args) = cli::parse(arguments).unwrap().command else {
                panic!("serve was asked for");
            };
            let variable = |name: &str| self.variables.get(name).cloned();
            let read = |path: &Path| {
                self.files.get(path).cloned().ok_or_else(|| io::ErrorKind::NotFound.into())
            };
            Config::new(&args, World { variable: &variable, read: &read })
        }

        fn error(&self) -> String {
            self.config().unwrap_err().to_string()
        }
    }

    fn names(config: &Config) -> Vec<&str> {
        config.servers.iter().map(|server| server.name.as_str()).collect()
    }

    #[test]
    fn with_nothing_given_the_server_of_the_environment_is_watched() {
        for config in [
            case("").config().unwrap(),
            yaml("").config().unwrap(),
            yaml("# nothing\npoll:\n").config().unwrap(),
        ] {
            assert_eq!(names(&config), ["env-host:5432"]);
            let second = Duration::from_secs(1);
            let poll = Poll { interval: second, timeout: 5 * second, max_share: 0.02 };
            assert_eq!(config.poll, poll);
            let limits = Limits {
                keys: 100,
                applications: 100,
                databases: 500,
                registered_keys: 10_000,
                values: 1_000_000,
            };
            assert!(config.servers[0].inspect.is_empty(), "nothing is asked unless allowed");
            assert_eq!(config.limits, limits);
            assert_eq!(config.thresholds, Thresholds::default());
            assert!(config.registry_files.is_empty());
            assert_eq!(config.state_file, None);
            assert_eq!(config.web.listen_addresses[0].to_string(), "127.0.0.1:10187");
            assert_eq!(config.warnings, []);
        }
    }

    #[test]
    fn a_whole_file_is_read() {
        let text = r#"
poll: { interval: 250ms, timeout: 2s, max_share: 0.5 }
registry: [registry.yaml, /srv/other.yaml]
state_file: state/locks.json
servers:
  - name: orders-primary
    dsn: postgresql://locks_exporter@db-1/postgres
    password_file: secrets/db-1
    inspect: [shop, app]
    poolers: [10.0.0.7, 10.0.1.0/24, local]
  - dsn: host=db-2 user=u
  - name: local
applications:
  - { match: "^(svc-[a-z]+)-.*$", name: "$1" }
  - { match: "^worker: ", name: worker, renames_itself: true }
limits: { keys: 1, applications: 2, databases: 3, registered_keys: 4, values: 5 }
thresholds:
  idle_in_transaction: 2m
  prepared: 1h
  snapshot_age: 5000
  keys_per_session: 50
  holder_changes: { count: 3, within: 1m }
"#;
        let config = yaml(text).file("/etc/secrets/db-1", "p\n").config().unwrap();
        assert_eq!(names(&config), ["orders-primary", "db-2:5432", "local"]);
        assert_eq!(config.servers[2].dsn.server_label(), "env-host:5432");
        let files = ["/etc/registry.yaml", "/srv/other.yaml"];
        assert_eq!(config.registry_files, files.map(PathBuf::from));
        assert_eq!(config.state_file, Some("/etc/state/locks.json".into()));
        assert_eq!(config.applications.rename("svc-a-17"), "svc-a");
        assert_eq!(config.poll.interval, Duration::from_millis(250));
        assert_eq!(config.poll.timeout, Duration::from_secs(2));
        assert_eq!(config.poll.max_share, 0.5);
        let inspect = config.servers.iter().map(|server| server.inspect.iter().map(|name| &**name));
        let inspect: Vec<Vec<&str>> = inspect.map(Iterator::collect).collect();
        assert_eq!(inspect, [vec!["app", "shop"], vec![], vec![]]);
        let poolers = ["10.0.0.7", "10.0.1.0/24", "local"].map(|text| text.parse().unwrap());
        assert_eq!(config.servers[0].poolers, Poolers::new(poolers.to_vec()));
        assert_eq!(config.servers[1].poolers, Poolers::default());
        assert!(config.applications.renames_itself("worker: ReportJob"));
        assert!(!config.applications.renames_itself("svc-a-17"));
        let limits =
            Limits { keys: 1, applications: 2, databases: 3, registered_keys: 4, values: 5 };
        assert_eq!(config.limits, limits);
        let minute = Duration::from_secs(60);
        let thresholds = Thresholds {
            idle_in_transaction: 2 * minute,
            prepared: 60 * minute,
            snapshot_age: 5000,
            keys_per_session: 50,
            holder_changes: HolderChanges { count: 3, within: minute },
        };
        assert_eq!(config.thresholds, thresholds);
    }

    #[test]
    fn flags_win_over_the_file_and_over_variables() {
        let text = "poll: { interval: 2s }\nregistry: [a.yaml]\n";
        let config = yaml(text)
            .flag("--poll.interval=3s")
            .flag("--registry.file=b.yaml")
            .flag("--dsn=host=flag-host")
            .variable("DATA_SOURCE_NAME", "host=variable-host")
            .config()
            .unwrap();
        assert_eq!(config.poll.interval, Duration::from_secs(3));
        assert_eq!(config.registry_files, [PathBuf::from("b.yaml")]);
        assert_eq!(names(&config), ["flag-host:5432"]);
        let config = case("").variable("DATA_SOURCE_NAME", "host=variable-host").config().unwrap();
        assert_eq!(names(&config), ["variable-host:5432"]);
    }

    #[test]
    fn a_connection_string_may_live_in_a_file() {
        for case in [case("--dsn-file /run/dsn"), case("").variable("LOCKS_DSN_FILE", "/run/dsn")] {
            let case = case.file("/run/dsn", "postgresql://u:p@file-host\n");
            let config = case.config().unwrap();
            assert_eq!(names(&config), ["file-host:5432"]);
            assert_eq!(config.warnings, []);
        }
        let error = case("--dsn-file /run/dsn").config().unwrap_err();
        assert_eq!(error.to_string(), "/run/dsn: cannot read the file");
        assert!(error.source().is_some(), "what the system says is in the chain");
    }

    #[test]
    fn a_password_among_the_arguments_is_accepted_with_a_warning() {
        let config = case("--dsn postgresql://u:p@h").config().unwrap();
        assert_eq!(config.warnings, [Warning::PasswordInArguments]);
        assert!(config.warnings[0].to_string().contains("--dsn-file"));
        for case in [
            case("--dsn postgresql://u@h").variable("PGPASSWORD", "p"),
            case("").variable("DATA_SOURCE_NAME", "postgresql://u:p@h"),
        ] {
            assert_eq!(case.config().unwrap().warnings, []);
        }
    }

    #[test]
    fn a_mistake_in_the_file_has_its_place_and_its_mend() {
        let expected = [
            (
                "pol: {}",
                "1:1: unknown key `pol`; known are poll, registry, state_file, servers, applications, limits, thresholds",
            ),
            (
                "poll:\n  interval: 1s\n  intervall: 1s\n",
                "3:3: unknown key `intervall`; known are interval, timeout, max_share",
            ),
            (
                "servers:\n- dsn: host=h\n  user: u\n",
                "3:3: unknown key here (not shown beside a `dsn`); known are name, dsn, password_file, inspect, poolers",
            ),
            ("poll: { interval: 1s, interval: 2s }", "1:23: the same key stands twice"),
            ("poll: 1s", "1:7: expected a mapping, as in `{ key: value }`"),
            ("poll: { interval: 5 }", "1:19: \"5\" has no unit: write 5s for seconds"),
            ("poll: { interval: 0 }", "1:19: must be at least 10ms"),
            ("thresholds: { prepared: 5 }", "1:25: \"5\" has no unit: write 5s for seconds"),
            ("thresholds: { prepared: 0s }", "1:25: must be at least 1ms"),
            ("thresholds: { keys_per_session: 0 }", "1:33: must be at least 1"),
            ("thresholds: { snapshot_age: -1 }", "1:29: expected a whole number, 0 or more"),
            ("thresholds: { holder_changes: { count: 0 } }", "1:40: must be at least 1"),
            ("thresholds: { holder_changes: { within: 0 } }", "1:41: must be at least 1ms"),
            (
                "thresholds: { holder_changes: 5 }",
                "1:31: expected a mapping, as in `{ key: value }`",
            ),
            ("poll: { interval: 9ms }", "1:19: must be at least 10ms"),
            ("poll: { interval: soon }", "1:19: \"soon\" is not a duration"),
            ("poll: { timeout: 0s }", "1:18: must be at least 1ms"),
            ("poll: { max_share: 0 }", "1:20: must be above 0 and at most 1"),
            ("poll: { max_share: 1.5 }", "1:20: must be above 0 and at most 1"),
            ("poll: { max_share: .nan }", "1:20: must be above 0 and at most 1"),
            ("poll: { max_share: much }", "1:20: expected a number, as in 0.02"),
            ("limits: { keys: 0 }", "1:17: must be at least 1"),
            ("limits: { values: 0 }", "1:19: must be at least 1"),
            ("servers: [{ inspect: app }]", "1:22: expected a list, as in `[a, b]`"),
            ("servers: [{ inspect: [''] }]", "1:23: a database cannot have an empty name"),
            ("servers: [{ poolers: local }]", "1:22: expected a list, as in `[a, b]`"),
            (
                "servers: [{ poolers: [local, pgbouncer] }]",
                "1:30: a pooler is an address as the server sees it, as in 10.0.0.7",
            ),
            ("servers: [{ poolers: [10.0.1.9/24] }]", "1:23: the network that this address is in"),
            (
                "applications: [{ match: a, name: b, renames_itself: perhaps }]",
                "1:53: expected true or false",
            ),
            ("limits: { keys: -1 }", "1:17: expected a whole number, 0 or more"),
            ("limits: { keys: 1.5 }", "1:17: expected a whole number, 0 or more"),
            ("registry: a.yaml", "1:11: expected a list, as in `[a, b]`"),
            ("servers:\n  name: a\n", "2:3: expected a list, as in `[a, b]`"),
            ("servers: [{ name: a }, { name: a }]", "1:32: a second server is called \"a\""),
            (
                "servers: [{ dsn: host=h }, { dsn: host=h }]",
                "1:28: a second server is called \"h:5432\"",
            ),
            ("servers: [{ name: ' ' }]", "1:19: a server cannot have an empty name"),
            ("servers: [{ name: postgresql://h/d }]", "1:19: a name is shown to everybody"),
            ("servers: [{ name: 'u:p@h' }]", "1:19: a name is shown to everybody"),
            ("servers: [{ name: host=h Password = p }]", "1:19: a name is shown to everybody"),
            ("servers: [{ dsn: 'host=h port=x' }]", "1:18: port must be a number from 1 to 65535"),
            (
                "servers: [{ dsn: 'password=p', password_file: f }]",
                "1:47: the `dsn` of this server holds a password too",
            ),
            ("servers: [{ password_file: f }]", "1:28: cannot read the password from /etc/f"),
            (
                "applications: [{ match: '(' , name: x }]",
                "1:25: \"(\" is not a regular expression: unclosed group",
            ),
            ("applications: [{ match: 'a', name: $1 }]", "1:36: the pattern has no group 1"),
            ("applications: [{ match: 'a' }]", "1:18: the key `name` is missing"),
            ("poll: 'x", "not YAML: "),
            ("a: 1\n---\nb: 2", "unknown key `a`"),
        ];
        for (text, message) in expected {
            let error = yaml(text).error();
            assert!(
                error.starts_with("/etc/locks.yaml:") && error.contains(message),
                "{text}: {error}"
            );
        }
    }

    #[test]
    fn the_variables_of_postgres_exporter_are_taken_with_any_password() {
        let config = case("")
            .variable("DATA_SOURCE_URI", "db-1:6432/app?sslmode=disable")
            .variable("DATA_SOURCE_USER_FILE", "/run/user")
            .variable("DATA_SOURCE_PASS", "p#s=s@w:o%rd{x/ y")
            .file("/run/user", "monitor\n")
            .config()
            .unwrap();
        let [server] = &config.servers[..] else { panic!("{:?}", config.servers) };
        assert_eq!(server.name, "db-1:6432");
        assert_eq!((server.dsn.user(), server.dsn.database()), ("monitor", "app"));
        assert!(!server.dsn.has_password(), "the URI holds none");
        assert!(format!("{:?}", server.dsn).contains("password: set"));
        let config =
            case("--dsn host=flag-host").variable("DATA_SOURCE_URI", "db-1").config().unwrap();
        assert_eq!(config.servers[0].name, "flag-host:5432", "a flag goes before");
        let error = case("")
            .variable("DATA_SOURCE_URI", "db-1")
            .variable("DATA_SOURCE_PASS_FILE", "/none")
            .error();
        assert!(error.starts_with("/none: cannot read the file"), "{error}");
    }

    #[test]
    fn what_contradicts_itself_is_refused() {
        let servers = "servers: [{ name: a }]";
        let expected = [
            (
                yaml(servers).flag("--dsn=host=h"),
                "--dsn: /etc/locks.yaml lists `servers` too; drop one of the two",
            ),
            (
                yaml(servers).variable("DATA_SOURCE_NAME", "host=h"),
                "DATA_SOURCE_NAME: /etc/locks.yaml lists `servers` too; drop one of the two",
            ),
            (
                case("").variable("DATA_SOURCE_NAME", "x").variable("LOCKS_DSN_FILE", "y"),
                "DATA_SOURCE_NAME: LOCKS_DSN_FILE is set too; drop one of the two",
            ),
            (
                case("").variable("DATA_SOURCE_NAME", "x").variable("DATA_SOURCE_PASS", "y"),
                "DATA_SOURCE_NAME: DATA_SOURCE_PASS is set too; drop one of the two",
            ),
            (
                case("").variable("DATA_SOURCE_USER", "x").variable("DATA_SOURCE_USER_FILE", "y"),
                "DATA_SOURCE_USER: DATA_SOURCE_USER_FILE is set too; drop one of the two",
            ),
            (
                case("").variable("DATA_SOURCE_USER", "x"),
                "DATA_SOURCE_URI: is not set, and a login is: write HOST:PORT/DBNAME into it",
            ),
            (
                yaml(servers).variable("DATA_SOURCE_URI", "h"),
                "DATA_SOURCE_URI: /etc/locks.yaml lists `servers` too; drop one of the two",
            ),
        ];
        for (case, message) in expected {
            assert_eq!(case.error(), message);
        }
    }

    #[test]
    fn a_mistake_in_a_flag_names_the_flag() {
        let expected = [
            ("--poll.interval 0", "--poll.interval: must be at least 10ms"),
            ("--poll.timeout 0s", "--poll.timeout: must be at least 1ms"),
            ("--web.telemetry-path metrics", "--web.telemetry-path: \"metrics\" is served"),
            ("--web.telemetry-path /", "--web.telemetry-path: \"/\" is served"),
            ("--web.telemetry-path /-/healthy", "--web.telemetry-path: \"/-/healthy\" is served"),
            ("--web.telemetry-path /m?x", "--web.telemetry-path: \"/m?x\" is served"),
            ("--dsn host=h,i,j@k", "--dsn: host must be a name"),
            ("--config.file /none", "/none: cannot read the file"),
        ];
        for (flags, message) in expected {
            let error = case(flags).error();
            assert!(error.starts_with(message), "{flags}: {error}");
        }
        let error = case("").variable("PGPORT", "x").error();
        assert_eq!(error, "environment: PGPORT must be a number from 1 to 65535");
    }

    const WITH_SECRETS: &str = "\
poll: { interval: 1s }
servers:
  - name: a
    dsn: postgresql://u:S3cr3t-canary@h:5432/d
  - { name: b, dsn: host=b user=u password=S3cr3t-canary }
  - name: c
    dsn: \"host=c user=u password='S3cr3t-canary x'\"
";

    #[test]
    fn a_secret_of_the_file_is_not_in_the_debug_form() {
        let config = yaml(WITH_SECRETS).config().unwrap();
        assert_eq!(names(&config), ["a", "b", "c"]);
        assert!(!format!("{config:?}").contains("S3cr3t"));
    }

    #[test]
    fn a_secret_in_the_wrong_place_is_not_shown() {
        for text in [
            "servers: postgresql://u:S3cr3t-canary@h",
            "servers: [postgresql://u:S3cr3t-canary@h]",
            "servers: { dsn: postgresql://u:S3cr3t-canary@h }",
            "servers: [{ dsn: [S3cr3t-canary] }]",
            "servers: [{ poolers: [postgresql://u:S3cr3t-canary@h] }]",
            "servers: [{ dsn: host=h password=x, S3cr3t-canary }]",
            "servers: [{ dsn: host=h password=x, canary }]",
            "servers: [{ name: *S3cr3t-canary }]",
            "servers: [{ name: 'postgresql://u:S3cr3t-canary@h/d' }]",
            "servers: [{ name: 'u:S3cr3t-canary@h' }]",
            "servers: [{ name: 'host=h password=S3cr3t-canary' }]",
            "servers: [{ dsn: !S3cr3t-canary x }]",
            "servers: [{ S3cr3t-canary: 1, S3cr3t-canary: 2 }]",
            "postgresql://u:S3cr3t-canary@h",
            "dsn=S3cr3t-canary: x",
            "limits: { keys: S3cr3t-canary }",
            "poll: { max_share: S3cr3t-canary }",
            "poll: S3cr3t-canary",
        ] {
            let error = yaml(text).config().unwrap_err();
            assert!(!format!("{error} {error:?}").contains("canary"), "{text}: {error} {error:?}");
        }
    }

    proptest! {
        #[test]
        fn a_file_broken_anywhere_never_shows_its_secret(
            place: proptest::sample::Index,
            piece in r#"[-@:/?#%=&' "\\\[\]{},*!|>\t\n]{0,3}"#,
            cut in 0_usize..3,
        ) {
            let start = place.index(WITH_SECRETS.len() - cut);
            let mut text = WITH_SECRETS.to_owned();
            text.replace_range(start..start + cut, &piece);
            if let Err(error) = yaml(&text).config() {
                let shown = format!("{error} {error:?}");
                prop_assert!(!shown.contains("canary"), "{}\n{}", shown, text);
            }
        }

        #[test]
        fn any_text_is_read_or_refused(text: String) {
            let _ = yaml(&text).config();
        }
    }
}
