//! The only place that knows the PostgreSQL client.
//!
//! It turns connection strings into connections and rows into samples. What a sample means is
//! nobody's business here.

pub mod action;
mod connection;
pub mod dsn;
mod inspection;
mod privilege;
mod row;

pub use connection::{Connection, PollError};
pub use dsn::Dsn;
pub use inspection::{Inspection, InspectionError};
