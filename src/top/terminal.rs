//! The terminal: taken at the start, and given back whatever happens.
//!
//! An edge. Raw mode, the alternate screen and the cursor are changed here and nowhere else, and
//! put back in one place, [`restore`], which is safe to call at any time and any number of times: at
//! the end, when the program is stopped, when it fails, and from the panic hook, before the message.
//! What is drawn is `screen`'s business.

use std::io::{self, Stdout, Write as _};
use std::panic;
use std::sync::atomic::{AtomicBool, Ordering};

use crossterm::clipboard::CopyToClipboard;
use crossterm::cursor::{Hide, Show};
use crossterm::execute;
use crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use ratatui::backend::CrosstermBackend;
use ratatui::layout::Rect;
use ratatui::{Frame, Terminal as Screen};
use rustix::process::{Signal, getpid, kill_process};

/// The terminal is ours at the moment.
static IS_TAKEN: AtomicBool = AtomicBool::new(false);

/// The terminal while it is ours.
pub struct Terminal {
    screen: Screen<CrosstermBackend<Stdout>>,
}

impl Terminal {
    /// Takes the terminal. From here on a panic gives it back before it says what is wrong.
    pub fn take() -> io::Result<Self> {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            restore();
            before(panic);
        }));
        // If the second half of it fails the first must not stay.
        let taken = take().and_then(|()| Screen::new(CrosstermBackend::new(io::stdout())));
        match taken {
            Ok(screen) => Ok(Self { screen }),
            Err(error) => {
                restore();
                Err(error)
            }
        }
    }

    /// Draws what changed since the last time. Once the terminal was given back nothing is: a panic
    /// elsewhere has its message there.
    pub fn draw(&mut self, render: impl FnOnce(&mut Frame<'_>)) -> io::Result<()> {
        if !IS_TAKEN.load(Ordering::SeqCst) {
            return Ok(());
        }
        self.screen.draw(render).map(|_| ())
    }

    /// Draws everything the next time: somebody else wrote on the screen.
    pub fn forget(&mut self) -> io::Result<()> {
        // `clear` would ask the terminal where its cursor is, and the answer goes to whoever reads keys.
        let size = self.screen.size()?;
        self.screen.resize(Rect::new(0, 0, size.width, size.height))
    }

    /// Puts a text into the clipboard of the terminal (OSC 52), which also works over SSH. Whether
    /// the terminal took it is not to be learnt.
    pub fn copy(&mut self, text: &str) -> io::Result<()> {
        let mut out = io::stdout();
        execute!(out, CopyToClipboard::to_clipboard_from(text))?;
        out.flush()
    }

    /// Gives the terminal back and stops the process, as the shell expects of Ctrl-Z. Whoever lets it
    /// go on has to [`Terminal::resume`].
    pub fn suspend(&mut self) -> io::Result<()> {
        restore();
        // The signal that was caught would be caught again; this one cannot be.
        kill_process(getpid(), Signal::STOP)?;
        Ok(())
    }

    /// Takes the terminal again after the process was stopped, by whatever signal: the shell has used
    /// it meanwhile.
    pub fn resume(&mut self) -> io::Result<()> {
        restore();
        take()?;
        self.forget()
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        restore();
    }
}

fn take() -> io::Result<()> {
    IS_TAKEN.store(true, Ordering::SeqCst);
    enable_raw_mode()?;
    execute!(io::stdout(), EnterAlternateScreen, Hide)
}

/// Gives the terminal back, if it is ours. Where it is gone there is nothing to be done about it.
pub fn restore() {
    if IS_TAKEN.swap(false, Ordering::SeqCst) {
        let _ = execute!(io::stdout(), LeaveAlternateScreen, Show);
        let _ = disable_raw_mode();
    }
}
