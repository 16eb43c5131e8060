//! Certificates, lists and names that are rarer, where clients of rustls and of OpenSSL tend to
//! disagree.

use rcgen::{
    CustomExtension, ExtendedKeyUsagePurpose, PKCS_ECDSA_P384_SHA384, PKCS_ED25519,
    PKCS_RSA_SHA256, PKCS_RSA_SHA384, PKCS_RSA_SHA512, SignatureAlgorithm,
};

use super::*;

/// Made by the recipe in PostgreSQL's manual with openssl 3.0: the server's certificate is of version
/// 1, and its issuer is not the root.
const RECIPE_ROOT: &str = include_str!("recipe-root.crt");
const RECIPE_CERT: &str = include_str!("recipe-server.crt");
const RECIPE_KEY: &str = include_str!("recipe-server.key");

/// In the form that servers read, which the library here does not make.
const ED25519_KEY: &str = "-----BEGIN PRIVATE KEY-----
MC4CAQAwBQYDK2VwBCIEIOWAUqXrpOoJIoskwQRD7kZdHKrLHGb9E++Ac6wQbg9p
-----END PRIVATE KEY-----
";

/// Those in which certificates matter, and the one that goes on without them.
const CHECKING: [&str; 4] = ["prefer", "require", "verify-ca", "verify-full"];

/// An issuer that signs with this algorithm.
fn ca_signing(algorithm: &'static SignatureAlgorithm) -> Ca {
    let key = if is_rsa(algorithm) {
        KeyPair::from_pem_and_sign_algo(OLD_KEY, algorithm).unwrap()
    } else {
        KeyPair::generate_for(algorithm).unwrap()
    };
    let (params, _) = Ca::params("ca of its kind");
    Ca(CertifiedIssuer::self_signed(params, key).unwrap())
}

fn is_rsa(algorithm: &'static SignatureAlgorithm) -> bool {
    [&PKCS_RSA_SHA256, &PKCS_RSA_SHA384, &PKCS_RSA_SHA512].contains(&algorithm)
}

fn empty_list(ca: &Ca, until: i32) -> String {
    let list = CertificateRevocationListParams {
        this_update: date_time_ymd(2020, 1, 1),
        next_update: date_time_ymd(until, 1, 1),
        crl_number: SerialNumber::from(1_u64),
        issuing_distribution_point: None,
        revoked_certs: Vec::new(),
        key_identifier_method: KeyIdMethod::Sha256,
    };
    list.signed_by(&ca.0).unwrap().pem().unwrap()
}

struct Bed {
    files: Files,
    home: PathBuf,
    clients: Ca,
}

/// A server with a certificate, and what is asked of it: what it is called, the host, and the rest of
/// the connection string.
struct Case<'a> {
    certified: Certified,
    asked: Vec<(&'static str, &'a str, String)>,
    steps: &'static [&'static str],
}

async fn differences(bed: &Bed, cases: Vec<Case<'_>>) -> String {
    let mut differences = String::new();
    for Case { certified, asked, steps } in cases {
        let postgres = serve(&certified, &bed.clients.pem()).await;
        for (name, host, rest) in asked {
            let home = bed.home.clone();
            let situation = Situation { name, postgres: &postgres, host, rest, home, steps };
            for mode in CHECKING {
                let (expected, told) = situation.ask_psql(mode).await;
                let (verdict, said) = situation.ask_locks(mode).await;
                let is_told = verdict != Verdict::Refused
                    || steps.iter().any(|step| said.stderr.contains(step));
                if verdict != expected || !is_told {
                    writeln!(
                        differences,
                        "{name}, {mode}: psql {expected:?} ({}), locks {verdict:?} ({})",
                        told.stderr.trim(),
                        said.stderr.trim()
                    )
                    .unwrap();
                }
            }
        }
    }
    differences
}

fn bed() -> Bed {
    let files = Files::new();
    let home = home(&files, "home", &[]);
    Bed { files, home, clients: Ca::new("ca of the clients") }
}

