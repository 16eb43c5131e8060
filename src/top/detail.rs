//! Everything about a row, line by line: what is wrong and what may be done first, then the key in
//! every form, everybody on it with every bound, and what happened.
//!
//! Pure. Longer lines are broken, so that nothing is cut off here.

use super::app::App;
use super::history::render_event;
use super::screen::wrap_all;
use crate::snapshot::{Finding, Holder, Lock, Server, Waiter};
use crate::table::column::{Cell, Tone, render_application, render_held, render_waited, title};
use crate::table::list::{Row, fold_title, keys_of};
use crate::table::row::{FoldId, Party, What};
use crate::table::tell::{self, render_moment};
use crate::table::tree::{self, Family};

/// Of a long list, so many are shown.
const LISTED: usize = 20;

/// The lines of the selected row, in a width.
pub fn lines(app: &App, columns: usize) -> Vec<Vec<Cell>> {
    let Some(row) = app.selected() else {
        let gone = "it is gone: nobody holds or awaits it any more, nor is anything said of it";
        return wrap_all(&[Cell { text: gone.to_owned(), tone: Tone::Plain }], columns);
    };
    let all = app.watched();
    let Some(server) = row.place.server(all) else { return Vec::new() };
    let mut text = Text { app, server, cells: Vec::new() };
    match (&row.place.what, row.place.lock(all), row.place.party(all)) {
        (What::Fold(keys), ..) => {
            if let Some(fold) = &row.fold {
                text.fold(fold, keys);
            }
        }
        (What::Lock(_), Some(lock), _) => text.lock(lock),
        (_, lock, Some(party)) => {
            text.party(lock, party);
            text.family(app.family());
            text.history();
        }
        (..) => {}
    }
    text.not_judged();
    wrap_all(&text.cells, columns)
}

/// Lines as they are said, unbroken.
struct Text<'a> {
    app: &'a App,
    server: &'a Server,
    cells: Vec<Cell>,
}

