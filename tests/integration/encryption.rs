//! TLS to the server: in each mode and situation the built binary does what psql does on the same
//! inputs, encrypted where psql's session is, and says which step failed.

#![expect(clippy::unwrap_used, reason = "certificates and files of the test's own")]

use std::fmt::Write as _;
use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, CertifiedIssuer, DnType,
    IsCa, KeyIdMethod, KeyPair, KeyUsagePurpose, RevokedCertParams, SerialNumber, date_time_ymd,
};

use crate::support::files::Files;
use crate::support::process::{Outcome, run};
use crate::support::{Exporter, Postgres, eventually, locks, require};

mod files;
mod unusual;

const MODES: [&str; 6] = ["disable", "allow", "prefer", "require", "verify-ca", "verify-full"];

/// Made with openssl as PostgreSQL's manual did for years, since no library here makes certificates
/// of version 1; RSA, where the others have elliptic curves.
const OLD_CA: &str = include_str!("encryption/ca.crt");
const OLD_CERT: &str = include_str!("encryption/server.crt");
const OLD_KEY: &str = include_str!("encryption/server.key");

/// An issuer of certificates.
struct Ca(CertifiedIssuer<'static, KeyPair>);

/// A certificate, perhaps with those between it and the root, and its key; in PEM.
struct Certified {
    cert: String,
    key: String,
}

impl Ca {
    fn new(name: &str) -> Ca {
        let (params, key) = Ca::params(name);
        Ca(CertifiedIssuer::self_signed(params, key).unwrap())
    }

    fn under(&self, name: &str) -> Ca {
        let (params, key) = Ca::params(name);
        Ca(CertifiedIssuer::signed_by(params, key, &self.0).unwrap())
    }

    fn params(name: &str) -> (CertificateParams, KeyPair) {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        params.distinguished_name.push(DnType::CommonName, name);
        (params, KeyPair::generate().unwrap())
    }

    fn pem(&self) -> String {
        self.0.pem()
    }

    fn certify(&self, names: &[&str]) -> Certified {
        self.certify_as(names, |_| {})
    }

    fn certify_as(&self, names: &[&str], change: impl FnOnce(&mut CertificateParams)) -> Certified {
        let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
        let mut params = CertificateParams::new(names.clone()).unwrap();
        params.distinguished_name.push(DnType::CommonName, names.first().map_or("", |name| name));
        change(&mut params);
        let key = KeyPair::generate().unwrap();
        let cert = params.signed_by(&key, &self.0).unwrap().pem();
        Certified { cert, key: key.serialize_pem() }
    }

    /// A list that says of one certificate that it is not good any more.
    fn revoke(&self, serial: SerialNumber) -> String {
        let revoked = RevokedCertParams {
            serial_number: serial,
            revocation_time: date_time_ymd(2020, 1, 1),
            reason_code: None,
            invalidity_date: None,
        };
        let list = CertificateRevocationListParams {
            this_update: date_time_ymd(2020, 1, 1),
            next_update: date_time_ymd(4000, 1, 1),
            crl_number: SerialNumber::from(1_u64),
            issuing_distribution_point: None,
            revoked_certs: vec![revoked],
            key_identifier_method: KeyIdMethod::Sha256,
        };
        list.signed_by(&self.0).unwrap().pem().unwrap()
    }
}

/// Signed by itself.
fn self_signed(name: &str) -> Certified {
    let mut params = CertificateParams::new([name.to_owned()]).unwrap();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().unwrap();
    let cert = params.self_signed(&key).unwrap().pem();
    Certified { cert, key: key.serialize_pem() }
}

/// A server with this certificate, and roles that come in by one way each.
async fn serve(certified: &Certified, client_ca: &str) -> Postgres {
    let postgres = Postgres::builder()
        .setting("ssl", "on")
        .setting("ssl_cert_file", "server.crt")
        .setting("ssl_key_file", "server.key")
        .setting("ssl_ca_file", "clients.crt")
        .setting("password_encryption", "scram-sha-256")
        .setting("log_connections", "on")
        .file("server.crt", &certified.cert)
        .file("server.key", &certified.key)
        .file("clients.crt", client_ca)
        .hba("host all scram 127.0.0.1/32 scram-sha-256")
        .hba("hostssl all certified 127.0.0.1/32 trust clientcert=verify-ca")
        .hba("hostssl all encrypted 127.0.0.1/32 trust")
        .hba("host all encrypted 127.0.0.1/32 reject")
        .hba("hostnossl all plain 127.0.0.1/32 trust")
        .hba("hostssl all plain 127.0.0.1/32 reject")
        .start()
        .await;
    let session = postgres.session("roles").await;
    for role in ["certified", "encrypted", "plain"] {
        session.run(&format!("CREATE ROLE {role} LOGIN")).await;
    }
    session.run("CREATE ROLE scram LOGIN PASSWORD 'secret'").await;
    postgres
}

/// What both programs are given, beside the mode.
struct Situation<'a> {
    name: &'static str,
    postgres: &'a Postgres,
    host: &'a str,
    /// `key=value` pairs.
    rest: String,
    /// What the home of the user has in `.postgresql`.
    home: PathBuf,
    /// What the binary says wherever it refuses, one of these.
    steps: &'static [&'static str],
}

