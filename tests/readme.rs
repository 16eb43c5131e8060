//! The README is true: its examples load, and every flag, metric and script it names exists.

use std::collections::BTreeSet;
use std::path::Path;

use pg_locks_exporter::cli::{self, Command};
use pg_locks_exporter::config::{Config, World};
use pg_locks_exporter::key::Key;
use pg_locks_exporter::registry::{Circumstances, Registry, Resolver, Signs, Source};

const README: &str = include_str!("../README.md");

/// The fenced blocks that open with this info string.
fn blocks(info: &str) -> Vec<String> {
    let fence = format!("```{info}\n");
    let found: Vec<String> = README
        .split(&fence)
        .skip(1)
        .filter_map(|rest| rest.split("```").next().map(str::to_owned))
        .collect();
    assert!(!found.is_empty(), "the README has no block {info:?}");
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

#[test]
fn its_registry_names_the_keys_it_says() {
    let text = blocks("yaml registry").join("\n");
    let registry = Registry::parse(&[Source { name: "README".to_owned(), text }]).unwrap();
    let told = Circumstances {
        databases: vec![("app".into(), "UTF8".into())],
        ..Circumstances::default()
    };
    let resolver = Resolver::new(registry.into(), "server".into(), &told);
    let name = |key: &str| {
        let key: Key = key.parse().unwrap();
        resolver.resolve(Some("app"), key, Signs::default()).display_name().into_owned()
    };
    assert_eq!(name("6110350855857795459"), "recalc-reward-points");
    assert_eq!(name("42"), "nightly-billing");
    assert_eq!(name("(7,99)"), "tenant-reindex (tenant 99)");
    assert_eq!(name("(-1679774495,1973311789)"), "jobs");
    assert_eq!(name("99"), "unregistered");
}

#[test]
fn its_configuration_loads() {
    for text in blocks("yaml config") {
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
fn every_flag_it_names_exists() {
    let help = [
        include_str!("golden/serve-help.txt"),
        include_str!("golden/registry-list-help.txt"),
        include_str!("golden/registry-suggest-help.txt"),
        include_str!("golden/explain-help.txt"),
    ]
    .concat();
    let flags = words(README, "--", |c| c.is_ascii_alphanumeric() || "-.".contains(c));
    assert!(flags.contains("--registry.file"), "{flags:?}");
    // Of cargo, not of locks.
    for flag in
        flags.iter().filter(|flag| !["--locked", "--path", "--help"].contains(&flag.as_str()))
    {
        assert!(help.contains(flag.as_str()), "{flag} is in the README and not in the help");
    }
}

#[test]
fn every_metric_it_names_exists() {
    let source = include_str!("../src/metrics.rs");
    let metrics = words(README, "pg_advisory_", |c| c.is_ascii_lowercase() || c == '_');
    assert!(metrics.contains("pg_advisory_up"), "{metrics:?}");
    for metric in metrics {
        assert!(source.contains(&format!("\"{metric}\"")), "{metric} is in the README only");
    }
}

#[test]
fn every_script_it_names_can_be_run() {
    for script in words(README, "scripts/", |c| c.is_ascii_lowercase() || c == '/') {
        assert!(Path::new(env!("CARGO_MANIFEST_DIR")).join(&script).is_file(), "{script}");
    }
}