#[tokio::test]
async fn chains_and_lists_that_are_out_of_date_or_odd_are_judged_as_psql_judges_them() {
    require!(Postgres);
    let bed = bed();
    let root_of = |name: &str, text: &str| {
        format!("user=postgres hostaddr=127.0.0.1 sslrootcert={}", bed.files.write(name, text))
    };
    let ca = Ca::new("ca");
    let root = root_of("ca.crt", &ca.pem());
    let gone = {
        let (mut params, key) = Ca::params("ca that is gone");
        params.not_before = date_time_ymd(2019, 1, 1);
        params.not_after = date_time_ymd(2020, 1, 1);
        Ca(CertifiedIssuer::self_signed(params, key).unwrap())
    };
    let gone_between = {
        let (mut params, key) = Ca::params("between that is gone");
        params.not_before = date_time_ymd(2019, 1, 1);
        params.not_after = date_time_ymd(2020, 1, 1);
        Ca(CertifiedIssuer::signed_by(params, key, &ca.0).unwrap())
    };
    let between = ca.under("between");
    let chained = |between: &Ca| {
        let certified = between.certify(&["localhost"]);
        Certified { cert: certified.cert + &between.pem(), key: certified.key }
    };
    let list = |name: &str, text: &str| format!("{root} sslcrl={}", bed.files.write(name, text));
    let own_gone = {
        let mut params = CertificateParams::new(["localhost".to_owned()]).unwrap();
        params.not_before = date_time_ymd(2019, 1, 1);
        params.not_after = date_time_ymd(2020, 1, 1);
        let key = KeyPair::generate().unwrap();
        let cert = params.self_signed(&key).unwrap().pem();
        Certified { cert, key: key.serialize_pem() }
    };
    let own_gone_root = root_of("own-gone.crt", &own_gone.cert);
    let own = {
        let mut params = CertificateParams::new(["localhost".to_owned()]).unwrap();
        params.is_ca = IsCa::ExplicitNoCa;
        let key = KeyPair::generate().unwrap();
        let cert = params.self_signed(&key).unwrap().pem();
        Certified { cert, key: key.serialize_pem() }
    };
    let own_root = root_of("own.crt", &own.cert);
    let with = |change: &dyn Fn(&mut CertificateParams)| ca.certify_as(&["localhost"], change);
    let leaf = with(&|_| {});
    let leaf_root = root_of("leaf.crt", &leaf.cert);
    let leaf_and_root = root_of("leaf-and-ca.crt", &(leaf.cert.clone() + &ca.pem()));
    let usage =
        |usage: &'static [KeyUsagePurpose]| with(&move |params| params.key_usages = usage.to_vec());
    let itself = Certified { cert: ca.pem(), key: ca.0.key().serialize_pem() };
    let cases = vec![
        Case {
            certified: Certified { cert: RECIPE_CERT.to_owned(), key: RECIPE_KEY.to_owned() },
            asked: vec![
                ("recipe", "localhost", root_of("recipe.crt", RECIPE_ROOT)),
                ("recipe of another", "localhost", root.clone()),
            ],
            steps: &["its issuer (CN=intermediate of the manual) is not in"],
        },
        Case {
            certified: itself,
            asked: vec![("key usage of a ca alone", "localhost", root.clone())],
            steps: &["says that it is not for servers"],
        },
        Case {
            certified: usage(&[KeyUsagePurpose::CrlSign]),
            asked: vec![("key usage of lists alone", "localhost", root.clone())],
            steps: &["says that it is not for servers"],
        },
        Case {
            certified: usage(&[KeyUsagePurpose::DigitalSignature]),
            asked: vec![("key usage of servers", "localhost", root.clone())],
            steps: &[],
        },
        Case {
            certified: gone.certify(&["localhost"]),
            asked: vec![("expired root", "localhost", root_of("gone.crt", &gone.pem()))],
            steps: &["expired at 2020-01-01T00:00:00Z"],
        },
        Case {
            certified: chained(&gone_between),
            asked: vec![("expired between", "localhost", root.clone())],
            steps: &["expired"],
        },
        Case {
            certified: chained(&between),
            asked: vec![
                ("between sent by the server", "localhost", root.clone()),
                ("list of one of two", "localhost", list("one.crl", &empty_list(&ca, 4000))),
                (
                    "list of both",
                    "localhost",
                    list("both.crl", &(empty_list(&ca, 4000) + &empty_list(&between, 4000))),
                ),
            ],
            steps: &["needs a list of every issuer"],
        },
        Case {
            certified: leaf,
            asked: vec![
                ("good list", "localhost", list("good.crl", &empty_list(&ca, 4000))),
                ("list out of date", "localhost", list("gone.crl", &empty_list(&ca, 2021))),
                ("list that is not there", "localhost", format!("{root} sslcrl=/nowhere/crl")),
                ("list that is none", "localhost", list("none.crl", "nothing")),
                ("itself in the root file", "localhost", leaf_root),
                ("itself and its issuer in the root file", "localhost", leaf_and_root),
            ],
            steps: &["list of sslcrl is out of date", "holds no root certificate"],
        },
        Case {
            certified: own_gone,
            asked: vec![("expired as its own root", "localhost", own_gone_root)],
            steps: &["expired at 2020-01-01T00:00:00Z"],
        },
        Case {
            certified: own,
            asked: vec![("own root that is no ca", "localhost", own_root)],
            steps: &[],
        },
        Case {
            certified: with(&|params| {
                params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            }),
            asked: vec![("ca as a server", "localhost", root.clone())],
            steps: &[],
        },
        Case {
            certified: with(&|params| {
                params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
            }),
            asked: vec![("certificate for clients", "localhost", root.clone())],
            steps: &["says that it is not for servers"],
        },
        Case {
            certified: with(&|params| {
                params.extended_key_usages = vec![ExtendedKeyUsagePurpose::Any];
            }),
            asked: vec![("certificate for anything", "localhost", root.clone())],
            steps: &["says that it is not for servers"],
        },
        Case {
            certified: with(&|params| {
                params.serial_number = Some(SerialNumber::from(vec![0x7f; 28]));
            }),
            asked: vec![
                ("long serial number", "localhost", root.clone()),
                ("long serial number and no root", "localhost", "user=postgres".to_owned()),
            ],
            steps: &["no root certificate"],
        },
        Case {
            certified: with(&|params| {
                let mut odd =
                    CustomExtension::from_oid_content(&[1, 3, 6, 1, 4, 1, 99999, 1], vec![5, 0]);
                odd.set_criticality(true);
                params.custom_extensions = vec![odd];
            }),
            asked: vec![("critical extension that nobody knows", "localhost", root.clone())],
            steps: &["not accepted: UnsupportedCriticalExtension"],
        },
    ];
    let differences = differences(&bed, cases).await;
    assert!(differences.is_empty(), "\n{differences}");
}

