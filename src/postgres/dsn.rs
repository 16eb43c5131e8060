//! Connection strings as libpq reads them, and the passwords behind them.
//!
//! Both forms are scanned here rather than by the client, for two reasons: what the string leaves
//! open comes from the environment and from libpq's defaults, and an error must say what is wrong
//! without quoting anything that may be a password. Hence no error holds a piece of the string:
//! only positions, and names out of the tables below. It opens no connection and knows nothing of
//! what runs over one; `connect_config` hands its result to whoever connects.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use tokio_postgres::Config;
use tokio_postgres::config::{ChannelBinding, LoadBalanceHosts, SslMode, TargetSessionAttrs};

/// Looks up an environment variable.
pub type Environment<'a> = &'a dyn Fn(&str) -> Option<String>;

/// Where and as whom to connect: everything decided but a password that may rotate.
#[derive(Clone)]
pub struct Dsn {
    config: Config,
    password: Password,
    label: String,
    written_password: bool,
    connect_timeout: Duration,
}

/// Where the password comes from at each connect.
#[derive(Clone)]
enum Password {
    /// Whatever `config` holds: from the string, from `PGPASSWORD`, or none.
    Fixed,
    /// A file that holds the password and nothing else.
    File(PathBuf),
    /// The file that holds the connection string, for the password in it.
    DsnFile(PathBuf),
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
    /// Encryption was asked for.
    #[error(
        "{name}={mode} asks for an encrypted connection, which this version cannot make and does not \
         replace by a plain one; where a plain connection is acceptable write sslmode=disable"
    )]
    NoTls {
        /// The parameter or variable that asks for it.
        name: &'static str,
        /// What it asks for.
        mode: &'static str,
    },
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

/// What is understood, and the environment variable that stands in for it.
const SUPPORTED: [(&str, Option<&str>); 19] = [
    ("host", Some("PGHOST")),
    ("hostaddr", Some("PGHOSTADDR")),
    ("port", Some("PGPORT")),
    ("user", Some("PGUSER")),
    ("password", Some("PGPASSWORD")),
    ("dbname", Some("PGDATABASE")),
    ("application_name", Some("PGAPPNAME")),
    ("options", Some("PGOPTIONS")),
    ("connect_timeout", Some("PGCONNECT_TIMEOUT")),
    ("sslmode", Some("PGSSLMODE")),
    ("gssencmode", Some("PGGSSENCMODE")),
    ("channel_binding", Some("PGCHANNELBINDING")),
    ("target_session_attrs", Some("PGTARGETSESSIONATTRS")),
    ("load_balance_hosts", Some("PGLOADBALANCEHOSTS")),
    ("keepalives", None),
    ("keepalives_idle", None),
    ("keepalives_interval", None),
    ("keepalives_count", None),
    ("tcp_user_timeout", None),
];

/// What libpq has beyond that. Named when refused, since no password looks like this.
const UNSUPPORTED: [&str; 27] = [
    "client_encoding",
    "fallback_application_name",
    "gssdelegation",
    "gsslib",
    "krbsrvname",
    "max_protocol_version",
    "min_protocol_version",
    "passfile",
    "replication",
    "require_auth",
    "requirepeer",
    "requiressl",
    "service",
    "servicefile",
    "ssl_max_protocol_version",
    "ssl_min_protocol_version",
    "sslcert",
    "sslcertmode",
    "sslcompression",
    "sslcrl",
    "sslcrldir",
    "sslkey",
    "sslkeylogfile",
    "sslnegotiation",
    "sslpassword",
    "sslrootcert",
    "sslsni",
];

/// Variables that would lead elsewhere or demand more than is done: ignoring them would connect to
/// the wrong server, or to one that was not checked as asked.
const UNSUPPORTED_VARIABLES: [&str; 14] = [
    "DATA_SOURCE_PASS",
    "DATA_SOURCE_PASS_FILE",
    "DATA_SOURCE_URI",
    "DATA_SOURCE_URI_FILE",
    "DATA_SOURCE_USER",
    "DATA_SOURCE_USER_FILE",
    "PGPASSFILE",
    "PGREQUIREAUTH",
    "PGREQUIREPEER",
    "PGREQUIRESSL",
    "PGSERVICE",
    "PGSSLCERT",
    "PGSSLKEY",
    "PGSSLROOTCERT",
];

const DEFAULT_PORT: u16 = 5432;
const KEEPALIVES_IDLE: Duration = Duration::from_secs(30);
const KEEPALIVES_INTERVAL: Duration = Duration::from_secs(10);
const KEEPALIVES_RETRIES: u32 = 3;
const DEFAULT_CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

impl Dsn {
    /// Reads a URI or `key=value` pairs; an empty text leaves everything to `environment` and to
    /// libpq's defaults: the socket of the local server, the account of this process.
    pub fn parse(text: &str, environment: Environment<'_>) -> Result<Self, DsnError> {
        Self::resolve(&parse_parameters(text)?, environment, &Defaults::fetch(environment))
    }

    /// The same, with the password read from a file at every connect. It wins over any other.
    pub fn with_password_file(self, path: PathBuf) -> Self {
        Self { password: Password::File(path), ..self }
    }

