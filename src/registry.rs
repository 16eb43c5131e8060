//! Names for keys.

pub mod hash;
