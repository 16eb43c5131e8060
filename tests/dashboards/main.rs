//! The dashboards in `dashboards/` without a Grafana and without any server: that they are what
//! Grafana's own linter asks for and more, that their queries parse whatever is chosen, that what
//! stands beside them points at files that exist, and that no metric is left that nobody looks at.
//! What their queries find is tested in `tests/integration/dashboard.rs`, what their JSON may be in
//! `tests/browser`.

mod contract;
mod coverage;
mod dashboard;
mod mutation;
mod provisioning;
mod query;
mod rule;
mod substitution;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use contract::Contract;
use dashboard::Dashboard;
use rule::{Judge, World, layout, link, panel, target, variable, whole};

/// A rule, its sentence, and those of dashboard-linter that it stands for.
struct Rule {
    sentence: &'static str,
    linter: &'static [&'static str],
    judge: Judge,
}

/// Each rule is a test of its own, named by its sentence.
macro_rules! rules {
    ($($sentence:ident: $judge:path = [$($linter:literal),*];)+) => {
        const RULES: &[Rule] = &[$(Rule {
            sentence: stringify!($sentence),
            linter: &[$($linter),*],
            judge: $judge,
        }),+];

        $(
            #[test]
            fn $sentence() {
                assert_kept(stringify!($sentence));
            }
        )+
    };
}

rules! {
    no_dashboard_is_edited_in_place: whole::is_not_edited_in_place = ["uneditable-dashboard"];
    no_dashboard_carries_anything_of_the_grafana_it_came_from:
        whole::carries_nothing_of_the_grafana_it_came_from = [];
    each_dashboard_has_a_name_for_life: whole::has_a_name_for_life = [];
    each_dashboard_keeps_the_conventions: whole::keeps_the_conventions = [];

    numbers_of_panels_are_given_once: layout::numbers_are_given_once = [];
    panels_have_their_own_place: layout::panels_have_their_own_place = [];
    rows_hold_their_panels: layout::rows_hold_their_panels = [];

    the_data_source_is_chosen: variable::the_data_source_is_chosen = ["template-datasource-rule"];
    the_job_is_chosen: variable::the_job_is_chosen = ["template-job-rule"];
    the_instance_is_chosen: variable::the_instance_is_chosen = ["template-instance-rule"];
    queries_of_variables_are_understood:
        variable::queries_are_understood = ["template-label-promql-rule"];
    values_of_variables_are_those_of_the_time_shown:
        variable::values_are_those_of_the_time_shown = ["template-on-time-change-reload-rule"];
    each_variable_narrows_the_next: variable::each_narrows_the_next = [];
    each_variable_is_used_and_each_use_is_known: variable::each_is_used_and_each_use_is_known = [];

    each_panel_is_of_a_kind_that_every_grafana_has: panel::is_of_a_kind_that_every_grafana_has = [];
    everything_asks_the_chosen_data_source: panel::asks_the_chosen_data_source =
        ["panel-datasource-rule", "target-logql-rule", "target-logql-auto-rule"];
    each_panel_says_what_it_shows: panel::says_what_it_shows = ["panel-title-description-rule"];
    each_panel_has_units: panel::has_units = ["panel-units-rule"];
    each_panel_asks_something: panel::asks_something = ["panel-no-targets-rule"];
    each_panel_asks_in_the_format_it_shows: panel::asks_in_the_format_it_shows = [];
    each_panel_names_its_series: panel::names_its_series = [];

    each_query_parses_whatever_is_chosen: target::parses_whatever_is_chosen = ["target-promql-rule"];
    rates_are_over_the_rate_interval:
        target::rates_are_over_the_rate_interval = ["target-rate-interval-rule"];
    counters_are_counted: target::counters_are_counted = ["target-counter-agg-rule"];
    each_query_carries_the_job: target::carries_the_job = ["target-job-rule"];
    each_query_carries_the_instance: target::carries_the_instance = ["target-instance-rule"];
    each_query_carries_every_choice: target::carries_every_choice = [];
    choices_are_compared_as_they_are_written: target::choices_are_compared_as_they_are_written = [];
    each_query_asks_for_what_is_served: target::asks_for_what_is_served = [];
    no_query_shows_a_zero_that_nobody_saw: target::shows_no_zero_that_nobody_saw = [];
    lines_of_limits_are_finite: target::limits_are_finite = [];

    values_lead_to_dashboards_that_exist: link::values_lead_to_dashboards_that_exist = [];
    each_dashboard_leads_to_all_others: link::each_leads_to_all_others = [];
}

