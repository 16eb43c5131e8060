//! The README and the documents beside it are true: their examples load, and every flag, metric,
//! script and file they name exists.

use std::collections::BTreeSet;
use std::path::Path;

use pg_locks_exporter::cli::{self, Command};
use pg_locks_exporter::config::{Config, World};
use pg_locks_exporter::key::Key;
use pg_locks_exporter::registry::hash::hashtext;
use pg_locks_exporter::registry::{Circumstances, Limit, Registry, Resolver, Signs, Source};
use pg_locks_exporter::server::WebConfigFile;

/// What people read, by the folder that its links start from.
const DOCUMENTS: [(&str, &str); 15] = [
    (".", include_str!("../README.md")),
    ("docs", include_str!("../docs/check.md")),
    ("docs", NAMING),
    ("docs", CONFIGURATION),
    ("docs", include_str!("../docs/connecting.md")),
    ("docs", include_str!("../docs/deploying.md")),
    ("docs", include_str!("../docs/findings.md")),
    ("docs", include_str!("../docs/metrics.md")),
    ("docs", include_str!("../docs/performance.md")),
    ("docs", include_str!("../docs/servers.md")),
    ("docs", include_str!("../docs/top.md")),
    ("docs", WEB),
    ("alerts", include_str!("../alerts/README.md")),
    ("alerts", include_str!("../alerts/runbook.md")),
    ("dashboards", include_str!("../dashboards/README.md")),
];
const NAMING: &str = include_str!("../docs/naming.md");
const WEB: &str = include_str!("../docs/web.md");
const CONFIGURATION: &str = include_str!("../docs/configuration.md");

fn all_documents() -> String {
    DOCUMENTS.map(|(_, text)| text).join("\n")
}

/// The fenced blocks of a document that open with this info string.
fn blocks(document: &str, info: &str) -> Vec<String> {
    let fence = format!("```{info}\n");
    let found: Vec<String> = document
        .split(&fence)
        .skip(1)
        .filter_map(|rest| rest.split("```").next().map(str::to_owned))
        .collect();
    assert!(!found.is_empty(), "there is no block {info:?}");
    found
}

/// Every run of these characters that begins with `prefix`.
fn words(text: &str, prefix: &str, is_part: impl Fn(char) -> bool + Copy) -> BTreeSet<String> {
    text.split(|c: char| !is_part(c))
        .filter(|word| {
            word.strip_prefix(prefix).is_some_and(|rest| rest.contains(char::is_alphanumeric))
        })
        .map(|word| word.trim_end_matches('.').to_owned())
        .collect()
}

/// What each block of the chapter says of the keys that its applications take.
#[test]
fn the_registry_of_the_chapter_names_the_keys_it_says() {
    let resolvers: Vec<Resolver> = blocks(NAMING, "yaml registry")
        .into_iter()
        .map(|text| {
            let registry =
                Registry::parse(&[Source { name: "naming.md".to_owned(), text }]).unwrap();
            assert_eq!(registry.conflicts(), [], "the examples contradict each other");
            let databases = ["app", "app2", "batch", "ingest"];
            let told = Circumstances {
                databases: databases.map(|name| (name.into(), "UTF8".into())).into(),
                ..Circumstances::default()
            };
            Resolver::new(registry.into(), "orders-1".into(), &told)
        })
        .collect();
    let cases = [
        (0, "app", "6110350855857795459", "recalc-reward-points"),
        (0, "app2", "6110350855857795459", "unregistered"),
        (0, "app", "4646360110713121735", "signup (email an@example.com)"),
        (0, "app", "3527008159069678219", "signup-pooled"),
        (0, "app", "-1054191989", "unregistered"),
        (0, "app", "6874964758718366161", "process-customer (customer cust_12345)"),
        (0, "app", "(-1679774495,1973311789)", "jobs"),
        (1, "app", "42", "nightly-billing"),
        (1, "app2", "42", "unregistered"),
        (1, "app", "(0,42)", "unregistered"),
        (1, "app", "5005", "ledger-close"),
        (1, "app", "1", "catalogue"),
        (1, "app", "(0,1)", "inventory-pairs"),
        (1, "app", "7007", "report"),
        (1, "app", "9001", "account-one"),
        (1, "app", "9002", "account-other"),
        (1, "app", "1010", "inventory-sync"),
        (1, "app", "1000123", "order-rows (row 1000123)"),
        (1, "batch", "17", "batch-ids (id 17)"),
        (1, "ingest", "-1679774495", "ingest"),
        (1, "app", "99", "unregistered"),
        (2, "app", "(7,99)", "tenant-reindex (tenant 99)"),
        (2, "app", "(8,99)", "tenant-export (tenant 99)"),
        (2, "app", "21474836522", "tenant-resource (tenant 5, resource 42)"),
        (3, "app", "1178397720", "scheduler-leader"),
        (3, "app", "-663048221", "pg-boss-leader"),
        (3, "app", "72707369", "prisma-migrate"),
        (3, "app", "586353752304064290", "unregistered"),
    ];
    for (block, database, key, name) in cases {
        let key: Key = key.parse().unwrap();
        let resolution = resolvers[block].resolve(Some(database), key, Signs::default());
        assert_eq!(resolution.display_name(), name, "{key} in {database}");
    }
    let settlement = Key::bigint(hashtext(b"settlement:eu").into());
    let resolution = resolvers[0].resolve(Some("app"), settlement, Signs::default());
    assert_eq!(resolution.label(), "settlement");
    let five_minutes = Limit::Of(std::time::Duration::from_secs(300));
    let prisma = resolvers[3].resolve(Some("app"), Key::bigint(72_707_369), Signs::default());
    assert_eq!(prisma.max_hold, five_minutes);
}

