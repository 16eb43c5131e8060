//! What happened on a key, line by line: the events of a server's ring for people.
//!
//! Pure. An event happened between two polls; its line has the time of the poll that showed it. What
//! others call themselves is written so that it stays in its line.

use crate::printable::visible;
use crate::snapshot::{Event, EventParty, parse_events};
use crate::table::column::{application, render_age};
use crate::table::tell::render_moment;

/// The past of a key, the newest first, or why it is not known.
pub type History = Result<Vec<Event>, String>;

/// Reads the JSON of `/api/v1/events`, and keeps what is of one database.
pub fn parse_history(json: &[u8], datname: &str) -> History {
    let events = parse_events(json).map_err(|error| error.to_string())?;
    Ok(of_database(events, datname))
}

/// A key is another lock in another database.
pub fn of_database(mut events: Vec<Event>, datname: &str) -> Vec<Event> {
    events.retain(|event| &*event.datname == datname);
    events
}

/// An event in one line.
pub fn render_event(event: &Event) -> String {
    let when = render_moment(event.at);
    let what = event.event.replace('_', " ");
    let mut line = format!("{when}  {what}");
    if let Some(finding) = &event.finding {
        line.push_str(&format!("  {finding}"));
        if let Some(text) = &event.text {
            line.push_str(&format!(": {text}"));
        }
    } else {
        line.push_str(&format!("  {}", render_party(&event.party)));
    }
    if let Some(from) = &event.from {
        line.push_str(&format!(", after {}", render_party(from)));
    }
    if let Some(outcome) = &event.outcome {
        line.push_str(&format!(", {outcome}"));
    }
    match (event.at_least_seconds, event.at_most_seconds) {
        (Some(least), Some(most)) if most - least < 1.0 => {
            line.push_str(&format!(", after {}", render_age(least)));
        }
        (Some(least), Some(most)) => {
            line.push_str(&format!(", after {} to {}", render_age(least), render_age(most)));
        }
        (Some(least), None) => line.push_str(&format!(", after at least {}", render_age(least))),
        (None, Some(most)) => line.push_str(&format!(", after at most {}", render_age(most))),
        (None, None) => {}
    }
    if event.at_first_poll {
        line.push_str(", when watching began");
    }
    visible(&line).into_owned()
}

fn render_party(party: &EventParty) -> String {
    match (party.pid, &party.gid) {
        (Some(pid), _) => {
            format!("{} (pid {})", application(party.application_name.as_deref()), pid.0)
        }
        (None, Some(gid)) => format!("prepared transaction {gid}"),
        (None, None) if party.prepared => "a prepared transaction".to_owned(),
        (None, None) => "(unknown)".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(events: &str) -> Vec<String> {
        let json = format!(r#"{{"schema":1,"servers":[],"events":[{events}]}}"#);
        let history = parse_history(json.as_bytes(), "app").unwrap();
        history.iter().map(render_event).collect()
    }

    const AT: &str = r#""at":"2026-11-30T03:12:40.123456Z","server":"a","datname":"app""#;

    #[test]
    fn an_event_says_when_what_who_and_between_which_bounds() {
        for (event, line) in [
            (
                r#""event":"hold_ended","pid":7,"application_name":"billing-a",
                   "at_least_seconds":312.4,"at_most_seconds":314.9"#,
                "2026-11-30 03:12:40Z  hold ended  billing-a (pid 7), after 5m12s to 5m14s",
            ),
            (
                r#""event":"holder_changed","pid":8,"application_name":"",
                   "from":{"pid":7,"application_name":"billing-a"}"#,
                "2026-11-30 03:12:40Z  holder changed  (none) (pid 8), after billing-a (pid 7)",
            ),
            (
                r#""event":"wait_ended","pid":8,"outcome":"gone","at_least_seconds":1.04,
                   "at_most_seconds":1.9"#,
                "2026-11-30 03:12:40Z  wait ended  (unknown) (pid 8), gone, after 1.0s",
            ),
            (
                r#""event":"finding_began","finding":"stuck","text":"idle","at_first_poll":true"#,
                "2026-11-30 03:12:40Z  finding began  stuck: idle, when watching began",
            ),
            (
                r#""event":"hold_began","pid":null,"prepared":true"#,
                "2026-11-30 03:12:40Z  hold began  a prepared transaction",
            ),
            (
                r#""event":"hold_began","pid":null,"prepared":true,"gid":"g\u001b[2J""#,
                "2026-11-30 03:12:40Z  hold began  prepared transaction g\\u{1b}[2J",
            ),
            (
                r#""event":"hold_began","pid":9,"application_name":"a\u202eb\nc""#,
                "2026-11-30 03:12:40Z  hold began  a\\u{202e}b\\nc (pid 9)",
            ),
            (r#""event":"hold_began""#, "2026-11-30 03:12:40Z  hold began  (unknown)"),
        ] {
            assert_eq!(lines(&format!("{{{AT},{event}}}")), [line]);
        }
    }

    #[test]
    fn what_happened_to_the_same_key_elsewhere_is_not_its_past() {
        let elsewhere = AT.replace("app", "other");
        assert!(lines(&format!(r#"{{{elsewhere},"event":"hold_began","pid":7}}"#)).is_empty());
    }

    #[test]
    fn an_answer_that_is_none_says_why() {
        assert!(parse_history(b"<html>", "app").is_err());
    }
}
