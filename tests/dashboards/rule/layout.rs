//! Rules about where panels stand.

use std::collections::BTreeSet;

use super::{Complaints, World};
use crate::dashboard::{Dashboard, GridPos, Panel};

/// Grafana's grid.
const COLUMNS: u32 = 24;

/// Links to single panels name their number.
pub fn numbers_are_given_once(dashboard: &Dashboard, _: &World<'_>) -> Complaints {
    let mut complaints = Complaints::default();
    let mut seen = BTreeSet::new();
    let rows_and_panels = dashboard.model.panels.iter().filter(|panel| panel.kind == "row");
    for panel in rows_and_panels.chain(dashboard.panels()) {
        let is_new = panel.id > 0 && seen.insert(panel.id);
        complaints.unless(is_new, &panel.title, format!("its id {} is no new one", panel.id));
    }
    complaints
}

/// Grafana would push one of them to where nobody meant it to be.
pub fn panels_have_their_own_place(dashboard: &Dashboard, _: &World<'_>) -> Complaints {
    let mut complaints = Complaints::default();
    let top = &dashboard.model.panels;
    for panels in std::iter::once(top).chain(top.iter().map(|panel| &panel.panels)) {
        for (number, panel) in panels.iter().enumerate() {
            let place = panel.grid_pos;
            let fits = place.w > 0 && place.h > 0 && place.x + place.w <= COLUMNS;
            complaints.unless(fits, &panel.title, format!("it does not fit: {place:?}"));
            for other in &panels[number + 1..] {
                let text = format!("it lies on {}", other.title);
                complaints.unless(!overlap(place, other.grid_pos), &panel.title, text);
            }
        }
    }
    complaints
}

fn overlap(one: GridPos, other: GridPos) -> bool {
    one.x < other.x + other.w
        && other.x < one.x + one.w
        && one.y < other.y + other.h
        && other.y < one.y + one.h
}

/// A collapsed row holds its panels, an open one stands above them; else they are lost at a click.
pub fn rows_hold_their_panels(dashboard: &Dashboard, _: &World<'_>) -> Complaints {
    let mut complaints = Complaints::default();
    let is_row = |panel: &&Panel| panel.kind == "row";
    for row in dashboard.model.panels.iter().filter(is_row) {
        let is_collapsed = row.collapsed;
        let text = "an open row holds panels, or a collapsed one none";
        complaints.unless(is_collapsed != row.panels.is_empty(), &row.title, text);
        complaints.unless(!row.title.is_empty(), &row.title, "a row has no title");
        let is_whole = row.grid_pos.w == COLUMNS && row.grid_pos.h == 1;
        complaints.unless(is_whole, &row.title, "a row is a line of its own");
        for panel in &row.panels {
            let is_below = panel.grid_pos.y > row.grid_pos.y && panel.kind != "row";
            complaints.unless(is_below, &panel.title, "it does not stand below its row");
        }
    }
    for panel in dashboard.model.panels.iter().filter(|panel| panel.kind != "row") {
        let text = "only rows hold panels";
        complaints.unless(panel.panels.is_empty(), &panel.title, text);
    }
    complaints
}
