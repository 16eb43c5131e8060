//! The files beside the dashboards: how Grafana finds Prometheus and the dashboards, and how Prometheus
//! finds the exporter and its rules. That Prometheus takes its part is tested in
//! `tests/integration/dashboard.rs`.

use std::fs;
use std::path::Path;

use serde::Deserialize;
use serde_json::Value;

use crate::dashboards;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Sources {
    api_version: u8,
    datasources: Vec<Source>,
}

/// Fields that Grafana has; a misspelt one would do nothing.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Source {
    name: String,
    #[serde(rename = "type")]
    kind: String,
    access: String,
    uid: String,
    url: String,
    #[serde(default)]
    #[expect(dead_code, reason = "either is fine")]
    is_default: bool,
    #[serde(default)]
    #[expect(dead_code, reason = "either is fine")]
    editable: bool,
    json_data: JsonData,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct JsonData {
    http_method: String,
    time_interval: String,
    #[serde(default)]
    #[expect(dead_code, reason = "either is fine")]
    manage_alerts: bool,
    #[serde(default)]
    #[expect(dead_code, reason = "either is fine")]
    prometheus_type: String,
    #[serde(default)]
    #[expect(dead_code, reason = "either is fine")]
    prometheus_version: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Providers {
    api_version: u8,
    providers: Vec<Provider>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Provider {
    name: String,
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    org_id: Option<u32>,
    folder: String,
    #[serde(default)]
    folder_uid: Option<String>,
    #[expect(dead_code, reason = "either is fine")]
    disable_deletion: bool,
    allow_ui_updates: bool,
    #[serde(default)]
    update_interval_seconds: Option<u32>,
    options: ProviderOptions,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ProviderOptions {
    path: String,
    #[serde(default)]
    folders_from_files_structure: bool,
}

fn read(file: &str) -> String {
    let path = crate::root().join("dashboards").join(file);
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{file}: {error}"))
}

/// As `dashboards/prometheus-example.yml` has it.
fn scrape_example() -> Value {
    serde_saphyr::from_str(&read("prometheus-example.yml")).expect("the example is YAML")
}

#[test]
fn grafana_is_told_of_a_prometheus_and_how_often_it_scrapes() {
    let Sources { api_version, datasources } =
        serde_saphyr::from_str(&read("provisioning/datasources/prometheus.yaml")).unwrap();
    assert_eq!((api_version, datasources.len()), (1, 1));
    let source = &datasources[0];
    assert_eq!((&*source.kind, &*source.access), ("prometheus", "proxy"));
    assert!(!source.name.is_empty() && !source.uid.is_empty());
    assert!(source.url.starts_with("http://"), "{}", source.url);
    // Long queries do not fit into an address.
    assert_eq!(source.json_data.http_method, "POST");
    // `$__rate_interval` is made of it.
    let scraped_every = scrape_example()["global"]["scrape_interval"].clone();
    assert_eq!(source.json_data.time_interval, scraped_every);
}

#[test]
fn grafana_is_told_where_the_dashboards_are() {
    let Providers { api_version, providers } =
        serde_saphyr::from_str(&read("provisioning/dashboards/locks.yaml")).unwrap();
    assert_eq!((api_version, providers.len()), (1, 1));
    let provider = &providers[0];
    assert!(!provider.name.is_empty() && !provider.folder.is_empty());
    assert_eq!(provider.kind, "file");
    assert!(provider.org_id.is_none_or(|it| it == 1) && provider.folder_uid.is_none());
    // Files are what counts: what is changed in the browser would be lost.
    assert!(!provider.allow_ui_updates);
    assert!(provider.update_interval_seconds.is_none_or(|it| it >= 10));
    assert!(Path::new(&provider.options.path).is_absolute(), "{}", provider.options.path);
    // The folder of Grafana's is named; one made of files would be another.
    assert!(!provider.options.folders_from_files_structure);
    let readme = read("README.md");
    assert!(readme.contains(&provider.options.path), "{}", provider.options.path);
}

#[test]
fn prometheus_is_told_of_the_exporter_and_its_rules() {
    let example = scrape_example();
    let jobs = example["scrape_configs"].as_array().expect("jobs are listed");
    let is_ours = |job: &&Value| {
        let target = job["static_configs"][0]["targets"][0].as_str();
        target.is_some_and(|target| target.ends_with(":10187"))
    };
    let ours = jobs.iter().find(is_ours);
    let ours = ours.expect("the exporter listens on 10187");
    assert!(ours["job_name"].as_str().is_some_and(|name| !name.is_empty()));
    // Paths and ports that are not said are the right ones.
    assert!(ours.get("metrics_path").is_none_or(|path| path == "/metrics"));
    let rules: Vec<&str> = example["rule_files"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|file| file.as_str()?.rsplit('/').next())
        .collect();
    assert_eq!(rules, ["advisory-locks.yml"]);
    assert!(crate::root().join("alerts").join(rules[0]).is_file());
}

/// Grafana has no say in files that it does not read.
#[test]
fn every_file_here_is_named_in_the_readme() {
    let readme = read("README.md");
    let named = ["prometheus-example.yml", "datasources/prometheus.yaml", "dashboards/locks.yaml"];
    let dashboards = dashboards();
    let names = dashboards.iter().map(|dashboard| &*dashboard.file).chain(named);
    for name in names {
        assert!(readme.contains(name), "{name}");
    }
}
