//! Rules about a dashboard as a whole: that it can be imported and provisioned as it is, that what
//! people change in it does not go lost, and that bookmarks of it stay true.

use serde_json::{Value, json};

use super::{Complaints, World};
use crate::dashboard::Dashboard;

/// Changes made in the browser would be overwritten by the next provisioning.
pub fn is_not_edited_in_place(dashboard: &Dashboard, _: &World<'_>) -> Complaints {
    let mut complaints = Complaints::default();
    complaints.unless(dashboard.json["editable"] == false, "", "editable is not false");
    complaints
}

/// `__inputs` stay unresolved where files are provisioned, and numbers of one Grafana mean nothing in
/// another.
pub fn carries_nothing_of_the_grafana_it_came_from(
    dashboard: &Dashboard,
    _: &World<'_>,
) -> Complaints {
    let mut complaints = Complaints::default();
    for field in ["__inputs", "__requires", "__elements", "gnetId", "iteration", "version"] {
        complaints.unless(dashboard.json.get(field).is_none(), "", format!("it has {field}"));
    }
    let id = dashboard.json.get("id").unwrap_or(&Value::Null);
    complaints.unless(id.is_null(), "", format!("its id is {id}"));
    complaints
}

/// Links, bookmarks and runbooks name it.
pub fn has_a_name_for_life(dashboard: &Dashboard, world: &World<'_>) -> Complaints {
    let mut complaints = Complaints::default();
    let uid = &*dashboard.model.uid;
    let stem = dashboard.file.trim_end_matches(".json");
    let expected = format!("pg-advisory-locks-{stem}");
    complaints.unless(uid == expected, "", format!("its uid is {uid}, not {expected}"));
    complaints.unless(uid.len() <= 40, "", "its uid has more than 40 characters");
    let same = |other: &&Dashboard| {
        other.file != dashboard.file
            && (other.model.uid == uid || other.model.title == dashboard.model.title)
    };
    let twin = world.dashboards.iter().find(same);
    complaints.unless(twin.is_none(), "", "another dashboard has its uid or title");
    complaints
}

/// The settings that dashboards of one set share.
pub fn keeps_the_conventions(dashboard: &Dashboard, _: &World<'_>) -> Complaints {
    let mut complaints = Complaints::default();
    let json = &dashboard.json;
    // One pointer for all panels: what happened at the same time is what one looks for.
    for (field, expected) in [("timezone", json!("browser")), ("graphTooltip", json!(1))] {
        complaints.unless(json[field] == expected, "", format!("{field} is not {expected}"));
    }
    // Older ones know panels that are gone, newer ones shapes that are not these.
    let schema = json["schemaVersion"].as_u64().unwrap_or_default();
    complaints.unless((36..=42).contains(&schema), "", format!("schemaVersion is {schema}"));
    for (place, field) in [("time", &json["time"]["from"]), ("refresh", &json["refresh"])] {
        let is_set = field.as_str().is_some_and(|text| !text.is_empty());
        complaints.unless(is_set, "", format!("{place} is not set"));
    }
    for tag in ["postgresql", "prometheus", "advisory-locks"] {
        let is_tagged = dashboard.model.tags.iter().any(|other| other == tag);
        complaints.unless(is_tagged, "", format!("it is not tagged {tag}"));
    }
    let built_in = dashboard.model.annotations.list.iter().filter(|it| it.built_in == 1);
    complaints.unless(built_in.count() == 1, "", "it does not have Grafana's own annotation");
    complaints
}
