//! The `locks` binary: parse, start logging, run, print the error chain, exit.
//!
//! The only file that exits. 2 is the user's mistake, said before a port is bound or a server is
//! asked; 1 is a failure at run time.

use std::collections::BTreeMap;
use std::io::{IsTerminal as _, Write as _};
use std::net::{SocketAddr, ToSocketAddrs};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context as _;
use pg_locks_exporter::cli::registry::{CheckArgs, ListArgs, RegistryCommand, SuggestArgs};
use pg_locks_exporter::cli::{self, Command, ExplainArgs, ListenAddress, ServeArgs};
use pg_locks_exporter::client::Exporter;
use pg_locks_exporter::config::{Config, Targets};
use pg_locks_exporter::registry::{Explainer, MAX_KEYS, Registry};
use pg_locks_exporter::registry_command::suggest::Sightings;
use pg_locks_exporter::registry_command::{check, list};
use pg_locks_exporter::reload::RegistryFiles;
use pg_locks_exporter::state::StateFile;
use pg_locks_exporter::survey::Survey;
use pg_locks_exporter::{explain, logging, serve, server};
use tokio::signal::unix::{SignalKind, signal};

const FAILURE: u8 = 1;
const USAGE: u8 = 2;

fn main() -> ExitCode {
    let cli = match cli::parse(std::env::args_os()) {
        Ok(cli) => cli,
        Err(error) => error.exit(),
    };
    let outcome = match cli.command {
        Command::Serve(args) => run_serve(&args).map(|()| ExitCode::SUCCESS),
        Command::Explain(args) => run_explain(&args),
        Command::Registry(args) => match args.command {
            RegistryCommand::Check(args) => run_registry_check(&args),
            RegistryCommand::List(args) => run_registry_list(&args),
            RegistryCommand::Suggest(args) => run_registry_suggest(&args),
        },
    };
    match outcome {
        Ok(code) => code,
        Err(Failure { code, error }) => {
            // Nobody may be listening, and that is no reason for another exit code.
            let _ = writeln!(std::io::stderr(), "locks: {error:#}");
            ExitCode::from(code)
        }
    }
}

struct Failure {
    code: u8,
    error: anyhow::Error,
}

fn usage(error: impl Into<anyhow::Error>) -> Failure {
    Failure { code: USAGE, error: error.into() }
}

fn failure(error: impl Into<anyhow::Error>) -> Failure {
    Failure { code: FAILURE, error: error.into() }
}

fn run_serve(args: &ServeArgs) -> Result<(), Failure> {
    logging::init(args.log.level, args.log.format).map_err(failure)?;
    let config = Config::load(args).map_err(usage)?;
    let registry_files = RegistryFiles::load(config.registry_files.clone(), config.limits.values);
    let registry_files = registry_files.map_err(usage)?;
    let state_file = config.state_file.clone().map(StateFile::load).transpose().map_err(usage)?;
    for warning in &config.warnings {
        tracing::warn!("{warning}");
    }
    let addresses = resolve_addresses(&config.web.listen_addresses).map_err(usage)?;
    // One thread: polls wait for servers, and the messages of a poll leave in one write because
    // nobody runs between them.
    // Two more render answers, so that a large one does not hold up a poll; another reads files, and
    // one writes the state file: they may hang with the file systems these are on.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(4)
        .build()
        .map_err(failure)?;
    runtime.block_on(async {
        let listeners = server::bind(&addresses).map_err(usage)?;
        let mut terminate = signal(SignalKind::terminate()).map_err(failure)?;
        let mut interrupt = signal(SignalKind::interrupt()).map_err(failure)?;
        let shutdown = async move {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
            tracing::info!("stopping");
        };
        let hangup = signal(SignalKind::hangup()).map_err(failure)?;
        serve::serve(config, registry_files, state_file, hangup, listeners, shutdown).await;
        Ok(())
    })?;
    runtime.shutdown_background();
    Ok(())
}

fn run_explain(args: &ExplainArgs) -> Result<ExitCode, Failure> {
    let registry = Registry::load(&args.registry.files, MAX_KEYS).map_err(usage)?;
    let explainer = Explainer::new(Arc::new(registry), args.database.as_deref());
    let mut input = std::io::stdin().lock();
    if args.what.is_empty() && input.is_terminal() {
        let _ = writeln!(std::io::stderr(), "locks: paste log text, then press Ctrl-D");
    }
    match explain::explain(args, &explainer, &mut input, &mut std::io::stdout().lock()) {
        Err(error) if !error.is_broken_pipe() => Err(failure(error)),
        Ok(()) | Err(_) => Ok(ExitCode::SUCCESS),
    }
}

