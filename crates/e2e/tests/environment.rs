//! Programs whose environment does not lead to the run: they join it all the same, and find what they were given.
#![forbid(unsafe_code)]

use pleat_e2e::{MODES, Turn, assert_same, assert_within, folded, plain, pleat_words, python, turn, with_mode, words};

const BUDGET: u64 = 32 << 20;
/// 50 MiB of strings.
const STRINGS: &str = "x = {f'key{i * 7919 % 320009}': str(i) for i in range(320009)}; print(len(x), x['key777'])";
const PRELOADED: &str = "LD_PRELOAD=libm.so.6";

/// Output as without pleat, and memory inside the budget.
fn assert_joins(name: &str, command: &[String]) {
    assert_joins_in(&turn(name), command);
}

fn assert_joins_in(turn: &Turn, command: &[String]) {
    let before = plain(command);
    let after = folded(&turn.options("32M"), command);
    assert_same(&before, &after);
    assert_within(&before, &after, BUDGET);
    assert_eq!(after.stderr, before.stderr);
    turn.assert_clean(&after);
}

#[test]
fn a_program_without_an_environment_joins() {
    assert_joins("no-environment", &words(["env", "-i", python(), "-c", STRINGS]));
}

/// A shell that sets the variable, and a server that makes an environment by itself (subprocess executes behind vfork).
#[test]
fn a_program_that_preloads_something_else_joins() {
    let preload = format!("{PRELOADED} exec \"$0\" -c \"$1\"");
    assert_joins("other-preload", &words(["sh", "-c", &preload, python(), STRINGS]));
    let serve =
        "import subprocess, sys; print(subprocess.run([sys.executable, '-c', sys.argv[1]], env={'A': '1'}).returncode)";
    assert_joins("own-environment", &words([python(), "-c", serve, STRINGS]));
}

/// By the descriptor of its file, and below a directory.
#[test]
fn what_is_executed_by_descriptor_joins() {
    let by_file = "import os, sys; own = sys.executable; \
                   os.execve(os.open(own, os.O_RDONLY), [own, '-c', sys.argv[1]], {'A': '1'})";
    assert_joins("by-descriptor", &words([python(), "-c", by_file, STRINGS]));
    let below = "import ctypes, sys; own = sys.executable.encode(); array = ctypes.c_char_p * 4; \
                 given = array(own, b'-c', sys.argv[1].encode(), None); \
                 ctypes.CDLL(None).execveat(-100, own, given, array(b'A=1'), 0)";
    assert_joins("below-a-directory", &words([python(), "-c", below, STRINGS]));
}

/// The loader is executed, with the program as its argument, as wrappers do that bring libraries of their own.
#[test]
fn a_program_that_the_loader_is_told_to_run_joins() {
    let loader =
        if cfg!(target_arch = "x86_64") { "/lib64/ld-linux-x86-64.so.2" } else { "/lib/ld-linux-aarch64.so.1" };
    let turn = turn("by-the-loader");
    match turn.compile("own_data.c", &[]) {
        Ok(program) => {
            assert_joins_in(&turn, &words([loader, &program]));
            assert_joins_in(&turn, &words(["sh", "-c", "\"$0\" \"$1\"; exit $?", loader, &program]));
        }
        Err(why) => println!("skipped: {why}"),
    }
}

/// What joins so finds, and gives on, the environment that it was given.
#[test]
fn what_is_put_in_is_not_seen() {
    let turn = turn("environment-seen");
    let script = "env; env -i B=2 LD_PRELOAD=libm.so.6:libdl.so.2 env; exec env -i C=3 LD_PRELOAD= ASAN_OPTIONS=x env";
    for given in [words(["env", "-i", "A=1"]), words(["env", "-i"]), words(["env", "-i", "A=1", PRELOADED])] {
        let command = [&given[..], &words(["/bin/sh", "-c", script])].concat();
        let before = plain(&command);
        assert!(!before.stdout.is_empty());
        assert_same(&before, &folded(&turn.options("32M"), &command));
    }
}

/// Larger than what is put in has room for: the program runs as it would without pleat.
#[test]
fn a_large_environment_is_given_on_as_it_is() {
    let turn = turn("environment-large");
    let many = "import os; os.execve('/usr/bin/env', ['env'], {f'V{i}': str(i) for i in range(2000)})";
    let command = words([python(), "-c", many]);
    assert_same(&plain(&command), &folded(&turn.options("32M"), &command));
    let long = "import os; os.execve('/usr/bin/env', ['env'], {'LD_PRELOAD': ':'.join(['libm.so.6'] * 500)})";
    let command = words([python(), "-c", long]);
    assert_same(&plain(&command), &folded(&turn.options("32M"), &command));
}

/// As an emulator does that loads what it plays with the environment that it has (qemu-user): a second agent in the process. It
/// leaves everything to the first.
#[test]
fn a_second_agent_in_a_process_stays_out() {
    let load = format!(
        "import ctypes, os; preload = os.environ.get('LD_PRELOAD', ''); new_namespace, now = ctypes.c_long(-1), 2; \
         loads = ctypes.CDLL(None).dlmopen; loads.restype = ctypes.c_void_p; \
         assert not preload or loads(new_namespace, preload.encode(), now); {STRINGS}"
    );
    assert_joins("second-agent", &words([python(), "-c", &load]));
}

/// The inner one has a thread of the outer one's agent, and makes a custodian of itself all the same.
#[test]
fn a_run_inside_of_a_run_is_a_run() {
    let turn = turn("nested");
    let job = words([python(), "-c", STRINGS]);
    let before = plain(&job);
    for inner in MODES {
        let stats = turn.file("inner.json");
        let options = with_mode(inner, words(["--ram=32M", &format!("--stats={}", stats.display())]));
        let after = folded(&turn.options("96M"), &pleat_words(&options, &job));
        assert_same(&before, &after);
        assert_eq!(after.stderr, before.stderr, "{inner}");
        let stats = std::fs::read_to_string(&stats).unwrap();
        let stats: serde_json::Value = serde_json::from_str(&stats).unwrap();
        assert!(stats["pages_reclaimed"].as_u64() > Some(2000), "{inner}: {stats}");
        turn.assert_clean(&after);
    }
}

/// Nobody reads what is said any more, as behind `pleat run ... 2>&1 | head -1`: the status is the program's all the same.
#[test]
fn lines_that_nobody_reads_do_not_change_the_status() {
    let turn = turn("environment-unread");
    let mut options = turn.options("32M");
    options.push("-v".to_owned());
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut command = pleat_e2e::pleat_command(&options, &words(["sh", "-c", "exit 7"]));
    let status = command.stderr(writer).status().unwrap();
    assert_eq!(status.code(), Some(7), "{status}");
}

/// Nor of their forked children's: a file system with the directory in which a program was started could not be unmounted.
#[test]
fn no_thread_of_the_agents_stays_in_the_directory_of_the_start() {
    let script = "import os, glob; os.chdir('/'); child = os.fork(); child and os.waitpid(child, 0); \
                  x = bytearray(os.urandom(8 << 20) * 10); \
                  print(child == 0, {os.readlink(f'{task}/cwd') for task in glob.glob('/proc/self/task/*')}, flush=True)";
    let turn = turn("directory-left");
    let command = words([python(), "-c", script]);
    let before = plain(&command);
    assert_eq!(before.stdout, b"True {'/'}\nFalse {'/'}\n", "{}", before.stderr);
    let after = folded(&turn.options("32M"), &command);
    assert_same(&before, &after);
    turn.assert_clean(&after);
}