/// What a rule need not hold for, and why. One that holds all the same fails the test, so that the
/// list stays true.
struct Excuse {
    sentence: &'static str,
    dashboard: &'static str,
    /// As complaints give it.
    place: &'static str,
    #[expect(dead_code, reason = "for people")]
    reason: &'static str,
}

const EXCUSES: &[Excuse] = &[Excuse {
    sentence: "each_query_carries_every_choice",
    dashboard: "lock.json",
    place: "annotation Alerts on the exporter",
    reason: "who sees nothing sees no lock, so that these alerts have none",
}];

/// Where the project is.
fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The dashboards that are shipped.
fn dashboards() -> Vec<Dashboard> {
    let entries = fs::read_dir(root().join("dashboards")).expect("there are dashboards");
    let files = entries.map(|entry| entry.expect("a folder can be read").path());
    let mut files: Vec<PathBuf> =
        files.filter(|file| file.extension().is_some_and(|it| it == "json")).collect();
    files.sort();
    let read = |file: PathBuf| {
        let text = fs::read_to_string(&file).expect("a dashboard can be read");
        let name = file.file_name().expect("a file has a name").to_string_lossy();
        Dashboard::parse(&name, &text)
    };
    files.into_iter().map(read).collect()
}

/// Judges all dashboards by one rule; panics with every complaint.
#[track_caller]
fn assert_kept(sentence: &str) {
    let rule = RULES.iter().find(|rule| rule.sentence == sentence).expect("there is such a rule");
    let (dashboards, contract) = (dashboards(), Contract::read());
    let world = World { dashboards: &dashboards, contract: &contract };
    let excuses: Vec<&Excuse> = EXCUSES.iter().filter(|it| it.sentence == sentence).collect();
    let mut needed = BTreeSet::new();
    let mut text = String::new();
    for dashboard in &dashboards {
        for complaint in (rule.judge)(dashboard, &world).0 {
            let is_excuse = |excuse: &&&Excuse| {
                excuse.dashboard == dashboard.file && excuse.place == complaint.place
            };
            match excuses.iter().position(|excuse| is_excuse(&excuse)) {
                Some(excuse) => _ = needed.insert(excuse),
                None => {
                    let (file, place) = (&dashboard.file, &complaint.place);
                    text += &format!("\n  {file}, {place}: {}", complaint.text);
                }
            }
        }
    }
    assert!(text.is_empty(), "{sentence}:{text}");
    for (number, excuse) in excuses.iter().enumerate() {
        let place = excuse.place;
        assert!(needed.contains(&number), "{sentence} needs no excuse for {place} any more");
    }
}

/// The three that are promised, in whose names no file hides.
#[test]
fn there_is_a_dashboard_for_everything_for_one_lock_and_for_the_exporter() {
    let files: Vec<String> = dashboards().into_iter().map(|dashboard| dashboard.file).collect();
    assert_eq!(files, ["exporter.json", "lock.json", "overview.json"]);
}

#[test]
fn each_dashboard_marks_alerts_restarts_and_reloads() {
    for dashboard in dashboards() {
        for metric in [
            "ALERTS{",
            "process_start_time_seconds{",
            "pg_advisory_registry_last_reload_timestamp_seconds{",
        ] {
            let is_marked = dashboard.annotations().any(|it| it.expr.contains(metric));
            assert!(is_marked, "{} has no annotation of {metric}", dashboard.file);
        }
    }
}

/// All of them, by the names they have there.
#[test]
fn every_rule_of_the_linter_has_one_here() {
    let linter = [
        "template-datasource-rule",
        "template-job-rule",
        "template-instance-rule",
        "template-label-promql-rule",
        "template-on-time-change-reload-rule",
        "panel-datasource-rule",
        "panel-title-description-rule",
        "panel-units-rule",
        "panel-no-targets-rule",
        "target-logql-rule",
        "target-logql-auto-rule",
        "target-promql-rule",
        "target-rate-interval-rule",
        "target-job-rule",
        "target-instance-rule",
        "target-counter-agg-rule",
        "uneditable-dashboard",
    ];
    let here: BTreeSet<&str> = RULES.iter().flat_map(|rule| rule.linter).copied().collect();
    assert_eq!(here, linter.into());
}

/// Under `What the tests check`.
#[test]
fn the_readme_lists_every_rule() {
    let readme = fs::read_to_string(root().join("dashboards/README.md")).expect("there is one");
    let section = readme.split("## What the tests check\n").nth(1).expect("a section of this name");
    for rule in RULES {
        assert!(
            section.contains(&format!("`{}`", rule.sentence)),
            "{} is not there",
            rule.sentence
        );
        for name in rule.linter {
            assert!(section.contains(&format!("`{name}`")), "{name} is not there");
        }
    }
}
