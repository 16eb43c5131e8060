//! How fast logs pass `locks explain`, and in how much memory: a gigabyte of log for each share of
//! lines that name advisory locks, generated while it is read.
//!
//! `scripts/bench`. The target is 200 MB/s on one core; memory must not depend on the length.

#![expect(clippy::print_stdout, reason = "the numbers are for the terminal")]

use std::io::{self, Read};
use std::time::Instant;

use pg_locks_exporter::explain::log::copy_log;

const TOTAL: u64 = 1 << 30;
/// As servers log it: deadlocks, waits with their details, several formats.
const LOCKS: &str = include_str!("../tests/golden/explain/log/stderr.log");
const ORDINARY: &str = "2026-11-30 19:08:49.380 UTC [8560] app@app LOG:  duration: 12.345 ms  \
    statement: SELECT id, state FROM orders WHERE customer = 4711 ORDER BY id LIMIT 100\n";

fn main() {
    for ordinary_lines in [10_000, 100, 0] {
        let text = format!("{}{LOCKS}", ORDINARY.repeat(ordinary_lines));
        let (seconds, mentions) = measure(text.as_bytes());
        #[expect(clippy::cast_precision_loss, reason = "a rate of three digits")]
        let rate = TOTAL as f64 / 1e6 / seconds;
        println!(
            "{ordinary_lines:>6} ordinary lines between reports: {rate:>6.0} MB/s, \
             {mentions:>8} locks named, {} at most",
            peak_memory()
        );
    }
}

#[expect(clippy::disallowed_methods, reason = "a benchmark reads the clock")]
fn measure(text: &[u8]) -> (f64, u64) {
    let began = Instant::now();
    let log = Repeated { text, position: 0 }.take(TOTAL);
    let summary = copy_log(log, io::sink(), |_, key| format!("bigint {key}: some-name"));
    let summary = summary.expect("neither generating nor forgetting fails");
    (began.elapsed().as_secs_f64(), summary.mentions)
}

/// A text again and again.
struct Repeated<'a> {
    text: &'a [u8],
    position: usize,
}

impl Read for Repeated<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = (&self.text[self.position..]).read(buffer)?;
        self.position = (self.position + count) % self.text.len();
        Ok(count)
    }
}

/// What the kernel says of this process.
fn peak_memory() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    peak.map_or("unknown".to_owned(), |peak| peak.trim().to_owned())
}