    /// The same, for a connection string that was read from this file: its password is read again
    /// at every connect. The server it names stays the one it named first.
    pub fn with_dsn_file(self, path: PathBuf) -> Self {
        Self { password: Password::DsnFile(path), ..self }
    }

    /// The same, to another database of the server.
    pub fn with_database(&self, database: &str) -> Self {
        let mut dsn = self.clone();
        dsn.config.dbname(database);
        dsn
    }

    /// `HOST:PORT` of every host that may be tried, the socket's folder in its place for a local
    /// server. Never user or password.
    pub fn server_label(&self) -> &str {
        &self.label
    }

    /// As whom we connect.
    pub fn user(&self) -> &str {
        self.config.get_user().unwrap_or_default()
    }

    /// To which database.
    pub fn database(&self) -> &str {
        self.config.get_dbname().unwrap_or_default()
    }

    /// Whether the connection string itself holds a password, whatever the environment says.
    pub fn has_password(&self) -> bool {
        self.written_password
    }

    /// What to hand to the client, with the password as it is now. Reads a small file if the
    /// password lives in one.
    pub fn connect_config(&self) -> Result<Config, DsnError> {
        let mut config = self.config.clone();
        match &self.password {
            Password::Fixed => {}
            Password::File(path) => {
                let text = read_password_file(path)?;
                let line = text.strip_suffix('\n').unwrap_or(&text);
                let password = line.strip_suffix('\r').unwrap_or(line);
                if password.is_empty() {
                    return Err(DsnError::EmptyPasswordFile(path.clone()));
                }
                config.password(password);
            }
            Password::DsnFile(path) => {
                if let Some(password) =
                    parse_parameters(&read_password_file(path)?)?.get("password")
                {
                    config.password(password);
                }
            }
        }
        Ok(config)
    }

    /// The bound for a whole connect, name resolution to authentication: `connect_timeout`, 5 s
    /// unless given, for each host that may have to be tried. The client itself bounds no more
    /// than the opening of each socket.
    pub fn connect_timeout(&self) -> Duration {
        let hosts = self.config.get_hosts().len().max(self.config.get_hostaddrs().len());
        self.connect_timeout.saturating_mul(u32::try_from(hosts).unwrap_or(u32::MAX))
    }

    fn resolve(
        said: &Parameters,
        environment: Environment<'_>,
        defaults: &Defaults,
    ) -> Result<Self, DsnError> {
        let found = Found::new(said, environment)?;
        let mut config = Config::new();
        let label = set_hosts(&mut config, &found, defaults.host)?;
        set_identity(&mut config, &found, defaults.user.as_deref())?;
        refuse_encryption(&mut config, &found)?;
        let connect_timeout = match found.number::<u32>("connect_timeout", ABOVE_ZERO)? {
            None => DEFAULT_CONNECT_TIMEOUT,
            Some(0) => return Err(found.refuse("connect_timeout", ABOVE_ZERO)),
            Some(seconds) => Duration::from_secs(seconds.into()),
        };
        config.connect_timeout(connect_timeout);
        set_transport(&mut config, &found)?;
        Ok(Self {
            config,
            password: Password::Fixed,
            label,
            written_password: said.get("password").is_some_and(|password| !password.is_empty()),
            connect_timeout,
        })
    }
}

/// Shows where it leads, and of the password only where it comes from.
impl fmt::Debug for Dsn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let password = match (&self.password, self.config.get_password()) {
            (Password::File(path) | Password::DsnFile(path), _) => {
                format!("in {}", path.display())
            }
            (Password::Fixed, Some(_)) => "set".to_owned(),
            (Password::Fixed, None) => "none".to_owned(),
        };
        f.debug_struct("Dsn")
            .field("server", &self.label)
            .field("user", &self.config.get_user())
            .field("dbname", &self.config.get_dbname())
            .field("password", &format_args!("{password}"))
            .finish_non_exhaustive()
    }
}

const ABOVE_ZERO: &str = "a whole number of seconds above 0";
const WHOLE_NUMBER: &str = "a whole number, 0 or more";

/// What neither string nor environment says.
struct Defaults {
    /// The folder where a local server listens, as Debian and as upstream build it.
    host: &'static str,
    /// The account this process runs as.
    user: Option<String>,
}

impl Defaults {
    fn fetch(environment: Environment<'_>) -> Self {
        let host = ["/var/run/postgresql", "/tmp"]
            .into_iter()
            .find(|folder| Path::new(folder).is_dir())
            .unwrap_or("localhost");
        // Containers rarely set USER, hence the account first, which is also where libpq looks.
        let variable = || ["USER", "LOGNAME"].into_iter().find_map(environment);
        Self { host, user: fetch_account().or_else(variable).filter(|user| !user.is_empty()) }
    }
}

/// The name of the account in `/etc/passwd`, where there are such files.
fn fetch_account() -> Option<String> {
    let uid = std::fs::metadata("/proc/self").ok()?.uid().to_string();
    let accounts = std::fs::read_to_string("/etc/passwd").ok()?;
    accounts.lines().find_map(|line| {
        let mut columns = line.split(':');
        let name = columns.next()?;
        (columns.nth(1)? == uid).then(|| name.to_owned())
    })
}

