//! Connection strings as libpq reads them, and the passwords behind them.
//!
//! What a string leaves open comes from the service file, the environment and libpq's defaults. An
//! error must say what is wrong without quoting anything that may be a password: no error holds a
//! piece of the string, only positions, and names out of a table. What is not supported is refused
//! by name, never passed over. It opens no connection and knows nothing of what runs over one;
//! `connect` is who reads it.

mod parameter;
mod pass_file;
mod service;
mod text;

use std::borrow::Cow;
use std::fmt;
use std::io;
use std::net::IpAddr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio_postgres::config::ChannelBinding;

use super::tls::{Negotiation, RootCert, SslMode, Tls, Version};
use parameter::{Found, supported_keys};
pub(super) use pass_file::{Lack, PassFile};
use text::{Parameters, parse_parameters};

/// Looks up an environment variable.
pub type Environment<'a> = &'a dyn Fn(&str) -> Option<String>;

/// Where and as whom to connect: everything decided but what may rotate.
#[derive(Clone, PartialEq)]
pub struct Dsn {
    hosts: Vec<Host>,
    label: String,
    user: String,
    database: String,
    password: Password,
    written_password: bool,
    pass_file: Option<PathBuf>,
    connect_timeout: Option<Duration>,
    startup: Startup,
    transport: Transport,
    tls: Tls,
}

/// One of the hosts to try.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Host {
    /// A name, an address, the folder of a socket or, with `@`, one without a file; empty where only
    /// an address was given.
    pub name: String,
    /// Where it is, if that is not to be looked up.
    pub address: Option<IpAddr>,
    /// The TCP port, or the number in the socket's name.
    pub port: u16,
}

/// What is asked of the server at the start of a session, and which server will do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Startup {
    pub application_name: String,
    pub options: Option<String>,
    pub channel_binding: ChannelBinding,
    pub target: Target,
    /// The system user that a server behind a socket must run as.
    pub required_peer: Option<String>,
}

/// Which of several servers will do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Target {
    Any,
    ReadWrite,
    ReadOnly,
    Primary,
    Standby,
    PreferStandby,
}

/// How bytes get there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Transport {
    /// Whether hosts and addresses are tried in a random order.
    pub balances_hosts: bool,
    /// When idle connections are probed, unless they are not.
    pub keepalive: Option<Keepalive>,
    /// How long sent bytes may stay without an answer.
    pub tcp_user_timeout: Option<Duration>,
}

/// How a connection is probed that nothing comes over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Keepalive {
    pub idle: Duration,
    pub interval: Duration,
    pub retries: u32,
}

/// Where the password comes from at each connect, before the password file is asked.
#[derive(Clone, PartialEq, Eq)]
enum Password {
    /// From the string, the service file or the environment, or none.
    Fixed(Option<String>),
    /// A file that holds the password and nothing else.
    File(PathBuf),
    /// The file that holds the connection string, for the password in it; else as it was at first.
    DsnFile(PathBuf, Option<String>),
}

/// A login that is told beside the connection string, and goes before what that says.
#[derive(Clone, Default)]
pub struct Login {
    /// The role.
    pub user: Option<String>,
    /// Its password.
    pub password: Option<String>,
}

