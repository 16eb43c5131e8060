//! Which web configurations are accepted: our verdict beside that of `promtool check web-config`,
//! which has the common part of the format, and why where they differ.

use std::error::Error as _;
use std::path::Path;

use pg_locks_exporter::server::WebConfigFile;

use crate::support::authority::Authority;
use crate::support::files::Files;
use crate::support::prometheus::promtool;
use crate::support::require;

/// What a file comes to.
enum Ours {
    Accepted,
    /// Refused, with this in the message.
    Refused(&'static str),
}
use Ours::{Accepted, Refused};

/// What promtool says, and why it is another thing where it is.
enum Theirs {
    Alike,
    Differs(&'static str),
}
use Theirs::{Alike, Differs};

const PAIR: &str = "tls_server_config: { cert_file: server.crt, key_file: server.key";
const ALICE: &str = "$2y$10$mDwo.lAisC94iLAyP81MCesa29IzH37oigHC/42V2pdJlUprsJPze";

fn cases() -> Vec<(String, Ours, Theirs)> {
    let tls = |more: &str| format!("{PAIR}{more} }}\n");
    let ca = ", client_ca_file: ca.crt";
    let limits = Differs("this version does not know rate_limit");
    let silent = || Differs("without a certificate it serves clear text, and says nothing");
    vec![
        ("".to_owned(), Accepted, Alike),
        (tls(""), Accepted, Alike),
        (tls(", min_version: TLS12, max_version: TLS13"), Accepted, Alike),
        (tls(", min_version: TLS13"), Accepted, Alike),
        (tls(", prefer_server_cipher_suites: false"), Accepted, Alike),
        (
            tls(", cipher_suites: [TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384, \
                 TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256, TLS_AES_128_GCM_SHA256]"),
            Accepted,
            Alike,
        ),
        (tls(", curve_preferences: [CurveP384, X25519, CurveP256]"), Accepted, Alike),
        (tls(&format!("{ca}, client_auth_type: RequireAndVerifyClientCert")), Accepted, Alike),
        (tls(&format!("{ca}, client_auth_type: VerifyClientCertIfGiven")), Accepted, Alike),
        (tls(", client_auth_type: RequireAnyClientCert"), Accepted, Alike),
        (tls(", client_auth_type: RequestClientCert"), Accepted, Alike),
        (tls(", client_auth_type: NoClientCert"), Accepted, Alike),
        (format!("basic_auth_users: {{ alice: '{ALICE}', bob: '{ALICE}' }}"), Accepted, Alike),
        ("http_server_config: { http2: true }".to_owned(), Accepted, Alike),
        ("http_server_config: { http2: false }".to_owned(), Accepted, Alike),
        (
            "http_server_config:\n  headers:\n    X-Frame-Options: deny\n    \
             X-Content-Type-Options: nosniff\n    X-XSS-Protection: '1'\n    \
             Strict-Transport-Security: max-age=63072000\n    \
             Content-Security-Policy: default-src 'self'\n"
                .to_owned(),
            Accepted,
            Alike,
        ),
        (
            "http_server_config: { headers: { X-XSS-Protection: '' } }".to_owned(),
            Accepted,
            Alike,
        ),
        // What both refuse.
        ("tls_config: {}".to_owned(), Refused("1:1: unknown key `tls_config`"), Alike),
        (tls(", ca_file: ca.crt"), Refused("unknown key `ca_file`"), Alike),
        ("rate: [".to_owned(), Refused("web.yml:1:"), Alike),
        (
            "tls_server_config: { cert_file: server.crt }".to_owned(),
            Refused("web.yml: tls_server_config has no key and no key_file"),
            Alike,
        ),
        (
            "tls_server_config: { key_file: server.key }".to_owned(),
            Refused("has no cert and no cert_file"),
            Alike,
        ),
        (
            "tls_server_config: { cert_file: none.crt, key_file: server.key }".to_owned(),
            Refused("none.crt: cannot read the file: No such file"),
            Alike,
        ),
        (
            "tls_server_config: { cert_file: server.crt, key_file: other.key }".to_owned(),
            Refused("server.crt: certificate or key cannot be used; they must be a pair"),
            Alike,
        ),
        (
            "tls_server_config: { cert_file: server.key, key_file: server.key }".to_owned(),
            Refused("server.key: there is no certificate in PEM here"),
            Alike,
        ),
        (
            "tls_server_config: { cert_file: server.crt, key_file: server.crt }".to_owned(),
            Refused("server.crt: there is no private key in PEM here"),
            Alike,
        ),
        (
            tls(ca),
            Refused("ca.crt: without client_auth_type nobody is asked for a certificate"),
            Alike,
        ),
        (tls(", client_auth_type: Sometimes"), Refused("no way to ask for certificates"), Alike),
        (tls(", min_version: TLS14"), Refused("\"TLS14\" is not served here"), Alike),
        (tls(", cipher_suites: [TLS_NONE]"), Refused("the cipher suite \"TLS_NONE\""), Alike),
        (tls(", curve_preferences: [P256]"), Refused("the curve \"P256\" is not served"), Alike),
        (
            "basic_auth_users: { alice: secret }".to_owned(),
            Refused("1:28: not a bcrypt hash"),
            Alike,
        ),
        (
            "http_server_config: { headers: { Server: x } }".to_owned(),
            Refused("the header \"Server\" cannot be set"),
            Alike,
        ),
        (
            "http_server_config: { headers: { X-Frame-Options: allow } }".to_owned(),
            Refused("must be deny or sameorigin, or empty"),
            Alike,
        ),
        // Where we know more.
        ("rate_limit: { interval: 1s, burst: 20 }".to_owned(), Accepted, limits),
        (
            "rate_limit: { interval: 0 }".to_owned(),
            Accepted,
            Differs("this version does not know rate_limit"),
        ),
        (
            tls(&format!(
                "{ca}, client_auth_type: RequireAndVerifyClientCert, client_allowed_sans: [a.example]"
            )),
            Accepted,
            Differs("this version does not know client_allowed_sans"),
        ),
        // Where we are more careful.
        (
            tls(", cipher_suites: [TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA]"),
            Refused("cipher suite \"TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA\" is not served here"),
            Differs("Go has this suite, rustls does not"),
        ),
        (
            tls(", cipher_suites: [TLS_AES_128_GCM_SHA256]"),
            Refused("lists no cipher suite of TLS 1.2"),
            Differs("Go fails the handshakes of TLS 1.2"),
        ),
        (
            tls(", curve_preferences: [CurveP521]"),
            Refused("\"CurveP521\" is not served here"),
            Differs("Go has this curve, rustls does not"),
        ),
        (
            tls(", min_version: TLS10"),
            Refused("\"TLS10\" is not served here; write TLS12 or TLS13"),
            Differs("Go still speaks it"),
        ),
        (
            tls(", min_version: TLS13, max_version: TLS12"),
            Refused("min_version is above max_version"),
            Differs("Go fails every handshake"),
        ),
        (
            "tls_server_config: { min_version: TLS13 }".to_owned(),
            Refused("has no cert and no cert_file"),
            silent(),
        ),
        (
            tls(", client_auth_type: RequireAndVerifyClientCert"),
            Refused("RequireAndVerifyClientCert needs client_ca or client_ca_file"),
            Differs("Go lets in whoever has a certificate that the system trusts"),
        ),
        (
            tls(", client_auth_type: VerifyClientCertIfGiven"),
            Refused("VerifyClientCertIfGiven needs client_ca or client_ca_file"),
            Differs("as above"),
        ),
        (
            "basic_auth_users: { alice: $2y$31$mDwo.lAisC94iLAyP81MCesa29IzH37oigHC/42V2pdJlUprsJPze }"
                .to_owned(),
            Refused("cost 31 takes too long"),
            Differs("it would compute for days"),
        ),
        (
            format!("basic_auth_users: {{ 'a:b': '{ALICE}' }}"),
            Refused("the name of a user is empty or has a colon in it"),
            Differs("nobody can log in by this name"),
        ),
        (
            "http_server_config: { headers: { X-Frame-Options: '' } }".to_owned(),
            Accepted,
            Differs("documented as unset, and refused"),
        ),
        // What both refuse, the other because it does not know rate_limit.
        ("rate_limit: { interval: 5 }".to_owned(), Refused("has no unit: write 5s"), Alike),
        ("rate_limit: { interval: 1s }".to_owned(), Refused("`burst` of at least 1"), Alike),
        ("rate_limit: { burst: 1 }".to_owned(), Refused("the key `interval` is missing"), Alike),
        (
            tls(", client_auth_type: RequestClientCert, client_allowed_sans: [a.example]"),
            Refused("needs client_auth_type RequireAndVerifyClientCert or RequireAnyClientCert"),
            Alike,
        ),
        (
            tls(", client_auth_type: RequireAnyClientCert, client_allowed_sans: []"),
            Refused("is an empty list"),
            Alike,
        ),
    ]
}

fn load(path: &str) -> Result<(), String> {
    match WebConfigFile::load(Path::new(path).to_owned()) {
        Ok(_) => Ok(()),
        Err(error) => Err(match error.source() {
            Some(source) => format!("{error}: {source}"),
            None => error.to_string(),
        }),
    }
}

fn folder() -> Files {
    let files = Files::new();
    let authority = Authority::new();
    let (server, other) = (authority.issue(&["localhost"]), authority.issue(&["localhost"]));
    files.write("ca.crt", &authority.pem());
    files.write("server.crt", &server.certificate);
    files.write("server.key", &server.key);
    files.write("other.key", &other.key);
    files
}

#[test]
fn what_is_accepted_is_what_promtool_accepts_but_for_differences_with_a_reason() {
    require!(Promtool);
    let files = folder();
    for (text, ours, theirs) in cases() {
        let path = files.write("web.yml", &text);
        let verdict = load(&path);
        match (&verdict, ours) {
            (Ok(()), Accepted) => {}
            (Err(error), Refused(piece)) => assert!(error.contains(piece), "{text}\n{error}"),
            (Ok(()), Refused(piece)) => panic!("{text} is accepted, not refused for {piece}"),
            (Err(error), Accepted) => panic!("{text} is refused: {error}"),
        }
        let output = promtool(&["check", "web-config", &path], "");
        let said = String::from_utf8_lossy(&output.stderr);
        match theirs {
            Alike => assert_eq!(output.status.success(), verdict.is_ok(), "{text}\n{said}"),
            Differs(why) => {
                assert_ne!(output.status.success(), verdict.is_ok(), "{text}\n{why}\n{said}");
            }
        }
    }
}

#[test]
fn certificates_may_stand_in_the_file_itself_but_not_in_both_places() {
    let files = folder();
    let pem = |name: &str| {
        let text = std::fs::read_to_string(files.path(name)).expect("it was written");
        text.replace('\n', "\n    ")
    };
    let text = format!(
        "tls_server_config:\n  cert: |\n    {}\n  key: |\n    {}\n  client_ca: |\n    {}\n  \
         client_auth_type: RequireAndVerifyClientCert\n",
        pem("server.crt"),
        pem("server.key"),
        pem("ca.crt"),
    );
    assert_eq!(load(&files.write("web.yml", &text)), Ok(()));
    let both = text + "  key_file: server.key\n";
    let error = load(&files.write("web.yml", &both)).unwrap_err();
    assert!(error.contains("key and key_file are both given"), "{error}");
    assert!(!error.contains("PRIVATE"), "{error}");
}

#[test]
fn a_file_that_is_not_there_is_told_by_its_path() {
    let error = load("/nowhere/web.yml").unwrap_err();
    assert!(error.starts_with("/nowhere/web.yml: cannot read the file: No such file"), "{error}");
}
