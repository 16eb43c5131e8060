//! The `locks` binary.
fn main() {}
