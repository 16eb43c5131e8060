//! What packagers install: completions that complete in the shell itself, a man page that its readers
//! take without a warning, and the Debian package, which leaves nothing behind.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tempfile::TempDir;

use crate::support::process::run;
use crate::support::{Tool, locks, require};

/// What bash offers for the last of these words.
async fn completions(words: &str) -> Vec<String> {
    let script = format!(
        "source <(\"$0\" completions bash)
         COMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
         _locks locks \"${{COMP_WORDS[COMP_CWORD]}}\" \"${{COMP_WORDS[COMP_CWORD - 1]}}\"
         printf '%s\\n' \"${{COMPREPLY[@]}}\""
    );
    let mut command = Command::new("bash");
    command.args(["-c", &script, env!("CARGO_BIN_EXE_locks")]);
    let outcome = run(command).await;
    assert_eq!((outcome.code, outcome.stderr.as_str()), (Some(0), ""), "{words}");
    outcome.stdout.lines().map(str::to_owned).collect()
}

#[tokio::test]
async fn bash_completes_commands_flags_and_values() {
    for (words, offered) in [
        ("locks ser", &["serve"][..]),
        ("locks registry su", &["suggest"]),
        ("locks top --allow", &["--allow-kill"]),
        ("locks top --from.", &["--from.ca-file"]),
        ("locks top --view ''", &["locks", "sessions", "tree"]),
        ("locks top --color n", &["never"]),
        ("locks completions z", &["zsh"]),
    ] {
        assert_eq!(completions(words).await, offered, "{words}");
    }
}

#[tokio::test]
async fn every_shell_gets_a_script_and_another_is_refused() {
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let outcome = run(locks(&["completions", shell])).await;
        assert_eq!(outcome.code, Some(0), "{shell}");
        assert!(outcome.stdout.contains("allow-kill"), "{shell}");
    }
    assert_eq!(run(locks(&["completions", "tcsh"])).await.code, Some(2));
}

#[tokio::test]
async fn a_reader_that_has_seen_enough_is_no_failure() {
    for arguments in [&["man"][..], &["completions", "bash"]] {
        let (reader, writer) = std::io::pipe().expect("there are pipes");
        drop(reader);
        let mut command = locks(arguments);
        command.stdout(writer).stderr(Stdio::piped());
        let child = command.spawn().expect("the binary can be run");
        drop(command);
        let output = child.wait_with_output().expect("it can be waited for");
        assert_eq!(output.status.code(), Some(0), "{arguments:?}");
        assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{arguments:?}");
    }
}

// ---- Debian ----

const SOURCES: &str = env!("CARGO_MANIFEST_DIR");

/// Every file below a folder, by its path from there; what a link points to instead of a text.
fn files_below(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(&next).expect("it is a folder") {
            let path = entry.expect("it can be listed").path();
            if path.is_dir() && !path.is_symlink() {
                folders.push(path);
                continue;
            }
            let text = match fs::read_link(&path) {
                Ok(target) => target.into_os_string().into_encoded_bytes(),
                Err(_) => fs::read(&path).expect("it can be read"),
            };
            let name = path.strip_prefix(folder).expect("it is below");
            found.insert(name.display().to_string(), text);
        }
    }
    found
}

/// A folder that dpkg takes for a machine which systemd runs, with a note of what systemd is told.
struct Machine {
    home: TempDir,
    package: PathBuf,
}

impl Machine {
    fn new(package: PathBuf) -> Machine {
        let home = tempfile::tempdir().expect("a folder can be made");
        for folder in ["info", "updates", "triggers"] {
            let folder = home.path().join("root/var/lib/dpkg").join(folder);
            fs::create_dir_all(folder).expect("the folder is ours");
        }
        let machine = Machine { home, package };
        machine.write("var/lib/dpkg/status", "");
        fs::create_dir_all(machine.path("run/systemd/system")).expect("the folder is ours");
        let programs = machine.home.path().join("bin");
        fs::create_dir(&programs).expect("the folder is ours");
        for name in ["systemctl", "deb-systemd-invoke"] {
            let program = programs.join(name);
            let told = machine.home.path().join("told");
            let text = format!("#!/bin/sh\necho \"${{0##*/}} $*\" >>{}\n", told.display());
            fs::write(&program, text).expect("the folder is ours");
            let mode = fs::Permissions::from_mode(0o755);
            fs::set_permissions(&program, mode).expect("it is ours");
        }
        machine
    }

