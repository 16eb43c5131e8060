//! The only place that knows the PostgreSQL client.
//!
//! It turns connection strings into connections and rows into samples. What a sample means is
//! nobody's business here.

pub mod action;
mod aside;
mod connect;
mod connection;
pub mod dsn;
mod inspection;
mod privilege;
mod row;
mod tls;

pub use connect::ConnectError;
pub use connection::{Connection, PollError};
pub use dsn::Dsn;
pub use inspection::{Inspection, InspectionError};
pub use tls::TlsError;
