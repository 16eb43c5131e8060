//! What the terminal view is showing, and what actions and new pictures do to it.
//!
//! Pure: an action changes the state and may ask for an [`Effect`], which the loop carries out; a
//! picture changes the rows, and the selection stays with whom it was on. What it looks like is
//! `screen`'s business.

use std::cell::OnceCell;
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use super::action::{Question, Verb};
use super::history::History;
use super::input::{Action, Edit, Mode, Motion};
use super::screen::Measure;
use super::source::Watched;
use crate::sample::Pid;
use crate::snapshot::Finding;
use crate::table::column::{Direction, Sort, ViewKind};
use crate::table::filter::Filter;
use crate::table::list::{self, Row};
use crate::table::row::{FoldId, LockId, Party, Place, RowId, What};
use crate::table::tree::{self, Family};
use crate::timestamp::Timestamp;

/// Pauses between two looks to choose from.
const INTERVALS: [Duration; 9] = [
    Duration::from_millis(100),
    Duration::from_millis(250),
    Duration::from_millis(500),
    Duration::from_secs(1),
    Duration::from_secs(2),
    Duration::from_secs(5),
    Duration::from_secs(10),
    Duration::from_secs(30),
    Duration::from_secs(60),
];

/// What was asked for at the start.
#[derive(Clone, Debug)]
pub struct Options {
    /// The view that is shown first.
    pub kind: ViewKind,
    /// How the rows of that view are sorted.
    pub sort: Sort,
    /// Which rows are shown.
    pub filter: Filter,
    /// Between two looks.
    pub interval: Duration,
    /// Sessions may be cancelled and ended.
    pub may_act: bool,
    /// Colours are used.
    pub is_colored: bool,
    /// The terminal has no other characters than ASCII.
    pub is_ascii: bool,
    /// Query texts are shown.
    pub shows_queries: bool,
}

/// The state of the terminal view.
#[derive(Debug)]
pub struct App {
    options: Options,
    watched: Vec<Watched>,
    kind: ViewKind,
    views: [ViewState; 3],
    rows: Vec<Row>,
    filter: Filter,
    unfolded: HashSet<FoldId>,
    screen: Screen,
    interval: Duration,
    is_paused: bool,
    notice: Option<Notice>,
    history: Option<(LockId, History)>,
    queries: Queries,
    /// Of the selected session, in this picture.
    family: OnceCell<Family>,
    /// Rows that fit on the screen.
    page: usize,
}

/// What is open.
#[derive(Debug, Default)]
pub enum Screen {
    /// A view and nothing else.
    #[default]
    View,
    /// Everything about the selected row, from a line on.
    Detail(usize),
    /// The help, from a line on.
    Help(usize),
    /// The filter is typed; as it was before.
    Filter(Filter),
    /// A column is chosen, by its number.
    Sort(usize),
    /// A question waits for its answer.
    Confirm(Box<Question>),
}

/// Where one is in a view.
#[derive(Debug, Default)]
struct ViewState {
    sort: Sort,
    selected: Option<RowId>,
    /// Of the selected row, and of the row that takes its place when it is gone.
    index: usize,
    /// The first row on the screen.
    offset: usize,
}

/// Something to be said at the bottom, until the next key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// In a sentence.
    pub text: String,
    /// It did not work.
    pub is_error: bool,
}

/// A backend with its start: its pid is given out again.
pub type Backend = (Pid, Timestamp);

/// What a session runs, or why that is not known.
pub type QueryText = Result<Arc<str>, Arc<str>>;

/// Query texts that were asked for.
#[derive(Debug, Default)]
pub struct Queries {
    server: Option<Arc<str>>,
    texts: Vec<(Backend, QueryText)>,
}

/// What an action wants from the world.
#[derive(Debug)]
pub enum Effect {
    /// The end.
    Quit,
    /// Another rhythm.
    Pace {
        /// Between two looks.
        interval: Duration,
        /// None at all.
        is_paused: bool,
    },
    /// A look now.
    Refresh,
    /// A text in the clipboard.
    Copy(String),
    /// The question was answered with yes.
    Act(Box<Question>),
    /// The process stopped, for the shell.
    Suspend,
    /// Everything drawn anew.
    Redraw,
}

