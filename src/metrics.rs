//! Every metric name, label and HELP text, once: the published picture as families.

pub mod exposition;