fn read_password_file(path: &Path) -> Result<String, DsnError> {
    std::fs::read_to_string(path)
        .map_err(|source| DsnError::PasswordFile { path: path.to_owned(), source })
}

/// Hosts, addresses and ports; returns the label of the first.
fn set_hosts(config: &mut Config, found: &Found, default_host: &str) -> Result<String, DsnError> {
    let addresses = found.list("hostaddr");
    let mut hosts = found.list("host");
    if hosts.is_empty() && addresses.is_empty() {
        hosts.push("");
    }
    for address in &addresses {
        let address = address.parse().map_err(|_| {
            found.refuse("hostaddr", "an IP address, or several separated by commas")
        })?;
        config.hostaddr(address);
    }
    for host in &mut hosts {
        if host.is_empty() {
            *host = default_host;
        }
        // The rest of a password that was cut at its first @ would become a host, and be shown.
        if host.contains('@') {
            return Err(found.refuse("host", "a name, an address or a folder, without an @"));
        }
        config.host(*host);
    }
    let count = hosts.len().max(addresses.len());
    if !hosts.is_empty() && !addresses.is_empty() && hosts.len() != addresses.len() {
        return Err(DsnError::Count {
            name: found.name("hostaddr"),
            found: addresses.len(),
            hosts: hosts.len(),
        });
    }
    let ports = found.list("port");
    if ports.len() > 1 && ports.len() != count {
        return Err(DsnError::Count { name: found.name("port"), found: ports.len(), hosts: count });
    }
    let mut numbers = Vec::new();
    for port in ports {
        let port = match port.trim() {
            "" => DEFAULT_PORT,
            text => text
                .parse()
                .ok()
                .filter(|port| *port > 0)
                .ok_or_else(|| found.refuse("port", "a number from 1 to 65535"))?,
        };
        numbers.push(port);
        config.port(port);
    }
    // One port is for all hosts; none is the default for all.
    let port = |index| numbers.get(index).or(numbers.first()).copied().unwrap_or(DEFAULT_PORT);
    let named = if hosts.is_empty() { addresses } else { hosts };
    let labels = named.iter().enumerate().map(|(index, host)| {
        let port = port(index);
        if host.contains(':') && !host.starts_with('/') {
            format!("[{host}]:{port}")
        } else {
            format!("{host}:{port}")
        }
    });
    Ok(labels.collect::<Vec<_>>().join(","))
}

/// User, password, database and application name.
fn set_identity(
    config: &mut Config,
    found: &Found,
    default_user: Option<&str>,
) -> Result<(), DsnError> {
    let user = found.get("user").or(default_user).ok_or(DsnError::NoUser)?;
    config.dbname(found.get("dbname").unwrap_or(user));
    config.user(user);
    if let Some(password) = found.get("password") {
        config.password(password);
    }
    config.application_name(found.get("application_name").unwrap_or("locks"));
    if let Some(options) = found.get("options") {
        config.options(options);
    }
    Ok(())
}

/// Lets through what allows a plain connection, and refuses the rest by name.
fn refuse_encryption(config: &mut Config, found: &Found) -> Result<(), DsnError> {
    for key in ["sslmode", "gssencmode", "channel_binding"] {
        let Some(value) = found.get(key) else { continue };
        let mode = match (key, value) {
            (_, "disable" | "prefer") | ("sslmode", "allow") => continue,
            (_, "require") => "require",
            ("sslmode", "verify-ca") => "verify-ca",
            ("sslmode", "verify-full") => "verify-full",
            ("sslmode", _) => {
                let modes = "disable, allow, prefer, require, verify-ca or verify-full";
                return Err(found.refuse(key, modes));
            }
            _ => return Err(found.refuse(key, "disable, prefer or require")),
        };
        return Err(DsnError::NoTls { name: found.name(key), mode });
    }
    config.ssl_mode(SslMode::Disable).channel_binding(ChannelBinding::Disable);
    Ok(())
}

/// Which of several hosts, and how its socket is kept.
fn set_transport(config: &mut Config, found: &Found) -> Result<(), DsnError> {
    match found.get("target_session_attrs") {
        None | Some("any") => {}
        Some("read-write") => {
            config.target_session_attrs(TargetSessionAttrs::ReadWrite);
        }
        Some("read-only") => {
            config.target_session_attrs(TargetSessionAttrs::ReadOnly);
        }
        Some(_) => {
            return Err(found.refuse("target_session_attrs", "any, read-write or read-only"));
        }
    }
    match found.get("load_balance_hosts") {
        None | Some("disable") => {}
        Some("random") => {
            config.load_balance_hosts(LoadBalanceHosts::Random);
        }
        Some(_) => return Err(found.refuse("load_balance_hosts", "disable or random")),
    }
    if let Some(wanted) = found.number::<u32>("keepalives", "0 or 1")? {
        config.keepalives(wanted != 0);
    }
    // A server whose machine died says nothing: the system's two hours would be two hours blind.
    config.keepalives_idle(KEEPALIVES_IDLE);
    config.keepalives_interval(KEEPALIVES_INTERVAL);
    config.keepalives_retries(KEEPALIVES_RETRIES);
    // 0 leaves each of these as it is.
    let number = |key| found.number::<u32>(key, WHOLE_NUMBER).map(|n| n.filter(|n| *n > 0));
    if let Some(seconds) = number("keepalives_idle")? {
        config.keepalives_idle(Duration::from_secs(seconds.into()));
    }
    if let Some(seconds) = number("keepalives_interval")? {
        config.keepalives_interval(Duration::from_secs(seconds.into()));
    }
    if let Some(count) = number("keepalives_count")? {
        config.keepalives_retries(count);
    }
    if let Some(millis) = number("tcp_user_timeout")? {
        config.tcp_user_timeout(Duration::from_millis(millis.into()));
    }
    Ok(())
}

