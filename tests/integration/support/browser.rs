//! A browser as people use one: Chromium without windows, driven by the scripts in `tests/browser`.
//! Pages are opened with the size, colours and abilities that a reader may have, and are read as a
//! reader, a machine or a screen reader reads them. It knows nothing of what is on a page.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::UnixStream;
use tokio::sync::Mutex;

use super::process::Process;
use super::{DEADLINE, Tool, eventually, find_program};

/// A browser of one's own. Dropping it ends it.
pub struct Browser {
    // Dropped in this order: the browser ends before the folder with its profile goes.
    connection: Mutex<BufReader<UnixStream>>,
    _process: Process,
    home: TempDir,
}

/// Through what a page is looked at.
#[derive(Clone, Copy, Debug)]
pub struct View {
    /// Of the window, in CSS pixels.
    pub width: u32,
    /// Of the window. What is longer is scrolled.
    pub height: u32,
    /// The colours that the reader prefers.
    pub scheme: Scheme,
    /// Whether the page may run scripts.
    pub script: bool,
    /// Whether the reader wants things to keep still.
    pub reduced_motion: bool,
}

/// Colours that a reader prefers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// Dark on bright.
    Light,
    /// Bright on dark.
    Dark,
}

/// A page that was opened, with storage of its own.
pub struct Page<'browser> {
    browser: &'browser Browser,
    number: Value,
}

impl Default for View {
    /// A laptop, with scripts.
    fn default() -> View {
        View {
            width: 1280,
            height: 800,
            scheme: Scheme::Light,
            script: true,
            reduced_motion: false,
        }
    }
}

impl Browser {
    /// Starts Chromium with a profile that goes away.
    pub async fn start() -> Browser {
        let home = tempfile::tempdir().expect("a folder can be made");
        let socket = home.path().join("socket");
        let mut command = script("browse.mjs");
        command
            .arg(&socket)
            .arg(DEADLINE.as_millis().to_string())
            .env("HOME", home.path())
            .env("TMPDIR", home.path());
        let mut process = Process::start(command, &home.path().join("browser.log"), "TERM");
        // It is the heaviest program of all, and several may be starting.
        process.until_ready_within(DEADLINE * 3, async |_| socket.exists()).await;
        let connection = eventually("the browser listens", async || {
            UnixStream::connect(&socket).await.expect("it connects")
        })
        .await;
        Browser { connection: Mutex::new(BufReader::new(connection)), _process: process, home }
    }

    /// Opens an address, and comes back when the page is loaded.
    pub async fn open(&self, url: &str, view: View) -> Page<'_> {
        let scheme = match view.scheme {
            Scheme::Light => "light",
            Scheme::Dark => "dark",
        };
        let ask = json!({
            "ask": "open",
            "url": url,
            "view": {
                "width": view.width,
                "height": view.height,
                "scheme": scheme,
                "script": view.script,
                "reduced_motion": view.reduced_motion,
            },
        });
        let number = self.ask(&ask).await.unwrap_or_else(|error| panic!("no {url}: {error}"));
        Page { browser: self, number }
    }

    /// The folder with all that it writes, which is in the command line of its processes.
    pub fn home(&self) -> &Path {
        self.home.path()
    }

    /// One question, one answer.
    async fn ask(&self, ask: &Value) -> Result<Value, String> {
        let mut connection = self.connection.lock().await;
        let exchange = async {
            let question = format!("{ask}\n");
            connection.get_mut().write_all(question.as_bytes()).await?;
            let mut answer = String::new();
            connection.read_line(&mut answer).await?;
            Ok::<_, std::io::Error>(answer)
        };
        // The script has the same deadline for a single step, and more to tell about it.
        let answer = tokio::time::timeout(DEADLINE * 2, exchange).await;
        let answer = answer.unwrap_or_else(|_| panic!("the browser never answers {ask}"));
        let answer = answer.unwrap_or_else(|error| panic!("the browser is gone: {error}"));
        let mut answer: Value = serde_json::from_str(&answer)
            .unwrap_or_else(|error| panic!("the browser is gone ({error}): {answer:?}"));
        match answer["error"].as_str() {
            Some(error) => Err(error.to_owned()),
            None => Ok(answer["value"].take()),
        }
    }
}

