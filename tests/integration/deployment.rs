//! How the exporter is run elsewhere: the systemd unit, the container and the Kubernetes manifests say
//! what the binary understands, and it works as they run it.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::support::exporter::serve;
use crate::support::files::Files;
use crate::support::process::{give_away, make_home, unprivileged_command};
use crate::support::{Exporter, Postgres, Tool, eventually, locks, require};

const UNIT: &str = include_str!("../../packaging/systemd/pg-locks-exporter.service");
const EXPORTER: &str = include_str!("../../packaging/kubernetes/exporter.yaml");
const MONITORING: &str = include_str!("../../packaging/kubernetes/monitoring.yaml");
const RULES: &str = include_str!("../../packaging/kubernetes/rules.yaml");
const KUSTOMIZATION: &str = include_str!("../../packaging/kubernetes/kustomization.yaml");
const ALERTS: &str = include_str!("../../alerts/advisory-locks.yml");
const DEPLOYING: &str = include_str!("../../docs/deploying.md");
const DOCKERFILE: &str = include_str!("../../Dockerfile");

fn documents(text: &str) -> Vec<Value> {
    let documents = text.split("\n---\n");
    documents.map(|text| serde_saphyr::from_str(text).expect("it is YAML")).collect()
}

/// The document of this kind.
fn document(kind: &str) -> Value {
    let mut found = documents(EXPORTER).into_iter().filter(|document| document["kind"] == kind);
    found.next().unwrap_or_else(|| panic!("there is no {kind}"))
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_else(|| panic!("{value} is no text"))
}

// ---- systemd ----

/// The unit with the built binary in the place of the installed one.
fn installed_unit(files: &Files) -> String {
    let unit = UNIT.replace("/usr/bin/locks", env!("CARGO_BIN_EXE_locks"));
    files.write("pg-locks-exporter.service", &unit)
}

#[test]
fn systemd_finds_no_fault_in_the_unit_and_little_that_it_could_do() {
    require!(SystemdAnalyze);
    let files = Files::new();
    let analyze = |arguments: &[&str]| {
        let output = Command::new(Tool::SystemdAnalyze.path()).args(arguments).output();
        let output = output.expect("it can be run");
        let said = [output.stderr, output.stdout].concat();
        (output.status.success(), String::from_utf8_lossy(&said).into_owned())
    };
    let unit = installed_unit(&files);
    let (is_good, said) = analyze(&["verify", "--man=no", &unit]);
    let about_it: Vec<_> = said.lines().filter(|line| line.contains("pg-locks-exporter")).collect();
    assert!(is_good && about_it.is_empty(), "{said}");
    // In tenths: below 2.0 it calls a service safe.
    let (is_safe, said) = analyze(&["security", "--offline=yes", "--threshold=19", &unit]);
    assert!(is_safe, "{said}");

    // What the document changes for several servers, which it takes in the place of one.
    let change = DEPLOYING.split("```ini\n").nth(1).and_then(|rest| rest.split("```").next());
    let several = format!("{UNIT}\n{}", change.expect("there is a block"));
    let several = several.replace("/usr/bin/locks", env!("CARGO_BIN_EXE_locks"));
    let several = files.write("several.service", &several);
    let (is_good, said) = analyze(&["verify", "--man=no", &several]);
    assert!(is_good && !said.contains("several.service"), "{said}");

    let broken = UNIT.replace("WatchdogSec=60", "WatchdogSec=often");
    let broken = files.write("broken.service", &broken);
    let (_, said) = analyze(&["verify", "--man=no", &broken]);
    assert!(said.contains("Failed to parse"), "a mistake would be seen: {said}");
}