fn run_registry_check(args: &CheckArgs) -> Result<ExitCode, Failure> {
    let (sources, unreadable) = check::fetch_sources(&args.files, std::io::stdin().lock());
    let report = check::Report::new(sources, unreadable);
    let _ = std::io::stderr().write_all(report.render_warnings().as_bytes());
    if report.is_clean() {
        return print(&report.render_summary());
    }
    let text = report.render_problems() + &report.render_summary();
    let _ = std::io::stderr().write_all(text.as_bytes());
    Ok(ExitCode::from(FAILURE))
}

fn run_registry_list(args: &ListArgs) -> Result<ExitCode, Failure> {
    let registry = Arc::new(Registry::load(&args.registry.files, MAX_KEYS).map_err(usage)?);
    let database = args.database.as_deref();
    let keys = list::in_database(registry.keys(database), database);
    print(&if args.json { list::render_json(&keys) } else { list::render_table(&keys) })
}

fn run_registry_suggest(args: &SuggestArgs) -> Result<ExitCode, Failure> {
    let exporter = args.from.as_ref().map(|url| Exporter::parse(url.expose()));
    let exporter = exporter.transpose().context("--from").map_err(usage)?;
    let connection = exporter.is_none().then_some(&args.connection);
    let targets = Targets::load(connection, &args.files).map_err(usage)?;
    let registry = Registry::load(&targets.registry_files, targets.limits.values);
    let registry = Arc::new(registry.map_err(usage)?);
    let applications = Arc::new(targets.applications);
    for warning in &targets.warnings {
        warn(warning);
    }
    let from = exporter.as_ref().map(ToString::to_string);
    let mut survey = match exporter {
        Some(exporter) => Survey::Exporter(exporter),
        None => Survey::of_servers(
            targets.servers,
            targets.poll.timeout,
            &registry,
            &applications,
            &targets.limits,
            targets.thresholds,
        ),
    };
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failure)?;
    let mut sightings = Sightings::new(registry);
    let mut down: BTreeMap<Arc<str>, String> = BTreeMap::new();
    let looked = runtime.block_on(async {
        let mut interrupt = signal(SignalKind::interrupt())?;
        let looking = survey.look(args.samples, args.interval, |snapshot| {
            for server in snapshot.servers.iter().filter(|server| !server.up) {
                let reason = server.error.clone().unwrap_or_else(|| "it is down".to_owned());
                down.insert(server.server.clone(), reason);
            }
            sightings.observe(&snapshot, &applications);
        });
        tokio::select! {
            outcome = looking => outcome.with_context(|| from.unwrap_or_default()),
            // What was seen so far is worth printing.
            _ = interrupt.recv() => Ok(()),
        }
    });
    if let Err(error) = looked {
        if sightings.is_blind() {
            return Err(failure(error));
        }
        warn(format_args!("{error:#}"));
    }
    for (server, reason) in &down {
        warn(format_args!("{server}: {reason}"));
    }
    if sightings.is_blind() {
        if down.is_empty() {
            warn("no server was looked at");
        }
        return Ok(ExitCode::from(FAILURE));
    }
    print(&sightings.render())
}

/// To standard error, beside output that goes on.
fn warn(warning: impl std::fmt::Display) {
    let _ = writeln!(std::io::stderr(), "locks: {warning}");
}

/// To standard output. A reader that has seen enough, as `head` has, is no failure.
fn print(text: &str) -> Result<ExitCode, Failure> {
    let mut stdout = std::io::stdout();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(failure(error)),
        Ok(()) | Err(_) => Ok(ExitCode::SUCCESS),
    }
}

/// A host name may stand for several addresses; all of them are listened on.
fn resolve_addresses(listen: &[ListenAddress]) -> anyhow::Result<Vec<SocketAddr>> {
    let mut addresses = Vec::new();
    for address in listen {
        match &address.host {
            // Dual-stack, as the Go exporters listen.
            None => addresses.push(SocketAddr::from(([0_u16; 8], address.port))),
            Some(host) => {
                let resolved = (host.as_str(), address.port)
                    .to_socket_addrs()
                    .with_context(|| format!("--web.listen-address: cannot resolve {host}"))?;
                addresses.extend(resolved);
            }
        }
    }
    Ok(addresses)
}
