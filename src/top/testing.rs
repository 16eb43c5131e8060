//! What tests of the terminal view have in common: pictures of values written by hand, or of the
//! files beside the golden screens.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::app::Options;
use super::source::{Alone, Origin, Watched};
use crate::snapshot::{Server, parse_snapshot};
use crate::table::column::{Sort, ViewKind};
use crate::table::filter::Filter;
use crate::timestamp::Timestamp;

/// The servers of a file beside the golden screens.
pub fn servers(name: &str) -> Vec<Server> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/golden/top/{name}.json"));
    let json = std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    parse_snapshot(&json).unwrap().servers
}

/// A server that is watched over our own connection, as it was when clocks began.
pub fn watched(server: Server) -> Watched {
    Watched {
        server: Arc::new(server),
        origin: Origin::Own(Alone::NotWanted),
        received_at: Timestamp::from_unix_micros(0),
        lost: None,
        interval: Duration::from_secs(1),
    }
}

/// A view with everything that may be seen and done.
pub fn options(kind: ViewKind) -> Options {
    Options {
        kind,
        sort: Sort::default(),
        filter: Filter::default(),
        interval: Duration::from_secs(1),
        may_act: true,
        shows_queries: false,
        is_colored: true,
        is_ascii: false,
    }
}