    fn path(&self, name: &str) -> PathBuf {
        self.home.path().join("root").join(name)
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().expect("it is in a folder")).expect("the folder is ours");
        fs::write(path, text).expect("the folder is ours");
    }

    /// What is on it but for dpkg's own notes.
    fn files(&self) -> BTreeMap<String, Vec<u8>> {
        let mut files = files_below(&self.path(""));
        files.retain(|name, _| !name.starts_with("var/lib/dpkg/"));
        files
    }

    /// What dpkg said to a human, and which actions systemd was told of the service.
    async fn dpkg(&self, action: &str) -> (String, Vec<String>) {
        let told = self.home.path().join("told");
        fs::write(&told, "").expect("the folder is ours");
        let mut command = Command::new(Tool::Dpkg.path());
        let path = std::env::var("PATH").expect("there is a PATH");
        let programs = self.home.path().join("bin");
        command
            .arg(format!("--root={}", self.path("").display()))
            .args(["--force-not-root", "--force-script-chrootless", "--force-depends"])
            .args(["--log=/dev/null", action])
            .env("PATH", format!("{}:{path}:/usr/sbin:/sbin", programs.display()));
        match action {
            "--install" => command.arg(&self.package),
            _ => command.arg("pg-locks-exporter"),
        };
        let outcome = run(command).await;
        assert_eq!(outcome.code, Some(0), "{action}: {}", outcome.stderr);
        let told = fs::read_to_string(told).expect("it was written");
        assert!(told.contains("systemctl --system daemon-reload"), "{action}: {told}");
        let actions = told.lines().filter_map(|line| line.strip_prefix("deb-systemd-invoke "));
        (outcome.stdout, actions.map(str::to_owned).collect())
    }
}

/// Packs the binary that the tests run, so that nothing is built once more.
async fn make_package(folder: &Path) -> PathBuf {
    let mut command = Command::new(Path::new(SOURCES).join("scripts/package"));
    command.args(["deb", env!("CARGO_BIN_EXE_locks")]).arg(folder);
    command.args(["--fast", "--compress-type", "gz"]);
    let outcome = run(command).await;
    assert_eq!((outcome.code, outcome.stderr.as_str()), (Some(0), ""));
    let package = PathBuf::from(outcome.stdout.trim());
    assert_eq!(package.parent(), Some(folder));
    package
}

fn unpack(bytes: &[u8]) -> String {
    let mut text = String::new();
    flate2::read::GzDecoder::new(bytes).read_to_string(&mut text).expect("it is gzip of text");
    text
}