impl App {
    /// Nothing was seen yet.
    pub fn new(options: Options) -> Self {
        let mut views: [ViewState; 3] = Default::default();
        views[options.kind as usize].sort = options.sort;
        Self {
            watched: Vec::new(),
            kind: options.kind,
            views,
            rows: Vec::new(),
            filter: options.filter.clone(),
            unfolded: HashSet::new(),
            screen: Screen::default(),
            interval: options.interval,
            is_paused: false,
            notice: None,
            history: None,
            queries: Queries::default(),
            family: OnceCell::new(),
            page: 1,
            options,
        }
    }

    /// Every server, in the order of the configuration.
    pub fn watched(&self) -> &[Watched] {
        &self.watched
    }

    /// The view that is shown.
    pub const fn kind(&self) -> ViewKind {
        self.kind
    }

    /// Its rows, in their order.
    pub fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// The first row on the screen.
    pub const fn offset(&self) -> usize {
        self.view().offset
    }

    /// The number of the selected row; `None` where there are no rows.
    pub fn selected_index(&self) -> Option<usize> {
        self.selected().map(|_| self.view().index)
    }

    /// The selected row; `None` where there are no rows, and where somebody looks closely at one that
    /// is gone: nobody else takes its place under their eyes.
    pub fn selected(&self) -> Option<&Row> {
        let row = self.rows.get(self.view().index)?;
        let is_gone = self.view().selected.as_ref().is_some_and(|id| *id != row.id);
        (!is_gone).then_some(row)
    }

    /// How the rows are sorted.
    pub const fn sort(&self) -> Sort {
        self.view().sort
    }

    /// Which rows are shown.
    pub const fn filter(&self) -> &Filter {
        &self.filter
    }

    /// What is open.
    pub const fn screen(&self) -> &Screen {
        &self.screen
    }

    /// Between two looks.
    pub const fn interval(&self) -> Duration {
        self.interval
    }

    /// Nobody looks.
    pub const fn is_paused(&self) -> bool {
        self.is_paused
    }

    /// Something to be said at the bottom.
    pub const fn notice(&self) -> Option<&Notice> {
        self.notice.as_ref()
    }

    /// What was asked for at the start.
    pub const fn options(&self) -> &Options {
        &self.options
    }

    /// What keys are for at the moment.
    pub const fn mode(&self) -> Mode {
        match self.screen {
            Screen::View => Mode::Browse,
            Screen::Detail(_) => Mode::Detail,
            Screen::Help(_) => Mode::Help,
            Screen::Filter(_) => Mode::Filter,
            Screen::Sort(_) => Mode::Sort,
            Screen::Confirm(_) => Mode::Confirm,
        }
    }

    /// What happened on the selected key, if it was told already.
    pub fn history(&self) -> Option<&History> {
        let wanted = self.wanted_history()?;
        self.history.as_ref().filter(|(lock, _)| *lock == wanted).map(|(_, history)| history)
    }

    /// The key whose past is shown.
    pub fn wanted_history(&self) -> Option<LockId> {
        if !matches!(self.screen, Screen::Detail(_)) {
            return None;
        }
        match &self.selected()?.id {
            RowId::Lock(lock) | RowId::Party(lock, _) => Some(lock.clone()),
            RowId::Server(_) | RowId::Session(..) | RowId::Fold(_) => None,
        }
    }

    /// The sessions whose query texts are shown, by server.
    pub fn wanted_queries(&self) -> Option<(Arc<str>, Vec<Backend>)> {
        if !self.options.shows_queries || !matches!(self.screen, Screen::Detail(_)) {
            return None;
        }
        let place = &self.selected()?.place;
        let server = place.server(&self.watched)?.server.clone();
        let backend = |party: Party<'_>| Some((party.pid()?, party.session().backend_start?));
        let backends: Vec<Backend> = match &place.what {
            What::Lock(_) => {
                let lock = place.lock(&self.watched)?;
                let holders = lock.holders.iter().map(|holder| Party::Holder(lock, holder));
                let waiters = lock.waiters.iter().map(|waiter| Party::Waiter(lock, waiter));
                holders.chain(waiters).filter_map(backend).collect()
            }
            What::Server
            | What::Fold(_)
            | What::Holder(..)
            | What::Waiter(..)
            | What::OtherWait(_)
            | What::Root(_) => backend(place.party(&self.watched)?).into_iter().collect(),
        };
        Some((server, backends.into_iter().take(crate::view::NAMED).collect()))
    }

