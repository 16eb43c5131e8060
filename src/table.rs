//! Pictures → lines: what people see of servers, row by row, in a terminal, in a pipe or on a page.
//!
//! Pure, and below every way of looking, so that all of them put the worst first, fold the same keys,
//! say "≥" before the same ages and hang the same waiter below the same holder. It takes servers as the
//! snapshot has them, knows no clock, and draws nothing: rows and cells are text and tone.

pub mod column;
pub mod filter;
pub mod list;
pub mod row;
pub mod tell;
#[cfg(test)]
pub(crate) mod testing;
pub mod tree;
