//! The files in `alerts/` hold together: the rules do what their unit tests say, name only what the
//! exporter serves, leave no finding without an alert and no alert without a section in the runbook,
//! whose SQL runs. What arrives in the end is tested in `alert`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;

use pg_locks_exporter::finding::FindingKind;
use serde::Deserialize;

use crate::scrape::CONTRACT;
use crate::support::files::Files;
use crate::support::prometheus::{amtool, promtool};
use crate::support::{Postgres, require};

pub const RULES: &str = include_str!("../../alerts/advisory-locks.yml");
pub const ALERTMANAGER: &str = include_str!("../../alerts/alertmanager-example.yml");
const RUNBOOK: &str = include_str!("../../alerts/runbook.md");

/// Labels that Prometheus and service discovery add, and those that the rules make.
const OTHER_LABELS: &[&str] = &["job", "instance", "pod", "container", "endpoint", "reason"];

#[derive(Deserialize)]
struct RuleFile {
    groups: Vec<Group>,
}

#[derive(Deserialize)]
struct Group {
    rules: Vec<Rule>,
}

#[derive(Deserialize)]
struct Rule {
    alert: Option<String>,
    expr: String,
    #[serde(default)]
    labels: BTreeMap<String, String>,
    #[serde(default)]
    annotations: BTreeMap<String, String>,
}

#[derive(Deserialize)]
struct TestFile {
    tests: Vec<UnitTest>,
}

#[derive(Deserialize)]
struct UnitTest {
    name: String,
    input_series: Vec<Series>,
    alert_rule_test: Vec<Expectation>,
}

#[derive(Deserialize)]
struct Series {
    series: String,
    values: String,
}

#[derive(Deserialize)]
struct Expectation {
    alertname: String,
    #[serde(default)]
    exp_alerts: Vec<serde_json::Value>,
}

fn rules() -> Vec<Rule> {
    let file: RuleFile = serde_saphyr::from_str(RULES).expect("the rules are YAML");
    file.groups.into_iter().flat_map(|group| group.rules).collect()
}

fn alerts() -> BTreeMap<String, Rule> {
    let named = |rule: Rule| Some((rule.alert.clone()?, rule));
    let all: Vec<_> = rules().into_iter().filter_map(named).collect();
    let count = all.len();
    let alerts: BTreeMap<_, _> = all.into_iter().collect();
    assert_eq!(alerts.len(), count, "two alerts have one name");
    alerts
}

fn unit_tests() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/alerts");
    let entries = fs::read_dir(folder).expect("there are unit tests of the rules");
    entries.map(|entry| entry.expect("a folder can be read").path()).collect()
}

#[track_caller]
pub fn assert_passes(output: &Output) {
    let said = [&*output.stdout, &*output.stderr].concat();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&said));
}

/// The words of a text that could be names of metrics or labels.
fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c| !is_part_of_word(c)).filter(|word| !word.is_empty())
}

fn is_part_of_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || c == ':'
}

/// Metrics of the exporter with their labels.
fn contract() -> BTreeMap<&'static str, BTreeSet<&'static str>> {
    let lines = CONTRACT.lines().filter(|line| !line.is_empty());
    let families = lines.map(|line| {
        let mut words = line.split(' ');
        let name = words.next().expect("a line begins with a name");
        (name, words.skip(1).collect())
    });
    families.collect()
}

#[test]
fn promtool_accepts_the_rules() {
    require!(Promtool);
    let files = Files::new();
    let path = files.write("rules.yml", RULES);
    assert_passes(&promtool(&["check", "rules", "--lint=all", "--lint-fatal", &path], ""));
}

#[test]
fn the_rules_do_what_their_unit_tests_say() {
    require!(Promtool);
    let paths: Vec<String> = unit_tests().iter().map(|path| path.display().to_string()).collect();
    let arguments: Vec<&str> =
        ["test", "rules"].into_iter().chain(paths.iter().map(String::as_str)).collect();
    assert_passes(&promtool(&arguments, ""));
}

/// Silence first, then the alert, a failed poll as Prometheus writes it, and silence again.
#[test]
fn every_alert_is_silent_fires_and_resolves_across_a_gap_in_some_unit_test() {
    let alerts = alerts();
    let mut tried = BTreeSet::new();
    for path in unit_tests() {
        let text = fs::read_to_string(&path).expect("a unit test can be read");
        let file: TestFile = serde_saphyr::from_str(&text).expect("a unit test is YAML");
        for test in file.tests {
            let has_gap = test.input_series.iter().any(|series| {
                series.values.split_once("stale").is_some_and(|(_, rest)| !rest.trim().is_empty())
            });
            for alert in alerts.keys() {
                let fires = test.alert_rule_test.iter().filter(|it| it.alertname == *alert);
                let mut fires: Vec<bool> = fires.map(|it| !it.exp_alerts.is_empty()).collect();
                fires.dedup();
                if has_gap && fires == [false, true, false] {
                    tried.insert(alert.clone());
                }
            }
        }
    }
    let untried: Vec<&String> = alerts.keys().filter(|alert| !tried.contains(*alert)).collect();
    assert!(untried.is_empty(), "{untried:?}");
}