impl Text<'_> {
    fn plain(&mut self, text: impl Into<String>) {
        self.cells.push(Cell { text: text.into(), tone: Tone::Plain });
    }

    fn dim(&mut self, text: impl Into<String>) {
        self.cells.push(Cell { text: text.into(), tone: Tone::Dim });
    }

    fn heading(&mut self, text: &str) {
        self.plain("");
        self.plain(format!("{}:", text.to_uppercase()));
    }

    fn findings<'f>(&mut self, findings: impl Iterator<Item = &'f Finding>) {
        let mut told = false;
        for finding in findings {
            self.cells.extend(tell::finding(finding));
            told = true;
        }
        if !told {
            self.dim("nothing is said of it");
        }
    }

    fn lock(&mut self, lock: &Lock) {
        self.plain(format!("{} in {} on {}", title(lock), lock.datname, self.server.server));
        self.findings(lock.findings.iter());
        self.holders(lock);
        self.waiters(lock);
        self.key(lock);
        self.history();
    }

    /// The key in all its forms, and what the registry says of it.
    fn key(&mut self, lock: &Lock) {
        self.heading("key");
        for (field, value) in tell::key(lock) {
            self.plain(format!("{field:<12} {value}"));
        }
    }

    fn holders(&mut self, lock: &Lock) {
        self.heading(&tell::count(lock.holders.len(), "holder", "holders"));
        for holder in lock.holders.iter().take(LISTED) {
            self.holder(lock, holder);
        }
        self.left_out(lock.holders.len());
    }

    fn holder(&mut self, lock: &Lock, holder: &Holder) {
        self.cells.extend(tell::holder(self.server, lock, holder));
        self.query(Party::Holder(lock, holder));
    }

    fn waiters(&mut self, lock: &Lock) {
        if lock.waiters.is_empty() {
            return;
        }
        self.heading(&tell::count(lock.waiters.len(), "waiter", "waiters"));
        for waiter in lock.waiters.iter().take(LISTED) {
            self.waiter(lock, waiter);
        }
        self.left_out(lock.waiters.len());
    }

    fn waiter(&mut self, lock: &Lock, waiter: &Waiter) {
        self.cells.extend(tell::waiter(self.server, lock, waiter));
        self.query(Party::Waiter(lock, waiter));
    }

    /// A session, with all it holds and waits for.
    fn party(&mut self, lock: Option<&Lock>, party: Party<'_>) {
        self.plain(format!("{} on {}", tell::who(party), self.server.server));
        let pid = party.pid();
        let server = self.server;
        let findings = server.locks.iter().flatten().flat_map(|lock| &lock.findings);
        let own = findings.filter(|one| pid.is_some_and(|pid| one.pids.contains(&pid)));
        let all: Vec<&Finding> = own.collect();
        match (all.is_empty(), lock) {
            // What is said of somebody else on the same key is the next best.
            (true, Some(lock)) => self.findings(lock.findings.iter()),
            (..) => self.findings(all.into_iter()),
        }
        if let Party::OtherWait(wait) = party {
            self.heading("waits for a lock of another type");
            self.plain(format!(
                "{} ({}) for {}",
                wait.target,
                wait.mode.as_str(),
                render_waited(wait.waited())
            ));
            self.plain(format!(
                "  kept waiting by {}",
                tell::blockers(&wait.blocked_by, wait.blocked_by_count)
            ));
        }
        let (held, awaited) = keys_of(server, &party.id());
        // Else it is told with the keys.
        if held.is_empty() && awaited.is_empty() {
            self.cells.extend(tell::session(self.server, party));
            self.query(party);
        }
        if !held.is_empty() {
            self.heading(&format!("holds {}", tell::count(held.len(), "key", "keys")));
            for lock in held.iter().take(LISTED) {
                let is_own = |one: &&Holder| Party::Holder(lock, one).id() == party.id();
                if let Some(holder) = lock.holders.iter().find(is_own) {
                    self.plain(format!("{} in {}, {}", title(lock), lock.datname, lock.key));
                    self.holder(lock, holder);
                }
            }
            self.left_out(held.len());
        }
        if !awaited.is_empty() {
            self.heading(&format!("waits for {}", tell::count(awaited.len(), "key", "keys")));
            for lock in awaited.iter().take(LISTED) {
                if let Some(waiter) = lock.waiters.iter().find(|one| one.pid == pid) {
                    self.plain(format!("{} in {}, {}", title(lock), lock.datname, lock.key));
                    self.waiter(lock, waiter);
                }
            }
        }
    }

    /// Those who wait for each other, as in the tree.
    fn family(&mut self, family: &Family) {
        if family.above.len() + family.below.len() < 2 {
            return;
        }
        self.heading("who waits for whom");
        // Where the chain ends is never left out.
        let between = family.above.len().saturating_sub(LISTED);
        for (index, row) in family.above.iter().enumerate() {
            if index == 0 || index > between {
                self.branch(row);
            } else if index == 1 {
                self.dim(format!("and {between} more between"));
            }
        }
        for row in family.below.iter().take(LISTED) {
            self.branch(row);
        }
        self.left_out(family.below.len());
    }

    fn branch(&mut self, row: &Row) {
        let guides = row.branch.as_ref().map(|one| one.guides(self.app.options().is_ascii));
        let cells = tree::line(row, self.app.watched());
        let texts: Vec<String> = cells.into_iter().map(|cell| cell.text).collect();
        self.plain(format!("{}{}", guides.unwrap_or_default(), texts.join("  ")));
    }

    /// Many keys in one line: what they have in common, and some of them.
    fn fold(&mut self, fold: &FoldId, keys: &[usize]) {
        self.plain(format!(
            "{} in {} on {}",
            fold_title(fold, keys.len()),
            fold.datname,
            fold.server
        ));
        let locks: Vec<&Lock> =
            keys.iter().filter_map(|key| self.server.locks.as_ref()?.get(*key)).collect();
        self.findings(locks.iter().flat_map(|lock| &lock.findings).take(1));
        self.heading("in common");
        if let Some(holder) = locks.first().and_then(|lock| lock.holders.first()) {
            self.plain(format!("each held by {}", render_application(holder)));
        }
        self.plain(format!("state  {}", fold.state.as_deref().unwrap_or("unknown")));
        self.plain(format!("mode   {}", fold.mode.as_str()));
        self.heading(&tell::count(locks.len(), "key", "keys"));
        for lock in locks.iter().take(LISTED) {
            let Some(holder) = lock.holders.first() else { continue };
            let party = tell::who(Party::Holder(lock, holder));
            self.plain(format!("{}  {}  {party}", title(lock), render_held(holder)));
        }
        self.left_out(locks.len());
    }

    fn query(&mut self, party: Party<'_>) {
        let Some(pid) = party.pid() else { return };
        let Some(backend) = party.session().backend_start.map(|begun| (pid, begun)) else {
            if self.app.options().shows_queries {
                self.dim("  query: hidden: GRANT pg_read_all_stats TO the role");
            }
            return;
        };
        match self.app.query(&self.server.server, backend) {
            Some(Ok(text)) => {
                let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
                self.plain(format!("  query: {text}"));
            }
            Some(Err(reason)) => self.dim(format!("  query: {reason}")),
            None => {}
        }
    }

    fn history(&mut self) {
        if self.app.wanted_history().is_none() {
            return;
        }
        self.heading("what happened, the newest first");
        match self.app.history() {
            None => self.dim("being asked for"),
            Some(Err(reason)) => self.dim(format!("not known: {reason}")),
            Some(Ok(events)) => {
                let lines: Vec<String> = events.iter().map(render_event).collect();
                if lines.is_empty() {
                    self.dim("nothing was seen to change");
                }
                for line in lines {
                    self.plain(line);
                }
                if let Some(since) = self.server.watching_since {
                    let since = render_moment(since);
                    self.dim(format!(
                        "nobody looked before {since}; of much only the last is kept"
                    ));
                }
            }
        }
    }

    fn not_judged(&mut self) {
        let gaps = self.server.not_judged.as_deref().unwrap_or_default();
        if gaps.is_empty() {
            return;
        }
        self.heading("not judged on this server");
        for gap in gaps {
            let in_part = if gap.in_part { " (in part)" } else { "" };
            self.dim(format!("{}{in_part}: {}", gap.finding, gap.reason));
        }
    }

    fn left_out(&mut self, count: usize) {
        if count > LISTED {
            self.dim(format!("and {} more", count - LISTED));
        }
    }
}

#[cfg(test)]
mod tests;
