//! Everything about a row, line by line: what is wrong and what may be done first, then the key in
//! every form, everybody on it with every bound, and what happened.
//!
//! Pure. Longer lines are broken, so that nothing is cut off here.

use super::app::App;
use super::history::{render_event, render_moment};
use super::screen::{tell, wrap_all};
use crate::duration::render_duration;
use crate::key::Key;
use crate::registry::Limit;
use crate::snapshot::{Blocker, Detail, Finding, Holder, Lock, Server, Session, Waiter};
use crate::table::column::{
    Cell, Tone, application, render_age, render_application, render_client, render_held,
    render_waited, title,
};
use crate::table::list::{Row, fold_title, keys_of};
use crate::table::row::{FoldId, Party, What};
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
            self.cells.extend(tell(finding));
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
        match &lock.lock {
            Some(name) => self.plain(format!("name         {name}")),
            None => self.plain("name         unregistered: no entry of the registry names it"),
        }
        for (field, value) in
            [("description", &lock.description), ("owner", &lock.owner), ("runbook", &lock.runbook)]
        {
            if let Some(value) = value {
                self.plain(format!("{field:<12} {value}"));
            }
        }
        for candidate in &lock.candidates {
            let name = candidate.display_name.as_deref().unwrap_or(&candidate.lock);
            let reason = candidate.reason.as_deref().unwrap_or("");
            self.plain(format!("may be       {name} {reason}"));
        }
        let limits = [
            ("max_hold", lock.limits.max_hold_seconds),
            ("max_wait", lock.limits.max_wait_seconds),
        ];
        for (name, limit) in limits {
            if let Some(limit) = limit {
                self.plain(format!("{name:<12} {}", render_limit(limit)));
            }
        }
        for (form, text) in key_forms(lock.key) {
            self.plain(format!("{form:<12} {text}"));
        }
    }

    fn holders(&mut self, lock: &Lock) {
        self.heading(&count(lock.holders.len(), "holder", "holders"));
        for holder in lock.holders.iter().take(LISTED) {
            self.holder(lock, holder);
        }
        self.left_out(lock.holders.len());
    }

    fn holder(&mut self, lock: &Lock, holder: &Holder) {
        let party = Party::Holder(lock, holder);
        self.plain(format!("{}  {}  {}", who(party), holder.mode.as_str(), render_held(holder)));
        self.session(party);
        let mut bounds =
            format!("  seen held at every poll for {}", render_age(holder.seen_for_seconds));
        if let Some(least) = holder.held_at_least_seconds {
            bounds.push_str(&format!("; proved for {}", render_age(least)));
        }
        match holder.held_at_most_seconds {
            Some(most) => bounds.push_str(&format!("; at most {}", render_age(most))),
            None => bounds.push_str("; how much longer is not known"),
        }
        self.plain(bounds);
        if holder.transactions_seen > 1 {
            self.plain(format!("  seen in {} transactions", holder.transactions_seen));
        }
        let scope = holder.scope_evidence.as_deref().unwrap_or(holder.scope.as_str());
        self.plain(format!("  scope: {scope}"));
        let first = holder.first_application_name.as_deref();
        if first.is_some() && first != holder.session.application_name.as_deref() {
            self.cells.push(Cell {
                text: format!(
                    "  it was called {} when it was first seen with the lock{}",
                    application(first),
                    if holder.seen_to_begin { "" } else { ", which had begun before" },
                ),
                tone: Tone::Warning,
            });
        }
        if holder.other_locks.count > 0 {
            let types = holder.other_locks.by_type.iter();
            let types: Vec<String> = types.map(|(kind, count)| format!("{count} {kind}")).collect();
            self.plain(format!("  also holds {}", types.join(", ")));
        }
        if holder.has_written == Some(true) {
            self.plain("  its transaction has written");
        }
        if holder.blocks > 0 {
            let through: Vec<&str> = holder.blocks_through.iter().map(|kind| &**kind).collect();
            let through = match through.is_empty() {
                true => String::new(),
                false => format!(" (through {})", through.join(", ")),
            };
            self.plain(format!(
                "  {} behind it{through}",
                count(holder.blocks, "session waits", "sessions wait")
            ));
            self.plain(format!("  once it lets go: {}", render_next(holder)));
        }
        self.query(party);
    }

    fn waiters(&mut self, lock: &Lock) {
        if lock.waiters.is_empty() {
            return;
        }
        self.heading(&count(lock.waiters.len(), "waiter", "waiters"));
        for waiter in lock.waiters.iter().take(LISTED) {
            self.waiter(lock, waiter);
        }
        self.left_out(lock.waiters.len());
    }

    fn waiter(&mut self, lock: &Lock, waiter: &Waiter) {
        let party = Party::Waiter(lock, waiter);
        let waited = render_waited(waiter.waited_seconds);
        self.plain(format!("{}  {}  waits {waited}", who(party), waiter.mode.as_str()));
        self.session(party);
        self.plain(format!(
            "  waits for {}",
            render_blockers(&waiter.blocked_by, waiter.blocked_by_count)
        ));
        let roots: Vec<String> = waiter
            .roots
            .iter()
            .take(3)
            .map(|root| {
                let circle = if root.in_cycle { ", in a circle" } else { "" };
                let state = root.state.as_deref().unwrap_or("state unknown");
                match root.pid {
                    Some(pid) => format!(
                        "{} {} ({state}{circle})",
                        pid.0,
                        application(root.application_name.as_deref())
                    ),
                    None => format!("prepared {}", root.gid.as_deref().unwrap_or("transaction")),
                }
            })
            .collect();
        if !roots.is_empty() {
            let more = waiter.roots_count.saturating_sub(roots.len());
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            self.plain(format!("  its chain ends at {}{more}", roots.join(", ")));
        }
        if let Some(age) = waiter.xmin_age {
            self.dim(format!("  its snapshot is {age} transactions old"));
        }
        self.query(party);
    }

    /// A session, with all it holds and waits for.
    fn party(&mut self, lock: Option<&Lock>, party: Party<'_>) {
        self.plain(format!("{} on {}", who(party), self.server.server));
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
                render_waited(wait.waited_seconds)
            ));
            self.plain(format!(
                "  kept waiting by {}",
                render_blockers(&wait.blocked_by, wait.blocked_by_count)
            ));
        }
        let (held, awaited) = keys_of(server, &party.id());
        // Else it is told with the keys.
        if held.is_empty() && awaited.is_empty() {
            self.session(party);
            self.query(party);
        }
        if !held.is_empty() {
            self.heading(&format!("holds {}", count(held.len(), "key", "keys")));
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
            self.heading(&format!("waits for {}", count(awaited.len(), "key", "keys")));
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
        self.heading(&count(locks.len(), "key", "keys"));
        for lock in locks.iter().take(LISTED) {
            let Some(holder) = lock.holders.first() else { continue };
            let party = who(Party::Holder(lock, holder));
            self.plain(format!("{}  {}  {party}", title(lock), render_held(holder)));
        }
        self.left_out(locks.len());
    }

    /// What is known of a backend, or of a prepared transaction.
    fn session(&mut self, party: Party<'_>) {
        if let Some(prepared) = party.prepared() {
            let owner = detail(&prepared.owner);
            let at = prepared.prepared_at.map(|at| format!(", prepared at {}", render_moment(at)));
            self.plain(format!("  owner {owner}{}", at.unwrap_or_default()));
            return;
        }
        let session = party.session();
        let state = session.state.as_deref().unwrap_or("state unknown");
        let since = match (session.state_since, self.server.polled_at) {
            (Some(since), Some(polled)) => {
                format!(" for {}", render_age(polled.since(since).as_secs_f64()))
            }
            (_, _) => String::new(),
        };
        let event = session.wait_event.as_deref().map(|event| format!(", {event}"));
        self.plain(format!("  {state}{since}{}", event.unwrap_or_default()));
        self.plain(format!(
            "  user {}, client {}{}",
            detail(&session.usename),
            client(session),
            session
                .backend_start
                .map(|at| format!(", connected at {}", render_moment(at)))
                .unwrap_or_default()
        ));
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

fn who(party: Party<'_>) -> String {
    match (party.pid(), party.prepared().and_then(|prepared| prepared.gid.as_deref())) {
        (Some(pid), _) => {
            let name = application(party.session().application_name.as_deref());
            format!("session {} ({name})", pid.0)
        }
        (None, Some(gid)) => format!("prepared transaction {gid}"),
        (None, None) => "a prepared transaction".to_owned(),
    }
}

fn detail<T: ToString>(field: &Detail<T>) -> String {
    match field {
        Detail::Hidden => "not shown by this exporter".to_owned(),
        Detail::Told(None) => "unknown".to_owned(),
        Detail::Told(Some(value)) => value.to_string(),
    }
}

fn client(session: &Session) -> String {
    match render_client(session) {
        Some(client) => client,
        None if session.client_addr.is_hidden() => "not shown by this exporter".to_owned(),
        None => "unknown".to_owned(),
    }
}

fn render_limit(limit: Limit) -> String {
    match limit {
        Limit::Of(duration) => render_duration(duration),
        Limit::Unlimited => "unlimited".to_owned(),
    }
}

fn render_next(holder: &Holder) -> String {
    match &holder.frees_next {
        None => "who comes next is not known".to_owned(),
        Some(next) if next.is_empty() => "nobody gets in at once".to_owned(),
        Some(next) => {
            let pids: Vec<String> = next.iter().flatten().map(|pid| pid.0.to_string()).collect();
            let more = holder.frees_next_count.unwrap_or(0).saturating_sub(next.len());
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            let verb = if holder.frees_next_count == Some(1) { "gets" } else { "get" };
            format!("{}{more} {verb} in", pids.join(", "))
        }
    }
}

fn render_blockers(blockers: &[Blocker], count: usize) -> String {
    if blockers.is_empty() {
        return "nobody that was seen".to_owned();
    }
    let named: Vec<String> = blockers
        .iter()
        .take(5)
        .map(|blocker| {
            let who = match (blocker.pid, &blocker.gid) {
                (Some(pid), _) => pid.0.to_string(),
                (None, Some(gid)) => format!("prepared {gid}"),
                (None, None) => "a prepared transaction".to_owned(),
            };
            let how = match blocker.kind {
                crate::blocking::BlockerKind::Hard => "holds it",
                crate::blocking::BlockerKind::Soft => "ahead in the queue",
            };
            let doubt = if blocker.certain { "" } else { ", not certain" };
            format!("{who} ({how}{doubt})")
        })
        .collect();
    let more = count.saturating_sub(named.len());
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("{}{more}", named.join(", "))
}

/// The same key as programs, `pg_locks` and a log write it.
fn key_forms(key: Key) -> Vec<(&'static str, String)> {
    let columns = format!("{}/{}/{}", key.classid(), key.objid(), key.objsubid());
    let mut forms = Vec::new();
    if let Some(number) = key.as_bigint() {
        forms.push(("bigint", number.to_string()));
    }
    if let Some((first, second)) = key.as_pair() {
        forms.push(("pair", format!("{first}, {second}")));
    }
    forms.push(("pg_locks", format!("classid/objid/objsubid {columns}")));
    forms.push((
        "hexadecimal",
        match key.as_pair() {
            Some(_) => format!("0x{:08x}, 0x{:08x}", key.classid(), key.objid()),
            None => format!("0x{:08x}{:08x}", key.classid(), key.objid()),
        },
    ));
    forms.push((
        "to see it",
        format!(
            "SELECT * FROM pg_locks WHERE locktype = 'advisory' AND (classid, objid, objsubid) = \
             ({}, {}, {})",
            key.classid(),
            key.objid(),
            key.objsubid()
        ),
    ));
    forms.push((
        "to let go",
        "pg_advisory_unlock works in the session that holds it alone, and is no remedy from \
         elsewhere"
            .to_owned(),
    ));
    forms
}

fn count(count: usize, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

#[cfg(test)]
mod tests;