/// Whether a program connected, and whether its session was encrypted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Encrypted,
    Plain,
    Refused,
}

impl Situation<'_> {
    fn conninfo(&self, mode: &str) -> String {
        let Situation { postgres, host, rest, .. } = self;
        let mode = if mode.is_empty() { String::new() } else { format!(" sslmode={mode}") };
        format!("host={host} port={} dbname=app {rest}{mode}", postgres.port())
    }

    async fn ask_psql(&self, mode: &str) -> (Verdict, Outcome) {
        let mut psql = Command::new("psql");
        psql.args(["-X", "-w", "-A", "-t", "-c", "SELECT 1"]);
        // Given as the database it is read as a connection string.
        psql.args(["-d", &self.conninfo(mode)]);
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("PG") {
                psql.env_remove(&name);
            }
        }
        self.judge("psql", mode, psql).await
    }

    async fn ask_locks(&self, mode: &str) -> (Verdict, Outcome) {
        let arguments = ["top", "--once", "--json", "--exporter", "none", "--dsn"];
        let mut command = locks(&arguments);
        command.arg(self.conninfo(mode));
        self.judge("locks", mode, command).await
    }

    /// Runs a program under a name of its own, by which the server's log knows its session.
    async fn judge(&self, program: &str, mode: &str, mut command: Command) -> (Verdict, Outcome) {
        let name = format!("{program} {mode} {}", self.name);
        command.env("PGAPPNAME", &name).env("HOME", &self.home).stdin(Stdio::null());
        command.env("PGCONNECT_TIMEOUT", "20");
        let outcome = run(command).await;
        if outcome.code != Some(0) {
            return (Verdict::Refused, outcome);
        }
        let name = name.chars().take(63).collect::<String>();
        let told = format!("application_name={name}");
        let verdict = eventually("the server's log tells of the session", async || {
            let log = self.postgres.log();
            let line = log
                .lines()
                .rfind(|line| line.contains("connection authorized") && line.contains(&told));
            let line = line.unwrap_or_else(|| panic!("no line with {told}:\n{log}"));
            if line.contains("SSL enabled") { Verdict::Encrypted } else { Verdict::Plain }
        })
        .await;
        (verdict, outcome)
    }
}

/// A home with these files in `.postgresql`.
fn home(files: &Files, name: &str, contents: &[(&str, &str)]) -> PathBuf {
    let home = files.path(name);
    let folder = home.join(".postgresql");
    fs::create_dir_all(&folder).unwrap();
    for (name, text) in contents {
        write_private(&folder.join(name), text);
    }
    home
}

fn write_private(path: &Path, text: &str) {
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
}

