//! What watching costs, on throwaway servers: the poll beside the least that reads the lock table, the
//! scrape beside that of another exporter, the workload with and without us, many servers, the start.
//!
//! `scripts/bench` runs all of it and prints one table a chapter; `scripts/bench --bench server -- poll`
//! runs a chapter alone. Everything is a ratio of medians within one run, taken in random order, since
//! machines are noisy. `LOCKS_TEST_POSTGRES_BIN` names the folder of another version.

#![expect(clippy::print_stdout, reason = "the numbers are for the terminal")]
#![expect(clippy::disallowed_methods, reason = "a benchmark measures time")]

mod life;
mod load;
mod measure;
mod poll;
mod scrape;
#[allow(unused_imports, unused_macros, reason = "the test bed is made for tests")]
#[path = "../../tests/integration/support/mod.rs"]
mod support;
mod workload;

use std::process::ExitCode;

use support::{Tool, is_installed};

fn main() -> ExitCode {
    let asked: Vec<String> =
        std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).collect();
    if !is_installed(Tool::Postgres) {
        return ExitCode::FAILURE;
    }
    // As the exporter itself runs.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.expect("a runtime can be built");
    let is_asked = |chapter: &str| asked.is_empty() || asked.iter().any(|name| name == chapter);
    runtime.block_on(async {
        if is_asked("poll") {
            poll::run().await;
        }
        if is_asked("scrape") {
            scrape::run().await;
        }
        if is_asked("life") {
            life::run().await;
        }
        if is_asked("workload") {
            workload::run().await;
        }
    });
    ExitCode::SUCCESS
}
