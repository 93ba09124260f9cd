//! What pleat costs a program that never reaches its budget, and what an idle agent costs.
#![forbid(unsafe_code)]

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use bench::tree::{cpu_ticks, pids};
use pleat_e2e::{assert_same, command, folded, plain, pleat_command, python, turn, words};

const PAIRS: usize = 15;
const ALLOWED_SHARE: f64 = 0.005;
const ALLOWED_S: f64 = 0.020;

fn median(mut numbers: Vec<f64>) -> (f64, f64, f64) {
    numbers.sort_by(f64::total_cmp);
    (numbers[numbers.len() / 2], numbers[0], numbers[numbers.len() - 1])
}

#[test]
fn a_budget_that_is_never_reached_costs_nothing() {
    let turn = turn("overhead");
    let job = concat!(env!("CARGO_MANIFEST_DIR"), "/../../bench/jobs/dictionary.py");
    let job = words([python(), job, "150000"]);
    let options = turn.options("4G");
    // The first run of each reads files that the others find in memory.
    assert_same(&plain(&job), &folded(&options, &job));
    let (mut plain_runs, mut differences) = (Vec::new(), Vec::new());
    for pair in 0..PAIRS {
        // Each goes first as often as the other.
        let (before, after) = if pair % 2 == 0 {
            let before = plain(&job);
            (before, folded(&options, &job))
        } else {
            let after = folded(&options, &job);
            (plain(&job), after)
        };
        plain_runs.push(before.wall.as_secs_f64());
        differences.push(after.wall.as_secs_f64() - before.wall.as_secs_f64());
    }
    let (plain_s, ..) = median(plain_runs);
    let (median_s, least_s, most_s) = median(differences);
    println!("plain {plain_s:.3} s; pleat adds {median_s:+.4} s ({least_s:+.4} to {most_s:+.4}), {PAIRS} pairs");
    assert!(median_s <= plain_s * ALLOWED_SHARE + ALLOWED_S, "pleat adds {median_s:.4} s to {plain_s:.3} s");
}

/// Ticks (10 ms) that the processes of a run compute in two seconds, once they have come to rest. `under` is how many
/// processes at the top do not count.
fn ticks_at_rest(mut command: Command, skip_root: bool) -> u64 {
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().expect("it can be started");
    std::thread::sleep(Duration::from_millis(2500));
    let program = program_of(&child, skip_root);
    let start = cpu_ticks(program);
    std::thread::sleep(Duration::from_secs(2));
    let ticks = cpu_ticks(program).saturating_sub(start);
    child.kill().expect("it still runs");
    child.wait().expect("a child can be waited for");
    ticks
}

fn program_of(child: &Child, skip_root: bool) -> u32 {
    let tree = pids(child.id());
    assert!(tree.len() > usize::from(skip_root), "the program does not run");
    tree[usize::from(skip_root)]
}

#[test]
fn an_idle_agent_uses_no_cpu() {
    let turn = turn("idle");
    let sleep = words([python(), "-c", "import time; time.sleep(20)"]);
    let before = ticks_at_rest(command(&sleep), false);
    let after = ticks_at_rest(pleat_command(&turn.options("1G"), &sleep), true);
    println!("2 s asleep: {before} ticks plain, {after} under pleat");
    assert!(after <= before + 1, "{after} ticks of 10 ms against {before}");
}

#[test]
fn an_agent_with_nothing_to_do_uses_next_to_no_cpu() {
    let turn = turn("idle-full");
    // Over the budget at first, then at rest.
    let script = "import os, time; data = [os.urandom(4096) for _ in range(25000)]; time.sleep(20)";
    let sleep = words([python(), "-c", script]);
    let ticks = ticks_at_rest(pleat_command(&turn.options("64M"), &sleep), true);
    println!("2 s asleep over the budget: {ticks} ticks");
    assert!(ticks <= 3, "{ticks} ticks of 10 ms in 2 s");
}
