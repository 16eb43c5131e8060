//! A Prometheus that lives for one test and scrapes every second, the checks of `promtool` and `amtool`,
//! and the reference parser of OpenMetrics. They judge whether what is served is what the world's scrapers
//! understand.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;

use super::port::Port;
use super::process::{Process, make_home, unprivileged_command};
use super::{Tool, http};

/// A monitoring server of one's own.
pub struct Prometheus {
    // Dropped in this order: the server ends before its folder goes.
    _process: Process,
    port: Port,
    _home: TempDir,
}

impl Prometheus {
    /// Starts a server that scrapes these targets under the job `locks`, without rules.
    pub async fn start(targets: &[SocketAddr]) -> Prometheus {
        Prometheus::start_with_rules(targets, &[], &[]).await
    }

    /// Starts a server whose job has these keys too, as `basic_auth`. Files that they name, each
    /// with its text, stand beside its configuration.
    pub async fn start_with_job(
        targets: &[SocketAddr],
        job: &Value,
        files: &[(&str, &str)],
    ) -> Prometheus {
        Prometheus::launch(targets, job, files, &[], &[]).await
    }

    /// Starts a server that also evaluates these rules every second, each the text of a file, and
    /// sends what fires to these Alertmanagers.
    pub async fn start_with_rules(
        targets: &[SocketAddr],
        rules: &[&str],
        alertmanagers: &[SocketAddr],
    ) -> Prometheus {
        Prometheus::launch(targets, &serde_json::json!({}), &[], rules, alertmanagers).await
    }

    /// Both of the former at once.
    pub async fn start_with_job_and_rules(
        targets: &[SocketAddr],
        job: &Value,
        rules: &[&str],
        alertmanagers: &[SocketAddr],
    ) -> Prometheus {
        Prometheus::launch(targets, job, &[], rules, alertmanagers).await
    }

    async fn launch(
        targets: &[SocketAddr],
        job: &Value,
        files: &[(&str, &str)],
        rules: &[&str],
        alertmanagers: &[SocketAddr],
    ) -> Prometheus {
        let home = make_home();
        let port = Port::reserve();
        for (name, text) in files {
            fs::write(home.path().join(name), text).expect("the folder is ours");
        }
        let mut scrape = serde_json::json!({
            "job_name": "locks",
            "static_configs": [{ "targets": targets }],
        });
        for (key, value) in job.as_object().expect("a job is a mapping") {
            scrape[key] = value.clone();
        }
        let configuration = serde_json::json!({
            "global": { "scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s" },
            "rule_files": write_rules(rules, home.path()),
            "alerting": { "alertmanagers": [{ "static_configs": [{ "targets": alertmanagers }] }] },
            "scrape_configs": [scrape],
        });
        let file = home.path().join("prometheus.yml");
        // JSON is YAML, and nothing needs quoting by hand.
        fs::write(&file, configuration.to_string()).expect("the folder is ours");
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port.number()));
        let mut command = unprivileged_command(&Tool::Prometheus.path(), home.path());
        command
            .arg(format!("--config.file={}", file.display()))
            .arg(format!("--storage.tsdb.path={}", home.path().join("data").display()))
            .arg(format!("--web.listen-address={address}"))
            .arg("--log.level=warn");
        let mut process = Process::start(command, &home.path().join("prometheus.log"), "KILL");
        process
            .until_ready(async |_| {
                let ready = http::request("GET", address, "/-/ready", &[]).await;
                ready.is_ok_and(|response| response.status == 200)
            })
            .await;
        Prometheus { _process: process, port, _home: home }
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.port.number()))
    }

    /// All alerts, pending or firing, at their last evaluation.
    pub async fn alerts(&self) -> Vec<Value> {
        let response = http::get(self.address(), "/api/v1/alerts", &[]).await;
        let answer: Value = serde_json::from_slice(&response.body).expect("the answer is JSON");
        answer["data"]["alerts"].as_array().expect("alerts are listed").clone()
    }

    /// The value of the only alert of this name.
    pub async fn alert(&self, name: &str) -> f64 {
        let alerts = self.alerts().await;
        let mut named = alerts.iter().filter(|alert| alert["labels"]["alertname"] == name);
        match (named.next(), named.next()) {
            (Some(alert), None) => parse_number(&alert["value"]),
            _ => panic!("not one alert {name}: {alerts:#?}"),
        }
    }

    /// Its clock, in seconds since 1970.
    pub async fn now(&self) -> f64 {
        self.query("time()").await[0].1
    }

    /// The data of an answer about one moment, in seconds since 1970, or what is wrong with the query.
    pub async fn query_at(&self, promql: &str, at: f64) -> Result<Value, String> {
        self.ask(&format!("/api/v1/query?query={}&time={at}", percent_encode(promql))).await
    }

    /// The data of an answer about a time, with so many seconds between two points.
    pub async fn query_range(
        &self,
        promql: &str,
        (from, to): (f64, f64),
        step: u64,
    ) -> Result<Value, String> {
        let query = percent_encode(promql);
        let path = format!("/api/v1/query_range?query={query}&start={from}&end={to}&step={step}");
        self.ask(&path).await
    }

    /// The values of a label that series of this selector had at some time.
    pub async fn label_values(
        &self,
        selector: &str,
        label: &str,
        (from, to): (f64, f64),
    ) -> Result<Vec<String>, String> {
        let selector = percent_encode(selector);
        let path = format!("/api/v1/label/{label}/values?match[]={selector}&start={from}&end={to}");
        let values = self.ask(&path).await?;
        Ok(serde_json::from_value(values).expect("values are text"))
    }

    /// The labels that series of this selector had at some time; none where there were none.
    pub async fn labels(&self, selector: &str, (from, to): (f64, f64)) -> Vec<String> {
        let selector = percent_encode(selector);
        let path = format!("/api/v1/labels?match[]={selector}&start={from}&end={to}");
        let labels = self.ask(&path).await.unwrap_or_else(|fault| panic!("{selector}: {fault}"));
        serde_json::from_value(labels).expect("labels are text")
    }

    async fn ask(&self, path: &str) -> Result<Value, String> {
        let response = http::get(self.address(), path, &[]).await;
        if response.status != 200 {
            return Err(format!("status {}: {}", response.status, response.text()));
        }
        let answer: Value = serde_json::from_slice(&response.body).expect("the answer is JSON");
        Ok(answer["data"].clone())
    }

    /// An instant query's vector: labels with `__name__`, and values. A scalar has no labels.
    pub async fn query(&self, promql: &str) -> Vec<(BTreeMap<String, String>, f64)> {
        let path = format!("/api/v1/query?query={}", percent_encode(promql));
        let response = http::get(self.address(), &path, &[]).await;
        assert_eq!(response.status, 200, "{promql}: {}", response.text());
        let answer: Value = serde_json::from_slice(&response.body).expect("the answer is JSON");
        let result = &answer["data"]["result"];
        match answer["data"]["resultType"].as_str() {
            Some("scalar") => vec![(BTreeMap::new(), parse_value(result))],
            Some("vector") => result
                .as_array()
                .into_iter()
                .flatten()
                .map(|series| {
                    let labels = serde_json::from_value(series["metric"].clone());
                    (labels.expect("labels are text"), parse_value(&series["value"]))
                })
                .collect(),
            _ => panic!("{promql}: neither a vector nor a scalar: {answer}"),
        }
    }
}

