//! `pleat run` on real programs, with a stand-in for the agent that a C compiler makes.

mod bench;
mod job_control;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::process::Output;

use bench::{Bench, require};
use pager::ledger::Gauge;
use serde_json::Value;

/// Bad input: one line on standard error, the right status.
fn assert_refused(output: &Output, status: i32, part: &str) {
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(status), "{text}");
    assert_eq!(text.lines().count(), 1, "{text}");
    assert!(text.starts_with("pleat: ") && text.contains(part), "{text:?} without {part:?}");
}

#[test]
fn the_status_is_that_of_the_program() {
    let bench = require!(Bench::new("status"));
    for code in [0, 1, 7, 255] {
        let output = bench.run(&["sh", "-c", &format!("exit {code}")]);
        assert_eq!(output.status.code(), Some(code));
        assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    for signal in [9, 11, 13, 15] {
        let output = bench.run(&["sh", "-c", &format!("kill -{signal} $$")]);
        assert_eq!(output.status.signal(), Some(signal));
        assert!(!output.status.core_dumped());
    }
}

#[test]
fn input_output_and_arguments_pass_through() {
    let bench = require!(Bench::new("passing"));
    let output = bench.run(&["sh", "-c", "printf '%s|' \"$0\" \"$@\"; echo wrong >&2", "a b", "--ram", "-v", ""]);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "a b|--ram|-v||");
    assert_eq!(String::from_utf8_lossy(&output.stderr), "wrong\n");
}

#[test]
fn scripts_and_files_that_only_a_shell_knows() {
    let bench = require!(Bench::new("scripts"));
    for (text, printed) in
        [("#!/bin/sh\necho $1", "x"), ("#!/usr/bin/env sh\necho $1", "x"), ("echo $1", "x"), ("", "")]
    {
        let script = bench.file("script", text.as_bytes(), 0o755);
        let output = bench.run(&[&script, "x"]);
        assert_eq!(output.status.code(), Some(0), "{text}: {}", String::from_utf8_lossy(&output.stderr));
        assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), printed, "{text}");
    }
}

#[test]
fn bad_options_are_refused() {
    let bench = require!(Bench::new("options"));
    for (options, part) in [
        (&["--ram", "fast"][..], "such as 256M"),
        (&["--ram=-5M"], "such as 256M"),
        (&["--ram", "15M"], "minimum of 16 MiB"),
        (&["--ram", "0.01%"], "minimum of 16 MiB"),
        (&["--ram", "120%"], "between 0% and 100%"),
        (&["--swap-size", "much"], "such as 256M"),
        (&["--when-full", "explode"], "possible values: exceed, stop"),
        (&["--swap", "/proc/sys"], "cannot be written"),
        (&["--swap", "/no/such/directory"], "no such directory"),
        (&["--swap", "/etc/passwd"], "not empty"),
        (&["--swap", "/dev/null"], "neither a directory nor a file"),
        (&["--stats", "/no/such/stats.json"], "--stats /no/such/stats.json"),
        (&["--wrong"], "--wrong"),
    ] {
        assert_refused(&bench.run_with(options, &["true"]), 125, part);
    }
    assert_refused(&bench.run_with(&[], &[]), 125, "required");
    assert_refused(&bench.command(&[], &["true"]).env("PLEAT_RAM", "1x").output().unwrap(), 125, "such as 256M");
    let elsewhere = bench.command(&[], &["true"]).env("PLEAT_AGENT", "/no/agent.so").output().unwrap();
    assert_refused(&elsewhere, 125, "/no/agent.so");
    let spaced = bench.file("my agent.so", b"", 0o644);
    let output = bench.command(&[], &["true"]).env("PLEAT_AGENT", spaced).output().unwrap();
    assert_refused(&output, 125, "space or a colon");
}

#[test]
fn programs_that_cannot_be_run_are_refused() {
    let bench = require!(Bench::new("refused"));
    assert_refused(&bench.run(&["no-such-program-here"]), 127, "not found");
    assert_refused(&bench.run(&["/no/such/program"]), 127, "No such file");
    assert_refused(&bench.run(&["/etc"]), 126, "directory");
    assert_refused(&bench.run(&["/etc/passwd"]), 126, "ermission");
    assert_refused(&bench.run(&[&bench.file("orphan", b"#!/no/interpreter\n", 0o755)]), 127, "/no/interpreter");
    assert_refused(&bench.run(&[&bench.file("torn", b"\x7fELF\x02\x01", 0o755)]), 126, "torn");
    let endless = bench.path("endless");
    fs::write(&endless, format!("#!{endless}\n")).unwrap();
    fs::set_permissions(&endless, fs::Permissions::from_mode(0o755)).unwrap();
    assert_refused(&bench.run(&[&endless]), 126, "interpreters");
}