/// Why a text is not a connection string, or its password cannot be had. Never a piece of it.
#[derive(Debug, thiserror::Error)]
pub enum DsnError {
    /// Neither form.
    #[error(
        "neither a URI nor key=value: write postgresql://USER@HOST:PORT/DBNAME or \
         host=HOST port=PORT user=USER dbname=DBNAME"
    )]
    Form,
    /// A URI of something else.
    #[error(
        "unknown scheme: the URI of a PostgreSQL server begins with postgresql:// or postgres://"
    )]
    Scheme,
    /// Delimiters that are not escaped, so that nobody can tell where the password ends.
    #[error(
        "the @ at position {0} is out of place: it, or a / or ? before it, is not escaped; \
         {ESCAPE_HINT}"
    )]
    UserInfo(usize),
    /// An IPv6 address without its end.
    #[error("the host at position {0} is not an IPv6 address in brackets, as in [::1]:5432")]
    Bracket(usize),
    /// `%` without two hexadecimal digits, or `%00`.
    #[error("bad percent escape at position {0}: a % itself is %25; {ESCAPE_HINT}")]
    Escape(usize),
    /// Escapes that spell no text.
    #[error("the percent escapes at position {0} are not UTF-8; {ESCAPE_HINT}")]
    NotUtf8(usize),
    /// A key without `=`.
    #[error(
        "a key without a value at position {0}: a value with spaces is written \
         password='with spaces'; {ESCAPE_HINT}"
    )]
    NoValue(usize),
    /// A second `=` in one query parameter.
    #[error("an = that is not escaped at position {0}: write it as %3D; {ESCAPE_HINT}")]
    ExtraEquals(usize),
    /// A quote that never ends.
    #[error(
        "the quote at position {0} has no end: a quote within a value is written \\'; {ESCAPE_HINT}"
    )]
    UnterminatedQuote(usize),
    /// A NUL character, which no parameter can hold.
    #[error("a NUL character at position {0}; {ESCAPE_HINT}")]
    Nul(usize),
    /// A key that libpq does not have. Its name may be a piece of a password, so it is not told.
    #[error(
        "unknown key at position {0}, not shown since it may be part of a password; known are {keys}; \
         {ESCAPE_HINT}",
        keys = supported_keys()
    )]
    UnknownKey(usize),
    /// A parameter or variable of libpq that is not supported here.
    #[error("{0} is not supported; leave it out")]
    Unsupported(&'static str),
    /// Two parameters that do not go together.
    #[error("{name}={value} {conflict}")]
    Conflict {
        /// The parameter or variable.
        name: &'static str,
        /// What it asks for.
        value: &'static str,
        /// What stands against it, and the mend.
        conflict: &'static str,
    },
    /// The service file that was named cannot be read.
    #[error("cannot read the service file {}", path.display())]
    ServiceFile {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// A line of a service file that is no parameter.
    #[error("{}:{line}: not a parameter: write KEY=VALUE without blanks around the =", path.display())]
    ServiceSyntax {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
    },
    /// A service that leads to another one.
    #[error("{}:{line}: a service cannot name another service", path.display())]
    NestedService {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
    },
    /// No file has the service.
    #[error(
        "the service is in no service file: those are PGSERVICEFILE or ~/.pg_service.conf, then \
         pg_service.conf in PGSYSCONFDIR or in PostgreSQL's folder under /etc"
    )]
    NoService,
    /// A value that its key cannot have.
    #[error("{name} must be {expected}")]
    Value {
        /// The parameter or variable.
        name: &'static str,
        /// What it may be.
        expected: &'static str,
    },
    /// Lists that do not fit each other.
    #[error("{name} lists {found} entries for {hosts} hosts; give one for each host")]
    Count {
        /// The parameter that is too long or too short.
        name: &'static str,
        /// How many entries it has.
        found: usize,
        /// How many hosts there are.
        hosts: usize,
    },
    /// Nobody to connect as.
    #[error("no user: name one in the connection string or in PGUSER")]
    NoUser,
    /// A file with a password cannot be read.
    #[error("cannot read the password from {}", path.display())]
    PasswordFile {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// A file with a password is empty.
    #[error("no password in {}: the file is empty", .0.display())]
    EmptyPasswordFile(PathBuf),
}

const ESCAPE_HINT: &str = "URL-encode the password or use a password file";
const ABOVE_ZERO: &str = "a whole number of seconds";
const WHOLE_NUMBER: &str = "a whole number";

const DEFAULT_PORT: u16 = 5432;
const KEEPALIVE: Keepalive =
    Keepalive { idle: Duration::from_secs(30), interval: Duration::from_secs(10), retries: 3 };
const DEFAULT_CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

impl Dsn {
    /// Reads a URI or `key=value` pairs; an empty text leaves everything to `environment` and to
    /// libpq's defaults: the socket of the local server, the account of this process.
    pub fn parse(text: &str, environment: Environment<'_>) -> Result<Self, DsnError> {
        Self::parse_with_login(text, &Login::default(), environment)
    }

    /// The same, with a role and a password of their own.
    pub fn parse_with_login(
        text: &str,
        login: &Login,
        environment: Environment<'_>,
    ) -> Result<Self, DsnError> {
        let mut said = parse_parameters(text)?;
        let written_password = said.get("password").is_some_and(|password| !password.is_empty());
        let told = [("user", &login.user), ("password", &login.password)];
        said.extend(told.into_iter().filter_map(|(key, value)| Some((key, value.clone()?))));
        let dsn = Self::resolve(&said, environment, &Defaults::fetch(environment))?;
        Ok(Self { written_password, ..dsn })
    }

