//! The test bed: real servers that live for one test, real client sessions, and matchers whose
//! failures say what was there instead. It knows nothing of the product but its command line and
//! its log line; the tests beside it bring the expectations.
//!
//! A test states what it needs first, `require!(Postgres, PgBouncer)`. What is missing skips the
//! test visibly at the desk and fails it where `CI` is set, so that a skip never looks like a pass.

#![allow(dead_code, reason = "the test bed offers whole vocabularies; not every word is used yet")]

pub mod alertmanager;
pub mod authority;
pub mod browser;
pub mod clock;
pub mod exporter;
pub mod files;
pub mod fleet;
pub mod http;
pub mod network;
pub mod pgbouncer;
pub mod port;
pub mod postgres;
pub mod preview;
pub mod process;
pub mod prometheus;
pub mod relay;
pub mod scrape;
pub mod session;
pub mod snapshot;
pub mod terminal;
pub mod tls;

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::env;
use std::io::Write as _;
use std::panic::{self, AssertUnwindSafe, UnwindSafe};
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Once;
use std::task::Poll;
use std::time::Duration;

use futures_util::FutureExt as _;

#[allow(unused_imports, reason = "tests name the parts they use from here")]
pub use self::{
    alertmanager::{Alertmanager, Catcher},
    authority::Authority,
    browser::{Browser, Page, Scheme, View},
    exporter::{Exporter, locks},
    fleet::Fleet,
    pgbouncer::{PgBouncer, PoolMode},
    postgres::Postgres,
    prometheus::Prometheus,
    relay::Relay,
    scrape::Scrape,
    session::Session,
    terminal::Terminal,
};

/// How long anything may take before a test gives up on it. Generous, because it is only ever
/// waited out by a failure.
pub const DEADLINE: Duration = Duration::from_secs(20);

/// The pause between two looks at something that is not there yet.
pub const PAUSE: Duration = Duration::from_millis(25);

/// Ends the test, visibly skipped, unless every named [`Tool`] is installed.
macro_rules! require {
    ($($tool:ident),+ $(,)?) => {
        $(
            if !$crate::support::is_installed($crate::support::Tool::$tool) {
                return;
            }
        )+
    };
}
pub(crate) use require;

/// A program of others that a test runs.
#[derive(Clone, Copy, Debug)]
pub enum Tool {
    /// The server: `initdb` and `postgres`.
    Postgres,
    /// The pooler.
    PgBouncer,
    /// The monitoring server.
    Prometheus,
    /// The checker that comes with Prometheus.
    Promtool,
    /// The server that alerts are sent to.
    Alertmanager,
    /// The checker that comes with Alertmanager.
    Amtool,
    /// The terminal that keys are pressed in.
    Tmux,
    /// The reader of JSON that scripts use.
    Jq,
    /// Python's client of Prometheus, whose parser of OpenMetrics is the reference.
    OpenMetricsParser,
    /// The browser.
    Chromium,
    /// The judge of units.
    SystemdAnalyze,
    /// The library that lends a process another clock.
    Faketime,
    /// The compiler of C that Rust links with.
    Compiler,
    /// What runs the scripts in `tests/browser`, with the packages that they ask for.
    Node,
    /// What takes a running process its memory.
    Prlimit,
    /// What makes Debian packages.
    CargoDeb,
    /// What installs them, and what their scripts call.
    Dpkg,
    /// The schemas of Kubernetes, a module of Debian's own Python.
    KubernetesValidate,
}

impl Tool {
    /// Where the program is, if it is installed.
    pub fn find(self) -> Option<PathBuf> {
        match self {
            Tool::Postgres => postgres::find_binaries().map(|folder| folder.join("postgres")),
            Tool::PgBouncer => find_program("pgbouncer"),
            Tool::Prometheus => find_program("prometheus"),
            Tool::Promtool => find_program("promtool"),
            // Debian calls it by a longer name than its authors do.
            Tool::Alertmanager => {
                find_program("prometheus-alertmanager").or_else(|| find_program("alertmanager"))
            }
            Tool::Amtool => find_program("amtool"),
            Tool::Tmux => find_program("tmux"),
            Tool::Jq => find_program("jq"),
            Tool::OpenMetricsParser => prometheus::find_openmetrics_parser(),
            Tool::Chromium => {
                ["chromium", "chromium-browser", "google-chrome"].into_iter().find_map(find_program)
            }
            Tool::SystemdAnalyze => find_program("systemd-analyze"),
            Tool::Faketime => find_faketime(),
            Tool::Compiler => find_program("cc"),
            Tool::Node => browser::find_node(),
            Tool::Prlimit => find_program("prlimit"),
            Tool::CargoDeb => find_program("cargo-deb"),
            Tool::Dpkg => find_program("deb-systemd-helper")
                .and_then(|_| find_program("dpkg-shlibdeps"))
                .and_then(|_| find_program("dpkg")),
            Tool::KubernetesValidate => {
                let root = Path::new(env!("CARGO_MANIFEST_DIR"));
                let folder = root.join("target/python/kubernetes_validate");
                folder.join("kubernetes_validate").is_dir().then_some(folder)
            }
        }
    }

