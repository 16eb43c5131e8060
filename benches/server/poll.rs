//! One poll, from the request to the picture, beside the least that reads the lock table and beside
//! what people write who have no such tool: `pg_locks` joined with `pg_stat_activity`.

use std::sync::Arc;
use std::time::Duration;

use futures_util::TryStreamExt as _;
use pg_locks_exporter::config::{Limits, Thresholds};
use pg_locks_exporter::fold::Fold;
use pg_locks_exporter::postgres::{Connection, Dsn};
use pg_locks_exporter::registry::Registry;
use pg_locks_exporter::view::View;
use rand::seq::SliceRandom as _;

use crate::load::{self, Load, SESSIONS};
use crate::measure::{Cost, Middle};
use crate::support::network::Network;
use crate::support::{Postgres, Session};

const FLOOR: &str = "SELECT count(*) FROM pg_lock_status()";

const JOIN: &str = "SELECT l.database, l.classid, l.objid, l.objsubid, l.mode, l.granted, l.waitstart, l.pid, \
    a.application_name, a.usename, a.state, a.state_change, a.backend_start \
    FROM pg_locks l LEFT JOIN pg_stat_activity a ON a.pid = l.pid WHERE l.locktype = 'advisory'";

pub async fn run() {
    let small = Postgres::builder().start().await;
    println!(
        "poll, PostgreSQL {}, {SESSIONS} sessions; medians in ms, ratios of wall\n\
         {:<11} {:<22} {:<5} {:>9} {:>7} {:>9} {:>9} {:>10}  target",
        small.major_version(),
        "server",
        "locks",
        "form",
        "wall",
        "ratio",
        "server",
        "client",
        "bytes"
    );
    for (locks, target) in [(0, 3.0), (100, 3.0), (1_000, f64::NAN)] {
        case(&small, "default", Load::Advisory(locks), target).await;
    }
    let large = load::large_server().await;
    let target = if large.major_version() >= 18 { 2.0 } else { 1.8 };
    for (locks, target) in
        [(0, 1.8), (100, 1.8), (1_000, f64::NAN), (10_000, f64::NAN), (100_000, target)]
    {
        case(&large, "for 300,000", Load::Advisory(locks), target).await;
    }
    case(&large, "for 300,000", Load::Relations, 1.2).await;
}

async fn case(postgres: &Postgres, size: &str, load: Load, target: f64) {
    let _sessions = load.make(postgres).await;
    let mut bench = Bench::connect(&postgres.dsn("app")).await;
    // Once unmeasured: caches of the server's processes.
    for form in FORMS {
        bench.run(form).await;
    }
    let mut costs = FORMS.map(|form| (form, Cost::default()));
    let rounds = match load {
        Load::Advisory(..=1_000) => 101,
        Load::Advisory(..=10_000) => 41,
        Load::Advisory(_) | Load::Relations => 21,
    };
    for _ in 0..rounds {
        costs.shuffle(&mut rand::rng());
        for (form, cost) in &mut costs {
            let server = bench.server(*form);
            cost.add(server, async || bench.run(*form).await).await;
        }
    }
    costs.sort_by_key(|(form, _)| *form);
    let bytes = count_bytes(postgres).await;
    let floor = costs[0].1.middle();
    let what = match load {
        Load::Advisory(count) => format!("{count} advisory"),
        Load::Relations => "10 + 100,000 relations".to_owned(),
    };
    for ((form, cost), bytes) in costs.iter().zip(bytes) {
        let Middle { wall, server, client } = cost.middle();
        let ratio = wall / floor.wall;
        let verdict = match form {
            Form::Poll if target.is_nan() => String::new(),
            Form::Poll if ratio <= target => format!("{target:.1} met"),
            Form::Poll => format!("{target:.1} missed"),
            Form::Floor | Form::Join => String::new(),
        };
        println!(
            "{size:<11} {what:<22} {:<5} {wall:>9.3} {ratio:>7.2} {server:>9.3} {client:>9.3} {bytes:>10}  {verdict}",
            form.name(),
        );
    }
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Form {
    Floor,
    Poll,
    Join,
}

const FORMS: [Form; 3] = [Form::Floor, Form::Poll, Form::Join];

impl Form {
    fn name(self) -> &'static str {
        match self {
            Self::Floor => "floor",
            Self::Poll => "poll",
            Self::Join => "join",
        }
    }
}

/// A connection for each form, so that none warms the caches of another.
struct Bench {
    floor: Session,
    join: Session,
    poll: (Connection, Fold, View),
    own_pid: u32,
}

impl Bench {
    async fn connect(dsn: &str) -> Self {
        let parsed = Dsn::parse(dsn, &|_| None).expect("it is ours");
        let mut connection = Connection::connect(&parsed).await.expect("the server is there");
        let limits = Limits {
            keys: 100,
            applications: 100,
            databases: 500,
            registered_keys: 10_000,
            values: 1_000_000,
        };
        let server: Arc<str> = "bench".into();
        let registry = Arc::new(Registry::empty());
        let mut fold =
            Fold::new(server.clone(), registry, Arc::default(), &limits, Thresholds::default());
        fold.observe_names(connection.fetch_names().await.expect("names can be read"));
        let sample = connection.fetch_sample(PATIENCE).await.expect("it can be polled");
        let own_pid = sample.own_pid.0.cast_unsigned();
        let view = View { server, ..View::default() };
        Self {
            floor: Session::connect(dsn, "floor").await,
            join: Session::connect(dsn, "join").await,
            poll: (connection, fold, view),
            own_pid,
        }
    }

    /// The process that serves this form.
    fn server(&self, form: Form) -> u32 {
        match form {
            Form::Floor => self.floor.pid().cast_unsigned(),
            Form::Poll => self.own_pid,
            Form::Join => self.join.pid().cast_unsigned(),
        }
    }

    async fn run(&mut self, form: Form) {
        match form {
            Form::Floor => query(&self.floor, FLOOR).await,
            Form::Join => query(&self.join, JOIN).await,
            Form::Poll => {
                let (connection, fold, view) = &mut self.poll;
                let sample = connection.fetch_sample(PATIENCE).await.expect("it can be polled");
                view.picture = Some(fold.observe(&sample, Duration::from_secs(2)));
                fold.fill(view);
            }
        }
    }
}

const PATIENCE: Duration = Duration::from_secs(60);

/// To the last row, in binary, as our own poll reads.
async fn query(session: &Session, sql: &str) {
    let parameters: [(i32, tokio_postgres::types::Type); 0] = [];
    let rows = session.client().query_typed_raw(sql, parameters).await.expect("it can be asked");
    let rows: Vec<tokio_postgres::Row> = rows.try_collect().await.expect("it answers");
    assert!(!rows.is_empty() || sql == JOIN);
}

/// What the server sends for each form, once.
async fn count_bytes(postgres: &Postgres) -> [u64; 3] {
    let network = Network::start(postgres).await;
    let mut bench = Bench::connect(&network.dsn("app")).await;
    let mut counts = [0; 3];
    for (form, count) in FORMS.into_iter().zip(&mut counts) {
        bench.run(form).await;
        let before = network.answered();
        bench.run(form).await;
        *count = network.answered() - before;
    }
    counts
}