#[tokio::test]
async fn names_are_compared_as_psql_compares_them() {
    require!(Postgres);
    let bed = bed();
    let ca = Ca::new("ca");
    let root = format!(
        "user=postgres hostaddr=127.0.0.1 sslrootcert={}",
        bed.files.write("ca.crt", &ca.pem())
    );
    let named = |common: &'static str, names: &[&str]| {
        ca.certify_as(names, |params| {
            params.distinguished_name.remove(DnType::CommonName);
            params.distinguished_name.push(DnType::CommonName, common);
        })
    };
    let ask = |asked: &[(&'static str, &'static str)]| {
        asked.iter().map(|(name, host)| (*name, *host, root.clone())).collect::<Vec<_>>()
    };
    let steps = &["is for another name"];
    let cases = vec![
        Case {
            certified: named("common.example", &["*.db.example", "Other.Example", "10.9.8.7"]),
            asked: ask(&[
                ("star", "a.db.example"),
                ("star for two labels", "a.b.db.example"),
                ("star for nothing", "db.example"),
                ("other case", "other.example"),
                ("trailing dot", "other.example."),
                ("common name beside others", "common.example"),
                ("an address that it has", "10.9.8.7"),
                ("another address", "127.0.0.1"),
                ("underscore", "a_b.db.example"),
            ]),
            steps,
        },
        Case {
            certified: named("*.common.example", &[]),
            asked: ask(&[
                ("star in the common name", "a.common.example"),
                ("no name", "localhost"),
                ("no address", "127.0.0.1"),
            ]),
            steps,
        },
        Case {
            certified: named("127.0.0.1", &["localhost"]),
            asked: ask(&[("address in the common name", "127.0.0.1")]),
            steps,
        },
        Case {
            certified: named("127.0.0.1", &["10.9.8.7"]),
            asked: ask(&[("address in the common name beside another", "127.0.0.1")]),
            steps,
        },
        Case {
            certified: named("localhost", &["10.9.8.7"]),
            asked: ask(&[("name beside an address", "localhost")]),
            steps,
        },
        Case {
            certified: named("x", &["::1"]),
            asked: ask(&[("address of version 6", "::1"), ("written longer", "0:0:0:0:0:0:0:1")]),
            steps,
        },
    ];
    let differences = differences(&bed, cases).await;
    assert!(differences.is_empty(), "\n{differences}");
}