#[test]
fn the_registry_of_the_readme_loads() {
    for text in blocks(DOCUMENTS[0].1, "yaml registry") {
        let registry = Registry::parse(&[Source { name: "README.md".to_owned(), text }]).unwrap();
        assert_eq!(registry.conflicts(), []);
    }
}

#[test]
fn the_configuration_loads() {
    for text in blocks(CONFIGURATION, "yaml config") {
        let arguments = ["locks", "serve", "--config.file", "locks.yaml"].map(Into::into);
        let Command::Serve(args) = cli::parse(arguments).unwrap().command else {
            panic!("serve was asked for");
        };
        let read = |_: &Path| Ok(text.clone());
        let config = Config::new(&args, World { variable: &|_| None, read: &read }).unwrap();
        assert_eq!(config.servers.len(), 1);
        assert_eq!(config.applications.rename("svc-pay-7f9c"), "svc-pay");
    }
}

#[test]
fn the_web_configuration_loads() {
    let folder = tempfile::tempdir().unwrap();
    let key = rcgen::KeyPair::generate().unwrap();
    let params = rcgen::CertificateParams::new(["localhost".to_owned()]).unwrap();
    let certificate = params.self_signed(&key).unwrap().pem();
    for (name, text) in [
        ("server.crt", &certificate),
        ("clients.crt", &certificate),
        ("server.key", &key.serialize_pem()),
    ] {
        std::fs::write(folder.path().join(name), text).unwrap();
    }
    for text in blocks(WEB, "yaml web") {
        let path = folder.path().join("web.yml");
        std::fs::write(&path, text).unwrap();
        let policy = WebConfigFile::load(path).unwrap().subscribe().borrow().clone();
        assert!(policy.authenticates() && policy.is_encrypted());
    }
}

#[test]
fn every_flag_they_name_exists() {
    let help = [
        include_str!("golden/serve-help.txt"),
        include_str!("golden/top-help.txt"),
        include_str!("golden/check-help.txt"),
        include_str!("golden/registry-list-help.txt"),
        include_str!("golden/registry-suggest-help.txt"),
        include_str!("golden/explain-help.txt"),
    ]
    .concat();
    let flags = words(&all_documents(), "--", |c| c.is_ascii_alphanumeric() || "-.".contains(c));
    assert!(flags.contains("--registry.file"), "{flags:?}");
    // Of cargo and of the scripts, not of locks.
    for flag in flags.iter().filter(|flag| {
        !["--locked", "--path", "--help", "--ci", "--test", "--now", "--read-only", "--release"]
            .contains(&flag.as_str())
    }) {
        assert!(help.contains(flag.as_str()), "{flag} is documented and not in the help");
    }
}

#[test]
fn every_metric_they_name_exists() {
    let source = include_str!("../src/metrics.rs");
    let metrics = words(&all_documents(), "pg_advisory_", |c| c.is_ascii_lowercase() || c == '_');
    assert!(metrics.contains("pg_advisory_up"), "{metrics:?}");
    // A function of the server's, not a series.
    for metric in metrics.iter().filter(|name| *name != "pg_advisory_xact_lock") {
        assert!(source.contains(&format!("\"{metric}\"")), "{metric} is documented only");
    }
}

#[test]
fn every_script_they_name_can_be_run() {
    for script in words(&all_documents(), "scripts/", |c| c.is_ascii_lowercase() || c == '/') {
        assert!(Path::new(env!("CARGO_MANIFEST_DIR")).join(&script).is_file(), "{script}");
    }
}

#[test]
fn every_file_they_link_to_exists() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    for (folder, text) in DOCUMENTS {
        let links = text
            .split("](")
            .skip(1)
            .filter_map(|rest| rest.split([')', '#']).next())
            .filter(|link| !link.is_empty() && !link.contains("://"));
        for link in links {
            assert!(root.join(folder).join(link).exists(), "{link} in {folder}");
        }
    }
}