    /// What a session runs; `None` where that was not told, or is of no concern.
    pub fn query(&self, server: &str, backend: Backend) -> Option<Result<&str, &str>> {
        if self.queries.server.as_deref() != Some(server) {
            return None;
        }
        let (_, text) = self.queries.texts.iter().find(|(known, _)| *known == backend)?;
        Some(text.as_deref().map_err(|reason| &**reason))
    }

    /// Those above the selected session and those below: looked up once for each picture, since
    /// everybody who waits has to be looked at.
    pub fn family(&self) -> &Family {
        self.family.get_or_init(|| {
            let place = self.selected().map(|row| &row.place);
            let party = place.and_then(|place| Some((place.server, place.party(&self.watched)?)));
            party.map(|(server, one)| tree::family(&self.watched, server, one)).unwrap_or_default()
        })
    }

    /// New pictures.
    pub fn observe(&mut self, watched: Vec<Watched>) {
        self.watched = watched;
        self.list();
    }

    /// What happened on a key.
    pub fn observe_history(&mut self, lock: LockId, history: History) {
        self.history = Some((lock, history));
    }

    /// What sessions of a server run, or why that is not known.
    pub fn observe_queries(&mut self, server: Arc<str>, texts: Vec<(Backend, QueryText)>) {
        self.queries = Queries { server: Some(server), texts };
    }

    /// What fits on the screen.
    pub fn observe_measure(&mut self, measure: Measure) {
        self.page = measure.page.max(1);
        if let Screen::Detail(line) | Screen::Help(line) = &mut self.screen {
            *line = (*line).min(measure.last_line);
        }
        self.keep_in_sight();
    }

    /// Something to be said at the bottom.
    pub fn tell(&mut self, text: impl Into<String>) {
        self.notice = Some(Notice { text: text.into(), is_error: false });
    }

    /// Something that did not work.
    pub fn tell_error(&mut self, text: impl Into<String>) {
        self.notice = Some(Notice { text: text.into(), is_error: true });
    }

    /// Does what somebody wants.
    pub fn apply(&mut self, action: Action) -> Option<Effect> {
        self.notice = None;
        match action {
            Action::Quit => return Some(Effect::Quit),
            Action::Suspend => return Some(Effect::Suspend),
            Action::Redraw => return Some(Effect::Redraw),
            Action::Refresh => return Some(Effect::Refresh),
            Action::Pause => return Some(self.pause()),
            Action::Faster => return Some(self.set_interval(Direction::Previous)),
            Action::Slower => return Some(self.set_interval(Direction::Next)),
            Action::Close => return self.close(),
            Action::Agree => return self.agree(),
            Action::Copy => return self.copy(),
            Action::Enter => self.enter(),
            Action::Help => self.screen = Screen::Help(0),
            Action::Filter => self.screen = Screen::Filter(self.filter.clone()),
            Action::Sort => self.open_sort(),
            Action::Show(kind) => self.show(kind),
            Action::Cycle(direction) => self.show(self.kind.neighbour(direction)),
            Action::Move(motion) => self.go(motion),
            Action::Unfold => self.fold(false),
            Action::Fold => self.fold(true),
            Action::SortBy(direction) => {
                self.sort_by(self.sort().neighbour(self.kind, direction));
            }
            Action::Invert => self.sort_by(self.sort().inverted()),
            Action::Edit(edit) => self.edit(edit),
            Action::Cancel => self.ask(Verb::Cancel),
            Action::Terminate => self.ask(Verb::Terminate),
        }
        None
    }

    const fn view(&self) -> &ViewState {
        &self.views[self.kind as usize]
    }