#[tokio::test]
async fn the_command_of_the_unit_runs_with_what_systemd_gives_it() {
    require!(Postgres);
    let postgres = Postgres::start().await;
    let files = Files::new();
    let start = UNIT.lines().find_map(|line| line.strip_prefix("ExecStart=/usr/bin/locks serve "));
    files.write("dsn", &postgres.dsn("postgres"));
    let folder = files.path("");
    let state = files.path("pg-locks-exporter");
    fs::create_dir(&state).expect("the folder is ours");
    let arguments = start
        .expect("it starts the exporter")
        .replace("%d", &folder.to_string_lossy())
        .replace("%S", &folder.to_string_lossy());
    let arguments: Vec<&str> = arguments.split(' ').collect();
    let exporter = Exporter::start(serve(&arguments)).await;
    eventually("it polls", async || {
        exporter.scrape().await.sample("pg_advisory_up").is(1.0);
    })
    .await;
    eventually("it remembers", async || assert!(state.join("state.json").exists())).await;
}

// ---- container ----

/// What the last stage of the Dockerfile sets: its environment, user and command.
fn image() -> (BTreeMap<String, String>, String, Vec<String>) {
    let stage = DOCKERFILE.rsplit("\nFROM ").next().expect("it has a stage");
    let (mut env, mut user, mut command) = (BTreeMap::new(), String::new(), Vec::new());
    for line in stage.lines() {
        match line.split_once(' ') {
            Some(("ENV", set)) => {
                let (name, value) = set.split_once('=').expect("NAME=VALUE");
                env.insert(name.to_owned(), value.to_owned());
            }
            Some(("USER", name)) => name.clone_into(&mut user),
            Some(("ENTRYPOINT" | "CMD", list)) => {
                command.extend(serde_json::from_str::<Vec<String>>(list).expect("the exec form"));
            }
            _ => {}
        }
    }
    (env, user, command)
}

#[test]
fn the_image_runs_as_nobody_listens_to_all_and_is_built_of_what_is_there() {
    let (env, user, command) = image();
    assert_eq!(env["LOCKS_WEB_LISTEN_ADDRESS"], ":10187");
    assert!(user.split(':').all(|id| id.parse::<u32>().is_ok_and(|id| id > 0)), "{user}");
    assert_eq!(command, ["/usr/bin/locks", "serve"]);
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    // The oldest compiler that the manifest promises is the one that builds it.
    let manifest = fs::read_to_string(root.join("Cargo.toml")).expect("there is one");
    let version = manifest.lines().find_map(|line| line.strip_prefix("rust-version = "));
    let version = version.expect("it promises one").trim_matches('"');
    assert!(DOCKERFILE.contains(&format!("FROM rust:{version}-")), "rust {version}");
    let ignored = fs::read_to_string(root.join(".dockerignore")).expect("there is one");
    for kept in ignored.lines().filter_map(|line| line.strip_prefix('!')) {
        assert!(root.join(kept).exists(), "{kept}");
    }
    for needed in ["Cargo.toml", "Cargo.lock", "src", "benches", "tests", "examples", "README.md"] {
        assert!(ignored.lines().any(|line| line == format!("!{needed}")), "{needed} is not sent");
    }
}

// ---- Kubernetes ----

