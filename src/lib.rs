//! `locks` makes PostgreSQL advisory locks visible.

pub mod backoff;
pub mod cli;
pub mod config;
pub mod duration;
pub mod key;
pub mod logging;
pub mod metrics;
pub mod mode;
pub mod postgres;
pub mod registry;
pub mod server;
pub mod timestamp;