    const fn view_mut(&mut self) -> &mut ViewState {
        &mut self.views[self.kind as usize]
    }

    /// Makes the rows anew; the selection stays with whom it was on, or where it was.
    fn list(&mut self) {
        self.family.take();
        let sort = self.sort();
        self.rows = list::rows(self.kind, &self.watched, &self.filter, sort, &self.unfolded);
        let rows = std::mem::take(&mut self.rows);
        let last = rows.len().saturating_sub(1);
        let is_looked_at = matches!(self.screen, Screen::Detail(_) | Screen::Confirm(_));
        let view = self.view_mut();
        let place = view.selected.as_ref().and_then(|id| rows.iter().position(|row| row.id == *id));
        // Until somebody chooses a row the first is selected, whoever that is: it is the worst.
        view.index = match (&view.selected, place) {
            (None, _) => 0,
            (Some(_), Some(place)) => place,
            (Some(_), None) => view.index.min(last),
        };
        if view.selected.is_some() && place.is_none() && !is_looked_at {
            view.selected = rows.get(view.index).map(|row| row.id.clone());
        }
        self.rows = rows;
        self.keep_in_sight();
    }

    fn select(&mut self, index: usize) {
        self.family.take();
        let index = index.min(self.rows.len().saturating_sub(1));
        let selected = self.rows.get(index).map(|row| row.id.clone());
        let view = self.view_mut();
        view.index = index;
        view.selected = selected;
        self.keep_in_sight();
    }

    fn keep_in_sight(&mut self) {
        let (page, count) = (self.page, self.rows.len());
        let view = self.view_mut();
        view.offset = view
            .offset
            .min(view.index)
            .max((view.index + 1).saturating_sub(page))
            .min(count.saturating_sub(page));
    }

    fn show(&mut self, kind: ViewKind) {
        self.kind = kind;
        self.list();
        if let Screen::Detail(line) = &mut self.screen {
            *line = 0;
        }
    }

    fn go(&mut self, motion: Motion) {
        let page = self.page.saturating_sub(1).max(1);
        match &mut self.screen {
            Screen::Detail(line) | Screen::Help(line) => {
                *line = motion.from(*line, page, usize::MAX)
            }
            Screen::Sort(index) => {
                *index = motion.from(*index, page, self.kind.columns().len());
            }
            Screen::View | Screen::Filter(_) => {
                self.select(motion.from(self.view().index, page, self.rows.len()));
            }
            Screen::Confirm(_) => {}
        }
    }

    fn enter(&mut self) {
        match std::mem::take(&mut self.screen) {
            Screen::View if !self.rows.is_empty() => {
                let fold = self.selected().and_then(|row| match &row.id {
                    RowId::Fold(fold) => Some(fold),
                    RowId::Server(_) | RowId::Lock(_) | RowId::Party(..) | RowId::Session(..) => {
                        None
                    }
                });
                if let Some(fold) = fold {
                    let is_open = self.unfolded.contains(fold);
                    self.fold(is_open);
                } else {
                    // Whom one looks at closely one keeps, whatever gets worse meanwhile.
                    self.select(self.view().index);
                    self.screen = Screen::Detail(0);
                }
            }
            Screen::Sort(index) => {
                if let Some(column) = self.kind.columns().get(index) {
                    self.sort_by(Sort::by(*column));
                }
            }
            Screen::View
            | Screen::Filter(_)
            | Screen::Detail(_)
            | Screen::Help(_)
            | Screen::Confirm(_) => {}
        }
    }

    fn close(&mut self) -> Option<Effect> {
        match std::mem::take(&mut self.screen) {
            Screen::View if self.filter.is_empty() => return Some(Effect::Quit),
            Screen::View => {
                self.filter = Filter::default();
                self.list();
            }
            Screen::Filter(before) => {
                self.filter = before;
                self.list();
            }
            Screen::Confirm(_) => {
                self.tell("nothing was done");
                self.list();
            }
            // Whoever was looked at may be gone.
            Screen::Detail(_) => self.list(),
            Screen::Help(_) | Screen::Sort(_) => {}
        }
        None
    }

