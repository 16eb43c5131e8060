//! Questions to the system that may take for ever: a host's name, a file on a disk far away.
//!
//! Nothing calls them back, so each gets a thread of its own. On the thread that polls, one of them would
//! stop the polls of every server; on the runtime's few for blocking work, a handful would stop the answers
//! to scrapes. It knows nothing of what is asked. Whoever connects asks one at a time, so there are no more
//! threads than servers, and those that were given up; and never more than a bound, past which questions
//! wait for those before. Polls over connections that are there do not.

use std::io;
use std::thread;

use tokio::sync::{Semaphore, oneshot};

/// Below what the unit for systemd and common limits of containers leave to a service.
const MOST: usize = 200;
static FREE: Semaphore = Semaphore::const_new(MOST);

/// What `ask` returns. An error is the system's, which has no more threads.
///
/// # Panics
///
/// When `ask` does.
pub(super) async fn aside<T: Send + 'static>(
    ask: impl FnOnce() -> T + Send + 'static,
) -> io::Result<T> {
    let place = FREE.acquire().await.expect("nobody closes it");
    let (answer, answered) = oneshot::channel();
    thread::Builder::new().name("aside".to_owned()).spawn(move || {
        // Until the question ends, whether or not somebody still waits for it.
        let _place = place;
        // Nobody listens where the connect was given up.
        let _ = answer.send(ask());
    })?;
    Ok(answered.await.expect("a thread answers unless it panics"))
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex, mpsc};

    use super::*;

    #[tokio::test]
    async fn there_is_a_bound_for_questions_at_once() {
        let (end, endless) = mpsc::channel::<()>();
        let endless = Arc::new(Mutex::new(endless));
        let hanging: Vec<_> = (0..MOST)
            .map(|_| {
                let endless = endless.clone();
                tokio::spawn(aside(move || endless.lock().unwrap().recv().is_ok()))
            })
            .collect();
        while FREE.available_permits() > 0 {
            tokio::task::yield_now().await;
        }
        let next = tokio::spawn(aside(|| 42));
        tokio::task::yield_now().await;
        assert!(!next.is_finished());
        drop(end);
        assert_eq!(next.await.unwrap().unwrap(), 42);
        for one in hanging {
            assert!(!one.await.unwrap().unwrap());
        }
    }

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
