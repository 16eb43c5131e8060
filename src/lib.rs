//! `locks` makes PostgreSQL advisory locks visible.

pub mod duration;
pub mod key;
pub mod metrics;
pub mod mode;
pub mod server;
pub mod timestamp;