#[test]
fn the_manifests_belong_together() {
    let deployment = document("Deployment");
    let spec = &deployment["spec"]["template"]["spec"];
    let container = &spec["containers"][0];
    assert_eq!(deployment["spec"]["replicas"], 1);
    assert_eq!(deployment["spec"]["strategy"]["type"], "Recreate");
    assert_eq!(spec["securityContext"]["runAsNonRoot"], true);
    let security = &container["securityContext"];
    assert_eq!(security["readOnlyRootFilesystem"], true);
    assert_eq!(security["allowPrivilegeEscalation"], false);
    assert_eq!(security["capabilities"]["drop"], serde_json::json!(["ALL"]));

    let labels = &deployment["spec"]["template"]["metadata"]["labels"];
    assert_eq!(&deployment["spec"]["selector"]["matchLabels"], labels);
    assert_eq!(&document("NetworkPolicy")["spec"]["podSelector"]["matchLabels"], labels);
    let monitor = &documents(MONITORING)[0];
    assert_eq!(&monitor["spec"]["selector"]["matchLabels"], labels);
    // One name of one port, everywhere.
    let port = &container["ports"][0];
    assert_eq!(port["containerPort"], 10187);
    for other in [
        &container["livenessProbe"]["httpGet"]["port"],
        &container["readinessProbe"]["httpGet"]["port"],
        &document("NetworkPolicy")["spec"]["ingress"][0]["ports"][0]["port"],
        &monitor["spec"]["podMetricsEndpoints"][0]["port"],
    ] {
        assert_eq!(other, &port["name"]);
    }
    let volumes = spec["volumes"].as_array().expect("it has volumes");
    let mounts = container["volumeMounts"].as_array().expect("it mounts them");
    assert_eq!(volumes.len(), mounts.len());
    for (volume, mount) in volumes.iter().zip(mounts) {
        assert_eq!(volume["name"], mount["name"]);
    }
    assert_eq!(volumes[0]["configMap"]["name"], document("ConfigMap")["metadata"]["name"]);
    assert_eq!(volumes[1]["secret"]["secretName"], document("Secret")["metadata"]["name"]);

    let kustomization = &documents(KUSTOMIZATION)[0];
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("packaging/kubernetes");
    let resources = kustomization["resources"].as_array().expect("it lists files");
    assert_eq!(resources.len(), 3);
    assert!(resources.iter().all(|name| folder.join(text(name)).is_file()), "{resources:?}");
}

/// What the schemas of Kubernetes say of this file, and whether they have nothing against it.
fn validate(path: &Path) -> (bool, String) {
    let output = Command::new("/usr/bin/python3")
        .args(["-m", "kubernetes_validate", "--strict"])
        .arg(path)
        .env("PYTHONPATH", Tool::KubernetesValidate.path())
        .output()
        .expect("it can be run");
    let said = [output.stderr, output.stdout].concat();
    (output.status.success(), String::from_utf8_lossy(&said).into_owned())
}

#[test]
fn kubernetes_knows_every_field_of_the_manifests() {
    require!(KubernetesValidate);
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (is_good, said) = validate(&root.join("packaging/kubernetes/exporter.yaml"));
    assert!(is_good, "{said}");
    let passed = said.lines().filter(|line| line.contains(" passed for resource ")).count();
    assert_eq!(passed, documents(EXPORTER).len(), "{said}");

    let files = Files::new();
    for (right, wrong) in [
        ("readOnlyRootFilesystem:", "readonlyRootFilesystem:"),
        ("livenessProbe:", "livelinessProbe:"),
        ("replicas: 1", "replicas: one"),
    ] {
        let broken = EXPORTER.replace(right, wrong);
        assert_ne!(broken, EXPORTER);
        let (is_good, said) = validate(Path::new(&files.write("broken.yaml", &broken)));
        assert!(!is_good && said.contains("did not validate"), "{wrong}: {said}");
    }
}

/// Those of the operator of Prometheus are not among the schemas.
#[test]
fn the_operator_knows_every_field_of_its_resources() {
    let names = |value: &Value| -> Vec<String> {
        value.as_object().expect("it has fields").keys().cloned().collect()
    };
    let (monitor, rules) = (&documents(MONITORING)[0], &documents(RULES)[0]);
    assert_eq!(monitor["kind"], "PodMonitor");
    assert_eq!(names(&monitor["spec"]), ["podMetricsEndpoints", "selector"]);
    assert_eq!(names(&monitor["spec"]["podMetricsEndpoints"][0]), ["interval", "port"]);
    assert_eq!(names(&rules["spec"]), ["groups"]);
    for resource in [monitor, rules] {
        assert_eq!(resource["apiVersion"], "monitoring.coreos.com/v1");
        assert_eq!(names(resource), ["apiVersion", "kind", "metadata", "spec"]);
    }
}

#[test]
fn the_rules_for_the_operator_are_the_alerts() {
    let rules = &documents(RULES)[0];
    assert_eq!(rules["kind"], "PrometheusRule");
    let alerts = &documents(ALERTS)[0];
    assert_eq!(rules["spec"]["groups"], alerts["groups"], "run scripts/package rules");
}

