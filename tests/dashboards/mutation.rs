//! Every rule can complain: a small dashboard with nothing wrong, the mistakes that people make, each
//! made in a copy of it, and the rule that has to see it.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::contract::Contract;
use crate::dashboard::Dashboard;
use crate::rule::World;
use crate::{RULES, Rule};

const SAMPLE: &str = include_str!("sample.json");

/// How a mistake is made.
enum Edit {
    /// Sets a field, perhaps a new one.
    Set(&'static str, Value),
    /// Puts an element at the end of a list.
    Add(&'static str, Value),
    /// Takes a field or an element away.
    Remove(&'static str),
    /// Puts another text in the place of one.
    Replace(&'static str, &'static str, &'static str),
}
use Edit::{Add, Remove, Replace, Set};

impl Edit {
    fn make(&self, json: &mut Value) {
        match self {
            Set(pointer, value) => match json.pointer_mut(pointer) {
                Some(place) => *place = value.clone(),
                None => {
                    let (parent, name) = parent(json, pointer);
                    parent[name] = value.clone();
                }
            },
            Add(pointer, value) => {
                let list = json.pointer_mut(pointer).and_then(Value::as_array_mut);
                list.expect("there is such a list").push(value.clone());
            }
            Remove(pointer) => match parent(json, pointer) {
                (Value::Array(list), number) => {
                    list.remove(number.parse().expect("an element has a number"));
                }
                (parent, name) => {
                    let fields = parent.as_object_mut().expect("it is an object");
                    assert!(fields.remove(name).is_some(), "there is no {pointer}");
                }
            },
            Replace(pointer, from, to) => {
                let text = json.pointer_mut(pointer).expect("there is such a field");
                let old = text.as_str().expect("it is a text");
                assert!(old.contains(from), "{pointer} is {old}");
                *text = json!(old.replace(from, to));
            }
        }
    }
}

fn parent<'a, 'b>(json: &'a mut Value, pointer: &'b str) -> (&'a mut Value, &'b str) {
    let (parent, name) = pointer.rsplit_once('/').expect("a pointer begins with a slash");
    (json.pointer_mut(parent).expect("there is such a place"), name)
}

/// Panels of the sample: 1 a stat, 2 a table, 3 and 4 time series, 5 a row with a heatmap.
const EXPR: [&str; 7] = [
    "/panels/0/targets/0/expr",
    "/panels/1/targets/0/expr",
    "/panels/2/targets/0/expr",
    "/panels/3/targets/0/expr",
    "/panels/4/targets/0/expr",
    "/panels/5/panels/0/targets/0/expr",
    "/panels/3/targets/1/expr",
];

#[rustfmt::skip]
fn mistakes() -> Vec<(&'static str, Edit)> {
    vec![
        ("no_dashboard_is_edited_in_place", Set("/editable", json!(true))),
        ("no_dashboard_is_edited_in_place", Remove("/editable")),

        ("no_dashboard_carries_anything_of_the_grafana_it_came_from", Set("/__inputs", json!([]))),
        ("no_dashboard_carries_anything_of_the_grafana_it_came_from", Set("/id", json!(7))),
        ("no_dashboard_carries_anything_of_the_grafana_it_came_from", Set("/version", json!(3))),

        ("each_dashboard_has_a_name_for_life", Set("/uid", json!("aexyz123"))),
        ("each_dashboard_has_a_name_for_life", Set("/title", json!("Other"))),

        ("each_dashboard_keeps_the_conventions", Set("/timezone", json!("utc"))),
        ("each_dashboard_keeps_the_conventions", Set("/graphTooltip", json!(0))),
        ("each_dashboard_keeps_the_conventions", Set("/schemaVersion", json!(16))),
        ("each_dashboard_keeps_the_conventions", Remove("/refresh")),
        ("each_dashboard_keeps_the_conventions", Remove("/tags/0")),
        ("each_dashboard_keeps_the_conventions", Remove("/annotations/list/0")),

        ("numbers_of_panels_are_given_once", Set("/panels/5/panels/0/id", json!(2))),
        ("numbers_of_panels_are_given_once", Set("/panels/0/id", json!(2))),
        ("numbers_of_panels_are_given_once", Remove("/panels/3/id")),

        ("panels_have_their_own_place", Set("/panels/2/gridPos/x", json!(5))),
        ("panels_have_their_own_place", Set("/panels/2/gridPos/w", json!(19))),
        ("panels_have_their_own_place", Set("/panels/1/gridPos/h", json!(0))),

        ("rows_hold_their_panels", Set("/panels/5/collapsed", json!(false))),
        ("rows_hold_their_panels", Set("/panels/0/collapsed", json!(true))),
        ("rows_hold_their_panels", Set("/panels/5/panels/0/gridPos/y", json!(3))),
        ("rows_hold_their_panels", Set("/panels/0/title", json!(""))),

        ("the_data_source_is_chosen", Remove("/templating/list/0")),
        ("the_data_source_is_chosen", Set("/templating/list/0/name", json!("ds"))),
        ("the_data_source_is_chosen", Set("/templating/list/0/label", json!("Source"))),
        ("the_data_source_is_chosen", Set("/templating/list/0/query", json!("loki"))),

        ("the_job_is_chosen", Remove("/templating/list/1")),
        ("the_job_is_chosen", Set("/templating/list/1/multi", json!(false))),
        ("the_job_is_chosen", Set("/templating/list/1/allValue", json!(".*"))),
        ("the_job_is_chosen", Set("/templating/list/1/label", json!("job"))),
        ("the_instance_is_chosen", Remove("/templating/list/2")),
        ("the_instance_is_chosen", Set("/templating/list/2/includeAll", json!(false))),
        ("the_instance_is_chosen", Remove("/templating/list/2/allValue")),

        ("queries_of_variables_are_understood", Set("/templating/list/1/query", json!("pg_advisory_up"))),
        ("queries_of_variables_are_understood", Replace("/templating/list/2/query/query", "label_values", "labels_value")),
        ("queries_of_variables_are_understood", Replace("/templating/list/2/query/query", "}", "")),
        ("queries_of_variables_are_understood", Replace("/templating/list/2/query/query", "pg_advisory_up", "pg_advisory_down")),
        ("queries_of_variables_are_understood", Replace("/templating/list/2/query/query", ", instance)", ", lock)")),

        ("values_of_variables_are_those_of_the_time_shown", Set("/templating/list/3/refresh", json!(1))),
        ("values_of_variables_are_those_of_the_time_shown", Remove("/templating/list/3/refresh")),

        ("each_variable_narrows_the_next", Replace("/templating/list/6/query/query", ", lock=~\"$lock\"", "")),
        ("each_variable_narrows_the_next", Replace("/templating/list/4/query/query", "$server", "$key")),
        ("each_variable_narrows_the_next", Set("/templating/list/5/allValue", json!(".+"))),

        ("each_variable_is_used_and_each_use_is_known", Add("/templating/list", json!({ "name": "customer", "type": "textbox" }))),
        ("each_variable_is_used_and_each_use_is_known", Replace(EXPR[3], "$lock", "$look")),
        ("each_variable_is_used_and_each_use_is_known", Set("/panels/1/title", json!("Keys of $customer"))),

        ("each_panel_is_of_a_kind_that_every_grafana_has", Set("/panels/3/type", json!("graph"))),
        ("each_panel_is_of_a_kind_that_every_grafana_has", Set("/panels/5/panels/0/type", json!("marcusolsson-treemap-panel"))),

        ("everything_asks_the_chosen_data_source", Set("/panels/1/datasource/uid", json!("PBFA97CFB590B2093"))),
        ("everything_asks_the_chosen_data_source", Set("/panels/1/targets/0/datasource", json!({ "type": "loki", "uid": "${datasource}" }))),
        ("everything_asks_the_chosen_data_source", Remove("/templating/list/4/datasource")),
        ("everything_asks_the_chosen_data_source", Set("/annotations/list/1/datasource/uid", json!("prometheus"))),
        ("everything_asks_the_chosen_data_source", Remove("/panels/5/panels/0/datasource")),

        ("each_panel_says_what_it_shows", Set("/panels/1/title", json!(" "))),
        ("each_panel_says_what_it_shows", Set("/panels/3/title", json!("Acquisitions"))),
        ("each_panel_says_what_it_shows", Remove("/panels/5/panels/0/description")),
        ("each_panel_says_what_it_shows", Set("/panels/3/description", json!("Longest hold"))),

        ("each_panel_has_units", Remove("/panels/1/fieldConfig/defaults/unit")),
        ("each_panel_has_units", Set("/panels/3/fieldConfig/defaults/unit", json!("secs"))),
        ("each_panel_has_units", Set("/panels/2/fieldConfig/overrides/0/properties/0/value", json!("age"))),
        ("each_panel_has_units", Remove("/panels/5/panels/0/options/yAxis")),

        ("each_panel_asks_something", Remove("/panels/1/targets")),
        ("each_panel_asks_something", Set("/panels/1/targets", json!([]))),
        ("each_panel_asks_something", Set("/panels/3/targets/1/refId", json!("A"))),
        ("each_panel_asks_something", Set(EXPR[1], json!(""))),

        ("each_panel_asks_in_the_format_it_shows", Remove("/panels/2/targets/0/instant")),
        ("each_panel_asks_in_the_format_it_shows", Remove("/panels/2/targets/0/format")),
        ("each_panel_asks_in_the_format_it_shows", Set("/panels/3/targets/0/instant", json!(true))),
        ("each_panel_asks_in_the_format_it_shows", Remove("/panels/5/panels/0/targets/0/format")),
        ("each_panel_asks_in_the_format_it_shows", Set("/panels/1/targets/0/range", json!(true))),

        ("each_panel_names_its_series", Set("/panels/3/targets/0/legendFormat", json!("__auto"))),
        ("each_panel_names_its_series", Remove("/panels/3/targets/0/legendFormat")),
        ("each_panel_names_its_series", Set("/panels/3/targets/0/legendFormat", json!("{{customer}}"))),

        ("each_query_parses_whatever_is_chosen", Replace(EXPR[1], "sum(", "sum((")),
        ("each_query_parses_whatever_is_chosen", Replace(EXPR[2], "$lock", "${lock:regex}")),
        ("each_query_parses_whatever_is_chosen", Replace(EXPR[5], "$__rate_interval", "$__rate")),
        ("each_query_parses_whatever_is_chosen", Replace("/annotations/list/1/expr", "changes", "chances")),

        ("rates_are_over_the_rate_interval", Replace(EXPR[4], "$__rate_interval", "5m")),
        ("rates_are_over_the_rate_interval", Replace(EXPR[4], "$__rate_interval", "$__interval")),
        ("rates_are_over_the_rate_interval", Replace(EXPR[4], "$__rate_interval", "$__range")),
        ("rates_are_over_the_rate_interval", Replace(EXPR[5], "$__rate_interval", "1h")),

        ("counters_are_counted", Set(EXPR[4], json!("sum by (lock) (pg_advisory_lock_acquisitions_observed_total{job=~\"$job\"})"))),
        ("counters_are_counted", Replace(EXPR[4], "rate(", "max_over_time(")),
        ("counters_are_counted", Replace(EXPR[4], "pg_advisory_lock_acquisitions_observed_total", "pg_advisory_lock_holders")),
        ("counters_are_counted", Set(EXPR[5], json!("sum by (le) (pg_advisory_lock_hold_duration_seconds_bucket{})"))),

        ("each_query_carries_the_job", Replace(EXPR[3], "job=~\"$job\", ", "")),
        ("each_query_carries_the_job", Replace(EXPR[3], "job=~", "job=")),
        ("each_query_carries_the_job", Replace("/annotations/list/1/expr", "$job", ".+")),
        ("each_query_carries_the_instance", Replace(EXPR[5], "instance=~\"$instance\", ", "")),
        ("each_query_carries_the_instance", Replace(EXPR[5], "instance=~\"$instance\"", "instance=~\"$job\"")),

        ("each_query_carries_every_choice", Replace(EXPR[2], ", key=~\"$key\"", "")),
        ("each_query_carries_every_choice", Replace(EXPR[1], ", datname=~\"$datname\"", "")),

        ("choices_are_compared_as_they_are_written", Replace(EXPR[2], "key=~", "key=")),
        ("choices_are_compared_as_they_are_written", Replace(EXPR[2], "$key", "${key:raw}")),
        ("choices_are_compared_as_they_are_written", Set("/templating/list/6", json!({ "name": "key", "type": "query" }))),

        ("each_query_asks_for_what_is_served", Replace(EXPR[2], "pg_advisory_lock_held_since", "pg_advisory_lock_holding_since")),
        ("each_query_asks_for_what_is_served", Replace(EXPR[1], "state=", "status=")),
        ("each_query_asks_for_what_is_served", Replace(EXPR[3], "by (lock)", "by (locks)")),
        ("each_query_asks_for_what_is_served", Replace(EXPR[3], "pg_advisory_lock_held_since_timestamp_seconds{", "{__name__=\"pg_advisory_up\", ")),

        ("no_query_shows_a_zero_that_nobody_saw", Replace(EXPR[1], "sum(", "vector(0) or sum(")),
        ("no_query_shows_a_zero_that_nobody_saw", Replace(EXPR[3], "max by (lock) (", "max by (lock) (label_replace(vector(0), \"lock\", \"none\", \"\", \"\") or ")),

        ("lines_of_limits_are_finite", Replace(EXPR[6], " < Inf", "")),
        ("lines_of_limits_are_finite", Replace(EXPR[6], " < Inf", " > 0")),
        ("lines_of_limits_are_finite", Replace(EXPR[2], "time() - pg_advisory_lock_held_since_timestamp", "pg_advisory_lock_hold_limit")),

        ("values_lead_to_dashboards_that_exist", Replace("/panels/2/fieldConfig/overrides/0/properties/1/value/0/url", "locks-other", "locks-gone")),
        ("values_lead_to_dashboards_that_exist", Replace("/panels/2/fieldConfig/overrides/0/properties/1/value/0/url", "var-lock", "var-look")),
        ("values_lead_to_dashboards_that_exist", Replace("/panels/2/fieldConfig/overrides/0/properties/1/value/0/url", "${__url_time_range}&", "")),
        ("values_lead_to_dashboards_that_exist", Replace("/panels/2/fieldConfig/overrides/0/properties/1/value/0/url", "${job:queryparam}&", "")),
        ("values_lead_to_dashboards_that_exist", Set("/panels/1/links", json!([{ "title": "Home", "url": "https://grafana.example.com/d/x" }]))),

        ("each_dashboard_leads_to_all_others", Remove("/links/0")),
        ("each_dashboard_leads_to_all_others", Set("/links/0/keepTime", json!(false))),
        ("each_dashboard_leads_to_all_others", Set("/links/0/includeVars", json!(false))),
        ("each_dashboard_leads_to_all_others", Set("/links/0/tags/0", json!("advisory"))),
    ]
}

fn sample() -> Value {
    serde_json::from_str(SAMPLE).expect("the sample is JSON")
}

/// Judges a dashboard beside another that is like the sample.
fn complaints(rule: &Rule, json: Value) -> Vec<String> {
    let mut other = sample();
    other["uid"] = json!("pg-advisory-locks-other");
    other["title"] = json!("Other");
    let dashboards =
        [Dashboard::from_json("sample.json", json), Dashboard::from_json("other.json", other)];
    let contract = Contract::read();
    let world = World { dashboards: &dashboards, contract: &contract };
    let complaints = (rule.judge)(&dashboards[0], &world).0;
    complaints.into_iter().map(|it| format!("{}: {}", it.place, it.text)).collect()
}

#[test]
fn the_sample_gives_no_cause_for_complaint() {
    for rule in RULES {
        assert_eq!(complaints(rule, sample()), [""; 0], "{}", rule.sentence);
    }
}

#[test]
fn every_mistake_is_seen_by_its_rule() {
    let mut unseen = Vec::new();
    for (number, (sentence, edit)) in mistakes().iter().enumerate() {
        let rule = RULES.iter().find(|rule| rule.sentence == *sentence);
        let rule = rule.unwrap_or_else(|| panic!("there is no rule {sentence}"));
        let mut json = sample();
        edit.make(&mut json);
        if complaints(rule, json).is_empty() {
            unseen.push(format!("{number}: {sentence}"));
        }
    }
    assert_eq!(unseen, [""; 0]);
}

#[test]
fn every_rule_has_a_mistake_to_see() {
    let tried: BTreeSet<&str> = mistakes().iter().map(|(sentence, _)| *sentence).collect();
    let all: BTreeSet<&str> = RULES.iter().map(|rule| rule.sentence).collect();
    assert_eq!(tried, all);
}
