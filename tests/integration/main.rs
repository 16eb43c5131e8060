//! What crosses a boundary: a real PostgreSQL, a real PgBouncer, a real Prometheus and Alertmanager,
//! and the built binary. One crate for all of it, because linking once is most of what a test run
//! costs.

mod support;

mod accounting;
mod action;
mod alert;
mod blocking;
mod busy;
mod chain;
mod check;
mod demo;
mod event;
mod explain;
mod fault;
mod fleet;
mod hash;
mod hold;
mod holder;
mod inspect;
mod leader;
mod load;
mod lock;
mod naming;
mod order;
mod packaging;
mod page;
mod pooled;
mod prepared;
mod preset;
mod registry;
mod reload;
mod rule;
mod scrape;
mod search_path;
mod source;
mod standby;
mod state;
mod testbed;
mod timeout;
mod tls;
mod top;
mod usage;
mod waiter;
mod watch;
mod wire;
