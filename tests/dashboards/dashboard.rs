//! A dashboard as far as the tests look at one: the parts of Grafana's classic JSON that they judge,
//! and what Grafana sends to Prometheus once its variables are filled in. The rules beside this file
//! judge what is written here; the integration test sends it. Nothing here knows which dashboards
//! there are, nor what a query means.

use std::collections::BTreeMap;
use std::sync::LazyLock;
use std::time::Duration;

use regex::{Captures, Regex};
use serde::Deserialize;
use serde_json::Value;

/// A file of `dashboards/`, with its JSON for what has no field here.
#[derive(Clone, Debug)]
pub struct Dashboard {
    /// Without folder.
    pub file: String,
    /// The whole of it.
    pub json: Value,
    /// What is judged of it.
    pub model: Model,
}

/// The fields of a dashboard that the tests know.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Model {
    /// Chosen by hand and never changed: links and bookmarks name it.
    pub uid: String,
    /// What people call it.
    pub title: String,
    /// By which dashboards find each other.
    #[serde(default)]
    pub tags: Vec<String>,
    /// Rows and what stands between them.
    #[serde(default)]
    pub panels: Vec<Panel>,
    /// The variables.
    #[serde(default)]
    pub templating: List<Variable>,
    /// Marks on the time axis.
    #[serde(default)]
    pub annotations: List<Annotation>,
    /// At its top.
    #[serde(default)]
    pub links: Vec<Link>,
}

/// How classic JSON wraps its lists.
#[derive(Clone, Debug, Deserialize)]
pub struct List<T> {
    /// What is in it.
    #[serde(default = "Vec::new")]
    pub list: Vec<T>,
}

impl<T> Default for List<T> {
    fn default() -> List<T> {
        List { list: Vec::new() }
    }
}

/// A panel or a row.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Panel {
    /// Within its dashboard.
    pub id: i64,
    /// As `stat`; `row` for rows.
    #[serde(rename = "type")]
    pub kind: String,
    /// Its heading.
    pub title: String,
    /// What hovering over the heading shows.
    pub description: String,
    /// Where it stands.
    pub grid_pos: GridPos,
    /// Whom it asks.
    pub datasource: Option<Source>,
    /// What it asks.
    pub targets: Option<Vec<Target>>,
    /// Units, thresholds, mappings.
    pub field_config: FieldConfig,
    /// The least step of its queries.
    pub interval: Option<String>,
    /// A row that is shut.
    pub collapsed: bool,
    /// Those of a collapsed row.
    pub panels: Vec<Panel>,
    /// At its heading.
    pub links: Vec<Link>,
    /// What is particular to its kind.
    pub options: Value,
}

/// In 24 columns and as many rows as needed.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
pub struct GridPos {
    /// Columns from the left.
    pub x: u32,
    /// Rows from the top.
    pub y: u32,
    /// Columns wide.
    pub w: u32,
    /// Rows high.
    pub h: u32,
}

/// Names a source of data.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(default)]
pub struct Source {
    /// As `prometheus`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Its own name, or a variable.
    pub uid: String,
}

/// A query of a panel.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Target {
    /// Within its panel.
    pub ref_id: String,
    /// PromQL with variables in it.
    pub expr: String,
    /// What its series are called.
    pub legend_format: Option<String>,
    /// `time_series`, `table` or `heatmap`.
    pub format: Option<String>,
    /// Asks for one moment.
    pub instant: bool,
    /// The least step.
    pub interval: Option<String>,
    /// Whom it asks, if not whom its panel asks.
    pub datasource: Option<Source>,
}

/// How values look.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct FieldConfig {
    /// For all fields.
    pub defaults: FieldDefaults,
    /// For some.
    pub overrides: Vec<Override>,
}

/// How values look unless an override says otherwise.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct FieldDefaults {
    /// By Grafana's name for it.
    pub unit: Option<String>,
    /// Texts for values.
    pub mappings: Vec<Value>,
    /// Where a click on a value leads.
    pub links: Vec<Link>,
}

/// How some fields look.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Override {
    /// What is set.
    pub properties: Vec<Property>,
}

/// One thing that an override sets.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Property {
    /// As `unit`.
    pub id: String,
    /// As its field would be.
    pub value: Value,
}

/// A variable.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Variable {
    /// Without the dollar sign.
    pub name: String,
    /// `query`, `datasource`, …
    #[serde(rename = "type")]
    pub kind: String,
    /// What people read before the choice.
    pub label: String,
    /// A text, or an object that holds one, which is how Grafana saves it.
    pub query: Value,
    /// Whom it asks.
    pub datasource: Option<Source>,
    /// Several values can be chosen.
    pub multi: bool,
    /// All values can be chosen.
    pub include_all: bool,
    /// What stands for all.
    pub all_value: Option<String>,
    /// When its values are asked for: 2 is whenever the time changes.
    pub refresh: u8,
    /// What is kept of its values.
    pub regex: String,
}

impl Variable {
    /// Its query as text.
    pub fn query(&self) -> &str {
        let text = self.query.as_str().or_else(|| self.query["query"].as_str());
        text.unwrap_or_default()
    }