#[tokio::test]
#[expect(clippy::too_many_lines, reason = "the table of situations")]
async fn every_mode_in_every_situation_does_what_psql_does() {
    require!(Postgres);
    let (ca, other) = (Ca::new("ca of the servers"), Ca::new("another ca"));
    let between = ca.under("ca between");
    let clients = Ca::new("ca of the clients");
    let serial = SerialNumber::from(4711_u64);
    let good = ca.certify_as(&["localhost"], |params| params.serial_number = Some(serial.clone()));
    let expired = ca.certify_as(&["localhost"], |params| {
        params.not_before = date_time_ymd(2019, 1, 1);
        params.not_after = date_time_ymd(2020, 1, 1);
    });
    let unborn =
        ca.certify_as(&["localhost"], |params| params.not_before = date_time_ymd(3000, 1, 1));
    let under = between.certify(&["localhost"]);
    let own = self_signed("localhost");
    let old = Certified { cert: OLD_CERT.to_owned(), key: OLD_KEY.to_owned() };
    let client = clients.certify(&["certified"]);
    let stranger = other.certify(&["certified"]);

    let server = serve(&good, &clients.pem()).await;
    let server_expired = serve(&expired, &clients.pem()).await;
    let server_unborn = serve(&unborn, &clients.pem()).await;
    let server_under = serve(&under, &clients.pem()).await;
    let server_own = serve(&own, &clients.pem()).await;
    let server_old = serve(&old, &clients.pem()).await;
    let server_address = serve(&ca.certify(&["127.0.0.1"]), &clients.pem()).await;
    let server_plain = Postgres::builder().setting("log_connections", "on").start().await;

    let files = Files::new();
    let root = files.write("root.crt", &ca.pem());
    let other_root = files.write("other.crt", &other.pem());
    let root_and_between = files.write("both.crt", &(ca.pem() + &between.pem()));
    let only_between = files.write("between.crt", &between.pem());
    let own_root = files.write("own.crt", &own.cert);
    let old_root = files.write("old.crt", OLD_CA);
    let crl = files.write("revoked.crl", &ca.revoke(serial));
    let private = |name: &str, text: &str| {
        let path = files.path(name);
        write_private(&path, text);
        path.display().to_string()
    };
    let client_files = format!(
        "sslcert={} sslkey={}",
        files.write("client.crt", &client.cert),
        private("client.key", &client.key)
    );
    let stranger_files = format!(
        "sslcert={} sslkey={}",
        files.write("stranger.crt", &stranger.cert),
        private("stranger.key", &stranger.key)
    );
    let open_key = files.write("open.key", &client.key);
    let open_files = format!("sslcert={} sslkey={open_key}", files.path("client.crt").display());
    fs::set_permissions(&open_key, fs::Permissions::from_mode(0o644)).unwrap();
    let nothing = home(&files, "home", &[]);
    let with_root = home(&files, "home-root", &[("root.crt", &ca.pem())]);
    let with_other = home(&files, "home-other", &[("root.crt", &other.pem())]);
    let with_client = home(
        &files,
        "home-client",
        &[("postgresql.crt", &client.cert), ("postgresql.key", &client.key)],
    );

    const TRUST: &str = "the server's certificate is not trusted: its issuer (CN=";
    const NAME: &str = "the server's certificate is for another name: for localhost, not for ";
    const NO_ROOT: &str = "there is no root certificate ";
    const NO_TLS: &str = "the server does not offer TLS, and sslmode=";
    let situation = |name, postgres, rest: String, steps| Situation {
        name,
        postgres,
        host: "localhost",
        rest,
        home: nothing.clone(),
        steps,
    };
    let rooted = |rest: &str| format!("user=postgres sslrootcert={root} {rest}");
    let socket = server.socket_folder().display().to_string();
    let situations = [
        situation("own ca", &server, rooted(""), &[]),
        situation("wrong ca", &server, format!("user=postgres sslrootcert={other_root}"), &[TRUST]),
        Situation { host: "127.0.0.1", ..situation("wrong name", &server, rooted(""), &[NAME]) },
        Situation {
            host: "127.0.0.1",
            ..situation("certificate for an address", &server_address, rooted(""), &[])
        },
        situation("name with an address beside", &server, rooted("hostaddr=127.0.0.1"), &[]),
        situation(
            "expired",
            &server_expired,
            rooted(""),
            &["the server's certificate expired at 2020-01-01T00:00:00Z"],
        ),
        situation(
            "not valid yet",
            &server_unborn,
            rooted(""),
            &["the server's certificate is not valid before 3000-01-01T00:00:00Z"],
        ),
        situation("no root file", &server, "user=postgres".to_owned(), &[NO_ROOT]),
        situation(
            "a root file that is not there",
            &server,
            "user=postgres sslrootcert=/nowhere/root.crt".to_owned(),
            &[NO_ROOT],
        ),
        Situation {
            home: with_root.clone(),
            ..situation("root file at home", &server, "user=postgres".to_owned(), &[])
        },
        Situation {
            home: with_other,
            ..situation("wrong root file at home", &server, "user=postgres".to_owned(), &[TRUST])
        },
        situation(
            "self-signed as its own root",
            &server_own,
            format!("user=postgres sslrootcert={own_root}"),
            &[],
        ),
        situation("self-signed and another root", &server_own, rooted(""), &[TRUST]),
        situation("leaf without what is between", &server_under, rooted(""), &[TRUST]),
        situation(
            "between in the root file",
            &server_under,
            format!("user=postgres sslrootcert={root_and_between}"),
            &[],
        ),
        situation(
            "between alone is no root",
            &server_under,
            format!("user=postgres sslrootcert={only_between}"),
            &["between.crt holds no root certificate"],
        ),
        situation("version 1", &server_old, format!("user=postgres sslrootcert={old_root}"), &[]),
        situation("version 1 of another", &server_old, rooted(""), &[TRUST]),
        situation(
            "version 1 and channel binding",
            &server_old,
            format!("user=scram password=secret channel_binding=require sslrootcert={old_root}"),
            &["cannot log in"],
        ),
        situation(
            "revoked",
            &server,
            rooted(&format!("sslcrl={crl}")),
            &["the server's certificate was revoked"],
        ),
        situation(
            "client certificate given",
            &server,
            format!("user=certified {client_files} sslrootcert={root}"),
            &["client certificate", "no pg_hba.conf entry"],
        ),
        situation(
            "client certificate not given",
            &server,
            format!("user=certified sslrootcert={root}"),
            &["connection requires a valid client certificate", "no pg_hba.conf entry"],
        ),
        situation(
            "client certificate of a stranger",
            &server,
            format!("user=certified {stranger_files} sslrootcert={root}"),
            &["the server ended the TLS handshake (UnknownCA)", "no pg_hba.conf entry"],
        ),
        situation(
            "key that others may read",
            &server,
            format!("user=certified {open_files} sslrootcert={root}"),
            &["others may read the key", "no pg_hba.conf entry"],
        ),
        Situation {
            home: with_client,
            ..situation(
                "client certificate at home",
                &server,
                format!("user=certified sslrootcert={root}"),
                &["no pg_hba.conf entry"],
            )
        },
        situation("scram", &server, format!("user=scram password=secret sslrootcert={root}"), &[]),
        situation(
            "scram and channel binding",
            &server,
            format!("user=scram password=secret channel_binding=require sslrootcert={root}"),
            &["cannot log in"],
        ),
        situation(
            "scram without channel binding",
            &server,
            format!("user=scram password=secret channel_binding=disable sslrootcert={root}"),
            &[],
        ),
        situation(
            "channel binding and trust",
            &server,
            rooted("channel_binding=require"),
            &["cannot log in"],
        ),
        situation(
            "wrong password",
            &server,
            format!("user=scram password=x sslrootcert={root}"),
            &["password authentication failed"],
        ),
        situation("server without tls", &server_plain, rooted(""), &[NO_TLS]),
        situation(
            "role that must encrypt",
            &server,
            format!("user=encrypted sslrootcert={root}"),
            &["pg_hba.conf rejects connection"],
        ),
        situation(
            "role that must not",
            &server,
            format!("user=plain sslrootcert={root}"),
            &["pg_hba.conf rejects connection"],
        ),
        Situation { host: &socket, ..situation("unix socket", &server, rooted(""), &[]) },
        situation("only 1.3", &server, rooted("ssl_min_protocol_version=TLSv1.3"), &[]),
        situation("only 1.2", &server, rooted("ssl_max_protocol_version=TLSv1.2"), &[]),
        situation("without its name", &server, rooted("sslsni=0"), &[]),
    ];

    let mut differences = String::new();
    let mut counts = [0; 3];
    for situation in &situations {
        for mode in MODES {
            let (expected, told) = situation.ask_psql(mode).await;
            let (verdict, said) = situation.ask_locks(mode).await;
            counts[expected as usize] += 1;
            let name = situation.name;
            if verdict != expected {
                writeln!(
                    differences,
                    "{name}, {mode}: psql {expected:?} ({}), locks {verdict:?} ({})",
                    told.stderr.trim(),
                    said.stderr.trim()
                )
                .unwrap();
            } else if verdict == Verdict::Refused
                && !situation.steps.iter().any(|step| said.stderr.contains(step))
            {
                writeln!(
                    differences,
                    "{name}, {mode}: the step is not told: {} (psql: {})",
                    said.stderr.trim(),
                    told.stderr.trim()
                )
                .unwrap();
            }
        }
    }
    assert!(differences.is_empty(), "\n{differences}");
    assert!(counts.iter().all(|count| *count > 30), "{counts:?}");
}

/// Preferring TLS is no reason to wait for a second connection as long as for the first.
#[tokio::test]
async fn a_server_that_says_nothing_is_asked_once_in_every_mode() {
    let mute = TcpListener::bind("127.0.0.1:0").unwrap();
    mute.set_nonblocking(true).unwrap();
    let port = mute.local_addr().unwrap().port();
    let files = Files::new();
    let root = files.write("root.crt", &Ca::new("ca").pem());
    for mode in MODES {
        let dsn = format!(
            "host=localhost hostaddr=127.0.0.1 port={port} user=u connect_timeout=2 \
             sslmode={mode} sslrootcert={root}"
        );
        let outcome = run(locks(&["top", "--once", "--exporter", "none", "--dsn", &dsn])).await;
        assert_eq!(outcome.code, Some(1), "{mode}: {}", outcome.stderr);
        let said = outcome.stdout + &outcome.stderr;
        assert!(said.contains("within 2s"), "{mode}: {said}");
        let asked = std::iter::from_fn(|| mute.accept().ok()).count();
        assert_eq!(asked, 1, "{mode}");
    }
}
