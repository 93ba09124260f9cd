//! In a container of podman's, on the machine's own files: what is said where its seccomp filter or its capabilities are in the
//! way, and that `docs/deploy.md`'s ways past them work. Skipped where there is no podman, or it can start nothing.
#![forbid(unsafe_code)]

use std::fs;
use std::process::Command;

use pleat_e2e::{Run, Turn, assert_same, folded_by, plain, pleat, pleat_words, skipped, stats, text, turn, words};

/// Holds some 50 MiB, and shows them from a child, too.
const PROGRAM: &str = "\
import os
lists = [[i * 7 + j for j in range(2000)] for i in range(500)]
total = lambda: sum(sum(l[::97]) + len(l) for l in lists)
print(total(), flush=True)
if (child := os.fork()) == 0:
    lists[5][97] += 1
    print(total(), flush=True)
    os._exit(3)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), total())";

/// `podman run OPTIONS` of a root directory that has the machine's programs, and the test's own files at their own places.
fn container(turn: &Turn, options: &[&str]) -> Vec<String> {
    let root = turn.file("root");
    for place in ["etc", "proc", "sys", "dev", "tmp", "var/tmp", "run"] {
        fs::create_dir_all(root.join(place)).expect("the target directory can be written");
    }
    // Neither a network nor limits beyond those of this user: machines that are containers themselves have none to give.
    let limits = ["--ulimit=nofile=1024:1024", "--ulimit=nproc=1024:1024"];
    let mut command = words(["podman", "run", "--rm", "--network=none"]);
    command.extend(limits.map(str::to_owned));
    if which("runc") {
        command.push("--runtime=runc".to_owned());
    }
    let built = text(pleat().parent().expect("a file is in a directory"));
    for place in ["/usr".to_owned(), built] {
        command.push(format!("--volume={place}:{place}:ro"));
    }
    for place in ["bin", "lib", "lib64", "sbin"] {
        let _ = std::os::unix::fs::symlink(format!("usr/{place}"), root.join(place));
    }
    let own = turn.word("");
    command.push(format!("--volume={own}:{own}"));
    command.extend(options.iter().map(|option| (*option).to_owned()));
    command.extend(["--rootfs".to_owned(), text(&root)]);
    command
}

fn which(program: &str) -> bool {
    Command::new(program).arg("--version").output().is_ok_and(|run| run.status.success())
}

/// Whether there is a podman that can start something; if not, says why.
fn can(turn: &Turn) -> bool {
    if !which("podman") {
        skipped("podman is not installed");
        return false;
    }
    let trial: Vec<_> = container(turn, &[]).into_iter().chain(["/usr/bin/true".to_owned()]).collect();
    let run = plain(&trial);
    if run.shell_status() != 0 {
        skipped(&format!("podman cannot run a container here: {}", run.stderr.trim()));
    }
    run.shell_status() == 0
}

fn run(turn: &Turn, options: &[&str], with: &[&str], program: &[String]) -> Run {
    let pleat = pleat_words(
        &turn.options("24M").into_iter().chain(with.iter().map(|word| (*word).to_owned())).collect::<Vec<_>>(),
        program,
    );
    let words: Vec<_> = container(turn, options).into_iter().chain(pleat).collect();
    folded_by(pleat_e2e::command(&words))
}

/// One line that names what to change, for each thing in the way.
#[test]
fn who_is_in_the_way_is_named() {
    let turn = turn("container-refused");
    if !can(&turn) {
        return;
    }
    let program = words(["/usr/bin/true"]);
    let unfiltered = "--security-opt=seccomp=unconfined";
    for (options, with, said) in [
        (&[][..], &[][..], ["seccomp filter", "--cap-add SYS_PTRACE"]),
        (&["--cap-add=SYS_PTRACE"], &[], ["seccomp filter", "seccomp=unconfined"]),
        (&[], &["--user-mode"], ["seccomp filter", "seccomp=FILE"]),
        (&[unfiltered], &[], ["CAP_SYS_PTRACE", "--user-mode"]),
    ] {
        let run = run(&turn, options, with, &program);
        assert_eq!(run.shell_status(), 125, "{options:?}: {}", run.stderr);
        let lines: Vec<_> = run.stderr.lines().filter(|line| line.starts_with("pleat: ")).collect();
        assert_eq!(lines.len(), 1, "{options:?}: {}", run.stderr);
        assert!(said.iter().all(|word| lines[0].contains(word)), "{options:?}: {}", run.stderr);
    }
}

/// Without the filter and with the capability; by the device, which no filter hides; and without either permission.
#[test]
fn ways_past_it_work() {
    let turn = turn("container");
    if !can(&turn) {
        return;
    }
    let program = words(["/usr/bin/python3", "-c", PROGRAM]);
    let before = plain(&program);
    let unfiltered = "--security-opt=seccomp=unconfined";
    let rights = ["--cap-add=SYS_PTRACE", unfiltered];
    let device = ["--cap-add=SYS_PTRACE", "--device=/dev/userfaultfd"];
    for (options, with) in [(&rights[..], &[][..]), (&device, &[]), (&[unfiltered], &["--user-mode"])] {
        let needs_root = with.is_empty() && !nix::unistd::geteuid().is_root();
        if needs_root || (options == device && !std::path::Path::new("/dev/userfaultfd").exists()) {
            skipped(&format!("{options:?} needs root, and the device"));
            continue;
        }
        let after = run(&turn, options, with, &program);
        assert_same(&before, &after);
        assert!(stats(&turn)["pages_encoded"].as_u64() > Some(1000), "{options:?}: {}", after.stderr);
    }
}
