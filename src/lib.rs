//! `locks` makes PostgreSQL advisory locks visible.

pub mod duration;
pub mod key;
pub mod mode;
pub mod registry;
pub mod timestamp;
