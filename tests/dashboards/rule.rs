//! What is demanded of every dashboard, one function a rule: a dashboard in, complaints out. Each file
//! below judges one part of it. Which rules there are, under which sentences, and how they answer to
//! those of dashboard-linter is listed in `main`; that each of them can complain is shown in
//! `mutation`. Nothing here asks a server.

pub mod layout;
pub mod link;
pub mod panel;
pub mod target;
pub mod variable;
pub mod whole;

use crate::contract::Contract;
use crate::dashboard::Dashboard;

/// What a dashboard is judged beside.
pub struct World<'a> {
    /// All of them, since they link to each other.
    pub dashboards: &'a [Dashboard],
    /// The metrics that there are.
    pub contract: &'a Contract,
}

/// A rule.
pub type Judge = fn(&Dashboard, &World<'_>) -> Complaints;

/// What is wrong, and where.
#[derive(Debug, Default)]
pub struct Complaints(pub Vec<Complaint>);

/// One thing that is wrong.
#[derive(Debug, PartialEq)]
pub struct Complaint {
    /// A panel, a variable; empty for the dashboard itself.
    pub place: String,
    /// What is wrong there.
    pub text: String,
}

impl Complaints {
    /// Complains about a place unless all is well.
    pub fn unless(&mut self, is_well: bool, place: &str, text: impl Into<String>) {
        if !is_well {
            self.0.push(Complaint { place: place.to_owned(), text: text.into() });
        }
    }
}