/// What each supported key is, from the string or else from its variable. An empty value says
/// nothing, as in libpq.
struct Found(BTreeMap<&'static str, (&'static str, String)>);

impl Found {
    fn new(said: &Parameters, environment: Environment<'_>) -> Result<Self, DsnError> {
        let set = |variable: &str| environment(variable).filter(|value| !value.is_empty());
        if let Some(variable) = UNSUPPORTED_VARIABLES.into_iter().find(|name| set(name).is_some()) {
            return Err(DsnError::Unsupported(variable));
        }
        let mut found = BTreeMap::new();
        for (key, variable) in SUPPORTED {
            if let Some(value) = said.get(key).filter(|value| !value.is_empty()) {
                found.insert(key, (key, value.clone()));
            } else if let Some((variable, value)) =
                variable.and_then(|name| Some((name, set(name)?)))
            {
                found.insert(key, (variable, value));
            }
        }
        Ok(Self(found))
    }

    fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key).map(|(_, value)| value.as_str())
    }

    /// What the user called it: the key, or the variable it came from.
    fn name(&self, key: &'static str) -> &'static str {
        self.0.get(key).map_or(key, |(name, _)| name)
    }

    fn list(&self, key: &str) -> Vec<&str> {
        self.get(key).map(|value| value.split(',').collect()).unwrap_or_default()
    }

    fn number<N: FromStr>(
        &self,
        key: &'static str,
        expected: &'static str,
    ) -> Result<Option<N>, DsnError> {
        let parse = |text: &str| text.trim().parse().map_err(|_| self.refuse(key, expected));
        self.get(key).map(parse).transpose()
    }

    fn refuse(&self, key: &'static str, expected: &'static str) -> DsnError {
        DsnError::Value { name: self.name(key), expected }
    }
}

/// What the string says; of a key said twice the last counts.
type Parameters = BTreeMap<&'static str, String>;

fn parse_parameters(text: &str) -> Result<Parameters, DsnError> {
    let text = text.trim();
    if let Some(at) = text.find('\0') {
        return Err(DsnError::Nul(position(text, at)));
    }
    for scheme in ["postgresql://", "postgres://"] {
        if text.starts_with(scheme) {
            return parse_uri(text, scheme.len());
        }
    }
    parse_pairs(text)
}

/// `conninfo_uri_parse_options` of libpq, stricter only where a delimiter that was not escaped
/// would turn a piece of the password into a host or a database.
fn parse_uri(text: &str, start: usize) -> Result<Parameters, DsnError> {
    let mut said = Parameters::new();
    let mut at = start;
    let user_info_end = text[at..].find(['@', '/']).map(|end| at + end);
    if let Some(end) = user_info_end.filter(|end| text[*end..].starts_with('@')) {
        let info = &text[at..end];
        let (user, password) = info.split_once(':').unwrap_or((info, ""));
        // An @ in a query, as in HOST?password=x@y, passes for user info too.
        if user.contains('?') || info.contains("password=") {
            return Err(DsnError::UserInfo(position(text, end)));
        }
        said.insert("user", percent_decode(text, at, user)?);
        if !password.is_empty() {
            said.insert("password", percent_decode(text, at + user.len() + 1, password)?);
        }
        at = end + 1;
    }
    let query_start = text[at..].find('?').map_or(text.len(), |end| at + end);
    if let Some(stray) = text[at..query_start].find('@') {
        return Err(DsnError::UserInfo(position(text, at + stray)));
    }
    let hosts_end = text[at..query_start].find('/').map_or(query_start, |end| at + end);
    let (mut hosts, mut ports) = (Vec::new(), Vec::new());
    for part in text[at..hosts_end].split(',') {
        let (host, port) = match part.strip_prefix('[') {
            Some(inner) => {
                let (host, rest) = inner
                    .split_once(']')
                    .filter(|(host, rest)| {
                        !host.is_empty() && matches!(rest.as_bytes(), [] | [b':', ..])
                    })
                    .ok_or(DsnError::Bracket(position(text, at)))?;
                (host, rest.strip_prefix(':').unwrap_or(""))
            }
            None => part.split_once(':').unwrap_or((part, "")),
        };
        hosts.push(percent_decode(text, at, host)?);
        ports.push(percent_decode(text, at + part.len() - port.len(), port)?);
        at += part.len() + 1;
    }
    said.insert("host", hosts.join(","));
    said.insert("port", ports.join(","));
    if hosts_end < query_start {
        let dbname = &text[hosts_end + 1..query_start];
        said.insert("dbname", percent_decode(text, hosts_end + 1, dbname)?);
    }
    if query_start < text.len() {
        parse_query(text, query_start + 1, &mut said)?;
    }
    Ok(said)
}