    /// The same, with the password read from a file at every connect. It wins over any other.
    pub fn with_password_file(self, path: PathBuf) -> Self {
        Self { password: Password::File(path), ..self }
    }

    /// The same, for a connection string that was read from this file: its password is read again
    /// at every connect. The server it names stays the one it named first.
    pub fn with_dsn_file(self, path: PathBuf) -> Self {
        let first = match self.password {
            Password::Fixed(password) | Password::DsnFile(_, password) => password,
            Password::File(_) => None,
        };
        Self { password: Password::DsnFile(path, first), ..self }
    }

    /// The same, to another database of the server.
    pub fn with_database(&self, database: &str) -> Self {
        Self { database: database.to_owned(), ..self.clone() }
    }

    /// `HOST:PORT` of every host that may be tried, the socket's folder in its place for a local
    /// server. Never user or password.
    pub fn server_label(&self) -> &str {
        &self.label
    }

    /// As whom we connect.
    pub fn user(&self) -> &str {
        &self.user
    }

    /// To which database.
    pub fn database(&self) -> &str {
        &self.database
    }

    /// Whether the connection string itself holds a password, whatever the environment says.
    pub fn has_password(&self) -> bool {
        self.written_password
    }

    /// After which time without a connection to tell that there is none: `connect_timeout`, 5 s
    /// unless it sets a bound, for each host that may have to be tried.
    pub fn connect_patience(&self) -> Duration {
        let hosts = u32::try_from(self.hosts.len()).unwrap_or(u32::MAX);
        self.connect_timeout.unwrap_or(DEFAULT_CONNECT_TIMEOUT).saturating_mul(hosts)
    }

    /// The bound for the connect to one address, from opening the socket to the end of the login.
    pub(super) fn connect_timeout(&self) -> Option<Duration> {
        self.connect_timeout
    }

    pub(super) fn hosts(&self) -> &[Host] {
        &self.hosts
    }

    pub(super) fn startup(&self) -> &Startup {
        &self.startup
    }

    pub(super) fn transport(&self) -> &Transport {
        &self.transport
    }

    pub(super) fn tls(&self) -> &Tls {
        &self.tls
    }

    /// The password for a host as it is now. Reads a small file if it lives in one.
    pub(super) fn fetch_password(&self, host: &Host) -> Result<PassFile, DsnError> {
        let given = match &self.password {
            Password::Fixed(password) => password.clone(),
            Password::File(path) => {
                let text = read_password_file(path)?;
                let line = text.strip_suffix('\n').unwrap_or(&text);
                let password = line.strip_suffix('\r').unwrap_or(line);
                if password.is_empty() {
                    return Err(DsnError::EmptyPasswordFile(path.clone()));
                }
                Some(password.to_owned())
            }
            Password::DsnFile(path, first) => {
                let mut said = parse_parameters(&read_password_file(path)?)?;
                said.remove("password").or_else(|| first.clone())
            }
        };
        Ok(match given.filter(|password| !password.is_empty()) {
            Some(password) => PassFile::Found(password),
            None => match &self.pass_file {
                Some(path) => pass_file::fetch(path, host, &self.database, &self.user),
                None => PassFile::Nothing(Lack::NoFile(PathBuf::from("~/.pgpass"))),
            },
        })
    }

    fn resolve(
        said: &Parameters,
        environment: Environment<'_>,
        defaults: &Defaults,
    ) -> Result<Self, DsnError> {
        let found = Found::fetch(said, environment)?;
        let hosts = hosts(&found, defaults.host)?;
        let user = found.get("user").or(defaults.user.as_deref()).ok_or(DsnError::NoUser)?;
        let home = defaults.home.as_deref();
        refuse_rest(&found)?;
        Ok(Self {
            label: hosts.iter().map(Host::to_string).collect::<Vec<_>>().join(","),
            user: user.to_owned(),
            database: found.get("dbname").unwrap_or(user).to_owned(),
            password: Password::Fixed(found.get("password").map(str::to_owned)),
            written_password: said.get("password").is_some_and(|password| !password.is_empty()),
            pass_file: match found.get("passfile") {
                Some(path) => Some(path.into()),
                None => home.map(|home| home.join(".pgpass")),
            },
            connect_timeout: connect_timeout(&found)?,
            startup: startup(&found)?,
            transport: transport(&found)?,
            tls: tls(&found, &hosts, home)?,
            hosts,
        })
    }
}

