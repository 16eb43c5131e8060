//! Grafana's part: chooses values of a dashboard's variables, fills its queries in, and asks
//! Prometheus as Grafana does. What comes of it is judged by the tests above.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::Value;

use super::model::{Asker, Choice, Dashboard, Question, Situation, Variable};
use crate::support::Prometheus;

/// How often the Prometheus of the tests scrapes.
const SCRAPE_INTERVAL: Duration = Duration::from_secs(1);

/// What is chosen of each variable.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Chosen {
    /// One value.
    One,
    /// A few, where that is possible.
    Several,
    /// All, where that is possible.
    All,
    /// There is no value to choose.
    Nothing,
}

/// Somebody who looks at a dashboard.
pub struct Viewer<'a> {
    /// Whom its queries are sent to.
    pub prometheus: &'a Prometheus,
    /// What is looked at.
    pub dashboard: &'a Dashboard,
    /// The lock that is chosen where one has to be.
    pub lock: &'a str,
    /// The time shown, in seconds since 1970.
    pub time: (f64, f64),
}

impl Viewer<'_> {
    /// Chooses of each variable in turn, among the values that the choices before it leave.
    pub async fn choose(&self, chosen: Chosen) -> Situation {
        let mut situation = Situation {
            choices: BTreeMap::new(),
            scrape_interval: SCRAPE_INTERVAL,
            range: Duration::from_secs_f64((self.time.1 - self.time.0).ceil()),
            points: 1000,
        };
        for variable in &self.dashboard.model.templating.list {
            let choice = match &*variable.kind {
                "query" => self.choose_value(variable, chosen, &situation).await,
                "datasource" => Choice::One("prometheus".to_owned()),
                kind => panic!("{}: what is chosen of a {kind}?", variable.name),
            };
            situation.choices.insert(variable.name.clone(), choice);
        }
        situation
    }

    async fn choose_value(
        &self,
        variable: &Variable,
        chosen: Chosen,
        situation: &Situation,
    ) -> Choice {
        // Grafana asks for them whatever is chosen.
        let values = self.values(variable, situation).await;
        if chosen == Chosen::Nothing {
            return Choice::Nothing;
        }
        assert!(!values.is_empty(), "there is no {} to choose", variable.name);
        match chosen {
            Chosen::All if variable.include_all => Choice::All,
            Chosen::Several if variable.multi => {
                Choice::Several(values.into_iter().take(3).collect())
            }
            Chosen::One | Chosen::Several | Chosen::All | Chosen::Nothing => {
                let is_wanted = |value: &&String| variable.name == "lock" && *value == self.lock;
                let value = values.iter().find(is_wanted).unwrap_or(&values[0]);
                Choice::One(value.clone())
            }
        }
    }

    /// What people can choose from.
    async fn values(&self, variable: &Variable, situation: &Situation) -> Vec<String> {
        let query = self.dashboard.fill_in(variable.query(), situation, None);
        let arguments = query.strip_prefix("label_values(").and_then(|it| it.strip_suffix(')'));
        let arguments = arguments.and_then(|it| it.rsplit_once(','));
        let (selector, label) = arguments.unwrap_or_else(|| panic!("{query} asks for no values"));
        let values = self.prometheus.label_values(selector.trim(), label.trim(), self.time).await;
        values.unwrap_or_else(|fault| panic!("{}: {query}: {fault}", variable.name))
    }

    /// The query as it is sent, and the data of its answer.
    pub async fn ask(&self, question: &Question<'_>, situation: &Situation) -> (String, Value) {
        let text = self.dashboard.fill_in(question.text, situation, question.min_step);
        let answer = if matches!(question.asker, Asker::Panel(_, target) if target.instant) {
            self.prometheus.query_at(&text, self.time.1).await
        } else {
            let step = situation.step(question.min_step);
            // Points lie at multiples of the step, so that they stay where they are.
            #[expect(clippy::cast_precision_loss, reason = "a step of seconds is exact")]
            let aligned = |time: f64| (time / step as f64).floor() * step as f64;
            let time = (aligned(self.time.0), aligned(self.time.1));
            self.prometheus.query_range(&text, time, step).await
        };
        let (file, place) = (&self.dashboard.file, &question.place);
        let data = answer.unwrap_or_else(|fault| panic!("{file}, {place}: {text}: {fault}"));
        (text, data)
    }
}

/// The values in the data of an answer.
pub fn values(data: &Value) -> Vec<f64> {
    let series = data["result"].as_array().expect("a result is a list of series");
    let pairs = series.iter().flat_map(|series| {
        let many = series["values"].as_array().into_iter().flatten();
        many.chain(series.get("value"))
    });
    let value = |pair: &Value| {
        let text = pair[1].as_str().expect("a value is text");
        text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
    };
    pairs.map(value).collect()
}

/// How much a query shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Shown {
    /// No series.
    Nothing,
    /// Nothing but zero.
    Zero,
    /// What there is.
    Something,
}

impl Shown {
    /// Of an answer's data.
    pub fn of(data: &Value) -> Shown {
        match values(data) {
            values if values.is_empty() => Shown::Nothing,
            values if values.iter().all(|&value| value == 0.0) => Shown::Zero,
            _ => Shown::Something,
        }
    }
}
