//! Rules about variables: those that every dashboard for Prometheus has, what they ask, and that each
//! is there for something.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use regex::Regex;
use serde_json::Value;

use super::{Complaints, World};
use crate::contract::OF_THE_SCRAPER;
use crate::dashboard::{Dashboard, Variable, references};
use crate::query;

/// What Grafana fills in by itself, in queries and in links.
const BUILT_IN: [&str; 16] = [
    "__all_variables",
    "__data",
    "__field",
    "__from",
    "__interval",
    "__interval_ms",
    "__range",
    "__range_ms",
    "__range_s",
    "__rate_interval",
    "__series",
    "__to",
    "__url_time_range",
    "__value",
    "__dashboard",
    "__user",
];

/// Whoever imports it chooses where the series are.
pub fn the_data_source_is_chosen(dashboard: &Dashboard, _: &World<'_>) -> Complaints {
    let mut complaints = Complaints::default();
    let all = &dashboard.model.templating.list;
    let sources: Vec<&Variable> =
        all.iter().filter(|variable| variable.kind == "datasource").collect();
    let [source] = sources[..] else {
        complaints.unless(false, "", "there is not one variable for the data source");
        return complaints;
    };
    let is_first = all.first().is_some_and(|first| first.kind == "datasource");
    complaints.unless(is_first, &source.name, "it is not the first, and all others ask it");
    complaints.unless(source.name == "datasource", &source.name, "it is not named datasource");
    complaints.unless(source.label == "Data source", &source.name, "its label is another");
    complaints.unless(source.query() == "prometheus", &source.name, "it offers other kinds");
    complaints
}

/// Several teams' exporters scraped by one Prometheus are told apart by it.
pub fn the_job_is_chosen(dashboard: &Dashboard, _: &World<'_>) -> Complaints {
    is_chosen(dashboard, "job", "Job")
}

/// One exporter of several.
pub fn the_instance_is_chosen(dashboard: &Dashboard, _: &World<'_>) -> Complaints {
    is_chosen(dashboard, "instance", "Instance")
}

fn is_chosen(dashboard: &Dashboard, name: &str, label: &str) -> Complaints {
    let mut complaints = Complaints::default();
    let Some(variable) = dashboard.variable(name) else {
        complaints.unless(false, name, "there is no such variable");
        return complaints;
    };
    complaints.unless(variable.kind == "query", name, "its values are not asked for");
    complaints.unless(variable.multi, name, "several cannot be chosen");
    complaints.unless(variable.include_all, name, "all cannot be chosen");
    // Every series has both labels, so that an empty one is a mistake.
    complaints.unless(variable.all_value.as_deref() == Some(".+"), name, "all is not .+");
    complaints.unless(variable.label == label, name, format!("its label is not {label}"));
    complaints
}

/// What Grafana understands in a variable's query.
static FUNCTION: LazyLock<Regex> = LazyLock::new(|| {
    let pattern = r"(?s)^(label_names|label_values|metrics|query_result)\((.*)\)$";
    Regex::new(pattern).expect("a pattern")
});

/// `label_values` of series that are there, and of a label that they have.
pub fn queries_are_understood(dashboard: &Dashboard, world: &World<'_>) -> Complaints {
    let mut complaints = Complaints::default();
    for variable in dashboard.query_variables() {
        let name = &*variable.name;
        let query = variable.query();
        let Some(found) = FUNCTION.captures(query) else {
            complaints.unless(false, name, format!("Grafana does not understand {query}"));
            continue;
        };
        match (&found[1], parse_label_values(&found[2])) {
            ("label_values", Some((selector, label))) => {
                let series = query::parse(selector);
                let series = series.map(|query| query.selectors).unwrap_or_default();
                let [series] = &series[..] else {
                    complaints.unless(false, name, format!("{selector} is no selector"));
                    continue;
                };
                let metric = world.contract.metric(&series.metric);
                let has_label = metric.is_some_and(|metric| metric.labels.contains(label));
                let has_label = has_label || metric.is_some() && OF_THE_SCRAPER.contains(&label);
                let text = format!("{} has no label {label}", series.metric);
                complaints.unless(has_label, name, text);
            }
            ("query_result", _) => {
                let text = format!("{} is no PromQL", &found[2]);
                complaints.unless(query::parse(&found[2]).is_ok(), name, text);
            }
            _ => complaints.unless(false, name, format!("{query} asks for no values")),
        }
    }
    complaints
}

