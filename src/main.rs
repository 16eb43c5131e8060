//! The `locks` binary: parse, start logging, run, print the error chain, exit.
//!
//! The only file that exits. 2 is the user's mistake, said before a port is bound or a server is
//! asked; 1 is a failure at run time. `locks check` has the exit codes of a monitoring plugin.

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsString;
use std::io::{self, IsTerminal as _, Write as _};
use std::net::{SocketAddr, ToSocketAddrs};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use pg_locks_exporter::check::privilege::Report;
use pg_locks_exporter::check::{Status, Verdict};
use pg_locks_exporter::cli::check::CheckArgs;
use pg_locks_exporter::cli::registry::{self, ListArgs, RegistryCommand, SuggestArgs};
use pg_locks_exporter::cli::survey::{FromArgs, SurveyArgs};
use pg_locks_exporter::cli::top::TopArgs;
use pg_locks_exporter::cli::{
    self, Command, ConnectionArgs, ExplainArgs, FileArgs, ListenAddress, ServeArgs,
};
use pg_locks_exporter::client::Exporter;
use pg_locks_exporter::config::{Applications, Config, Targets};
use pg_locks_exporter::finding::FindingKind;
use pg_locks_exporter::postgres::Dsn;
use pg_locks_exporter::registry::{Circumstances, Explainer, MAX_KEYS, Registry, Resolver};
use pg_locks_exporter::registry_command::suggest::Sightings;
use pg_locks_exporter::registry_command::{check, list};
use pg_locks_exporter::reload::RegistryFiles;
use pg_locks_exporter::reload::config::{ConfigFile, Load};
use pg_locks_exporter::server::WebConfigFile;
use pg_locks_exporter::snapshot::{Snapshot, render_servers};
use pg_locks_exporter::state::StateFile;
use pg_locks_exporter::survey::Survey;
use pg_locks_exporter::table::column::{Column, Sort};
use pg_locks_exporter::table::filter::Filter;
use pg_locks_exporter::timestamp::Timestamp;
use pg_locks_exporter::top::source::{self, Source, Subject, Watched};
use pg_locks_exporter::top::{self, Ending, once};
use pg_locks_exporter::{explain, logging, serve, server, survey, systemd};
use tokio::signal::unix::{SignalKind, signal};

const FAILURE: u8 = 1;
const USAGE: u8 = 2;

fn main() -> ExitCode {
    let cli = match cli::parse(std::env::args_os()) {
        Ok(cli) => cli,
        Err(error) if error.use_stderr() && is_check(std::env::args_os()) => {
            return refuse_check(&error);
        }
        Err(error) => error.exit(),
    };
    let outcome = match cli.command {
        Command::Serve(args) => run_serve(args).map(|()| ExitCode::SUCCESS),
        Command::Check(args) => Ok(run_check(&args)),
        Command::Top(args) => run_top(&args),
        Command::Explain(args) => run_explain(&args),
        Command::Registry(args) => match args.command {
            RegistryCommand::Check(args) => run_registry_check(&args),
            RegistryCommand::List(args) => run_registry_list(&args),
            RegistryCommand::Suggest(args) => run_registry_suggest(&args),
        },
        Command::Completions(args) => print(&cli::render_completions(args.shell)),
        Command::Man => print(&cli::man::render()),
    };
    match outcome {
        Ok(code) => code,
        Err(Failure { code, error }) => {
            // Nobody may be listening, and that is no reason for another exit code.
            let _ = writeln!(io::stderr(), "locks: {error:#}");
            ExitCode::from(code)
        }
    }
}

fn is_check(mut arguments: impl Iterator<Item = OsString>) -> bool {
    arguments.nth(1).is_some_and(|command| command == "check")
}

