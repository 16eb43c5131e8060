//! `locks` makes PostgreSQL advisory locks visible: who holds which key, by name, since when, and
//! who waits. This page is the architecture document.
//!
//! # One line
//!
//! `fetch (I/O) → Sample → track, name, draw, judge (pure) → View → { metrics | JSON | page | top } (pure) → serve or draw (I/O)`
//!
//! I/O at both ends and nowhere between. [`sample::Sample`] is what one poll saw, [`view::View`]
//! what is published; they are the walls. Everything between them is ordinary functions on data,
//! so it is tested with samples written by hand and a clock of the test's own. Every way of looking
//! reads the same `View`, so no two of them can disagree.
//!
//! # The map, in the order data flows
//!
//! | module | what it owns | I/O |
//! | --- | --- | --- |
//! | `main` | parse, log, run, print the error chain, exit; nothing else exits | edge |
//! | [`cli`], [`config`], [`logging`] | flags as typed; a `Config` that only validation can make; log lines | reads files |
//! | [`postgres`] | connection strings as libpq reads them, the connect with its TLS, the poll's SQL, rows → `Sample` | yes |
//! | [`sample`], [`key`], [`mode`], [`timestamp`], [`duration`] | plain values: what was seen | |
//! | [`map`] | maps by a quick hash, for what there is very much of | |
//! | [`printable`] | texts of others on a terminal | |
//! | [`privilege`] | what our role may do, and the SQL that grants what it should | |
//! | [`registry`] | names for keys: the YAML language and its functions, presets, who names a key | reads files |
//! | [`tracker`] | samples → holds and waits: seen first, still here, gone; scope and age as far as evidence goes | |
//! | [`blocking`] | who waits for whom, through locks of any type; the roots at which chains end | |
//! | [`series`], [`slot`] | which labels exist, bounded for the life of the process, and the counters behind them | |
//! | [`view`] | the published picture | |
//! | [`order`] | in which order sessions take their keys; pairs of keys taken in both orders | |
//! | [`finding`] | one rule for each finding: when, about whom, the sentence, the remedy | |
//! | [`snapshot`] | the JSON snapshot as values: drawn from views, written and read | |
//! | [`table`] | snapshots → lines for people: rows, columns, folds, filters, the tree of who waits for whom | |
//! | [`event`] | what happened between polls, in a bounded history, and its JSON | |
//! | [`fold`] | one server: those above in their order | |
//! | [`memory`] | what of one server outlasts a restart, as plain values | |
//! | [`state`] | the state file: memories read at the start, written now and then | yes |
//! | [`reload`] | the registry's files and the configuration's: watched, read again on SIGHUP or when they changed | yes |
//! | [`inspected`] | what the registry wants to know of databases, and what they answered | |
//! | [`inspector`] | asks it: when, and what to keep when no answer comes | yes |
//! | [`poller`], [`backoff`] | tick, fetch, fold, publish on a watch channel, back off | yes |
//! | [`servers`] | a poller and an inspector for each server, and what becomes of them when the configuration changes | yes |
//! | [`metrics`] | every metric's name, type and HELP once; `View` → families → text | |
//! | [`page`] | the status page: snapshot → HTML, small however many locks there are | |
//! | [`server`] | HTTP: routes, negotiation, limits; TLS and users by the web configuration | yes |
//! | [`systemd`] | tells systemd that we are ready, alive, stopping | yes |
//! | [`serve`] | the command that puts these together | edge |
//! | [`explain`] | the command that says what a key is and names the locks in a log, without a server | copies a log |
//! | [`client`] | asks a running exporter for its snapshot | yes |
//! | [`survey`] | a few looks, through an exporter or over connections of our own | yes |
//! | [`check`] | the command that says now what is wrong, as a monitoring plugin does | |
//! | [`top`] | the terminal view: `source` and `terminal` are its edges, all else is pure: `merge` (our picture and an exporter's memory), `detail` (everything about a row), `app` and `input` (what keys do), `screen`, `once` (state → text) | yes |
//! | [`registry_command`] | `locks registry check`, `list` and `suggest` | reads files |
//!
//! # Invariants
//!
//! - `tokio_postgres` is used only under [`postgres`], `hyper` only under [`server`] and in
//!   [`client`], `rustls` only in these two and in [`postgres`], `prometheus` only in [`metrics`]; escape codes are
//!   written only by [`top`].
//! - Nothing is done to a session but by [`postgres::action`], which compares the start of the backend
//!   in the statement that acts.
//! - Everything between `Sample` and the renderers reads no clock, file, environment or socket.
//! - The exporter writes nothing to the database and takes no advisory lock. It calls the server's own
//!   functions and operators alone, wherever the search path of its role leads; only a query of the
//!   registry follows that path.
//! - The poll reads no catalog and no view over one: one call of `pg_lock_status()` first, then
//!   `pg_stat_get_activity(NULL)`; they answer from warm caches while the views hang on somebody's
//!   lock. Names of databases and roles are read separately and may be missing. One write and one
//!   round trip a poll.
//! - One lasting connection for each server, and at most one short one, to databases that the
//!   operator lists under `inspect`. What is asked there can only read, and delays no poll.
//! - No row is lost: no pid, database 0, an unknown class, an unknown mode, a pid without activity.
//!   Rows read = rows accounted for.
//! - Readers never wait for the poller; they take the last `View`. A failed poll shows `up 0` and
//!   no gauge about locks, never a frozen one. If a poller ends, the process ends.
//! - A hold belongs to a server, database, key, mode, pid and `backend_start`, a prepared one to its
//!   gid; never to an application name.
//! - A name or HELP text claims no more than a sample saw. Unknown is unknown, never 0 and never
//!   "idle".
//! - Label values come from the registry and from bounded sets, never from query text or pids. They
//!   are bounded over the life of the process, not per scrape.
//! - A secret appears in no log line, metric, page, error or panic, nor in the state file.
//!
//! # Words
//!
//! One word for one idea, in code, labels, metrics and prose: *key*, *lock* (a named key), *mode*,
//! *scope*, *hold*, *wait*, *holder*, *waiter*, *root*, *finding*, *event*, *sample*, *view*, *poll*.
//! Verbs by kind: `fetch_`, `connect`, `serve` do I/O; `decode_` makes values of columns, `parse_` of
//! text; `observe` changes state; `render_` makes text.

pub mod cli;
pub mod config;
pub mod logging;

pub mod postgres;

pub mod duration;
pub mod key;
pub mod map;
pub mod mode;
pub mod printable;
pub mod privilege;
pub mod sample;
pub mod timestamp;

pub mod inspected;
pub mod registry;
pub mod tracker;

pub mod blocking;

pub mod series;
pub mod slot;

pub mod finding;
pub mod order;
pub mod view;

pub mod snapshot;
pub mod table;

pub mod event;

pub mod fold;
pub mod memory;

pub mod reload;
pub mod state;

pub mod backoff;
pub mod inspector;
pub mod poller;

pub mod metrics;
pub mod page;
pub mod server;
pub mod servers;
pub mod systemd;

pub mod serve;

pub mod client;
pub mod explain;

pub mod survey;

pub mod check;
pub mod registry_command;

pub mod top;