#[tokio::test]
async fn channels_are_bound_whatever_the_certificate_is_signed_with() {
    require!(Postgres);
    let bed = bed();
    let mut cases = Vec::new();
    for algorithm in [&PKCS_RSA_SHA256, &PKCS_RSA_SHA384, &PKCS_RSA_SHA512, &PKCS_ECDSA_P384_SHA384]
    {
        let ca = ca_signing(algorithm);
        let key = match is_rsa(algorithm) {
            true => KeyPair::from_pem(OLD_KEY).unwrap(),
            false => KeyPair::generate_for(algorithm).unwrap(),
        };
        let params = CertificateParams::new(["localhost".to_owned()]).unwrap();
        let cert = params.signed_by(&key, &ca.0).unwrap().pem();
        let root = bed.files.write(&format!("{algorithm:?}.crt"), &ca.pem());
        let rest = |binding: &str| {
            format!("user=scram password=secret channel_binding={binding} sslrootcert='{root}'")
        };
        let asked = [
            ("channel binding required", "localhost", rest("require")),
            ("channel binding preferred", "localhost", rest("prefer")),
            ("channel binding disabled", "localhost", rest("disable")),
        ];
        let key = if is_rsa(algorithm) { OLD_KEY.to_owned() } else { key.serialize_pem() };
        cases.push(Case { certified: Certified { cert, key }, asked: asked.to_vec(), steps: &[] });
    }
    let differences = differences(&bed, cases).await;
    assert!(differences.is_empty(), "\n{differences}");
}

/// Ed25519 has no hash of which a channel could be bound. psql gives up where it would bind if it
/// could; preferring is no demand, so the binary goes on.
#[tokio::test]
async fn a_certificate_that_binds_no_channel_is_refused_only_where_binding_is_required() {
    require!(Postgres);
    let bed = bed();
    let ca = ca_signing(&PKCS_ED25519);
    let key = KeyPair::from_pem(ED25519_KEY).unwrap();
    let params = CertificateParams::new(["localhost".to_owned()]).unwrap();
    let cert = params.signed_by(&key, &ca.0).unwrap().pem();
    let root = bed.files.write("ca.crt", &ca.pem());
    let postgres =
        serve(&Certified { cert, key: ED25519_KEY.to_owned() }, &bed.clients.pem()).await;
    for (binding, ours, of_psql) in [
        ("require", Verdict::Refused, Verdict::Refused),
        ("prefer", Verdict::Encrypted, Verdict::Refused),
        ("disable", Verdict::Encrypted, Verdict::Encrypted),
    ] {
        let situation = Situation {
            name: "ed25519",
            postgres: &postgres,
            host: "localhost",
            rest: format!(
                "user=scram password=secret channel_binding={binding} sslrootcert={root}"
            ),
            home: bed.home.clone(),
            steps: &[],
        };
        let (told, _) = situation.ask_psql("verify-full").await;
        let (verdict, said) = situation.ask_locks("verify-full").await;
        assert_eq!((verdict, told), (ours, of_psql), "{binding}: {}", said.stderr);
        if ours == Verdict::Refused {
            assert!(
                said.stderr.contains("the server did not use channel binding, and "),
                "{}",
                said.stderr
            );
        }
    }
}