/// A monitoring plugin says in its own form that there is a mistake in its arguments.
fn refuse_check(error: &clap::Error) -> ExitCode {
    let _ = error.print();
    let text = error.to_string();
    let reason = text.strip_prefix("error: ").unwrap_or(&text).lines().next().unwrap_or_default();
    let is_json = std::env::args_os().any(|argument| argument == "--json");
    print_verdict(&Verdict::blind(reason.to_owned()), is_json)
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

fn run_serve(args: ServeArgs) -> Result<(), Failure> {
    logging::init(args.log.level, args.log.format).map_err(failure)?;
    let path = args.files.config_file.clone();
    let load: Load = Arc::new(move || Config::load(&args));
    let (config, config_file) = match path {
        None => (load().map_err(usage)?, None),
        Some(path) => {
            let (config, file) = ConfigFile::load(path, load).map_err(usage)?;
            (config, Some(file))
        }
    };
    let registry_files = RegistryFiles::load(config.registry_files.clone(), config.limits.values);
    let registry_files = registry_files.map_err(usage)?;
    let state_file = config.state_file.clone().map(StateFile::load).transpose().map_err(usage)?;
    for warning in &config.warnings {
        tracing::warn!("{warning}");
    }
    let web_config_file = config.web.config_file.clone().map(WebConfigFile::load);
    let web_config_file = web_config_file.transpose().map_err(usage)?;
    let addresses = match config.web.systemd_socket {
        true => Vec::new(),
        false => resolve_addresses(&config.web.listen_addresses).map_err(usage)?,
    };
    // One thread: polls wait for servers, and the messages of a poll leave in one write because
    // nobody runs between them.
    // Two more render answers, so that a large one does not hold up a poll; another reads files, one
    // writes the state file, and two read the configuration and that of the web: they may hang with the file systems
    // these are on. The last checks passwords.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(7)
        .build()
        .map_err(failure)?;
    runtime.block_on(async {
        let listeners = match config.web.systemd_socket {
            true => server::inherit().map_err(usage)?,
            false => server::bind(&addresses).map_err(usage)?,
        };
        let mut terminate = signal(SignalKind::terminate()).map_err(failure)?;
        let mut interrupt = signal(SignalKind::interrupt()).map_err(failure)?;
        let shutdown = async move {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
            tracing::info!("stopping");
            systemd::notify_stopping();
        };
        let hangup = || signal(SignalKind::hangup()).map_err(failure);
        let config_file = match config_file {
            Some(file) => Some((file, hangup()?)),
            None => None,
        };
        let files = serve::Files {
            registry: (registry_files, hangup()?),
            state: state_file,
            config: config_file,
            web: web_config_file,
        };
        serve::serve(config, files, listeners, shutdown).await;
        Ok(())
    })?;
    runtime.shutdown_background();
    Ok(())
}

fn run_top(args: &TopArgs) -> Result<ExitCode, Failure> {
    let sort = args.sort.as_deref().map(|text| Sort::parse(args.view, text));
    let sort = sort.transpose().context("--sort").map_err(usage)?.unwrap_or_default();
    let columns = args.columns.iter().map(|name| Column::parse(args.view, name));
    let columns: Vec<Column> =
        columns.collect::<Result<_, _>>().context("--columns").map_err(usage)?;
    if args.interval.is_some_and(|interval| interval.is_zero()) {
        return Err(usage(anyhow::anyhow!("--interval: between two looks is some time, as in 1s")));
    }
    let (subject, dsns, interval) = open_pictures(args).map_err(usage)?;
    let filter = Filter::parse(&args.filter);
    let variable = |name: &str| std::env::var(name).ok();
    let is_terminal = io::stdout().is_terminal() && variable("TERM").as_deref() != Some("dumb");
    let is_script =
        args.once || args.json || args.no_header || !args.columns.is_empty() || !is_terminal;
    if args.allow_kill && (is_script || !io::stdin().is_terminal()) {
        let error = anyhow::anyhow!(
            "--allow-kill asks before it acts, and there is no terminal to ask on: leave it out, or \
             run SELECT pg_terminate_backend(PID) by hand"
        );
        return Err(usage(error));
    }
    let source = Source::start(subject, interval).map_err(failure)?;
    if is_script {
        let options =
            once::Options { kind: args.view, sort, filter, columns, has_header: !args.no_header };
        let repeats = args.json && !args.once && args.interval.is_some();
        return runtime()?.block_on(print_pictures(source, &options, args.json, repeats));
    }
    let options = top::app::Options {
        kind: args.view,
        sort,
        filter,
        interval,
        may_act: args.allow_kill,
        shows_queries: args.show_queries,
        is_colored: args.color.is_colored(variable, is_terminal),
        is_ascii: !is_utf8(variable),
    };
    let ending = runtime()?.block_on(top::run(options, source, dsns)).map_err(failure)?;
    Ok(match ending {
        Ending::Quit => ExitCode::SUCCESS,
        // As a shell tells that a signal ended somebody.
        Ending::Signal(number) => ExitCode::from(u8::try_from(128 + number).unwrap_or(FAILURE)),
    })
}

/// What is shown, where sessions may be acted upon, and how often to look. An error is the user's
/// mistake.
fn open_pictures(args: &TopArgs) -> anyhow::Result<(Subject, HashMap<Arc<str>, Dsn>, Duration)> {
    const INTERVAL: Duration = Duration::from_secs(1);
    if let Some(exporter) = open_exporter(&args.from)? {
        return Ok((
            Subject::Exporter(exporter),
            HashMap::new(),
            args.interval.unwrap_or(INTERVAL),
        ));
    }
    let exporter = match args.exporter.expose() {
        "none" => None,
        url => Some(trusting(Exporter::parse(url).context("--exporter")?, &args.from)?),
    };
    let (targets, registry) = load_targets(Some(&args.connection), &args.files)?;
    let dsns = targets.servers.iter();
    let dsns = dsns.map(|server| (server.name.as_str().into(), server.dsn.clone())).collect();
    let interval = args.interval.unwrap_or(targets.poll.interval);
    let subject = Subject::Servers(source::Targets {
        servers: targets.servers,
        poll: targets.poll,
        registry,
        applications: Arc::new(targets.applications),
        limits: targets.limits,
        thresholds: targets.thresholds,
        exporter,
    });
    Ok((subject, dsns, interval))
}

/// Prints what is seen: once, or at each look until the reader has seen enough.
async fn print_pictures(
    mut source: Source,
    options: &once::Options,
    is_json: bool,
    repeats: bool,
) -> Result<ExitCode, Failure> {
    /// What a shell tells of a program that Ctrl-C ended.
    const INTERRUPTED: u8 = 130;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(failure)?;
    let mut printed: Vec<(Option<Timestamp>, bool)> = Vec::new();
    loop {
        let watched = tokio::select! {
            watched = source.changed() => watched,
            _ = interrupt.recv() => return Ok(ExitCode::from(INTERRUPTED)),
        };
        if !watched.iter().all(Watched::is_settled) {
            continue;
        }
        let polled = |one: &Watched| (one.server.polled_at, one.lost.is_some());
        let polled: Vec<_> = watched.iter().map(polled).collect();
        if repeats && polled == printed {
            continue;
        }
        printed = polled;
        let text = if is_json {
            let servers: Vec<_> = watched.iter().map(Watched::present).collect();
            render_servers(servers.iter().map(|server| &**server))
        } else {
            once::render(options, &watched).into_bytes()
        };
        match write_out(&text) {
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => return Err(failure(error)),
            Err(_) => return Ok(ExitCode::SUCCESS),
            Ok(()) if repeats => {}
            Ok(()) => {
                let blind = watched.iter().filter(|one| !one.is_seen());
                let mut is_blind = false;
                for server in blind.map(|one| &one.server) {
                    is_blind = true;
                    let reason = server.error.as_deref().unwrap_or("no answer");
                    warn(format_args!("{}: {reason}", server.server));
                }
                return Ok(if is_blind { ExitCode::from(FAILURE) } else { ExitCode::SUCCESS });
            }
        }
    }
}

/// Whether the locale has the characters that trees are drawn with.
fn is_utf8(variable: impl Fn(&str) -> Option<String>) -> bool {
    let names = ["LC_ALL", "LC_CTYPE", "LANG"];
    let locale = names.into_iter().find_map(|name| variable(name).filter(|text| !text.is_empty()));
    locale.is_some_and(|locale| {
        let locale = locale.to_lowercase();
        locale.contains("utf-8") || locale.contains("utf8")
    })
}

fn run_explain(args: &ExplainArgs) -> Result<ExitCode, Failure> {
    let registry = Registry::load(&args.registry.files, MAX_KEYS).map_err(usage)?;
    let explainer = Explainer::new(Arc::new(registry), args.database.as_deref());
    let mut input = io::stdin().lock();
    if args.what.is_empty() && input.is_terminal() {
        let _ = writeln!(io::stderr(), "locks: paste log text, then press Ctrl-D");
    }
    match explain::explain(args, &explainer, &mut input, &mut io::stdout().lock()) {
        Err(error) if !error.is_broken_pipe() => Err(failure(error)),
        Ok(()) | Err(_) => Ok(ExitCode::SUCCESS),
    }
}

fn run_registry_check(args: &registry::CheckArgs) -> Result<ExitCode, Failure> {
    let (sources, unreadable) = check::fetch_sources(&args.files, io::stdin().lock());
    let report = check::Report::new(sources, unreadable);
    let _ = io::stderr().write_all(report.render_warnings().as_bytes());
    if report.is_clean() {
        return print(&report.render_summary());
    }
    let text = report.render_problems() + &report.render_summary();
    let _ = io::stderr().write_all(text.as_bytes());
    Ok(ExitCode::from(FAILURE))
}

fn run_registry_list(args: &ListArgs) -> Result<ExitCode, Failure> {
    let registry = Arc::new(Registry::load(&args.registry.files, MAX_KEYS).map_err(usage)?);
    let database = args.database.as_deref();
    let keys = list::in_database(registry.keys(database), database);
    print(&if args.json { list::render_json(&keys) } else { list::render_table(&keys) })
}

fn run_registry_suggest(args: &SuggestArgs) -> Result<ExitCode, Failure> {
    let Lookout { mut survey, from, registry, applications } =
        Lookout::new(&args.survey).map_err(usage)?;
    let mut sightings = Sightings::new(registry);
    let mut down: BTreeMap<Arc<str>, String> = BTreeMap::new();
    let looked = runtime()?.block_on(async {
        let mut interrupt = signal(SignalKind::interrupt())?;
        let looking = survey.look(args.survey.samples, args.survey.interval, |snapshot| {
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

/// Whatever goes wrong, it is told as a verdict.
fn run_check(args: &CheckArgs) -> ExitCode {
    if args.privileges {
        return match ask_privileges(args) {
            Ok(report) if args.json => print_status(&report.render_json(), report.status()),
            Ok(report) => print_status(report.render_text().as_bytes(), report.status()),
            Err(error) => print_verdict(&Verdict::blind(format!("{error:#}")), args.json),
        };
    }
    let verdict = look_and_judge(args).unwrap_or_else(|error| Verdict::blind(format!("{error:#}")));
    print_verdict(&verdict, args.json)
}

fn print_verdict(verdict: &Verdict, is_json: bool) -> ExitCode {
    let text = if is_json { verdict.render_json() } else { verdict.render_text().into() };
    print_status(&text, verdict.status())
}

fn print_status(text: &[u8], status: Status) -> ExitCode {
    match write_out(text) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            warn(error);
            ExitCode::from(Status::Unknown.exit_code())
        }
        // A reader that has seen enough takes nothing from the verdict.
        Ok(()) | Err(_) => ExitCode::from(status.exit_code()),
    }
}

fn ask_privileges(args: &CheckArgs) -> anyhow::Result<Report> {
    anyhow::ensure!(
        args.survey.from.ca_file.is_none(),
        "--from.ca-file is for the exporter of --from, and --privileges asks servers: leave it out"
    );
    let (targets, _) = load_targets(Some(&args.survey.connection), &args.survey.files)?;
    let asking = survey::ask_privileges(targets.servers, targets.poll.timeout);
    Ok(Report::new(runtime().map_err(|failure| failure.error)?.block_on(asking)))
}

/// The last look counts: it is the freshest, and knows of those before.
fn look_and_judge(args: &CheckArgs) -> anyhow::Result<Verdict> {
    let Lookout { mut survey, from, registry, .. } = Lookout::new(&args.survey)?;
    // An exporter has a registry of its own.
    let is_ours = from.is_none();
    let mut last = Snapshot::default();
    let looking = survey.look(args.survey.samples, args.survey.interval, |snapshot| {
        last = snapshot;
    });
    runtime()
        .map_err(|failure| failure.error)?
        .block_on(looking)
        .with_context(|| from.unwrap_or_default())?;
    let mut verdict = Verdict::of(&last, &args.require);
    for kind in
        args.require.iter().filter(|kind| is_ours && !is_asked_for(**kind, &registry, &last))
    {
        verdict.observe_unasked(*kind);
    }
    Ok(verdict)
}

/// Whether an entry of the registry asks for it on one of these servers.
fn is_asked_for(kind: FindingKind, registry: &Arc<Registry>, snapshot: &Snapshot) -> bool {
    // What flaps is what must be held.
    let armed_by = if kind == FindingKind::Flapping { FindingKind::Vacant } else { kind };
    snapshot.servers.iter().any(|server| {
        let told = Circumstances::default();
        let resolver = Resolver::new(registry.clone(), server.server.clone(), &told);
        let armed = resolver.armed();
        armed.iter().any(|one| FindingKind::armed_by(&one.resolution).any(|it| it == armed_by))
    })
}

/// What a command looks at, and what it needs to understand it.
struct Lookout {
    survey: Survey,
    /// The exporter, as people may see it.
    from: Option<String>,
    registry: Arc<Registry>,
    applications: Arc<Applications>,
}

impl Lookout {
    /// Reads files; nothing is asked yet. An error is the user's mistake.
    fn new(args: &SurveyArgs) -> anyhow::Result<Self> {
        anyhow::ensure!(
            args.from.url.is_some() || args.from.ca_file.is_none(),
            "--from.ca-file is for the exporter of --from: name it"
        );
        let exporter = open_exporter(&args.from)?;
        let connection = exporter.is_none().then_some(&args.connection);
        let (targets, registry) = load_targets(connection, &args.files)?;
        let applications = Arc::new(targets.applications);
        let from = exporter.as_ref().map(ToString::to_string);
        let survey = match exporter {
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
        Ok(Self { survey, from, registry, applications })
    }
}

/// What is looked at over connections of our own, and the names of its keys. Reads files.
fn load_targets(
    connection: Option<&ConnectionArgs>,
    files: &FileArgs,
) -> anyhow::Result<(Targets, Arc<Registry>)> {
    let targets = Targets::load(connection, files)?;
    let registry = Registry::load(&targets.registry_files, targets.limits.values)?;
    for warning in &targets.warnings {
        warn(warning);
    }
    Ok((targets, Arc::new(registry)))
}

/// Whom `--from` names; nothing is asked yet.
fn open_exporter(from: &FromArgs) -> anyhow::Result<Option<Exporter>> {
    let Some(url) = &from.url else { return Ok(None) };
    trusting(Exporter::parse(url.expose()).context("--from")?, from).map(Some)
}

/// The same exporter, with the certificates that it is to prove itself by.
fn trusting(exporter: Exporter, from: &FromArgs) -> anyhow::Result<Exporter> {
    match &from.ca_file {
        Some(file) => exporter.with_trust(Some(file)).context("--from.ca-file"),
        None => Ok(exporter.with_trust(None)?),
    }
}

/// For a command that comes and goes.
fn runtime() -> Result<tokio::runtime::Runtime, Failure> {
    tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failure)
}

/// To standard error, beside output that goes on.
fn warn(warning: impl std::fmt::Display) {
    let _ = writeln!(io::stderr(), "locks: {warning}");
}

/// To standard output. A reader that has seen enough, as `head` has, is no failure.
fn print(text: &str) -> Result<ExitCode, Failure> {
    match write_out(text.as_bytes()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(failure(error)),
        Ok(()) | Err(_) => Ok(ExitCode::SUCCESS),
    }
}

fn write_out(text: &[u8]) -> io::Result<()> {
    let mut stdout = io::stdout();
    stdout.write_all(text).and_then(|()| stdout.flush())
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
