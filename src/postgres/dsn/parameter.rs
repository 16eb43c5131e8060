//! The parameters of libpq: which are understood, which variable stands in for each, which are refused.
//!
//! Where a value comes from is decided here, in libpq's order: the connection string, the service
//! file, the environment. What a value means is decided in `dsn`.

use std::collections::BTreeMap;
use std::str::FromStr;

use super::text::Parameters;
use super::{DsnError, Environment, service};

/// What is understood, and the environment variable that stands in for it.
const SUPPORTED: [(&str, Option<&str>); 38] = [
    ("host", Some("PGHOST")),
    ("hostaddr", Some("PGHOSTADDR")),
    ("port", Some("PGPORT")),
    ("user", Some("PGUSER")),
    ("password", Some("PGPASSWORD")),
    ("passfile", Some("PGPASSFILE")),
    ("dbname", Some("PGDATABASE")),
    ("service", Some("PGSERVICE")),
    ("application_name", Some("PGAPPNAME")),
    ("fallback_application_name", None),
    ("client_encoding", None),
    ("options", Some("PGOPTIONS")),
    ("connect_timeout", Some("PGCONNECT_TIMEOUT")),
    ("sslmode", Some("PGSSLMODE")),
    ("sslnegotiation", Some("PGSSLNEGOTIATION")),
    ("sslrootcert", Some("PGSSLROOTCERT")),
    ("sslcert", Some("PGSSLCERT")),
    ("sslkey", Some("PGSSLKEY")),
    ("sslpassword", None),
    ("sslcrl", Some("PGSSLCRL")),
    ("sslsni", Some("PGSSLSNI")),
    ("sslcompression", Some("PGSSLCOMPRESSION")),
    ("sslcertmode", Some("PGSSLCERTMODE")),
    ("ssl_min_protocol_version", Some("PGSSLMINPROTOCOLVERSION")),
    ("ssl_max_protocol_version", Some("PGSSLMAXPROTOCOLVERSION")),
    ("gssencmode", Some("PGGSSENCMODE")),
    ("channel_binding", Some("PGCHANNELBINDING")),
    ("requirepeer", Some("PGREQUIREPEER")),
    ("target_session_attrs", Some("PGTARGETSESSIONATTRS")),
    ("load_balance_hosts", Some("PGLOADBALANCEHOSTS")),
    ("keepalives", None),
    ("keepalives_idle", None),
    ("keepalives_interval", None),
    ("keepalives_count", None),
    ("tcp_user_timeout", None),
    ("replication", None),
    ("max_protocol_version", Some("PGMAXPROTOCOLVERSION")),
    ("min_protocol_version", Some("PGMINPROTOCOLVERSION")),
];

/// What libpq has beyond that. Named when refused, since no password looks like this.
const UNSUPPORTED: [&str; 15] = [
    "authtype",
    "gssdelegation",
    "gsslib",
    "krbsrvname",
    "oauth_client_id",
    "oauth_client_secret",
    "oauth_issuer",
    "oauth_scope",
    "require_auth",
    "requiressl",
    "scram_client_key",
    "scram_server_key",
    "servicefile",
    "sslcrldir",
    "sslkeylogfile",
];

/// Variables that demand more than is done: ignoring them would connect to a server that was not
/// checked as asked.
const UNSUPPORTED_VARIABLES: [(&str, &str); 2] =
    [("PGREQUIREAUTH", "require_auth"), ("PGSSLCRLDIR", "sslcrldir")];

/// The parameter of this name, out of the table: what comes from the string stays in the string. An
/// error is the name of a parameter that libpq has and this program has not, or nothing.
pub(super) fn known_key(name: &str) -> Result<&'static str, Option<&'static str>> {
    if let Some((key, _)) = SUPPORTED.into_iter().find(|(key, _)| *key == name) {
        return Ok(key);
    }
    Err(UNSUPPORTED.into_iter().find(|key| *key == name))
}

pub(super) fn supported_keys() -> String {
    SUPPORTED.map(|(key, _)| key).join(", ")
}

/// What each parameter is, and what the user calls the place it comes from: the parameter, or the
/// variable. What the string sets to nothing is nothing, whatever stands behind it, as in libpq.
pub(super) struct Found(BTreeMap<&'static str, (&'static str, String)>);

impl Found {
    /// Reads the service file, where a service is named.
    pub(super) fn fetch(said: &Parameters, environment: Environment<'_>) -> Result<Self, DsnError> {
        // libpq takes an empty variable for a value, and for one that most parameters cannot have.
        // Who empties a variable wants to be rid of it.
        let set = |variable: &str| environment(variable).filter(|value| !value.is_empty());
        if let Some((variable, _)) =
            UNSUPPORTED_VARIABLES.into_iter().find(|(name, _)| set(name).is_some())
        {
            return Err(DsnError::Unsupported(variable));
        }
        let service = said.get("service").cloned().or_else(|| set("PGSERVICE"));
        let served = match service.filter(|name| !name.is_empty()) {
            Some(name) => service::fetch(&name, environment)?,
            None => Parameters::new(),
        };
        let mut found = BTreeMap::new();
        for (key, variable) in SUPPORTED {
            let value = if let Some(value) = said.get(key).or_else(|| served.get(key)) {
                Some((key, value.clone()))
            } else {
                variable.and_then(|name| Some((name, set(name)?)))
            };
            found.extend(value.map(|value| (key, value)));
        }
        // The variable of old, which asks for more than the default and so must not be passed over.
        if !found.contains_key("sslmode")
            && set("PGREQUIRESSL").is_some_and(|value| value.starts_with('1'))
        {
            found.insert("sslmode", ("PGREQUIRESSL", "require".to_owned()));
        }
        Ok(Self(found))
    }

    /// The value, if it says anything.
    pub(super) fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key).map(|(_, value)| value.as_str()).filter(|value| !value.is_empty())
    }

    /// What the user called it: the key, or the variable it came from.
    pub(super) fn name(&self, key: &'static str) -> &'static str {
        self.0.get(key).map_or(key, |(name, _)| name)
    }

    pub(super) fn list(&self, key: &str) -> Vec<&str> {
        self.get(key).map(|value| value.split(',').collect()).unwrap_or_default()
    }

    /// A number as libpq reads one: with blanks around it, or nothing at all.
    pub(super) fn number<N: FromStr>(
        &self,
        key: &'static str,
        expected: &'static str,
    ) -> Result<Option<N>, DsnError> {
        let parse = |text: &str| text.trim().parse().map_err(|_| self.refuse(key, expected));
        self.get(key).map(parse).transpose()
    }

    /// One of several words. Nothing is none of them, as in libpq.
    pub(super) fn word<T>(
        &self,
        key: &'static str,
        expected: &'static str,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> Result<Option<T>, DsnError> {
        let value = self.0.get(key).map(|(_, value)| value.as_str());
        value.map(|value| parse(value).ok_or_else(|| self.refuse(key, expected))).transpose()
    }

    pub(super) fn refuse(&self, key: &'static str, expected: &'static str) -> DsnError {
        DsnError::Value { name: self.name(key), expected }
    }
}