/// Shows where it leads, and of the password only where it comes from.
impl fmt::Debug for Dsn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let password = match &self.password {
            Password::File(path) | Password::DsnFile(path, _) => format!("in {}", path.display()),
            Password::Fixed(Some(_)) => "set".to_owned(),
            Password::Fixed(None) => "none".to_owned(),
        };
        f.debug_struct("Dsn")
            .field("server", &self.label)
            .field("user", &self.user)
            .field("dbname", &self.database)
            .field("password", &format_args!("{password}"))
            .finish_non_exhaustive()
    }
}

impl Host {
    /// The folder of its socket, or with `@` the name of one without a file.
    pub(super) fn socket(&self) -> Option<&str> {
        let is_socket = self.address.is_none() && self.name.starts_with(['/', '@']);
        is_socket.then_some(self.name.as_str())
    }

    /// What password files call it: `localhost` for the socket where servers listen by default, and
    /// its address where it has no name.
    fn pass_file_name(&self) -> Cow<'_, str> {
        match (self.socket(), self.address) {
            (Some(folder), _) if SOCKET_FOLDERS.contains(&folder) => "localhost".into(),
            (None, Some(address)) if self.name.is_empty() => address.to_string().into(),
            _ => self.name.as_str().into(),
        }
    }
}

/// As a label shows it.
impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, port, .. } = self;
        match self.address {
            Some(address) if name.is_empty() => {
                if address.is_ipv6() {
                    write!(f, "[{address}]:{port}")
                } else {
                    write!(f, "{address}:{port}")
                }
            }
            _ if name.contains(':') && self.socket().is_none() => write!(f, "[{name}]:{port}"),
            _ => write!(f, "{name}:{port}"),
        }
    }
}

/// Where a local server listens, as Debian and as upstream build it.
const SOCKET_FOLDERS: [&str; 2] = ["/var/run/postgresql", "/tmp"];

/// What neither string nor environment says.
struct Defaults {
    /// The folder where a local server listens.
    host: &'static str,
    /// The account this process runs as.
    user: Option<String>,
    /// Its home.
    home: Option<PathBuf>,
}

impl Defaults {
    fn fetch(environment: Environment<'_>) -> Self {
        let host = SOCKET_FOLDERS
            .into_iter()
            .find(|folder| Path::new(folder).is_dir())
            .unwrap_or("localhost");
        // Containers rarely set USER, hence the account first, which is also where libpq looks.
        let variable = || ["USER", "LOGNAME"].into_iter().find_map(environment);
        let account = Account::fetch().map(|account| account.name);
        let user = account.or_else(variable).filter(|user| !user.is_empty());
        Self { host, user, home: home(environment) }
    }
}

/// The user's folder, where libpq looks for files of its own.
fn home(environment: Environment<'_>) -> Option<PathBuf> {
    let home = environment("HOME").filter(|home| !home.is_empty()).map(PathBuf::from);
    home.or_else(|| Account::fetch().map(|account| account.home))
}

/// A line of `/etc/passwd`, where there are such files.
pub(super) struct Account {
    pub name: String,
    home: PathBuf,
}

impl Account {
    /// That of this process.
    fn fetch() -> Option<Self> {
        Self::of(std::fs::metadata("/proc/self").ok()?.uid())
    }

    /// That of a user by number.
    pub(super) fn of(uid: u32) -> Option<Self> {
        let accounts = std::fs::read_to_string("/etc/passwd").ok()?;
        accounts.lines().find_map(|line| {
            let columns: Vec<&str> = line.split(':').collect();
            let [name, _, number, _, _, home, ..] = columns[..] else { return None };
            (number == uid.to_string()).then(|| Self { name: name.to_owned(), home: home.into() })
        })
    }
}

fn read_password_file(path: &Path) -> Result<String, DsnError> {
    std::fs::read_to_string(path)
        .map_err(|source| DsnError::PasswordFile { path: path.to_owned(), source })
}

