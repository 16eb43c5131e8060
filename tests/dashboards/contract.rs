//! What there is to ask for: the metrics that the exporter serves, by the list that its own test holds
//! it to, and what Prometheus adds. The rules look names and labels up here.

use std::collections::{BTreeMap, BTreeSet};

/// Every metric of the exporter with its type and its labels.
pub const SERVED: &str = include_str!("../contract.txt");

/// What Prometheus adds to each scrape, and what becomes of the rules that are shipped.
const ADDED: &str = "
up gauge
scrape_duration_seconds gauge
scrape_samples_scraped gauge
scrape_samples_post_metric_relabeling gauge
scrape_series_added gauge
ALERTS gauge alertname alertstate severity finding reason server datname lock key owner runbook
";

/// Labels that the scraper adds to everything.
pub const OF_THE_SCRAPER: [&str; 5] = ["job", "instance", "pod", "container", "endpoint"];

/// Metrics by name.
pub struct Contract(BTreeMap<String, Metric>);

/// One of them.
pub struct Metric {
    /// It only ever grows, but for restarts.
    pub is_counter: bool,
    /// Beside those of the scraper.
    pub labels: BTreeSet<&'static str>,
}

impl Contract {
    /// As it is.
    pub fn read() -> Contract {
        let mut metrics = BTreeMap::new();
        let mut add = |name: String, is_counter, labels: &[&'static str]| {
            metrics.insert(name, Metric { is_counter, labels: labels.iter().copied().collect() });
        };
        for line in SERVED.lines().chain(ADDED.lines()).filter(|line| !line.is_empty()) {
            let words: Vec<&str> = line.split(' ').collect();
            let (name, kind, labels) = (words[0], words[1], &words[2..]);
            if kind == "histogram" {
                add(format!("{name}_bucket"), true, &[labels, &["le"]].concat());
                add(format!("{name}_sum"), true, labels);
                add(format!("{name}_count"), true, labels);
            } else {
                add(name.to_owned(), kind == "counter", labels);
            }
        }
        Contract(metrics)
    }

    /// A metric as a query names it.
    pub fn metric(&self, name: &str) -> Option<&Metric> {
        self.0.get(name)
    }
}

/// The families that the exporter serves.
pub fn families() -> BTreeSet<&'static str> {
    let lines = SERVED.lines().filter(|line| !line.is_empty());
    lines.filter_map(|line| line.split(' ').next()).collect()
}
