//! `locks registry check`, `list` and `suggest`: the registry as those see it who write it.
//!
//! Each command is a file that makes values of what it was given and text of these. What a key is
//! called is [`registry`](crate::registry)'s to say; `main` prints, and asks servers through
//! [`survey`](crate::survey).

pub mod check;
pub mod list;
pub mod suggest;