#[tokio::test]
async fn the_debian_package_installs_what_it_says_and_leaves_nothing() {
    require!(CargoDeb, Dpkg);
    let folder = tempfile::tempdir().expect("a folder can be made");
    let machine = Machine::new(make_package(folder.path()).await);
    assert_eq!(machine.files(), BTreeMap::new());

    // Without a connection string the unit does not start, and the installer is told what to do.
    let (said, actions) = machine.dpkg("--install").await;
    assert!(said.contains("write a connection string to /etc/pg-locks-exporter/dsn"), "{said}");
    assert_eq!(actions, ["start pg-locks-exporter.service"]);
    its_files_are_those_of_the_sources(&machine).await;
    its_settings_are_what_the_binary_knows(&machine).await;

    // An upgrade keeps what was changed, and restarts what runs.
    machine.write("etc/pg-locks-exporter/dsn", "host=127.0.0.1");
    machine.write("etc/default/pg-locks-exporter", "LOCKS_LOG_LEVEL=debug\n");
    machine.write("var/lib/private/pg-locks-exporter/state.json", "{}");
    let (said, actions) = machine.dpkg("--install").await;
    assert!(!said.contains("write a connection string"), "{said}");
    assert_eq!(actions, ["restart pg-locks-exporter.service"]);
    let kept = fs::read_to_string(machine.path("etc/default/pg-locks-exporter"));
    assert_eq!(kept.expect("it is there"), "LOCKS_LOG_LEVEL=debug\n");

    // A removal keeps settings and state, and starts again where they are.
    let (_, actions) = machine.dpkg("--remove").await;
    assert_eq!(actions, ["stop pg-locks-exporter.service"]);
    let left: Vec<String> = machine.files().into_keys().collect();
    assert!(!left.iter().any(|name| name.starts_with("usr/")), "{left:?}");
    for kept in [
        "etc/default/pg-locks-exporter",
        "etc/pg-locks-exporter/dsn",
        "etc/pg-locks-exporter/registry.yaml",
        "var/lib/private/pg-locks-exporter/state.json",
    ] {
        assert!(left.iter().any(|name| name == kept), "{kept} is gone");
    }
    let (said, actions) = machine.dpkg("--install").await;
    assert!(!said.contains("write a connection string"), "{said}");
    assert_eq!(actions, ["restart pg-locks-exporter.service"]);

    machine.dpkg("--remove").await;
    machine.dpkg("--purge").await;
    assert_eq!(machine.files(), BTreeMap::new());
    for folder in ["etc", "var/lib/private", "var/lib", "usr/share", "usr/share/doc"] {
        assert!(!machine.path(folder).join("pg-locks-exporter").exists(), "{folder}");
    }
}

async fn its_files_are_those_of_the_sources(machine: &Machine) {
    let files = machine.files();
    let source = |name: &str| fs::read(Path::new(SOURCES).join(name)).expect("it is a source");
    // Copies of sources, whole folders of them among them.
    let mut copies: BTreeMap<String, Vec<u8>> = [
        ("etc/default/pg-locks-exporter", "packaging/debian/default"),
        ("etc/pg-locks-exporter/registry.yaml", "packaging/debian/registry.yaml"),
        (
            "usr/lib/systemd/system/pg-locks-exporter.service",
            "packaging/systemd/pg-locks-exporter.service",
        ),
        ("usr/share/doc/pg-locks-exporter/README.md", "README.md"),
    ]
    .map(|(to, from)| (to.to_owned(), source(from)))
    .into();
    for (to, from) in [
        ("usr/share/pg-locks-exporter/alerts", "alerts"),
        ("usr/share/pg-locks-exporter/dashboards", "dashboards"),
        ("usr/share/doc/pg-locks-exporter/docs", "docs"),
    ] {
        let below = files_below(&Path::new(SOURCES).join(from)).into_iter();
        let shipped = below.filter(|(name, _)| from != "docs" || name.ends_with(".md"));
        copies.extend(shipped.map(|(name, text)| (format!("{to}/{name}"), text)));
    }
    for (name, text) in &copies {
        assert!(files.get(name) == Some(text), "{name} is not that of the sources");
    }
    // What is made for the package, and where it points.
    let says = async |arguments: &[&str]| run(locks(arguments)).await.stdout;
    let text = |name: &str| String::from_utf8_lossy(&files[name]).into_owned();
    for (name, shell) in [
        ("usr/share/bash-completion/completions/locks", "bash"),
        ("usr/share/fish/vendor_completions.d/locks.fish", "fish"),
        ("usr/share/zsh/vendor-completions/_locks", "zsh"),
    ] {
        assert_eq!(text(name), says(&["completions", shell]).await, "{name}");
    }
    assert_eq!(unpack(&files["usr/share/man/man1/locks.1.gz"]), says(&["man"]).await);
    assert_eq!(text("usr/share/man/man1/pg-locks-exporter.1.gz"), "locks.1.gz");
    assert_eq!(text("usr/bin/pg-locks-exporter"), "locks");
    let changelog = unpack(&files["usr/share/doc/pg-locks-exporter/changelog.gz"]);
    assert_eq!(changelog.as_bytes(), source("CHANGELOG.md"));
    let version = env!("CARGO_PKG_VERSION");
    let changelog = unpack(&files["usr/share/doc/pg-locks-exporter/changelog.Debian.gz"]);
    assert!(changelog.starts_with(&format!("pg-locks-exporter ({version}-1) ")), "{changelog}");
    let copyright = text("usr/share/doc/pg-locks-exporter/copyright");
    let license = fs::read_to_string(Path::new(SOURCES).join("LICENSE-MIT")).expect("there is one");
    let words = |text: &str| -> String {
        text.split_whitespace().filter(|word| *word != ".").collect::<Vec<_>>().join(" ")
    };
    let (_, terms) = license.split_once("\n\nPermission").expect("it grants something");
    assert!(words(&copyright).contains(&words(terms)), "{copyright}");

    // And there is nothing else but what systemd notes of services that start at boot.
    let made = [
        "usr/bin/locks",
        "usr/bin/pg-locks-exporter",
        "usr/share/bash-completion/completions/locks",
        "usr/share/doc/pg-locks-exporter/changelog.Debian.gz",
        "usr/share/doc/pg-locks-exporter/changelog.gz",
        "usr/share/doc/pg-locks-exporter/copyright",
        "usr/share/fish/vendor_completions.d/locks.fish",
        "usr/share/man/man1/locks.1.gz",
        "usr/share/man/man1/pg-locks-exporter.1.gz",
        "usr/share/zsh/vendor-completions/_locks",
    ];
    let enabled = "etc/systemd/system/multi-user.target.wants/pg-locks-exporter.service";
    // With or without /usr before it, by the helper's age.
    let unit = text(enabled);
    assert!(unit.ends_with("/lib/systemd/system/pg-locks-exporter.service"), "{unit}");
    let expected: BTreeSet<&str> = copies.keys().map(String::as_str).chain(made).collect();
    let shipped = files
        .keys()
        .map(String::as_str)
        .filter(|name| !name.starts_with("var/lib/systemd/") && *name != enabled);
    assert_eq!(shipped.collect::<BTreeSet<_>>(), expected);
    for name in expected {
        let mode = fs::metadata(machine.path(name)).expect("it is there").permissions().mode();
        let expected = if name.starts_with("usr/bin/") { 0o755 } else { 0o644 };
        assert_eq!(mode & 0o7777, expected, "{name}");
    }
}