    /// Whether Grafana treats its values as parts of a regular expression.
    pub fn is_regex(&self) -> bool {
        self.multi || self.include_all
    }
}

/// Marks on the time axis.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Annotation {
    /// What people switch on and off.
    pub name: String,
    /// Whom it asks.
    pub datasource: Option<Source>,
    /// PromQL.
    pub expr: String,
    /// The least step.
    pub step: Option<String>,
    /// 1 for the one that every dashboard has.
    pub built_in: u8,
}

/// A way to somewhere else.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Link {
    /// `dashboards` by tags, or `link`.
    #[serde(rename = "type")]
    pub kind: String,
    /// What people read.
    pub title: String,
    /// Where to.
    pub url: String,
    /// Dashboards with all of these.
    pub tags: Vec<String>,
    /// The variables go along.
    pub include_vars: bool,
    /// The time goes along.
    pub keep_time: bool,
}

impl Dashboard {
    /// Reads a dashboard; a fault of the JSON is the test's failure.
    pub fn parse(file: &str, text: &str) -> Dashboard {
        let json = serde_json::from_str(text).unwrap_or_else(|error| panic!("{file}: {error}"));
        Dashboard::from_json(file, json)
    }

    /// A dashboard that is JSON already.
    pub fn from_json(file: &str, json: Value) -> Dashboard {
        let model = serde_json::from_value(json.clone());
        let model = model.unwrap_or_else(|error| panic!("{file}: {error}"));
        Dashboard { file: file.to_owned(), json, model }
    }

    /// Every panel, those of collapsed rows included, without the rows.
    pub fn panels(&self) -> impl Iterator<Item = &Panel> {
        let all = self.model.panels.iter();
        let all = all.flat_map(|panel| std::iter::once(panel).chain(&panel.panels));
        all.filter(|panel| panel.kind != "row")
    }

    /// The variable of this name.
    pub fn variable(&self, name: &str) -> Option<&Variable> {
        self.model.templating.list.iter().find(|variable| variable.name == name)
    }

    /// Query variables, each of which may use those before it.
    pub fn query_variables(&self) -> impl Iterator<Item = &Variable> {
        self.model.templating.list.iter().filter(|variable| variable.kind == "query")
    }

    /// Annotations that ask Prometheus.
    pub fn annotations(&self) -> impl Iterator<Item = &Annotation> {
        self.model.annotations.list.iter().filter(|annotation| annotation.built_in == 0)
    }

    /// Everything that panels and annotations ask Prometheus.
    pub fn questions(&self) -> Vec<Question<'_>> {
        let in_panels = self.panels().flat_map(|panel| {
            let targets = panel.targets.iter().flatten();
            targets.map(move |target| Question {
                place: format!("{} ({}), {}", panel.title, panel.kind, target.ref_id),
                text: &target.expr,
                min_step: target.interval.as_deref().or(panel.interval.as_deref()),
                asker: Asker::Panel(panel, target),
            })
        });
        let in_annotations = self.annotations().map(|annotation| Question {
            place: format!("annotation {}", annotation.name),
            text: &annotation.expr,
            min_step: annotation.step.as_deref(),
            asker: Asker::Annotation,
        });
        in_panels.chain(in_annotations).collect()
    }

    /// What Grafana makes of a text that it sends to Prometheus.
    pub fn fill_in(&self, text: &str, situation: &Situation, min_step: Option<&str>) -> String {
        let filled = REFERENCE.replace_all(text, |found: &Captures<'_>| {
            let reference = Reference::from(found);
            situation
                .built_in(reference.name, min_step)
                .or_else(|| {
                    let choice = situation.choices.get(reference.name)?;
                    Some(self.variable(reference.name)?.render(choice, reference.format))
                })
                // As Grafana does: what it does not know stays as it is.
                .unwrap_or_else(|| found[0].to_owned())
        });
        filled.into_owned()
    }
}

/// A query, and where it stands.
#[derive(Clone, Debug)]
pub struct Question<'a> {
    /// As `Longest hold (stat), A`.
    pub place: String,
    /// PromQL with variables in it.
    pub text: &'a str,
    /// No two of its points are closer.
    pub min_step: Option<&'a str>,
    /// Whose it is.
    pub asker: Asker<'a>,
}

/// Whose a query is.
#[derive(Clone, Copy, Debug)]
pub enum Asker<'a> {
    /// A target of a panel.
    Panel(&'a Panel, &'a Target),
    /// An annotation.
    Annotation,
}

/// `$name`, `[[name]]`, `${name}`, `${name.path}`, `${name:format}`.
static REFERENCE: LazyLock<Regex> = LazyLock::new(|| {
    let pattern = r"\$(\w+)|\[\[(\w+?)(?::(\w+))?\]\]|\$\{(\w+)(?:\.([^:}]+))?(?::([^}]+))?\}";
    Regex::new(pattern).expect("a pattern")
});