    fn agree(&mut self) -> Option<Effect> {
        match std::mem::take(&mut self.screen) {
            Screen::Confirm(question) => {
                self.list();
                if let Err(reason) = question.recheck(&self.watched) {
                    self.tell_error(reason);
                    return None;
                }
                Some(Effect::Act(question))
            }
            other @ (Screen::View
            | Screen::Detail(_)
            | Screen::Help(_)
            | Screen::Filter(_)
            | Screen::Sort(_)) => {
                self.screen = other;
                None
            }
        }
    }

    fn edit(&mut self, edit: Edit) {
        let mut text = self.filter.text().to_owned();
        match edit {
            Edit::Insert(c) => text.push(c),
            Edit::Backspace => {
                text.pop();
            }
            Edit::Word => {
                let kept = text.trim_end().rfind(' ').map_or(0, |space| space + 1);
                text.truncate(kept);
            }
            Edit::Clear => text.clear(),
        }
        self.filter = Filter::parse(&text);
        self.list();
    }

    fn open_sort(&mut self) {
        let columns = self.kind.columns();
        if columns.is_empty() {
            self.tell(
                "the tree has an order of its own: who keeps most others waiting comes first",
            );
            return;
        }
        let index = columns.iter().position(|column| *column == self.sort().column);
        self.screen = Screen::Sort(index.unwrap_or(0));
    }

    fn sort_by(&mut self, sort: Sort) {
        self.view_mut().sort = sort;
        self.list();
    }

    fn fold(&mut self, folded: bool) {
        let Some(row) = self.selected() else { return };
        let Some(fold) = row.fold.clone() else { return };
        let changed =
            if folded { self.unfolded.remove(&fold) } else { self.unfolded.insert(fold.clone()) };
        if changed {
            if folded {
                self.view_mut().selected = Some(RowId::Fold(fold));
            }
            self.list();
        }
    }

    fn pause(&mut self) -> Effect {
        self.is_paused = !self.is_paused;
        Effect::Pace { interval: self.interval, is_paused: self.is_paused }
    }

    fn set_interval(&mut self, direction: Direction) -> Effect {
        let mut choices = INTERVALS.into_iter();
        let found = match direction {
            Direction::Next => choices.find(|choice| *choice > self.interval),
            Direction::Previous => choices.rfind(|choice| *choice < self.interval),
        };
        self.interval = found.unwrap_or(self.interval);
        Effect::Pace { interval: self.interval, is_paused: self.is_paused }
    }

    /// What may be done about the selected row: the remedy of the worst that is said of it.
    pub fn remedy(&self) -> Option<&Finding> {
        list::worst_finding(&self.watched, self.selected()?)
    }

    fn copy(&mut self) -> Option<Effect> {
        let Some(finding) = self.remedy() else {
            self.tell("nothing to copy: nothing is said of this row");
            return None;
        };
        let remedy = finding.remedy.clone();
        self.tell(format!("sent to the terminal's clipboard: {remedy}"));
        Some(Effect::Copy(remedy))
    }

    fn ask(&mut self, verb: Verb) {
        let Some(place) = self.selected().map(|row| row.place.clone()) else { return };
        let asked = self.question(verb, &place);
        match asked {
            Ok(question) => self.screen = Screen::Confirm(Box::new(question)),
            Err(reason) => self.tell_error(reason),
        }
    }

    fn question(&self, verb: Verb, place: &Place) -> Result<Question, String> {
        let question = Question::of(verb, self.options.may_act, &self.watched, place)?;
        if self.is_paused {
            return Err("nobody is acted upon while it is paused: Space goes on".to_owned());
        }
        Ok(question)
    }
}

impl Motion {
    /// Where one comes from a place among so many.
    fn from(self, place: usize, page: usize, count: usize) -> usize {
        let to = match self {
            Self::Up => place.saturating_sub(1),
            Self::Down => place.saturating_add(1),
            Self::PageUp => place.saturating_sub(page),
            Self::PageDown => place.saturating_add(page),
            Self::First => 0,
            Self::Last => usize::MAX,
        };
        to.min(count.saturating_sub(1))
    }
}