async fn its_settings_are_what_the_binary_knows(machine: &Machine) {
    // By either name it is the same program.
    let mut command = Command::new(machine.path("usr/bin/pg-locks-exporter"));
    command.arg("--version");
    let outcome = run(command).await;
    assert_eq!(outcome.stdout, format!("locks {}\n", env!("CARGO_PKG_VERSION")));
    let mut command = Command::new(machine.path("usr/bin/locks"));
    command.args(["registry", "check"]).arg(machine.path("etc/pg-locks-exporter/registry.yaml"));
    let outcome = run(command).await;
    assert_eq!(outcome.code, Some(0), "{}{}", outcome.stdout, outcome.stderr);

    let help = run(locks(&["serve", "--help"])).await.stdout;
    let settings = fs::read_to_string(machine.path("etc/default/pg-locks-exporter"));
    let settings = settings.expect("it is there");
    let names = settings
        .lines()
        .filter_map(|line| line.trim_start_matches('#').split_once('=').map(|(name, _)| name));
    let names: Vec<&str> = names.collect();
    assert!(names.contains(&"LOCKS_REGISTRY_FILE"), "{settings}");
    for name in names {
        assert!(help.contains(&format!("[env: {name}]")), "{name} is no variable");
    }
    // What it names in use is there; the unit itself says what it wants more.
    for line in settings.lines().filter(|line| line.starts_with("LOCKS_")) {
        let (_, path) = line.split_once("=/").expect("it names a file");
        assert!(machine.path(path).is_file(), "{line}");
    }
    let unit = machine.path("usr/lib/systemd/system/pg-locks-exporter.service");
    let unit = fs::read_to_string(unit).expect("it is there");
    for line in [
        "ExecStart=/usr/bin/locks serve ",
        "EnvironmentFile=-/etc/default/pg-locks-exporter\n",
        "ConditionPathExists=/etc/pg-locks-exporter/dsn\n",
        "LoadCredential=dsn:/etc/pg-locks-exporter/dsn\n",
    ] {
        assert!(unit.contains(line), "{line}");
    }
}
