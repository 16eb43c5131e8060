//! `locks top`: the on-call view. Pictures and keys come in, screens and questions go out.
//!
//! An edge: the loop that waits for whatever comes first (a key, a picture, a signal, an answer),
//! lets `app` make of it what it is, and draws. Pictures are made on a thread of their own (`source`), so
//! that a key is never answered late because there are many locks. What is shown is decided by pure
//! modules: `input` (key → action), `app` (what actions do), `table` beside this module (pictures →
//! rows), `screen` (state → text).

pub mod action;
pub mod app;
pub mod detail;
pub mod history;
pub mod input;
pub mod merge;
pub mod once;
pub mod plain;
pub mod screen;
pub mod source;
pub mod terminal;
#[cfg(test)]
mod testing;

use std::collections::HashMap;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use crossterm::event::{Event, EventStream};
use crossterm::style::force_color_output;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt as _, StreamExt as _};
use rustix::process::{
    Signal as ProcessSignal, getpgrp, getppid, getsid, kill_current_process_group,
};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::{MissedTickBehavior, interval};

use self::action::Question;
use self::app::{App, Backend, Effect, Options, QueryText};
use self::history::History;
use self::input::parse_key;

use self::screen::Plan;
use self::source::Source;
use self::terminal::Terminal;
use crate::poller::local_now;
use crate::postgres::Dsn;
use crate::table::row::LockId;

/// The age of a picture is shown in seconds.
const TICK: Duration = Duration::from_secs(1);

/// How the view ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Somebody has seen enough.
    Quit,
    /// A signal, by its number.
    Signal(i32),
}

/// What comes back from the world.
enum Answer {
    History(LockId, History),
    Queries(Arc<str>, Vec<(Backend, QueryText)>),
    Acted(Result<String, String>),
}

type Pending = FuturesUnordered<Pin<Box<dyn Future<Output = Answer>>>>;

/// Shows what the source sees until somebody has seen enough. Servers that may be acted upon are
/// among `dsns`, by name.
pub async fn run(
    options: Options,
    mut source: Source,
    dsns: HashMap<Arc<str>, Dsn>,
) -> io::Result<Ending> {
    // crossterm would look at NO_COLOR by itself, whatever a flag says.
    force_color_output(options.is_colored);
    let mut signals = Signals::listen()?;
    let mut app = App::new(options);
    let mut terminal = Terminal::take()?;
    let mut keys = EventStream::new();
    let mut pending = Pending::new();
    let mut asked = Asked::default();
    let mut ticks = interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        asked.ask(&app, &source, &dsns, &mut pending);
        terminal.draw(|frame| {
            let plan = Plan::of(&app, local_now(), frame.area());
            app.observe_measure(plan.measure(&app));
            plan.render(&app, frame.buffer_mut());
        })?;
        tokio::select! {
            key = keys.next() => {
                // Keys that came together are answered together: who holds one down wants to be
                // there, not to watch every row go by.
                let mut next = Some(key);
                while let Some(key) = next {
                    let Some(key) = key.transpose()? else { return Ok(Ending::Quit) };
                    if let Some(effect) = press(&mut app, key)
                        && let Some(ending) =
                            carry_out(effect, &mut app, &source, &dsns, &mut terminal, &pending)?
                    {
                        return Ok(ending);
                    }
                    next = keys.next().now_or_never();
                }
            }
            watched = source.changed() => {
                app.observe(watched);
                asked.forget();
            }
            Some(answer) = pending.next(), if !pending.is_empty() => {
                asked.observe(&answer);
                match answer {
                    Answer::History(lock, history) => app.observe_history(lock, history),
                    Answer::Queries(server, texts) => app.observe_queries(server, texts),
                    Answer::Acted(Ok(text)) => {
                        app.tell(text);
                        source.refresh();
                    }
                    Answer::Acted(Err(text)) => app.tell_error(text),
                }
            }
            _ = ticks.tick() => {}
            told = signals.next() => match told {
                Told::End(number) => return Ok(Ending::Signal(number)),
                Told::Interrupt => return Ok(Ending::Quit),
                Told::Stop => terminal.suspend()?,
                Told::Continue => terminal.resume()?,
            },
        }
    }
}

/// What a key or another event of the terminal does.
fn press(app: &mut App, event: Event) -> Option<Effect> {
    match event {
        Event::Key(key) => app.apply(parse_key(key, app.mode())?),
        // The next drawing is of the new size.
        Event::Resize(..)
        | Event::FocusGained
        | Event::FocusLost
        | Event::Mouse(_)
        | Event::Paste(_) => None,
    }
}

