//! `locks top`: the on-call view. Pictures and keys come in, screens and questions go out.

pub mod merge;
pub mod row;
pub mod source;
