//! Rules about ways from one dashboard to another: that they lead somewhere, and take along what was
//! chosen and when.

use super::{Complaints, World};
use crate::dashboard::{Dashboard, Link};

/// Every link, with its place.
fn links(dashboard: &Dashboard) -> Vec<(String, Link)> {
    let mut links: Vec<(String, Link)> = Vec::new();
    for panel in dashboard.panels() {
        let defaults = &panel.field_config.defaults.links;
        for link in panel.links.iter().chain(defaults) {
            links.push((panel.title.clone(), link.clone()));
        }
        let properties = panel.field_config.overrides.iter().flat_map(|it| &it.properties);
        for property in properties.filter(|property| property.id == "links") {
            let list: Vec<Link> = serde_json::from_value(property.value.clone())
                .unwrap_or_else(|error| panic!("{}: {error}", panel.title));
            links.extend(list.into_iter().map(|link| (panel.title.clone(), link)));
        }
    }
    links
}

/// From a value to the dashboard that tells more of it, with its labels and the time shown.
pub fn values_lead_to_dashboards_that_exist(
    dashboard: &Dashboard,
    world: &World<'_>,
) -> Complaints {
    let mut complaints = Complaints::default();
    for (place, link) in links(dashboard) {
        complaints.unless(!link.title.is_empty(), &place, "a link has no title");
        let Some(rest) = link.url.strip_prefix("/d/") else {
            // A runbook is wherever its entry says.
            let mut from_data = ["${__data.fields", "${__value.raw}"].into_iter();
            let is_data = from_data.any(|begin| link.url.starts_with(begin));
            complaints.unless(is_data, &place, format!("{} leads elsewhere", link.url));
            continue;
        };
        let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
        let uid = path.split('/').next().unwrap_or_default();
        let target = world.dashboards.iter().find(|other| other.model.uid == uid);
        let Some(target) = target else {
            complaints.unless(false, &place, format!("there is no dashboard {uid}"));
            continue;
        };
        let has_time = query.contains("${__url_time_range}");
        complaints.unless(has_time, &place, "a link does not keep the time");
        for parameter in query.split('&') {
            if let Some((name, _)) =
                parameter.strip_prefix("var-").and_then(|it| it.split_once('='))
            {
                let is_known = target.variable(name).is_some();
                let text = format!("{uid} has no variable {name}");
                complaints.unless(is_known, &place, text);
            }
        }
        for name in ["datasource", "job", "instance"] {
            let is_kept = query.contains("${__all_variables}")
                || query.contains(&format!("var-{name}="))
                || query.contains(&format!("${{{name}:queryparam}}"));
            complaints.unless(is_kept, &place, format!("a link does not keep {name}"));
        }
    }
    complaints
}

/// At the top of each stand the ways to all others.
pub fn each_leads_to_all_others(dashboard: &Dashboard, world: &World<'_>) -> Complaints {
    let mut complaints = Complaints::default();
    let mut reached: Vec<&str> = Vec::new();
    for link in &dashboard.model.links {
        let is_whole = link.include_vars && link.keep_time;
        complaints.unless(is_whole, &link.title, "it does not keep the variables and the time");
        let is_meant = |other: &&Dashboard| match &*link.kind {
            "dashboards" => {
                !link.tags.is_empty() && link.tags.iter().all(|tag| other.model.tags.contains(tag))
            }
            _ => link
                .url
                .strip_prefix("/d/")
                .is_some_and(|rest| rest.split(['/', '?']).next() == Some(&*other.model.uid)),
        };
        let found: Vec<&Dashboard> = world.dashboards.iter().filter(is_meant).collect();
        complaints.unless(!found.is_empty(), &link.title, "it leads nowhere");
        reached.extend(found.iter().map(|other| &*other.model.uid));
    }
    for other in world.dashboards {
        let is_reached =
            other.model.uid == dashboard.model.uid || reached.contains(&&*other.model.uid);
        complaints.unless(is_reached, "", format!("no link leads to {}", other.file));
    }
    complaints
}