#[test]
fn programs_that_cannot_be_managed_are_refused() {
    let bench = require!(Bench::new("unmanageable"));
    let mut shell = fs::read("/bin/sh").unwrap();
    let set_id = bench.file("set-id", &shell, 0o755);
    if std::os::unix::fs::chown(&set_id, Some(12345), Some(12345)).is_ok() {
        fs::set_permissions(&set_id, fs::Permissions::from_mode(0o4755)).unwrap();
        assert_refused(&bench.run(&[&set_id]), 125, "set-user-ID");
        fs::set_permissions(&set_id, fs::Permissions::from_mode(0o2755)).unwrap();
        assert_refused(&bench.run(&[&set_id]), 125, "set-group-ID");
    } else {
        println!("skipped: set-user-ID programs (not root)");
    }
    // e_machine, then the class.
    shell[18] ^= 1;
    assert_refused(&bench.run(&[&bench.file("machine", &shell, 0o755)]), 125, "another architecture");
    shell[18] ^= 1;
    shell[4] = 1;
    assert_refused(&bench.run(&[&bench.file("class", &shell, 0o755)]), 125, "another architecture");
    let program = require!(bench.static_program("int main(void) { return 0; }"));
    assert_refused(&bench.run(&[&program]), 125, "static");
    let script = bench.file("script", format!("#!{program}\n").as_bytes(), 0o755);
    assert_refused(&bench.run(&[&script]), 125, "static");
}

#[test]
fn a_static_child_is_warned_about_once() {
    let bench = require!(Bench::new("static-child"));
    let source = "#include <unistd.h>\nint main(void) { return usleep(1500000); }";
    let program = require!(bench.static_program(source));
    let output = bench.run(&["sh", "-c", "\"$0\" & \"$0\"; wait; exit 3", &program]);
    assert_eq!(output.status.code(), Some(3));
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(text, format!("pleat: {program} is static: it runs outside the budget\n"));
}

#[test]
fn the_statistics_add_up() {
    let bench = require!(Bench::new("statistics"));
    let path = bench.path("stats.json");
    let script = "for i in 1 2 3; do /bin/true; done; sleep 0.1";
    let mut command = bench.command(&["--ram", "64M", "--stats", &path, "-v"], &["sh", "-c", script]);
    let output = command.env("TEST_AGENT", "manage").output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let summary = String::from_utf8_lossy(&output.stderr);
    assert!(summary.contains(" of 64 MiB") && summary.contains("staged faults"), "{summary}");
    let document: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    let processes = document["processes"].as_array().unwrap();
    // The shell, three times true, sleep: a process that lives for less than a look may be seen or not, but what it
    // counted is not lost, for its entry waits for us.
    assert_eq!(processes.len(), 5, "{document}");
    assert_eq!(document["budget_bytes"], 64 << 20);
    assert_eq!(document["running"], false);
    assert_eq!(document["pages_reclaimed"], 5 * 10);
    assert_eq!(document["faults"]["raced"]["count"], 5 * 6);
    assert_eq!(document["resident_bytes"], 0);
    assert_eq!(document["footprint_bytes"], 0);
    for process in processes {
        assert_eq!(process["alive"], false);
        assert_eq!(process["pages_backed_peak"], 2000 + Gauge::PagesBacked as u64);
    }
    assert!(document["resident_bytes_peak"].as_u64().unwrap() >= 2000);
}

#[test]
fn agents_are_woken_at_the_threshold() {
    let bench = require!(Bench::new("threshold"));
    let path = bench.path("stats.json");
    let output =
        bench.command(&["--ram", "64M", "--stats", &path], &["true"]).env("TEST_AGENT", "grow").output().unwrap();
    assert_eq!(output.status.code(), Some(55), "{}", String::from_utf8_lossy(&output.stderr));
    let document: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    let peak = document["footprint_bytes_peak"].as_u64().unwrap();
    // Half of the budget, less what a program could grow by before the next look.
    assert!((16 << 20..80 << 20).contains(&peak), "{peak}");
    // The same growth stays asleep under a budget that it does not reach; only the time limit ends its wait.
    let output = bench.command(&["--ram", "1G"], &["true"]).env("TEST_AGENT", "grow").output().unwrap();
    assert_eq!(output.status.code(), Some(56));
}

#[test]
fn a_failed_agent_and_a_full_budget_have_their_status() {
    let bench = require!(Bench::new("ends"));
    for (what, status) in [("fail", 125), ("stop", 137)] {
        let output = bench.command(&[], &["sleep", "20"]).env("TEST_AGENT", what).output().unwrap();
        assert_eq!(output.status.code(), Some(status), "{what}");
        assert!(output.stderr.is_empty());
    }
    // A descendant that meets the end of the budget ends the run.
    let script = "TEST_AGENT=stop /bin/true; sleep 20";
    let output = bench.command(&[], &["sh", "-c", script]).env("TEST_AGENT", "manage").output().unwrap();
    assert_eq!(output.status.code(), Some(137));
}

#[test]
fn doctor_man_and_completions() {
    let bench = require!(Bench::new("others"));
    let output = bench.pleat(&["doctor", "--json"]).output().unwrap();
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(document["works"], output.status.success());
    assert!(document["findings"].as_array().unwrap().len() > 10);
    let lines = bench.pleat(&["doctor"]).output().unwrap();
    assert_eq!(lines.status, output.status);

    let directory = bench.path("man");
    assert!(bench.pleat(&["man", "--out", &directory]).status().unwrap().success());
    let page = fs::read_to_string(format!("{directory}/pleat-run.1")).unwrap();
    for option in ["ram", "swap", "swap\\-size", "when\\-full", "stats", "verbose"] {
        assert!(page.contains(&format!("\\-\\-{option}")), "{option}");
    }
    assert!(String::from_utf8(bench.pleat(&["man"]).output().unwrap().stdout).unwrap().starts_with(".ie"));
    for shell in ["bash", "zsh", "fish"] {
        let script = bench.pleat(&["completions", shell]).output().unwrap().stdout;
        assert!(String::from_utf8(script).unwrap().contains("when-full"), "{shell}");
    }
}