#[test]
fn unit_tests_feed_only_series_that_the_exporter_serves() {
    let contract = contract();
    for path in unit_tests() {
        let text = fs::read_to_string(&path).expect("a unit test can be read");
        let file: TestFile = serde_saphyr::from_str(&text).expect("a unit test is YAML");
        for test in &file.tests {
            for Series { series, .. } in &test.input_series {
                let name = words(series).next().expect("a series has a name");
                // What labels an exporter of another kind would have is that test's point.
                if name == "up" || test.name.contains("were the name a label") {
                    continue;
                }
                let labels = contract.get(name);
                let labels = labels.unwrap_or_else(|| panic!("{name} is not served"));
                let given = series.split(['{', ',']).skip(1).filter_map(|it| it.split_once('='));
                let given: BTreeSet<&str> = given
                    .map(|(label, _)| label)
                    .filter(|label| !OTHER_LABELS.contains(label) || labels.contains(label))
                    .collect();
                assert_eq!(given, *labels, "{}: {series}", test.name);
            }
        }
    }
}

/// It stands in a comment because only the user knows which job there should be.
#[test]
fn the_rule_in_a_comment_is_a_rule() {
    require!(Promtool);
    let lines = RULES.lines().skip_while(|line| !line.contains("# - alert:"));
    let comment: Vec<&str> = lines.map_while(|line| line.trim_start().strip_prefix("# ")).collect();
    assert!(comment.len() > 5, "{comment:?}");
    let rule = format!("groups:\n- name: a\n  rules:\n  {}\n", comment.join("\n  "));
    let files = Files::new();
    let path = files.write("rules.yml", &rule);
    assert_passes(&promtool(&["check", "rules", &path], ""));
    let RuleFile { groups } = serde_saphyr::from_str(&rule).expect("it is YAML");
    let absent = &groups[0].rules[0];
    let name = absent.alert.as_deref().expect("it is an alert");
    let blind = &alerts()[name];
    for annotation in ["summary", "runbook_url"] {
        assert_eq!(absent.annotations[annotation], blind.annotations[annotation]);
    }
}

#[test]
fn every_alert_says_how_urgent_it_is_and_of_which_lock_it_speaks() {
    for (name, rule) in alerts() {
        let severity = &*rule.labels["severity"];
        let is_known = ["warning", "critical", "{{ $labels.severity }}"].contains(&severity);
        assert!(is_known, "{name} is {severity}");
        let summary = &*rule.annotations["summary"];
        assert!(summary.ends_with('.') && !summary.contains("{{"), "{name}: {summary}");
        let description = &*rule.annotations["description"];
        let mut told = vec!["$labels.server"];
        if rule.labels.contains_key("finding")
            || rule.expr.contains("lock:pg_advisory_lock_findings")
        {
            told.extend(["$labels.lock", "$labels.key", "$labels.datname"]);
        }
        if name == "AdvisoryLockRegistryBroken" || name == "AdvisoryLockConfigurationBroken" {
            told = vec!["$labels.instance"];
        }
        for label in told {
            assert!(description.contains(label), "{name} does not tell {label}");
        }
    }
}

#[test]
fn every_finding_has_an_alert_of_its_severity_and_every_finding_in_the_rules_exists() {
    let mut told: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let alerts = alerts();
    for (name, rule) in &alerts {
        let in_labels = rule.labels.get("finding").cloned();
        let in_expression = rule.expr.split("finding=\"").skip(1);
        let in_expression =
            in_expression.filter_map(|rest| Some(rest.split_once('"')?.0.to_owned()));
        for finding in in_labels.into_iter().chain(in_expression).collect::<BTreeSet<_>>() {
            told.entry(finding).or_default().push(name.clone());
        }
    }
    let kinds: BTreeSet<&str> = FindingKind::ALL.iter().map(|kind| kind.as_str()).collect();
    assert_eq!(told.keys().map(String::as_str).collect::<BTreeSet<_>>(), kinds);
    for kind in FindingKind::ALL {
        let words = kind.as_str().split('_');
        let words = words.map(|word| word[..1].to_ascii_uppercase() + &word[1..]);
        let on = if *kind == FindingKind::PooledBackend { "On" } else { "" };
        let alert = format!("AdvisoryLock{on}{}", words.collect::<String>());
        let told = &told[kind.as_str()];
        assert!(told.contains(&alert), "{kind:?}: {told:?}");
        let severity = &*alerts[&alert].labels["severity"];
        // What the finding itself says.
        if severity != "{{ $labels.severity }}" {
            assert_eq!(severity, kind.severity().as_str(), "{alert}");
        }
    }
}

