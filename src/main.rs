//! The `locks` binary: parse, start logging, run, print the error chain, exit.
//!
//! The only file that exits. 2 is the user's mistake, said before a port is bound or a server is
//! asked; 1 is a failure at run time.

use std::io::{IsTerminal as _, Write as _};
use std::net::{SocketAddr, ToSocketAddrs};
use std::process::ExitCode;
use std::sync::Arc;

use pg_locks_exporter::cli::{self, Command, ExplainArgs, ListenAddress, ServeArgs};
use pg_locks_exporter::config::Config;
use pg_locks_exporter::registry::{Explainer, MAX_KEYS, Registry};
use pg_locks_exporter::reload::RegistryFiles;
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
        Command::Serve(args) => run_serve(&args),
        Command::Explain(args) => run_explain(&args),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
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
    for warning in &config.warnings {
        tracing::warn!("{warning}");
    }
    let addresses = resolve_addresses(&config.web.listen_addresses).map_err(usage)?;
    // One thread: polls wait for servers, and the messages of a poll leave in one write because
    // nobody runs between them.
    // Two more render answers, so that a large one does not hold up a poll; another reads files,
    // which may hang with the file system they are on.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(3)
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
        serve::serve(config, registry_files, hangup, listeners, shutdown).await;
        Ok(())
    })?;
    runtime.shutdown_background();
    Ok(())
}

fn run_explain(args: &ExplainArgs) -> Result<(), Failure> {
    let registry = Registry::load(&args.registry_files, MAX_KEYS).map_err(usage)?;
    let explainer = Explainer::new(Arc::new(registry), args.database.as_deref());
    let mut input = std::io::stdin().lock();
    if args.what.is_empty() && input.is_terminal() {
        let _ = writeln!(std::io::stderr(), "locks: paste log text, then press Ctrl-D");
    }
    match explain::explain(args, &explainer, &mut input, &mut std::io::stdout().lock()) {
        Err(error) if error.is_broken_pipe() => Ok(()),
        outcome => outcome.map_err(failure),
    }
}

/// A host name may stand for several addresses; all of them are listened on.
fn resolve_addresses(listen: &[ListenAddress]) -> anyhow::Result<Vec<SocketAddr>> {
    use anyhow::Context as _;
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