/// The two arguments of `label_values`.
pub fn parse_label_values(arguments: &str) -> Option<(&str, &str)> {
    let (selector, label) = arguments.rsplit_once(',')?;
    Some((selector.trim(), label.trim()))
}

/// Whoever looks at last night wants last night's locks to choose from.
pub fn values_are_those_of_the_time_shown(dashboard: &Dashboard, _: &World<'_>) -> Complaints {
    let mut complaints = Complaints::default();
    for variable in dashboard.query_variables() {
        let text = "it is not asked for again when the time changes";
        complaints.unless(variable.refresh == 2, &variable.name, text);
    }
    complaints
}

/// Each narrows the choice of those after it, and has a word for all that takes empty labels too.
pub fn each_narrows_the_next(dashboard: &Dashboard, world: &World<'_>) -> Complaints {
    let mut complaints = Complaints::default();
    let mut before: Vec<&str> = Vec::new();
    for variable in dashboard.query_variables() {
        let name = &*variable.name;
        let found = FUNCTION.captures(variable.query());
        let arguments = found.and_then(|found| found.get(2)).map_or("", |it| it.as_str());
        let selector = parse_label_values(arguments).map_or("", |(selector, _)| selector);
        let used: Vec<&str> = references(selector).map(|reference| reference.name).collect();
        let series = query::parse(selector).map(|query| query.selectors).unwrap_or_default();
        let metric = series.first().and_then(|series| world.contract.metric(&series.metric));
        for earlier in &before {
            let could = metric.is_some_and(|metric| metric.labels.contains(earlier))
                || OF_THE_SCRAPER.contains(earlier);
            let text = format!("what is chosen of {earlier} does not narrow it");
            complaints.unless(!could || used.contains(earlier), name, text);
        }
        for name_used in used {
            let text = format!("it uses {name_used}, which does not stand before it");
            complaints.unless(before.contains(&name_used), name, text);
        }
        if variable.include_all && !["job", "instance"].contains(&name) {
            // A sample of zero has no application, and a series without a label has it empty.
            let is_all = variable.all_value.as_deref() == Some(".*");
            complaints.unless(is_all, name, "all is not .*");
        }
        before.push(name);
    }
    complaints
}

/// A choice that changes nothing is a trap, and a name that nobody fills in finds nothing.
pub fn each_is_used_and_each_use_is_known(dashboard: &Dashboard, _: &World<'_>) -> Complaints {
    let mut complaints = Complaints::default();
    let mut used = BTreeSet::new();
    let mut collect = |json: &'_ Value, but: &str| {
        let mut texts = Vec::new();
        collect_texts(json, &mut texts);
        let names = texts.iter().flat_map(|text| references(text)).map(|it| it.name.to_owned());
        used.extend(names.filter(|name| name != but));
    };
    for part in ["panels", "annotations", "links"] {
        collect(&dashboard.json[part], "");
    }
    for variable in dashboard.json["templating"]["list"].as_array().into_iter().flatten() {
        let name = variable["name"].as_str().unwrap_or_default();
        for part in ["query", "datasource", "regex"] {
            // Its own query makes no variable useful.
            collect(&variable[part], name);
        }
    }
    for Variable { name, .. } in &dashboard.model.templating.list {
        complaints.unless(used.contains(name), name, "nothing uses it");
    }
    for name in used {
        // `$1` of a replacement.
        let is_group = name.starts_with(|c: char| c.is_ascii_digit());
        let is_known =
            is_group || BUILT_IN.contains(&&*name) || dashboard.variable(&name).is_some();
        complaints.unless(is_known, "", format!("nothing fills in {name}"));
    }
    complaints
}

fn collect_texts<'a>(json: &'a Value, texts: &mut Vec<&'a str>) {
    match json {
        Value::String(text) => texts.push(text),
        Value::Array(list) => list.iter().for_each(|inner| collect_texts(inner, texts)),
        Value::Object(fields) => fields.values().for_each(|inner| collect_texts(inner, texts)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}