/// Hosts, addresses and ports.
fn hosts(found: &Found, default_host: &str) -> Result<Vec<Host>, DsnError> {
    let addresses = found.list("hostaddr").into_iter().map(|address| match address {
        "" => Ok(None),
        address => address
            .parse()
            .map(Some)
            .map_err(|_| found.refuse("hostaddr", "an IP address, or several separated by commas")),
    });
    let addresses: Vec<Option<IpAddr>> = addresses.collect::<Result<_, _>>()?;
    let names = found.list("host");
    if !names.is_empty() && !addresses.is_empty() && names.len() != addresses.len() {
        return Err(DsnError::Count {
            name: found.name("hostaddr"),
            found: addresses.len(),
            hosts: names.len(),
        });
    }
    let count = names.len().max(addresses.len()).max(1);
    let ports = found.list("port");
    if ports.len() > 1 && ports.len() != count {
        return Err(DsnError::Count { name: found.name("port"), found: ports.len(), hosts: count });
    }
    let port = |text: &str| match text {
        "" => Ok(DEFAULT_PORT),
        text => {
            let port = text.trim().parse().ok().filter(|port| *port > 0);
            port.ok_or_else(|| found.refuse("port", "a number from 1 to 65535"))
        }
    };
    (0..count)
        .map(|index| {
            let address = addresses.get(index).copied().flatten();
            let name = match names.get(index).copied().unwrap_or_default() {
                "" if address.is_none() => default_host,
                name => name,
            };
            // The rest of a password that was cut at its first @ would become a host, and be shown.
            if name.get(1..).is_some_and(|rest| rest.contains('@')) {
                return Err(found.refuse("host", "a name, an address or a folder, without an @"));
            }
            // One port is for all hosts; none is the default for all.
            let port = port(ports.get(index).or(ports.first()).copied().unwrap_or_default())?;
            Ok(Host { name: name.to_owned(), address, port })
        })
        .collect()
}

/// Nothing, 0 and less are no bound, and one second is two, as in libpq.
fn connect_timeout(found: &Found) -> Result<Option<Duration>, DsnError> {
    Ok(match found.number::<i32>("connect_timeout", ABOVE_ZERO)? {
        None => Some(DEFAULT_CONNECT_TIMEOUT),
        Some(seconds) => u64::try_from(seconds)
            .ok()
            .filter(|seconds| *seconds > 0)
            .map(|seconds| Duration::from_secs(seconds.max(2))),
    })
}

fn startup(found: &Found) -> Result<Startup, DsnError> {
    let channel_binding = |word: &str| {
        Some(match word {
            "disable" => ChannelBinding::Disable,
            "prefer" => ChannelBinding::Prefer,
            "require" => ChannelBinding::Require,
            _ => return None,
        })
    };
    let target = |word: &str| {
        Some(match word {
            "any" => Target::Any,
            "read-write" => Target::ReadWrite,
            "read-only" => Target::ReadOnly,
            "primary" => Target::Primary,
            "standby" => Target::Standby,
            "prefer-standby" => Target::PreferStandby,
            _ => return None,
        })
    };
    let name = found.get("application_name").or(found.get("fallback_application_name"));
    Ok(Startup {
        application_name: name.unwrap_or("locks").to_owned(),
        options: found.get("options").map(str::to_owned),
        channel_binding: found
            .word("channel_binding", "disable, prefer or require", channel_binding)?
            .unwrap_or(ChannelBinding::Prefer),
        target: found
            .word(
                "target_session_attrs",
                "any, read-write, read-only, primary, standby or prefer-standby",
                target,
            )?
            .unwrap_or(Target::Any),
        required_peer: found.get("requirepeer").map(str::to_owned),
    })
}

fn transport(found: &Found) -> Result<Transport, DsnError> {
    let order = |word: &str| match word {
        "disable" => Some(false),
        "random" => Some(true),
        _ => None,
    };
    // 0 and less leave each of these as it is.
    let number = |key| found.number::<i32>(key, WHOLE_NUMBER).map(positive);
    let seconds = |key| number(key).map(|n| n.map(|n| Duration::from_secs(n.into())));
    let is_kept = found.number::<i32>("keepalives", "0 or 1")? != Some(0);
    // A server whose machine died says nothing: the system's two hours would be two hours blind.
    let keepalive = Keepalive {
        idle: seconds("keepalives_idle")?.unwrap_or(KEEPALIVE.idle),
        interval: seconds("keepalives_interval")?.unwrap_or(KEEPALIVE.interval),
        retries: number("keepalives_count")?.unwrap_or(KEEPALIVE.retries),
    };
    Ok(Transport {
        balances_hosts: found
            .word("load_balance_hosts", "disable or random", order)?
            .unwrap_or(false),
        keepalive: is_kept.then_some(keepalive),
        tcp_user_timeout: number("tcp_user_timeout")?.map(|n| Duration::from_millis(n.into())),
    })
}

fn positive(number: Option<i32>) -> Option<u32> {
    number.and_then(|number| u32::try_from(number).ok()).filter(|number| *number > 0)
}

