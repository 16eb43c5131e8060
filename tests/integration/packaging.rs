//! What packagers install: completions that complete in the shell itself, and a man page that its
//! readers take without a warning.

use std::process::{Command, Stdio};

use crate::support::locks;
use crate::support::process::run;

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
