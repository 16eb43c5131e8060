use std::error::Error;

use proptest::prelude::*;

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
    let defaults = Defaults { host: "/run/default", user: Some("os-user".to_owned()), home: None };
    Dsn::resolve(&parse_parameters(text)?, &look_up, &defaults)
}

fn password(dsn: &Dsn) -> Result<Option<String>, DsnError> {
    Ok(match dsn.fetch_password(&dsn.hosts[0])? {
        PassFile::Found(password) => Some(password),
        PassFile::Nothing(_) => None,
    })
}

/// `LABEL USER DBNAME PASSWORD`
fn summary(dsn: &Dsn) -> String {
    let password = password(dsn).unwrap().unwrap_or_else(|| "-".to_owned());
    format!("{} {} {} {password}", dsn.server_label(), dsn.user(), dsn.database())
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
        ("postgresql://u:p%23s%3Ds%40w%3Ao%25rd%7Bx%2F%20y@h/d", "h:5432 u d p#s=s@w:o%rd{x/ y"),
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
fn every_host_of_a_list_is_tried() {
    let dsn = parse("postgresql://u@a:1,b,c:3/d").unwrap();
    let hosts = ["a:1", "b:5432", "c:3"];
    assert_eq!(dsn.hosts.iter().map(Host::to_string).collect::<Vec<_>>(), hosts);
    assert_eq!(dsn.connect_patience(), 3 * DEFAULT_CONNECT_TIMEOUT);
}

#[test]
fn a_connect_timeout_of_nothing_is_no_bound_and_one_second_is_two() {
    let expected = [("0", None), ("-1", None), ("1", Some(2)), ("3", Some(3)), (" 4 ", Some(4))];
    for (text, seconds) in expected {
        let dsn = parse(&format!("connect_timeout='{text}'")).unwrap();
        assert_eq!(dsn.connect_timeout(), seconds.map(Duration::from_secs), "{text}");
        let patience = seconds.map_or(DEFAULT_CONNECT_TIMEOUT, Duration::from_secs);
        assert_eq!(dsn.connect_patience(), patience, "{text}");
    }
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
    assert_eq!(dsn.connect_timeout(), Some(Duration::from_secs(2)));
    assert_eq!(dsn.startup().application_name, "env-app");
    let dsn = parse_in("postgresql://u:p@h:1/d?application_name=a", &environment).unwrap();
    assert_eq!(summary(&dsn), "h:1 u d p");
    assert!(dsn.has_password());
    assert_eq!(dsn.startup().application_name, "a");
}

#[test]
fn the_application_is_called_locks_unless_told_otherwise() {
    let name = |text| parse(text).unwrap().startup.application_name;
    assert_eq!(name("host=h"), "locks");
    assert_eq!(name("fallback_application_name=cron"), "cron");
    assert_eq!(name("fallback_application_name=cron application_name=x"), "x");
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
        ("postgresql://h/d?password=x=S3cr3t-canary", "an = that is not escaped at position 28"),
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
        ("password=S3cr3t-canary connect_timeout=1.5", "connect_timeout must be"),
        ("password=S3cr3t-canary sslmode=on", "sslmode must be disable"),
        ("password=S3cr3t-canary sslmode=''", "sslmode must be disable"),
        ("password=S3cr3t-canary target_session_attrs=master", "target_session_attrs must be"),
        ("password=S3cr3t-canary keepalives_count=few", "keepalives_count must be"),
        ("password=S3cr3t-canary krbsrvname=x", "krbsrvname is not supported"),
        ("password=S3cr3t-canary require_auth=none", "require_auth is not supported"),
        ("password=S3cr3t-canary gssencmode=require", "gssencmode is not supported"),
        ("password=S3cr3t-canary replication=true", "replication is not supported"),
        ("password=S3cr3t-canary client_encoding=LATIN1", "client_encoding is not supported"),
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
fn encryption_is_as_it_is_asked_for() {
    let mode =
        |text: &str, environment: &[(&str, &str)]| parse_in(text, environment).unwrap().tls.mode;
    assert_eq!(mode("", &[]), SslMode::Prefer);
    assert_eq!(mode("sslmode=verify-ca", &[("PGSSLMODE", "disable")]), SslMode::VerifyCa);
    assert_eq!(mode("", &[("PGSSLMODE", "verify-full")]), SslMode::VerifyFull);
    assert_eq!(mode("postgresql://h?ssl=true", &[]), SslMode::Require);
    assert_eq!(mode("", &[("PGREQUIRESSL", "1")]), SslMode::Require);
    assert_eq!(mode("sslmode=disable", &[("PGREQUIRESSL", "1")]), SslMode::Disable);
    assert_eq!(mode("sslrootcert=system", &[]), SslMode::VerifyFull);
    let refused = [
        ("sslrootcert=system sslmode=require", "sslrootcert=system wants sslmode=verify-full"),
        ("sslnegotiation=direct", "sslnegotiation=direct wants sslmode=require"),
        ("hostaddr=10.0.0.1 sslmode=verify-full", "sslmode=verify-full needs the name"),
        ("ssl_min_protocol_version=SSLv3", "ssl_min_protocol_version must be"),
        ("ssl_max_protocol_version=TLSv1.1", "ssl_max_protocol_version must be"),
        (
            "ssl_min_protocol_version=TLSv1.3 ssl_max_protocol_version=TLSv1.2",
            "ssl_max_protocol_version must be at least",
        ),
    ];
    for (text, part) in refused {
        let error = parse(text).unwrap_err().to_string();
        assert!(error.starts_with(part), "{text}: {error}");
    }
}

#[test]
fn a_variable_that_demands_more_than_is_done_is_refused_by_name() {
    let error = parse_in("host=h", &[("PGREQUIREAUTH", CANARY)]).unwrap_err().to_string();
    assert_eq!(error, "PGREQUIREAUTH is not supported; leave it out");
    let error = parse_in("host=h", &[("PGPORT", CANARY)]).unwrap_err().to_string();
    assert_eq!(error, "PGPORT must be a number from 1 to 65535");
}

#[test]
fn a_service_stands_between_the_string_and_the_environment() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("services");
    std::fs::write(&file, "[orders]\nhost=of-service\nuser=of-service\nport=7\n").unwrap();
    let file = file.to_str().unwrap();
    let environment = [
        ("PGSERVICEFILE", file),
        ("PGSERVICE", "orders"),
        ("PGHOST", "of-environment"),
        ("PGDATABASE", "of-environment"),
    ];
    let dsn = parse_in("user=of-string", &environment).unwrap();
    assert_eq!(summary(&dsn), "of-service:7 of-string of-environment -");
    let error = parse_in("service=S3cr3t-canary", &environment).unwrap_err();
    assert!(matches!(error, DsnError::NoService));
    assert!(!format!("{error} {error:?}").contains(CANARY));
    let nowhere = [("PGSERVICEFILE", "/nowhere/services")];
    let error = parse_in("service=x", &nowhere).unwrap_err().to_string();
    assert_eq!(error, "cannot read the service file /nowhere/services");
}

#[test]
fn what_a_string_sets_to_nothing_does_not_come_from_the_environment() {
    let environment = [("PGHOST", "env-host"), ("PGDATABASE", "env-db")];
    let dsn = parse_in("host='' dbname=''", &environment).unwrap();
    assert_eq!(summary(&dsn), "/run/default:5432 os-user os-user -");
}

#[test]
fn the_password_file_is_asked_last_and_for_each_host() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("pgpass");
    std::fs::write(&path, "a:*:*:*:of a\nb:2:d:u:of b\nlocalhost:*:*:*:of the socket\n").unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    let environment = [("PGPASSFILE", path.to_str().unwrap())];
    let dsn = parse_in("host=a,b,/tmp,/other port=1,2,3,4 dbname=d user=u", &environment).unwrap();
    let found: Vec<_> = dsn
        .hosts
        .iter()
        .map(|host| match dsn.fetch_password(host).unwrap() {
            PassFile::Found(password) => password,
            PassFile::Nothing(lack) => lack.to_string(),
        })
        .collect();
    let none = format!(
        "the password file {} has no line for this host, port, database and user",
        path.display()
    );
    assert_eq!(found, ["of a", "of b", "of the socket", &none]);
    let dsn = parse_in("host=a password=given", &environment).unwrap();
    assert_eq!(password(&dsn).unwrap().as_deref(), Some("given"));
}

#[test]
fn a_socket_without_a_file_begins_with_an_at_sign() {
    let dsn = parse("host=@postgres port=1").unwrap();
    assert_eq!(dsn.hosts[0].socket(), Some("@postgres"));
    assert_eq!(dsn.server_label(), "@postgres:1");
}

#[test]
fn nobody_to_connect_as_is_an_error() {
    let defaults = Defaults { host: "h", user: None, home: None };
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
        let way = r#"Dsn { server: "h:1", user: "u", dbname: "d", password: set, .. }"#;
        assert_eq!(shown, way);
    }
}

#[test]
fn a_password_file_is_read_at_every_connect() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("password");
    let dsn = parse("postgresql://u:old@h/d").unwrap().with_password_file(path.clone());
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
        assert_eq!(password(&dsn).unwrap().as_deref(), Some(read));
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
    let error = password(&dsn).unwrap_err();
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
            let found = super::tests::password(&parse(&text).unwrap()).unwrap();
            prop_assert_eq!(found.as_deref(), Some(password.as_str()));
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