fn tls(found: &Found, hosts: &[Host], home: Option<&Path>) -> Result<Tls, DsnError> {
    let is_system = found.get("sslrootcert") == Some("system");
    let mode = |word: &str| {
        Some(match word {
            "disable" => SslMode::Disable,
            "allow" => SslMode::Allow,
            "prefer" => SslMode::Prefer,
            "require" => SslMode::Require,
            "verify-ca" => SslMode::VerifyCa,
            "verify-full" => SslMode::VerifyFull,
            _ => return None,
        })
    };
    let modes = "disable, allow, prefer, require, verify-ca or verify-full";
    let mode = match found.word("sslmode", modes, mode)? {
        // Certificates that anybody can buy prove nothing without the name in them.
        Some(mode) if is_system && mode != SslMode::VerifyFull => {
            return Err(DsnError::Conflict {
                name: found.name("sslrootcert"),
                value: "system",
                conflict: "wants sslmode=verify-full, or none",
            });
        }
        Some(mode) => mode,
        None if is_system => SslMode::VerifyFull,
        None => SslMode::Prefer,
    };
    let is_nameless = |host: &Host| host.name.is_empty();
    if mode == SslMode::VerifyFull && hosts.iter().any(is_nameless) {
        return Err(DsnError::Conflict {
            name: found.name("sslmode"),
            value: "verify-full",
            conflict: "needs the name to look for in the certificate: give host beside hostaddr",
        });
    }
    let negotiation = |word: &str| match word {
        "postgres" => Some(Negotiation::Postgres),
        "direct" => Some(Negotiation::Direct),
        _ => None,
    };
    let negotiation = found
        .word("sslnegotiation", "postgres or direct", negotiation)?
        .unwrap_or(Negotiation::Postgres);
    let is_weak = matches!(mode, SslMode::Disable | SslMode::Allow | SslMode::Prefer);
    if negotiation == Negotiation::Direct && is_weak {
        return Err(DsnError::Conflict {
            name: found.name("sslnegotiation"),
            value: "direct",
            conflict: "wants sslmode=require, verify-ca or verify-full",
        });
    }
    let path = |key| found.get(key).map(PathBuf::from);
    let version = |key| -> Result<Option<Version>, DsnError> {
        let parse = |word: &str| {
            Some(match word {
                // Both are older than what is spoken here.
                "" | "TLSv1" | "TLSv1.1" => None,
                "TLSv1.2" => Some(Version::Tls12),
                "TLSv1.3" => Some(Version::Tls13),
                _ => return None,
            })
        };
        Ok(found.word(key, "TLSv1.2 or TLSv1.3", parse)?.flatten())
    };
    if matches!(found.get("ssl_max_protocol_version"), Some("TLSv1" | "TLSv1.1")) {
        return Err(found.refuse("ssl_max_protocol_version", "TLSv1.2 or TLSv1.3"));
    }
    let (min_version, max_version) =
        (version("ssl_min_protocol_version")?, version("ssl_max_protocol_version")?);
    if min_version == Some(Version::Tls13) && max_version == Some(Version::Tls12) {
        return Err(found.refuse("ssl_max_protocol_version", "at least ssl_min_protocol_version"));
    }
    Ok(Tls {
        mode,
        root: match found.get("sslrootcert") {
            None => RootCert::Default,
            Some("system") => RootCert::System,
            Some(path) => RootCert::File(path.into()),
        },
        cert: path("sslcert"),
        key: path("sslkey"),
        crl: path("sslcrl"),
        sni: found.number::<i32>("sslsni", "0 or 1")? != Some(0),
        min_version,
        max_version,
        negotiation,
        home: home.map(Path::to_owned),
    })
}

/// Parameters that are known, and of which only what changes nothing is taken.
fn refuse_rest(found: &Found) -> Result<(), DsnError> {
    let harmless: [(&'static str, &[&str]); 7] = [
        ("gssencmode", &["disable", "prefer"]),
        ("sslcertmode", &["allow"]),
        ("sslcompression", &["0"]),
        ("client_encoding", &["UTF8", "utf8", "UTF-8", "utf-8", "auto"]),
        ("replication", &["false", "off", "no", "0"]),
        ("max_protocol_version", &["3.0", "3.2", "latest"]),
        ("min_protocol_version", &["3.0"]),
    ];
    for (key, values) in harmless {
        if let Some(value) = found.get(key)
            && !values.contains(&value)
        {
            return Err(DsnError::Unsupported(found.name(key)));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
