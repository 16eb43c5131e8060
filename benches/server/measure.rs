//! Times and what is made of them.

use std::fs;
use std::time::{Duration, Instant};

/// What one thing costs, once for each time it was done.
#[derive(Default)]
pub struct Cost {
    wall: Vec<f64>,
    server: Vec<f64>,
    client: Vec<f64>,
}

/// The middle of each, in milliseconds.
#[derive(Clone, Copy)]
pub struct Middle {
    /// From the request to the picture.
    pub wall: f64,
    /// Of the processor, by the server's process.
    pub server: f64,
    /// Of the processor, by ours.
    pub client: f64,
}

impl Cost {
    /// Does it once. `server` is the process that serves it.
    pub async fn add(&mut self, server: u32, work: impl AsyncFnOnce()) {
        let of_server = processor_time(server);
        let of_client = processor_time(std::process::id());
        let began = Instant::now();
        work().await;
        self.wall.push(milliseconds(began.elapsed()));
        self.client.push(milliseconds(processor_time(std::process::id()) - of_client));
        self.server.push(milliseconds(processor_time(server) - of_server));
    }

    pub fn middle(&self) -> Middle {
        Middle {
            wall: median(&self.wall),
            server: median(&self.server),
            client: median(&self.client),
        }
    }
}

/// What a process with all its threads has had of the processor, in steps of a hundredth of a second.
pub fn processor_time_of_all(process: u32) -> Duration {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    let Some((_, rest)) = stat.rsplit_once(") ") else { return Duration::ZERO };
    let fields: Vec<&str> = rest.split(' ').collect();
    let ticks = |index: usize| fields.get(index).and_then(|field| field.parse::<u64>().ok());
    Duration::from_millis(10 * (ticks(11).unwrap_or_default() + ticks(12).unwrap_or_default()))
}

/// What a process keeps in memory, in megabytes.
pub fn resident(process: u32) -> f64 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes = line.and_then(|line| line.split_whitespace().next()?.parse::<f64>().ok());
    kilobytes.unwrap_or(f64::NAN) / 1024.0
}

/// Whether a figure is what was aimed at.
pub fn verdict(value: f64, target: f64) -> &'static str {
    if value <= target { "met" } else { "missed" }
}

/// What a process of one thread has had of the processor.
pub fn processor_time(process: u32) -> Duration {
    let status = fs::read_to_string(format!("/proc/{process}/schedstat")).unwrap_or_default();
    let nanoseconds = status.split(' ').next().and_then(|word| word.parse().ok());
    Duration::from_nanos(nanoseconds.unwrap_or_default())
}

pub fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

pub fn median(values: &[f64]) -> f64 {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}