    /// Where the program is, for code behind a `require!`.
    pub fn path(self) -> PathBuf {
        self.find()
            .unwrap_or_else(|| panic!("{self:?} is not installed: begin the test with require!"))
    }
}

/// Whether the tool is there. If not, says so past the capture of test output, and panics in CI.
pub fn is_installed(tool: Tool) -> bool {
    if tool.find().is_some() {
        return true;
    }
    let in_ci = env::var_os("CI").is_some_and(|value| !value.is_empty());
    assert!(!in_ci, "{tool:?} is not installed, and in CI a skip must not look like a pass");
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("a test");
    // `eprintln!` is swallowed for tests that pass; the handle itself is not.
    let _ = writeln!(std::io::stderr(), "SKIPPED {test}: {tool:?} is not installed");
    false
}

/// Each architecture has a folder of its own.
fn find_faketime() -> Option<PathBuf> {
    let folders = std::fs::read_dir("/usr/lib").ok()?.filter_map(Result::ok);
    folders
        .map(|folder| folder.path().join("faketime/libfaketimeMT.so.1"))
        .find(|library| library.is_file())
}

fn find_program(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    // Debian puts servers where an ordinary user's PATH does not look.
    env::split_paths(&path)
        .chain(["/usr/sbin".into(), "/usr/local/sbin".into()])
        .map(|folder| folder.join(name))
        .find(|program| program.is_file())
}

/// Tries until the attempt ends without a panic, for [`DEADLINE`] at most, so that plain
/// assertions serve both for what is so and for what will be so. `what` finishes the sentence
/// "did not come to be: …"; the last failure follows it.
pub async fn eventually<T>(what: &str, attempt: impl AsyncFnMut() -> T) -> T {
    eventually_within(DEADLINE, what, attempt).await
}

/// [`eventually`] with a deadline of one's own.
pub async fn eventually_within<T>(
    deadline: Duration,
    what: &str,
    mut attempt: impl AsyncFnMut() -> T,
) -> T {
    let mut last_failure = None;
    let outcome = tokio::time::timeout(deadline, async {
        loop {
            match without_panic(attempt()).await {
                Ok(value) => return value,
                Err(failure) => last_failure = Some(failure),
            }
            tokio::time::sleep(PAUSE).await;
        }
    })
    .await;
    outcome.unwrap_or_else(|_| {
        let last_failure = last_failure.as_deref().unwrap_or("the first attempt never ended");
        panic!("did not come to be: {what}, within {deadline:?}; the last failure: {last_failure}")
    })
}

thread_local! {
    static IN_ATTEMPT: Cell<bool> = const { Cell::new(false) };
    static FAILURE: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Runs a future and turns its panic into text, without printing it: of hundreds of attempts only
/// the last failure is news.
async fn without_panic<T>(attempt: impl Future<Output = T>) -> Result<T, String> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let others = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            if IN_ATTEMPT.get() {
                FAILURE.set(Some(panic.to_string()));
            } else {
                others(panic);
            }
        }));
    });
    let mut attempt = pin!(catching(AssertUnwindSafe(attempt)));
    std::future::poll_fn(|context| {
        // Set for the poll alone: tasks that share the thread keep their ordinary panics. An
        // attempt may wait for something in its turn.
        let is_nested = IN_ATTEMPT.replace(true);
        let poll = attempt.as_mut().poll(context);
        IN_ATTEMPT.set(is_nested);
        match poll {
            Poll::Pending => Poll::Pending,
            Poll::Ready(Ok(value)) => Poll::Ready(Ok(value)),
            Poll::Ready(Err(_)) => Poll::Ready(Err(FAILURE.take().unwrap_or_default())),
        }
    })
    .await
}

async fn catching<T>(
    attempt: impl Future<Output = T> + UnwindSafe,
) -> Result<T, Box<dyn Any + Send>> {
    attempt.catch_unwind().await
}