fn write_rules(rules: &[&str], home: &Path) -> Vec<String> {
    let write = |(number, rules): (usize, &&str)| {
        let name = format!("rules-{number}.yml");
        fs::write(home.join(&name), rules).expect("the folder is ours");
        name
    };
    rules.iter().enumerate().map(write).collect()
}

/// A value is `[time, "text"]`.
fn parse_value(pair: &Value) -> f64 {
    parse_number(&pair[1])
}

fn parse_number(text: &Value) -> f64 {
    let text = text.as_str().expect("a value is text");
    text.parse().unwrap_or_else(|error| panic!("{text} is no value: {error}"))
}

fn percent_encode(text: &str) -> String {
    text.bytes()
        .map(|byte| match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                char::from(byte).to_string()
            }
            _ => format!("%{byte:02X}"),
        })
        .collect()
}

/// Runs `promtool` with this input; the exit code is the caller's to judge.
pub fn promtool(arguments: &[&str], input: &str) -> Output {
    run(Command::new(Tool::Promtool.path()).args(arguments), input)
}

/// Runs `amtool`; the exit code is the caller's to judge.
pub fn amtool(arguments: &[&str]) -> Output {
    run(Command::new(Tool::Amtool.path()).args(arguments), "")
}

fn run(command: &mut Command, input: &str) -> Output {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("cannot start {command:?}: {error}"));
    let mut stdin = child.stdin.take().expect("standard input is a pipe");
    // Written beside the reading, so that neither side fills a pipe that nobody empties.
    let input = input.to_owned();
    let writer = std::thread::spawn(move || stdin.write_all(input.as_bytes()));
    let output = child.wait_with_output().expect("a checker ends");
    // A checker that refuses early closes the pipe; its exit code tells.
    let _ = writer.join();
    output
}

/// Panics unless `promtool check metrics` accepts a scrape without a word.
pub fn assert_metrics_pass(scrape: &str) {
    let output = promtool(&["check", "metrics"], scrape);
    let said = String::from_utf8_lossy(&output.stderr).into_owned()
        + &String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.trim().is_empty(), "promtool says:\n{said}");
}

/// Parses OpenMetrics from standard input and prints the number of samples.
const COUNT_SAMPLES: &str = "
import sys
from prometheus_client.openmetrics.parser import text_string_to_metric_families
print(sum(len(family.samples) for family in text_string_to_metric_families(sys.stdin.read())))
";

/// Debian's Python, if it has the parser. Another Python in `PATH` would not see its packages.
pub fn find_openmetrics_parser() -> Option<PathBuf> {
    let python = PathBuf::from("/usr/bin/python3");
    let output = python.is_file().then(|| run(&mut openmetrics_parser(&python), "# EOF\n"))?;
    output.status.success().then_some(python)
}

/// Panics unless the reference parser accepts a scrape; returns the number of samples it found.
pub fn parse_openmetrics(scrape: &str) -> usize {
    let output = run(&mut openmetrics_parser(&Tool::OpenMetricsParser.path()), scrape);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "the parser says:\n{said}");
    let count = String::from_utf8_lossy(&output.stdout);
    count.trim().parse().unwrap_or_else(|error| panic!("{count} is no number: {error}"))
}

fn openmetrics_parser(python: &Path) -> Command {
    let mut command = Command::new(python);
    command.args(["-X", "utf8", "-c", COUNT_SAMPLES]);
    command
}
