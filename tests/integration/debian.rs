//! The Debian package: made as `scripts/package` makes it, installed into a root of its own, run from
//! there, installed again, removed, and gone without a trace.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use crate::support::{Exporter, Postgres, Tool, eventually, exporter, require};

const NAME: &str = "pg-locks-exporter";
const UNIT: &str = include_str!("../../packaging/systemd/pg-locks-exporter.service");

/// Runs a program to a good end, and tells what it printed.
fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {errors}");
    String::from_utf8(output.stdout).expect("it is text")
}

/// A package of the binary that is tested.
fn make_package(folder: &Path) -> PathBuf {
    // What a debugger needs is most of it.
    let binary = folder.join("locks");
    run(Command::new(Tool::Strip.path()).arg("-o").arg(&binary).arg(env!("CARGO_BIN_EXE_locks")));
    let said = run(Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/scripts/package"))
        .arg("deb")
        .arg(binary)
        .envs([("DEBFULLNAME", "Somebody"), ("DEBEMAIL", "somebody@example.org")]));
    PathBuf::from(said.lines().last().expect("it tells where the package is"))
}

/// Where nothing is installed.
struct Root(TempDir);

impl Root {
    fn new() -> Root {
        let root = Root(tempfile::tempdir().expect("a folder can be made"));
        for folder in ["info", "parts", "triggers", "updates"] {
            let folder = root.path("var/lib/dpkg").join(folder);
            fs::create_dir_all(folder).expect("the folder is ours");
        }
        for file in ["status", "available"] {
            fs::write(root.path("var/lib/dpkg").join(file), "").expect("the folder is ours");
        }
        root
    }

    fn path(&self, path: &str) -> PathBuf {
        self.0.path().join(path)
    }

    /// Everybody may do it, and what runs at it keeps to this root.
    fn dpkg(&self, arguments: &[&str]) {
        run(Command::new(Tool::Dpkg.path())
            .arg(format!("--root={}", self.0.path().display()))
            .args(["--force-not-root", "--force-script-chrootless", "--force-depends"])
            .arg("--no-triggers")
            .args(arguments));
    }

    /// Every file and link but those of dpkg itself.
    fn files(&self) -> BTreeSet<String> {
        let mut files = BTreeSet::new();
        let mut folders = vec![self.0.path().to_owned()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).expect("it can be read") {
                let path = entry.expect("it can be read").path();
                if path.is_dir() && !path.is_symlink() {
                    folders.push(path);
                } else {
                    let path = path.strip_prefix(self.0.path()).expect("it is inside");
                    files.insert(path.display().to_string());
                }
            }
        }
        files.retain(|file| !file.starts_with("var/lib/dpkg/") && !file.starts_with("var/log/"));
        files
    }
}

/// Starts what is installed with the variables that the service is given.
async fn start(root: &Root, dsn: &Path) -> Exporter {
    let mut command = Command::new(root.path("usr/bin").join(NAME));
    command.args(exporter::serve(&["--dsn-file", &dsn.to_string_lossy()]).get_args());
    let defaults = fs::read_to_string(root.path("etc/default").join(NAME)).expect("there is one");
    let set = defaults.lines().filter(|line| !line.starts_with('#'));
    for (name, value) in set.filter_map(|line| line.split_once('=')) {
        command.env(name, format!("{}{value}", root.0.path().display()));
    }
    Exporter::start(command).await
}

#[tokio::test]
async fn the_debian_package_installs_runs_and_is_purged_without_a_trace() {
    require!(CargoDeb, Dpkg, Strip, Postgres);
    let folder = tempfile::tempdir().expect("a folder can be made");
    let package = make_package(folder.path());
    let package = package.to_str().expect("it is text");
    let root = Root::new();
    root.dpkg(&["--install", package]);

    let installed = root.files();
    for file in [
        "etc/default/pg-locks-exporter",
        "etc/pg-locks-exporter/registry.yaml",
        "etc/systemd/system/multi-user.target.wants/pg-locks-exporter.service",
        "usr/bin/locks",
        "usr/bin/pg-locks-exporter",
        "usr/lib/systemd/system/pg-locks-exporter.service",
        "usr/share/bash-completion/completions/locks",
        "usr/share/doc/pg-locks-exporter/copyright",
        "usr/share/doc/pg-locks-exporter/docs/connecting.md",
        "usr/share/fish/vendor_completions.d/locks.fish",
        "usr/share/man/man1/locks.1.gz",
        "usr/share/man/man1/pg-locks-exporter.1.gz",
        "usr/share/pg-locks-exporter/alerts/advisory-locks.yml",
        "usr/share/pg-locks-exporter/dashboards/overview.json",
        "usr/share/zsh/vendor-completions/_locks",
    ] {
        assert!(installed.contains(file), "{file} is not among {installed:#?}");
        assert!(root.path(file).is_symlink() || root.path(file).exists(), "{file}");
    }
    let unit = root.path("usr/lib/systemd/system/pg-locks-exporter.service");
    assert_eq!(fs::read_to_string(&unit).expect("it is there"), UNIT);
    let mode = fs::metadata(root.path("usr/bin/locks")).expect("it is there").permissions().mode();
    assert_eq!(mode & 0o7777, 0o755);
    let program = UNIT.lines().find_map(|line| line.strip_prefix("ExecStart=/")?.split(' ').next());
    assert!(root.path(program.expect("it starts a program")).exists());

    let postgres = Postgres::start().await;
    let _holder = postgres.holds("pod-a", "42").await;
    let dsn = root.path("etc/pg-locks-exporter/dsn");
    fs::write(&dsn, postgres.dsn("postgres")).expect("the folder is there");
    let exporter = start(&root, &dsn).await;
    let scrape = exporter.scrape_fresh().await;
    scrape.sample("pg_advisory_registry_last_reload_successful").is(1.0);
    scrape.sample("pg_advisory_lock_holders").with("lock", "unregistered").is(1.0);

    // What its operator wrote stays, and is what the service reads.
    let registry = root.path("etc/pg-locks-exporter/registry.yaml");
    let own = "locks: [{ name: cron, key: 42, databases: [app] }]\n";
    fs::write(&registry, own).expect("the folder is there");
    root.dpkg(&["--install", package]);
    assert_eq!(fs::read_to_string(&registry).expect("it is there"), own);
    eventually("the name is served", async || {
        exporter.scrape().await.sample("pg_advisory_lock_holders").with("lock", "cron").is(1.0);
    })
    .await;
    drop(exporter);

    root.dpkg(&["--remove", NAME]);
    let kept: Vec<String> =
        root.files().into_iter().filter(|file| !file.contains("systemd")).collect();
    assert_eq!(
        kept,
        [
            "etc/default/pg-locks-exporter",
            "etc/pg-locks-exporter/dsn",
            "etc/pg-locks-exporter/registry.yaml",
        ]
    );
    // As systemd keeps it.
    let state = root.path("var/lib/private/pg-locks-exporter");
    fs::create_dir_all(&state).expect("the folder is ours");
    fs::write(state.join("state.json"), "{}").expect("the folder is ours");
    std::os::unix::fs::symlink("private/pg-locks-exporter", root.path("var/lib/pg-locks-exporter"))
        .expect("the folder is ours");
    root.dpkg(&["--purge", NAME]);
    assert_eq!(root.files(), BTreeSet::new());
}