impl Page<'_> {
    /// The text that a reader sees.
    pub async fn text(&self) -> String {
        self.ask("text", json!({})).await
    }

    /// What an expression in JavaScript comes to, waited for if it is a promise. It works where the
    /// page itself may run nothing.
    pub async fn eval<T: DeserializeOwned>(&self, expression: &str) -> T {
        self.ask("evaluate", json!({ "expression": expression })).await
    }

    /// Waits until an expression is true.
    pub async fn wait_for(&self, expression: &str) {
        eventually(expression, async || {
            let value: Value = self.eval(expression).await;
            assert_eq!(value, true, "of a page that says\n{}", self.text().await);
        })
        .await;
    }

    /// What assistive technology is told: a line for each thing that has a role, as
    /// `heading "Locks" level=1`, further in by two spaces what it holds.
    pub async fn accessibility(&self) -> String {
        self.ask("accessibility", json!({})).await
    }

    /// The status of the page's own answer.
    pub async fn status(&self) -> u16 {
        self.ask("status", json!({})).await
    }

    /// The headers of the page's own answer, their names in lower case.
    pub async fn headers(&self) -> BTreeMap<String, String> {
        self.ask("headers", json!({})).await
    }

    /// All that went wrong so far: errors of the console and of scripts, what could not be loaded,
    /// and what the page's policy refused.
    pub async fn errors(&self) -> Vec<String> {
        self.ask("errors", json!({})).await
    }

    /// Every address that was asked for so far, the page's own first.
    pub async fn requests(&self) -> Vec<String> {
        self.ask("requests", json!({})).await
    }

    /// Presses a key by its name, as `Tab` or `Shift+Enter`.
    pub async fn press(&self, key: &str) {
        self.ask("press", json!({ "key": key })).await
    }

    /// Clicks on the only element that a selector finds.
    pub async fn click(&self, selector: &str) {
        self.ask("click", json!({ "selector": selector })).await
    }

    /// Makes the window another size.
    pub async fn resize(&self, width: u32, height: u32) {
        self.ask("resize", json!({ "width": width, "height": height })).await
    }

    /// Loads it again.
    pub async fn reload(&self) {
        self.ask("reload", json!({})).await
    }

    /// Draws the whole page, past the window's edge too, into a PNG file.
    pub async fn screenshot(&self, path: &Path) {
        self.ask("screenshot", json!({ "path": path })).await
    }

    /// Closes it.
    pub async fn close(self) {
        self.ask("close", json!({})).await
    }

    async fn ask<T: DeserializeOwned>(&self, ask: &str, mut arguments: Value) -> T {
        arguments["ask"] = ask.into();
        arguments["page"] = self.number.clone();
        let answer = self.browser.ask(&arguments).await;
        let answer = answer.unwrap_or_else(|error| panic!("{arguments}: {error}"));
        serde_json::from_value(answer.clone())
            .unwrap_or_else(|error| panic!("{arguments}: {error}: {answer}"))
    }
}

/// A script of `tests/browser`, with the browser that the tests found, if they did.
pub fn script(name: &str) -> Command {
    let mut command = Command::new(Tool::Node.path());
    command.arg(folder().join(name)).envs(Tool::Chromium.find().map(|path| ("CHROMIUM", path)));
    command
}

/// Where the scripts are.
pub fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/browser")
}

/// Node.js, if the packages that the scripts ask for are installed as their lock file says.
pub fn find_node() -> Option<PathBuf> {
    static NODE: OnceLock<Option<PathBuf>> = OnceLock::new();
    let find = || {
        let node = find_program("node")?;
        let mut check = Command::new(&node);
        check.arg(folder().join("installed.mjs")).stderr(Stdio::null());
        check.status().is_ok_and(|status| status.success()).then_some(node)
    };
    NODE.get_or_init(find).clone()
}