/// A place in a text that names a variable.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reference<'a> {
    /// Without the dollar sign.
    pub name: &'a str,
    /// How it is to be written.
    pub format: Option<&'a str>,
}

impl<'a> From<&Captures<'a>> for Reference<'a> {
    fn from(found: &Captures<'a>) -> Reference<'a> {
        let any = |groups: [usize; 3]| groups.into_iter().find_map(|group| found.get(group));
        Reference {
            name: any([1, 2, 4]).map_or("", |name| name.as_str()),
            format: any([3, 6, 6]).map(|format| format.as_str()),
        }
    }
}

/// Every variable that a text names, built-in ones included.
pub fn references(text: &str) -> impl Iterator<Item = Reference<'_>> {
    REFERENCE.captures_iter(text).map(|found| Reference::from(&found))
}

/// What is chosen of a variable.
#[derive(Clone, Debug, PartialEq)]
pub enum Choice {
    /// One value.
    One(String),
    /// Two or more, where the variable allows it.
    Several(Vec<String>),
    /// The word that stands for all values.
    All,
    /// There is no value to choose.
    Nothing,
}

/// Everything that texts are filled in with.
#[derive(Clone, Debug)]
pub struct Situation {
    /// By the variables' names.
    pub choices: BTreeMap<String, Choice>,
    /// How often Prometheus scrapes, as its data source in Grafana says.
    pub scrape_interval: Duration,
    /// The time shown.
    pub range: Duration,
    /// How many points a panel asks for at most.
    pub points: u32,
}

impl Situation {
    /// Seconds between two points of a query: as many as fit, and none closer than the scrapes or
    /// the query's own least step.
    pub fn step(&self, min_step: Option<&str>) -> u64 {
        let fitting = self.range.as_secs().div_ceil(u64::from(self.points));
        fitting.max(self.scrape_interval(min_step)).max(1)
    }

    fn scrape_interval(&self, min_step: Option<&str>) -> u64 {
        let own = min_step.filter(|step| !step.is_empty() && !step.starts_with('$'));
        own.map_or(self.scrape_interval.as_secs(), parse_seconds)
    }

    fn built_in(&self, name: &str, min_step: Option<&str>) -> Option<String> {
        let scrape_interval = self.scrape_interval(min_step);
        let step = self.step(min_step);
        let range = self.range.as_secs();
        Some(match name {
            "__interval" => format!("{step}s"),
            "__interval_ms" => format!("{step}000"),
            "__rate_interval" => format!("{}s", (step + scrape_interval).max(4 * scrape_interval)),
            "__range" => format!("{range}s"),
            "__range_s" => range.to_string(),
            "__range_ms" => format!("{range}000"),
            _ => return None,
        })
    }
}

/// A duration of Grafana's in whole seconds.
fn parse_seconds(text: &str) -> u64 {
    let unit = text.trim_start_matches(|c: char| c.is_ascii_digit());
    let number: u64 = text[..text.len() - unit.len()].parse().unwrap_or_default();
    match unit {
        "s" => number,
        "m" => 60 * number,
        "h" => 3600 * number,
        _ => panic!("{text} is no step in seconds, minutes or hours"),
    }
}

impl Variable {
    /// A choice as Grafana writes it into a query for Prometheus.
    fn render(&self, choice: &Choice, format: Option<&str>) -> String {
        if let (Choice::All, Some(all)) = (choice, &self.all_value) {
            return all.clone();
        }
        let values: &[String] = match choice {
            Choice::One(value) => std::slice::from_ref(value),
            Choice::Several(values) => values,
            Choice::All => panic!("${} has no word for all", self.name),
            Choice::Nothing => &[],
        };
        let escape: fn(&str) -> String = match format {
            None if self.is_regex() => escape_regex_in_string,
            None => escape_in_string,
            Some("regex") => |value| regex_escape(value, "\\"),
            Some("raw" | "pipe") => str::to_owned,
            Some(format) => panic!("${{{}:{format}}} is not for queries", self.name),
        };
        let escaped: Vec<String> = values.iter().map(|value| escape(value)).collect();
        match (&escaped[..], self.multi) {
            ([], false) => String::new(),
            ([one], _) => one.clone(),
            // `()` where nothing is chosen of several.
            (several, _) => format!("({})", several.join("|")),
        }
    }
}

/// A value within the quotes of PromQL. The apostrophe is Grafana's, and does no good.
fn escape_in_string(value: &str) -> String {
    value.replace('\\', r"\\").replace('\'', r"\\'")
}

/// A value within a regular expression within the quotes of PromQL: PromQL takes one of two
/// backslashes away, and the regular expression reads the other.
fn escape_regex_in_string(value: &str) -> String {
    regex_escape(value, r"\\")
}

fn regex_escape(value: &str, escape: &str) -> String {
    let mut escaped = String::new();
    for character in value.chars() {
        if character == '\\' {
            escaped.push_str(escape);
            escaped.push_str(escape);
            continue;
        }
        if "$^*{}[]'+?.()|".contains(character) {
            escaped.push_str(escape);
        }
        escaped.push(character);
    }
    escaped
}