/// Lays files out as the kubelet mounts a ConfigMap or a Secret.
fn mount(folder: &Path, version: &str, files: &Value, change: impl Fn(&str) -> String) {
    let data = folder.join(version);
    fs::create_dir_all(&data).expect("the folder is ours");
    give_away(folder);
    give_away(&data);
    for (name, text) in files.as_object().expect("it has files") {
        let path = data.join(name);
        fs::write(&path, change(text.as_str().expect("text"))).expect("the folder is ours");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o444)).expect("it is ours");
        let link = folder.join(name);
        if !link.is_symlink() {
            symlink(Path::new("..data").join(name), &link).expect("the folder is ours");
        }
    }
    let new = folder.join("..data_tmp");
    symlink(version, &new).expect("the folder is ours");
    fs::rename(new, folder.join("..data")).expect("the folder is ours");
}

#[tokio::test]
async fn what_the_deployment_says_runs_and_takes_a_new_config_map() {
    require!(Postgres);
    let postgres = Postgres::start().await;
    let session = postgres.session("roles").await;
    session.run("CREATE ROLE locks LOGIN PASSWORD 'of the secret'").await;
    session.run("GRANT pg_read_all_stats TO locks").await;
    postgres.set_hba(&["host all locks 127.0.0.1/32 scram-sha-256"]);
    let _holder = postgres.holds("pod-a", "42").await;

    let home = make_home();
    let place = |path: &str| -> PathBuf { home.path().join(path.trim_start_matches('/')) };
    let (config, secret) =
        (place("/etc/pg-locks-exporter"), place("/run/secrets/pg-locks-exporter"));
    let state = place("/var/lib/pg-locks-exporter");
    fs::create_dir_all(&state).expect("the folder is ours");
    give_away(&state);
    let port = postgres.port();
    let here = |text: &str| {
        text.replace("orders-primary.db.svc", &format!("127.0.0.1:{port}"))
            .replace("/run/secrets/", &format!("{}/", place("/run/secrets").display()))
            .replace("REPLACE-THIS-PASSWORD", "of the secret")
    };
    mount(&config, "..2026_12_01", &document("ConfigMap")["data"], here);
    mount(&secret, "..2026_12_01", &document("Secret")["stringData"], here);

    let container = &document("Deployment")["spec"]["template"]["spec"]["containers"][0];
    let arguments = container["args"].as_array().expect("it has arguments").iter().map(text);
    let arguments: Vec<String> = arguments
        .map(|argument| match argument.starts_with('/') {
            true => place(argument).display().to_string(),
            false => argument.to_owned(),
        })
        .collect();
    // Another port, since that one may be taken here, and a user who may write nowhere else.
    let inner = locks(&[]);
    let mut command = unprivileged_command(Path::new(inner.get_program()), home.path());
    command.args(&arguments).args(["--web.listen-address", "127.0.0.1:0"]);
    for variable in container["env"].as_array().expect("it has variables") {
        command.env(text(&variable["name"]), text(&variable["value"]));
    }
    let exporter = Exporter::start(command).await;
    for probe in ["readinessProbe", "livenessProbe"] {
        let path = text(&container[probe]["httpGet"]["path"]);
        eventually("the probe is content", async || {
            assert_eq!(exporter.get(path, &[]).await.status, 200);
        })
        .await;
    }
    let holders = async |lock: &str| {
        eventually("the lock is named", async || {
            let scrape = exporter.scrape().await;
            scrape.sample("pg_advisory_up").with("server", "orders-primary").is(1.0);
            scrape.sample("pg_advisory_lock_holders").with("key", "42").with("lock", lock).is(1.0);
        })
        .await;
    };
    holders("unregistered").await;

    // A new version of the ConfigMap gives the lock a name.
    mount(&config, "..2026_12_02", &document("ConfigMap")["data"], |text| {
        here(text).replace("locks: []", "locks: [{ name: billing, key: 42 }]")
    });
    holders("billing").await;
}
