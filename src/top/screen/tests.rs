//! Screens as people see them, kept as text and looked at when they change: `UPDATE_GOLDEN=1 cargo
//! test --lib screens`, then review the diff.

use std::path::Path;
use std::time::Duration;

use ratatui::layout::Rect;

use super::*;
use crate::snapshot::Server;
use crate::top::app::Options;
use crate::top::input::{Action, Edit, Motion};
use crate::top::source::{Lost, Origin, Watched};
use crate::top::testing::{self, options, servers};

const WIDTHS: [(u16, u16); 4] = [(40, 10), (80, 24), (120, 30), (200, 40)];

fn now() -> Timestamp {
    Timestamp::from_unix_micros(1_764_558_000_000_000)
}

/// A server whose picture is quite new.
fn watched(server: Server) -> Watched {
    Watched { received_at: now().before(Duration::from_millis(400)), ..testing::watched(server) }
}

fn app(name: &str, kind: ViewKind) -> App {
    let mut app = App::new(options(kind));
    app.observe(servers(name).into_iter().map(watched).collect());
    app
}

/// The screen of a size, line by line.
fn screen(app: &mut App, (columns, rows): (u16, u16)) -> String {
    let area = Rect::new(0, 0, columns, rows);
    let mut buffer = Buffer::empty(area);
    let plan = Plan::of(app, now(), area);
    app.observe_measure(plan.measure(app));
    plan.render(app, &mut buffer);
    let lines = (0..rows).map(|y| {
        let mut line = String::new();
        let mut x = 0;
        while x < columns {
            let symbol = buffer[(x, y)].symbol();
            line.push_str(symbol);
            // A wide character hides the cell behind it.
            x += u16::try_from(width(symbol)).unwrap().max(1);
        }
        line.trim_end().to_owned() + "\n"
    });
    lines.collect()
}

/// All sizes of a state, compared with those that were reviewed.
fn golden(name: &str, app: &mut App) {
    let shown: String = WIDTHS
        .into_iter()
        .map(|size| format!("--- {} x {}\n{}", size.0, size.1, screen(app, size)))
        .collect();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/golden/top/{name}.txt"));
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, &shown).unwrap();
    }
    let reviewed = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(shown == reviewed, "{name} is not as it was reviewed:\n{shown}");
}

#[test]
fn screens_without_a_lock_say_so() {
    golden("empty-locks", &mut app("empty", ViewKind::Locks));
    golden("empty-tree", &mut app("empty", ViewKind::Tree));
}

#[test]
fn screens_of_one_lock_say_who_holds_it_and_that_nothing_is_wrong() {
    golden("one-locks", &mut app("one", ViewKind::Locks));
    golden("one-sessions", &mut app("one", ViewKind::Sessions));
}

#[test]
fn screens_of_a_night_have_the_worst_first_with_its_remedy() {
    golden("night-locks", &mut app("night", ViewKind::Locks));
    golden("night-sessions", &mut app("night", ViewKind::Sessions));
    golden("night-tree", &mut app("night", ViewKind::Tree));
}

#[test]
fn screens_of_a_detail_have_everything_about_a_row() {
    let mut night = app("night", ViewKind::Locks);
    night.apply(Action::Enter);
    golden("night-detail", &mut night);
}

#[test]
fn screens_of_a_detail_of_a_key_without_a_name_say_so() {
    let mut night = app("night", ViewKind::Locks);
    night.apply(Action::Move(Motion::Down));
    night.apply(Action::Move(Motion::Down));
    night.apply(Action::Enter);
    golden("night-detail-unregistered", &mut night);
}

#[test]
fn screens_of_a_jam_have_every_root_with_the_chain_behind_it() {
    let mut jam = app("jam", ViewKind::Tree);
    golden("jam-tree", &mut jam);
    jam.apply(Action::Filter);
    for c in "pid:6103".chars() {
        jam.apply(Action::Edit(Edit::Insert(c)));
    }
    jam.apply(Action::Enter);
    golden("jam-filtered", &mut jam);
    jam.apply(Action::Move(Motion::First));
    jam.apply(Action::Enter);
    golden("jam-detail-pooled", &mut jam);
    jam.apply(Action::Close);
    jam.apply(Action::Move(Motion::Last));
    jam.apply(Action::Enter);
    golden("jam-detail-waiter", &mut jam);
}

#[test]
fn screens_of_many_keys_fold_them_and_unfold_them() {
    let mut crowd = app("crowd", ViewKind::Locks);
    golden("crowd-folded", &mut crowd);
    crowd.apply(Action::Move(Motion::First));
    crowd.apply(Action::Enter);
    golden("crowd-unfolded", &mut crowd);
}

#[test]
fn screens_of_a_lost_server_keep_its_picture_with_its_age() {
    let mut night = app("night", ViewKind::Locks);
    let lost = |server| Watched {
        received_at: now().before(Duration::from_secs(75)),
        lost: Some(Lost {
            since: now().before(Duration::from_secs(74)),
            reason: "connection refused".into(),
        }),
        ..watched(server)
    };
    night.observe(servers("night").into_iter().map(lost).collect());
    golden("night-lost", &mut night);
}

#[test]
fn screens_of_an_exporter_say_that_they_are_an_exporters() {
    let from = |server| Watched {
        origin: Origin::Exporter { exporter: "http://db-1:10187".into() },
        ..watched(server)
    };
    let mut app = App::new(Options { may_act: false, ..options(ViewKind::Locks) });
    app.observe(servers("one").into_iter().map(from).collect());
    golden("one-from", &mut app);
}

#[test]
fn screens_of_several_servers_have_a_line_for_each() {
    let mut several = servers("night");
    several.extend(servers("one"));
    several.extend(servers("empty"));
    let mut app = App::new(options(ViewKind::Locks));
    let mut all: Vec<Watched> = several.into_iter().map(watched).collect();
    all[1].lost =
        Some(Lost { since: now().before(Duration::from_secs(9)), reason: "timeout".into() });
    app.observe(all);
    golden("several-locks", &mut app);
}

#[test]
fn screens_of_the_help_and_of_a_question_fit() {
    let mut night = app("night", ViewKind::Locks);
    night.apply(Action::Help);
    golden("help", &mut night);
    night.apply(Action::Close);
    night.apply(Action::Terminate);
    golden("night-question", &mut night);
    night.apply(Action::Close);
    night.apply(Action::Sort);
    golden("night-sort", &mut night);
}

#[test]
fn every_size_is_drawn_without_a_panic() {
    for kind in ViewKind::ALL {
        let mut night = app("night", kind);
        for action in [Action::Help, Action::Close, Action::Enter, Action::Close, Action::Terminate]
        {
            for columns in 1..60 {
                for rows in 1..14 {
                    screen(&mut night, (columns, rows));
                }
            }
            night.apply(action);
        }
    }
}
