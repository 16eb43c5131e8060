//! Questions to the system that may take for ever: a host's name, a file on a disk far away.
//!
//! Nothing calls them back, so each gets a thread of its own. On the thread that polls, one of them would
//! stop the polls of every server; on the runtime's few for blocking work, a handful would stop the answers
//! to scrapes. It knows nothing of what is asked. Whoever connects asks one at a time, so there are no more
//! threads than servers, and those that were given up.

use std::io;
use std::thread;

use tokio::sync::oneshot;

/// What `ask` returns. An error is the system's, which has no more threads.
///
/// # Panics
///
/// When `ask` does.
pub(super) async fn aside<T: Send + 'static>(
    ask: impl FnOnce() -> T + Send + 'static,
) -> io::Result<T> {
    let (answer, answered) = oneshot::channel();
    thread::Builder::new().name("aside".to_owned()).spawn(move || {
        // Nobody listens where the connect was given up.
        let _ = answer.send(ask());
    })?;
    Ok(answered.await.expect("a thread answers unless it panics"))
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[tokio::test]
    async fn a_question_without_an_answer_stops_nobody_else() {
        let (end, endless) = mpsc::channel::<()>();
        let hanging = tokio::spawn(aside(move || endless.recv().is_ok()));
        assert_eq!(aside(|| 42).await.unwrap(), 42);
        assert!(!hanging.is_finished());
        drop(end);
        assert!(!hanging.await.unwrap().unwrap());
    }
}