fn parse_query(text: &str, start: usize, said: &mut Parameters) -> Result<(), DsnError> {
    let mut at = start;
    for parameter in text[start..].split('&') {
        // libpq takes a trailing & as well.
        if !parameter.is_empty() {
            let (key, value) =
                parameter.split_once('=').ok_or(DsnError::NoValue(position(text, at)))?;
            let value_at = at + key.len() + 1;
            if let Some(equals) = value.find('=') {
                return Err(DsnError::ExtraEquals(position(text, value_at + equals)));
            }
            let name = percent_decode(text, at, key)?;
            let value = percent_decode(text, value_at, value)?;
            // The spelling of JDBC, which libpq takes too.
            if name == "ssl" && value == "true" {
                said.insert("sslmode", "require".to_owned());
            } else {
                said.insert(known_key(text, at, &name)?, value);
            }
        }
        at += parameter.len() + 1;
    }
    Ok(())
}

/// `conninfo_parse` of libpq: blanks around `=`, single quotes, backslashes.
fn parse_pairs(text: &str) -> Result<Parameters, DsnError> {
    let mut said = Parameters::new();
    let mut rest = text;
    while !rest.is_empty() {
        let at = text.len() - rest.len();
        let end = rest.find(|c: char| c == '=' || c.is_whitespace()).unwrap_or(rest.len());
        let (key, tail) = rest.split_at(end);
        // A URI whose scheme is wrong or missing; no key looks like that.
        if at == 0 && key.contains([':', '@', '/']) {
            return Err(if key.contains("://") { DsnError::Scheme } else { DsnError::Form });
        }
        let Some(tail) = tail.trim_start().strip_prefix('=') else {
            return Err(if at == 0 && !text.contains('=') {
                DsnError::Form
            } else {
                DsnError::NoValue(position(text, at))
            });
        };
        let key = known_key(text, at, key)?;
        let (value, tail) = parse_value(text, tail.trim_start())?;
        said.insert(key, value);
        rest = tail.trim_start();
    }
    Ok(said)
}

/// The value at the start of `rest`, and what follows it.
fn parse_value<'a>(text: &str, rest: &'a str) -> Result<(String, &'a str), DsnError> {
    let quoted = rest.starts_with('\'');
    let mut value = String::new();
    let mut chars = rest.char_indices().skip(usize::from(quoted));
    while let Some((index, c)) = chars.next() {
        match c {
            '\\' => value.extend(chars.next().map(|(_, escaped)| escaped)),
            '\'' if quoted => return Ok((value, &rest[index + 1..])),
            c if !quoted && c.is_whitespace() => return Ok((value, &rest[index..])),
            c => value.push(c),
        }
    }
    if quoted {
        return Err(DsnError::UnterminatedQuote(position(text, text.len() - rest.len())));
    }
    Ok((value, ""))
}

/// The key by that name, out of the tables: what comes from the string stays in the string.
fn known_key(text: &str, at: usize, name: &str) -> Result<&'static str, DsnError> {
    if let Some((key, _)) = SUPPORTED.into_iter().find(|(key, _)| *key == name) {
        return Ok(key);
    }
    Err(match UNSUPPORTED.into_iter().find(|key| *key == name) {
        Some(key) => DsnError::Unsupported(key),
        None => DsnError::UnknownKey(position(text, at)),
    })
}

/// Decodes `part`, which begins at byte `at` of `text`.
fn percent_decode(text: &str, at: usize, part: &str) -> Result<String, DsnError> {
    let mut decoded = Vec::with_capacity(part.len());
    let mut bytes = part.bytes().enumerate();
    while let Some((index, byte)) = bytes.next() {
        if byte != b'%' {
            decoded.push(byte);
            continue;
        }
        let digits = part
            .get(index + 1..index + 3)
            .filter(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()));
        match digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            None | Some(0) => return Err(DsnError::Escape(position(text, at + index))),
            Some(byte) => decoded.push(byte),
        }
        bytes.nth(1);
    }
    String::from_utf8(decoded).map_err(|_| DsnError::NotUtf8(position(text, at)))
}

/// The character at a byte offset, counted from 1 as people do.
fn position(text: &str, at: usize) -> usize {
    text[..at].chars().count() + 1
}

fn supported_keys() -> String {
    SUPPORTED.map(|(key, _)| key).join(", ")
}

#[cfg(test)]
mod tests {
    use std::error::Error;

    use proptest::prelude::*;
    use tokio_postgres::config::Host;

    use super::*;

    const CANARY: &str = "S3cr3t-canary";

    fn parse(text: &str) -> Result<Dsn, DsnError> {
        parse_in(text, &[])
    }