fn carry_out(
    effect: Effect,
    app: &mut App,
    source: &Source,
    dsns: &HashMap<Arc<str>, Dsn>,
    terminal: &mut Terminal,
    pending: &Pending,
) -> io::Result<Option<Ending>> {
    match effect {
        Effect::Quit => return Ok(Some(Ending::Quit)),
        Effect::Pace { interval, is_paused } => source.set_pace(interval, is_paused),
        Effect::Refresh => source.refresh(),
        Effect::Copy(text) => terminal.copy(&text)?,
        Effect::Act(question) => match dsns.get(question.server()) {
            Some(dsn) => pending.push(Box::pin(act(*question, dsn.clone()))),
            None => app.tell_error("there is no connection to that server"),
        },
        Effect::Suspend => {
            if shell_can_resume() {
                // Whoever shares our process group stops too, as for any Ctrl-Z; we hear of it like
                // the others.
                kill_current_process_group(ProcessSignal::TSTP)?;
            } else {
                app.tell("there is no shell that could bring it back");
            }
        }
        Effect::Redraw => terminal.forget()?,
    }
    Ok(None)
}

async fn act(question: Question, dsn: Dsn) -> Answer {
    Answer::Acted(question.carry_out(&dsn).await)
}

/// Whether the process group has a shell above it that notices when it stops: without one nothing
/// would ever wake it.
fn shell_can_resume() -> bool {
    let session = getsid(None);
    session.is_ok_and(|session| session != getpgrp())
        && getppid().is_some_and(|parent| getsid(Some(parent)) == session)
}

/// What was asked about the present picture, so that it is asked once.
#[derive(Debug, Default)]
struct Asked {
    history: Option<LockId>,
    queries: Option<(Arc<str>, Vec<Backend>)>,
    /// Questions without an answer yet: no second one until then.
    waits_for_history: bool,
    waits_for_queries: bool,
}

impl Asked {
    fn ask(
        &mut self,
        app: &App,
        source: &Source,
        dsns: &HashMap<Arc<str>, Dsn>,
        pending: &mut Pending,
    ) {
        if let Some(lock) = app.wanted_history()
            && !self.waits_for_history
            && self.history.as_ref() != Some(&lock)
        {
            self.waits_for_history = true;
            self.history = Some(lock.clone());
            let fetching = source.fetch_history(lock.clone());
            pending.push(Box::pin(async move {
                let history = fetching.await;
                Answer::History(lock, history)
            }));
        }
        if let Some((server, backends)) = app.wanted_queries()
            && !self.waits_for_queries
            && self.queries.as_ref() != Some(&(server.clone(), backends.clone()))
            && let Some(dsn) = dsns.get(&server).cloned()
        {
            self.waits_for_queries = true;
            self.queries = Some((server.clone(), backends.clone()));
            pending.push(Box::pin(async move {
                let texts = action::fetch_queries(&dsn, &backends).await;
                Answer::Queries(server, texts)
            }));
        }
    }

    const fn observe(&mut self, answer: &Answer) {
        match answer {
            Answer::History(..) => self.waits_for_history = false,
            Answer::Queries(..) => self.waits_for_queries = false,
            Answer::Acted(_) => {}
        }
    }

    /// There is a new picture, of which everything may be asked again.
    fn forget(&mut self) {
        (self.history, self.queries) = (None, None);
    }
}

/// What the system tells the process.
enum Told {
    /// To end, by this signal.
    End(i32),
    /// Somebody who is not at this terminal pressed its Ctrl-C.
    Interrupt,
    /// To stop, for the shell.
    Stop,
    /// It goes on.
    Continue,
}

/// All signals that must not leave the terminal as it is.
struct Signals {
    terminate: Signal,
    hangup: Signal,
    quit: Signal,
    interrupt: Signal,
    stop: Signal,
    resume: Signal,
}

impl Signals {
    fn listen() -> io::Result<Self> {
        let raw = |signal: ProcessSignal| SignalKind::from_raw(signal.as_raw());
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            hangup: signal(SignalKind::hangup())?,
            quit: signal(SignalKind::quit())?,
            interrupt: signal(SignalKind::interrupt())?,
            stop: signal(raw(ProcessSignal::TSTP))?,
            resume: signal(raw(ProcessSignal::CONT))?,
        })
    }

    async fn next(&mut self) -> Told {
        let end = |kind: SignalKind| Told::End(kind.as_raw_value());
        tokio::select! {
            _ = self.terminate.recv() => end(SignalKind::terminate()),
            _ = self.hangup.recv() => end(SignalKind::hangup()),
            _ = self.quit.recv() => end(SignalKind::quit()),
            _ = self.interrupt.recv() => Told::Interrupt,
            _ = self.stop.recv() => Told::Stop,
            _ = self.resume.recv() => Told::Continue,
        }
    }
}