#[test]
fn every_metric_in_the_alerts_is_served() {
    let contract = contract();
    for (file, text) in [("rules", RULES), ("Alertmanager's", ALERTMANAGER), ("runbook", RUNBOOK)] {
        for name in words(text).filter(|word| word.starts_with("pg_advisory_")) {
            let is_function = name == "pg_advisory_xact_lock";
            assert!(is_function || contract.contains_key(name), "{file}: {name} is not served");
        }
    }
    assert!(words(RULES).any(|word| word == "pg_advisory_lock_findings"));
}

/// In a selector a label of that metric; in a clause a label of any.
#[test]
fn every_label_in_the_rules_is_served() {
    let contract = contract();
    let all: BTreeSet<&str> = contract.values().flatten().chain(OTHER_LABELS).copied().collect();
    let mut clauses = 0;
    for clause in ["by", "without", "on", "ignoring", "group_left"] {
        for rest in RULES.split(&format!("{clause} (")).skip(1) {
            let labels = rest.split_once(')').expect("a clause ends").0;
            for label in labels.split(", ") {
                assert!(all.contains(label), "{clause} ({labels}): {label} is not served");
            }
            clauses += 1;
        }
    }
    assert!(clauses > 20, "{clauses}");
    for (before, after) in RULES.match_indices('{').map(|(at, _)| RULES.split_at(at)) {
        let name = before.rsplit(|c| !is_part_of_word(c)).next().unwrap_or_default();
        let name = name.trim_start_matches("lock:").split(':').next().unwrap_or_default();
        let (Some(labels), true) = (contract.get(name), after.contains('=')) else { continue };
        let selector = after[1..].split_once('}').expect("a selector ends").0;
        for (label, _) in selector.split(',').filter_map(|matcher| matcher.split_once('=')) {
            let is_known = labels.contains(label) || OTHER_LABELS.contains(&label);
            assert!(is_known, "{name}{{{selector}}}: {label} is not its label");
        }
    }
}

#[test]
fn every_alert_has_a_section_in_the_runbook_and_every_section_an_alert() {
    let sections: BTreeSet<&str> =
        RUNBOOK.lines().filter_map(|line| line.strip_prefix("## ")).collect();
    let alerts = alerts();
    assert_eq!(sections, alerts.keys().map(String::as_str).collect());
    for (name, rule) in &alerts {
        let address = format!("alerts/runbook.md#{}", name.to_ascii_lowercase());
        assert_eq!(rule.annotations["runbook_url"], address);
        let section = RUNBOOK.split(&format!("## {name}\n")).nth(1).expect("a section");
        let section = section.split("\n## ").next().unwrap_or_default();
        for part in
            ["**Meaning.**", "**Look.**", "**Do.**", "**Not to be confused with**", "```sql"]
        {
            assert!(section.contains(part), "{name} has no {part}");
        }
    }
}

#[tokio::test]
async fn the_sql_of_the_runbook_runs() {
    require!(Postgres);
    let postgres = Postgres::builder().setting("max_prepared_transactions", 5).start().await;
    let _holder = postgres.holds("pod-a", "7, -9").await;
    let _waiter = postgres.waits("pod-b", "7, -9").await;
    let negative = postgres.holds("pod-c", "-42").await;
    let session = postgres.session("on call").await;
    let blocks: Vec<&str> = RUNBOOK
        .split("```sql\n")
        .skip(1)
        .map(|rest| rest.split_once("```").expect("a block ends").0)
        .collect();
    assert!(blocks.len() > 20, "{}", blocks.len());
    for block in &blocks {
        session.rows(block).await;
    }
    let rows = session.rows(blocks[0]).await;
    let keys: BTreeSet<&str> = rows.iter().filter_map(|row| row[4].as_deref()).collect();
    assert_eq!(keys, BTreeSet::from(["(7,-9)", "-42"]));
    assert!(rows.iter().any(|row| row[0] == Some(negative.pid().to_string())));
}

#[test]
fn amtool_accepts_the_example_and_it_names_alerts_that_exist() {
    require!(Amtool);
    let files = Files::new();
    let path = files.write("alertmanager.yml", ALERTMANAGER);
    assert_passes(&amtool(&["check-config", &path]));

    let alerts = alerts();
    for rest in ALERTMANAGER.split("AdvisoryLock(").skip(1) {
        for name in rest.split_once(')').expect("a list ends").0.split('|') {
            assert!(alerts.contains_key(&format!("AdvisoryLock{name}")), "{name}");
        }
    }
    let prefix = "AdvisoryLock";
    for name in words(ALERTMANAGER).filter(|word| word.starts_with(prefix) && *word != prefix) {
        assert!(alerts.contains_key(name), "{name}");
    }
    let contract = contract();
    let all: BTreeSet<&str> = contract.values().flatten().chain(OTHER_LABELS).copied().collect();
    for line in ALERTMANAGER.lines().filter(|line| line.contains("equal: [")) {
        let list = line.split(['[', ']']).nth(1).expect("a list");
        assert!(list.split(", ").all(|label| all.contains(label)), "{line}");
    }
}