    fn parse_in(text: &str, environment: &[(&str, &str)]) -> Result<Dsn, DsnError> {
        let look_up = |name: &str| {
            let found = environment.iter().find(|(key, _)| *key == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        let defaults = Defaults { host: "/run/default", user: Some("os-user".to_owned()) };
        Dsn::resolve(&parse_parameters(text)?, &look_up, &defaults)
    }

    /// `LABEL USER DBNAME PASSWORD`
    fn summary(dsn: &Dsn) -> String {
        let config = dsn.connect_config().unwrap();
        let password = config.get_password().map_or("-".into(), String::from_utf8_lossy);
        let (user, dbname) = (config.get_user().unwrap(), config.get_dbname().unwrap());
        format!("{} {user} {dbname} {password}", dsn.server_label())
    }

    #[test]
    fn both_forms_are_read_as_libpq_reads_them() {
        let expected = [
            ("", "/run/default:5432 os-user os-user -"),
            ("postgresql://", "/run/default:5432 os-user os-user -"),
            ("postgresql://u:p@h:6432/d", "h:6432 u d p"),
            ("postgres://u@h", "h:5432 u u -"),
            ("postgresql:///d", "/run/default:5432 os-user d -"),
            ("postgresql://h:/d", "h:5432 os-user d -"),
            ("postgresql://u:@h/d", "h:5432 u d -"),
            ("postgresql://[::1]:6432/d", "[::1]:6432 os-user d -"),
            ("postgresql://u@%2Fvar%2Frun%2Fpg/d", "/var/run/pg:5432 u d -"),
            ("postgresql:///d?host=/var/run/pg&port=1&user=u", "/var/run/pg:1 u d -"),
            ("postgresql://h?dbname=d&user=u&password=p%40q", "h:5432 u d p@q"),
            (
                "postgresql://u:p@h1:1,h2:2,[::2]/d?target_session_attrs=read-write&",
                "h1:1,h2:2,[::2]:5432 u d p",
            ),
            (
                "postgresql://u:p%23s%3Ds%40w%3Ao%25rd%7Bx%2F%20y@h/d",
                "h:5432 u d p#s=s@w:o%rd{x/ y",
            ),
            ("postgresql://u:p#s=s:{?x@h:5433/d", "h:5433 u d p#s=s:{?x"),
            ("host=h port=6432 user=u dbname=d password=p", "h:6432 u d p"),
            ("  host = h\n user\t= 'u'dbname=d\n", "h:5432 u d -"),
            (r"password='p#s=s@w:o%rd{x/ y' user=u host=h", "h:5432 u u p#s=s@w:o%rd{x/ y"),
            (r"password='it\'s \\' user=u host=h", r"h:5432 u u it's \"),
            (r"password=a\ b user=u host=h", "h:5432 u u a b"),
            ("host=first host=h user=u", "h:5432 u u -"),
            ("host=h user=u password=", "h:5432 u u -"),
            ("hostaddr=::1 user=u", "[::1]:5432 u u -"),
            ("host=h hostaddr=10.0.0.1 user=u", "h:5432 u u -"),
            ("host=a,,c port=1 user=u", "a:1,/run/default:1,c:1 u u -"),
        ];
        for (text, summarized) in expected {
            assert_eq!(summary(&parse(text).unwrap()), summarized, "{text}");
        }
    }

    #[test]
    fn every_host_of_a_list_reaches_the_client() {
        let dsn = parse("postgresql://u@a:1,b,c:3/d").unwrap();
        let config = dsn.connect_config().unwrap();
        let hosts = ["a", "b", "c"].map(|host| Host::Tcp(host.to_owned()));
        assert_eq!(config.get_hosts(), hosts);
        assert_eq!(config.get_ports(), [1, 5432, 3]);
        assert_eq!(dsn.connect_timeout(), 3 * DEFAULT_CONNECT_TIMEOUT);
    }

    #[test]
    fn what_the_string_leaves_open_comes_from_the_environment() {
        let environment = [
            ("PGHOST", "env-host"),
            ("PGPORT", "7"),
            ("PGUSER", "env-user"),
            ("PGPASSWORD", CANARY),
            ("PGDATABASE", "env-db"),
            ("PGAPPNAME", "env-app"),
            ("PGCONNECT_TIMEOUT", "2"),
            ("PGSSLMODE", "prefer"),
        ];
        let dsn = parse_in("", &environment).unwrap();
        assert_eq!(summary(&dsn), "env-host:7 env-user env-db S3cr3t-canary");
        assert!(!dsn.has_password(), "the string has none");
        assert_eq!(dsn.connect_timeout(), Duration::from_secs(2));
        assert_eq!(dsn.connect_config().unwrap().get_application_name(), Some("env-app"));
        let dsn = parse_in("postgresql://u:p@h:1/d?application_name=a", &environment).unwrap();
        assert_eq!(summary(&dsn), "h:1 u d p");
        assert!(dsn.has_password());
        assert_eq!(dsn.connect_config().unwrap().get_application_name(), Some("a"));
    }

    #[test]
    fn the_application_is_called_locks_unless_told_otherwise() {
        let config = parse("host=h").unwrap().connect_config().unwrap();
        assert_eq!(config.get_application_name(), Some("locks"));
    }

    #[test]
    fn what_is_wrong_is_said_without_a_piece_of_the_string() {
        let expected = [
            ("user:S3cr3t-canary@127.0.0.1/app", "neither a URI nor key=value"),
            ("user:S3cr3t-canary@127.0.0.1/app?sslmode=disable", "neither a URI nor key=value"),
            ("S3cr3t-canary", "neither a URI nor key=value"),
            ("mysql://u:S3cr3t-canary@h/d", "unknown scheme"),
            ("http://u:S3cr3t-canary@h/d?a=b", "unknown scheme"),
            ("postgresql://u:S3cr3t-canary@h:port/d", "port must be a number from 1 to 65535"),
            ("postgresql://u:S3cr3t-canary@h:0/d", "port must be a number"),
            ("postgresql://u:S3cr3t-canary@h:65536/d", "port must be a number"),
            ("postgresql://u:x/S3cr3t-canary@h/d", "is not escaped; URL-encode the password"),
            ("postgresql://u:1/S3cr3t-canary@h/d", "is not escaped; URL-encode the password"),
            ("postgresql://u:x@S3cr3t-canary@h/d", "the @ at position 31 is out of place"),
            ("postgresql://u:x@y/S3cr3t-canary@h/d", "is not escaped; URL-encode the password"),
            ("postgresql://u:x@y?S3cr3t-canary@h/d", "a key without a value at position 20"),
            ("postgresql://h?user=u&password=x@S3cr3t-canary", "not escaped"),
            ("postgresql://h:1?user=u&password=x@S3cr3t-canary", "not escaped"),
            ("postgresql://u:S3cr3t-canary%zz@h/d", "bad percent escape at position 29"),
            ("postgresql://u:S3cr3t-canary%2@h/d", "bad percent escape at position 29"),
            ("postgresql://u:S3cr3t-canary%00@h/d", "bad percent escape at position 29"),
            ("postgresql://u:S3cr3t-canary%é@h/d", "bad percent escape at position 29"),
            ("postgresql://u:S3cr3t-canary%FF@h/d", "at position 16 are not UTF-8"),
            ("postgresql://é:S3cr3t-canary%zz@h/d", "bad percent escape at position 29"),
            ("postgresql://u:S3cr3t-canary@[::1/d", "the host at position 30"),
            ("postgresql://u:S3cr3t-canary@[::1]x/d", "the host at position 30"),
            ("postgresql://h/d?user=u&password=S3cr3t-canary&port=x", "port must be"),
            ("postgresql://h/d?password=x&S3cr3t-canary=y", "unknown key at position 29"),
            (
                "postgresql://h/d?password=x=S3cr3t-canary",
                "an = that is not escaped at position 28",
            ),
            ("postgresql://h/d?password=x&S3cr3t-canary", "a key without a value at position 29"),
            ("host=h password=my S3cr3t-canary", "a key without a value at position 20"),
            ("host=h password=my S3cr3t-canary user=u", "a key without a value at position 20"),
            ("host=h password=my S3cr3t-canary=x", "unknown key at position 20"),
            ("host=h password=my x:S3cr3t-canary@y=x", "unknown key at position 20"),
            ("host=h password='S3cr3t-canary", "the quote at position 17 has no end"),
            ("host=h password='S3cr3t-canary\\'", "the quote at position 17 has no end"),
            ("host=h password=S3cr3t-canary port=1,2", "port lists 2 entries for 1 hosts"),
            ("host=a,b hostaddr=::1 password=S3cr3t-canary", "hostaddr lists 1 entries for 2"),
            ("hostaddr=S3cr3t-canary", "hostaddr must be an IP address"),
            ("host=x@S3cr3t-canary", "host must be a name"),
            ("password=S3cr3t-canary connect_timeout=soon", "connect_timeout must be"),
            ("password=S3cr3t-canary connect_timeout=0", "connect_timeout must be"),
            ("password=S3cr3t-canary sslmode=on", "sslmode must be disable"),
            ("password=S3cr3t-canary target_session_attrs=primary", "target_session_attrs must be"),
            ("password=S3cr3t-canary keepalives_count=-1", "keepalives_count must be"),
            ("password=S3cr3t-canary sslrootcert=/ca", "sslrootcert is not supported"),
            ("password=S3cr3t-canary service=x", "service is not supported"),
            ("password=S3cr3t-canary\0", "a NUL character at position 23"),
        ];
        for (text, part) in expected {
            let error = parse(text).unwrap_err();
            let shown = format!("{error}");
            assert!(shown.contains(part), "{text}: {shown}");
            assert!(!format!("{shown} {error:?}").contains(CANARY), "{text}: {shown} {error:?}");
        }
    }

    #[test]
    fn encryption_that_is_asked_for_is_never_weakened() {
        for mode in ["require", "verify-ca", "verify-full"] {
            for text in [format!("sslmode={mode}"), format!("postgresql://h/d?sslmode={mode}")] {
                let error = parse(&text).unwrap_err().to_string();
                assert!(error.starts_with(&format!("sslmode={mode} asks for")), "{error}");
            }
            let error = parse_in("host=h", &[("PGSSLMODE", mode)]).unwrap_err().to_string();
            assert!(error.starts_with(&format!("PGSSLMODE={mode} asks for")), "{error}");
        }
        for text in ["postgresql://h?ssl=true", "gssencmode=require", "channel_binding=require"] {
            assert!(matches!(parse(text), Err(DsnError::NoTls { .. })), "{text}");
        }
        for mode in ["disable", "allow", "prefer"] {
            let dsn = parse(&format!("sslmode={mode}")).unwrap();
            assert_eq!(dsn.connect_config().unwrap().get_ssl_mode(), SslMode::Disable);
        }
    }

    #[test]
    fn a_variable_that_would_lead_elsewhere_is_refused_by_name() {
        let error = parse_in("host=h", &[("PGSERVICE", CANARY)]).unwrap_err().to_string();
        assert_eq!(error, "PGSERVICE is not supported; leave it out");
        let error = parse_in("host=h", &[("PGPORT", CANARY)]).unwrap_err().to_string();
        assert_eq!(error, "PGPORT must be a number from 1 to 65535");
    }

    #[test]
    fn nobody_to_connect_as_is_an_error() {
        let defaults = Defaults { host: "h", user: None };
        let dsn = Dsn::resolve(&Parameters::new(), &|_| None, &defaults);
        assert!(matches!(dsn, Err(DsnError::NoUser)));
    }

    #[test]
    fn the_secret_is_not_in_the_debug_form_but_the_way_is() {
        for text in [
            "postgresql://u:S3cr3t-canary@h:1/d",
            "postgresql://h:1/d?user=u&password=S3cr3t-canary",
            "host=h port=1 user=u dbname=d password=S3cr3t-canary",
        ] {
            let shown = format!("{:?}", parse(text).unwrap());
            let way =
                r#"Dsn { server: "h:1", user: Some("u"), dbname: Some("d"), password: set, .. }"#;
            assert_eq!(shown, way);
        }
    }

    #[test]
    fn a_password_file_is_read_at_every_connect() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("password");
        let dsn = parse("postgresql://u:old@h/d").unwrap().with_password_file(path.clone());
        let password =
            |dsn: &Dsn| dsn.connect_config().map(|config| config.get_password().unwrap().to_vec());
        let missing = password(&dsn).unwrap_err();
        assert!(missing.to_string().contains("cannot read the password from"), "{missing}");
        assert!(missing.source().is_some(), "what the system says is in the chain");
        for (text, read) in [
            ("p#s=s@w:o%rd{x/ y\n", "p#s=s@w:o%rd{x/ y"),
            ("rotated\r\n", "rotated"),
            ("one newline only\n\n", "one newline only\n"),
            (" blanks stay ", " blanks stay "),
        ] {
            std::fs::write(&path, text).unwrap();
            assert_eq!(password(&dsn).unwrap(), read.as_bytes());
        }
        std::fs::write(&path, "\n").unwrap();
        assert!(matches!(password(&dsn), Err(DsnError::EmptyPasswordFile(_))));
    }

    #[test]
    fn a_connection_string_in_a_file_rotates_its_password_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("dsn");
        let text = "postgresql://u:old@h/d\n";
        std::fs::write(&path, text).unwrap();
        let dsn = parse(text).unwrap().with_dsn_file(path.clone());
        assert_eq!(summary(&dsn), "h:5432 u d old");
        std::fs::write(&path, "postgresql://v:new@elsewhere/e\n").unwrap();
        assert_eq!(summary(&dsn), "h:5432 u d new");
        std::fs::write(&path, "postgresql://u:S3cr3t-canary%zz@h/d").unwrap();
        let error = dsn.connect_config().unwrap_err();
        assert!(!format!("{error} {error:?} {dsn:?}").contains(CANARY));
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text: String) {
            let _ = parse(&text);
            let _ = parse(&format!("postgresql://{text}"));
        }

        #[test]
        fn an_encoded_password_comes_back_as_it_was(password in "[^\0]{1,20}") {
            let encoded: String = password.bytes().map(|byte| format!("%{byte:02x}")).collect();
            let quoted = password.replace('\\', "\\\\").replace('\'', "\\'");
            for text in
                [format!("postgresql://u:{encoded}@h/d"), format!("host=h password='{quoted}'")]
            {
                let config = parse(&text).unwrap().connect_config().unwrap();
                prop_assert_eq!(config.get_password(), Some(password.as_bytes()));
            }
        }

        #[test]
        fn a_string_broken_anywhere_never_shows_its_secret(
            form in 0_usize..3,
            place: proptest::sample::Index,
            piece in r"[@:/?#%=&' \\\[\]]{1,2}",
        ) {
            let mut text = [
                "postgresql://u:S3cr3t-canary@h:5432/d?application_name=a",
                "postgresql://h:5432/d?user=u&password=S3cr3t-canary",
                "host=h port=5432 user=u password=S3cr3t-canary dbname=d",
            ][form]
                .to_owned();
            text.insert_str(place.index(text.len()), &piece);
            match parse(&text) {
                Err(error) => {
                    let shown = format!("{error} {error:?}");
                    prop_assert!(!shown.contains("S3cr3t") && !shown.contains("canary"), "{}", shown);
                }
                // Host, port, user and database are shown on purpose: without them nobody finds the mistake.
                Ok(dsn) => {
                    prop_assert!(!dsn.server_label().contains("canary"), "{}", dsn.server_label());
                }
            }
        }
    }
}
