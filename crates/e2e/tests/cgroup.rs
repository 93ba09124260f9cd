//! A memory cgroup without swap, 10 % above the budget: fatal for the plain program, no trouble under pleat.
#![forbid(unsafe_code)]

use bench::cgroup::{Group, Swap};
use pleat_e2e::{assert_same, folded_by, plain, plain_by, pleat_words, python, skipped, stats, turn, words};

const BUDGET_MIB: u64 = 100;

/// "auto: from the cgroup limit or MemAvailable": of 256 MiB, in which hardly anything runs, nine tenths.
#[test]
fn a_budget_of_its_own_choice() {
    let turn = turn("auto");
    let limit = 256 << 20;
    let group = match Group::create("pleat-auto").and_then(|group| group.limit(limit, Swap::Forbidden).map(|()| group))
    {
        Ok(group) => group,
        Err(why) => return skipped(&why),
    };
    let run = folded_by(group.command(&pleat_words(&turn.options("auto"), &words(["true"]))));
    assert_eq!(run.shell_status(), 0, "{}", run.stderr);
    let chosen = stats(&turn)["budget_bytes"].as_u64().expect("a number");
    assert!((limit / 10 * 8..=limit / 10 * 9).contains(&chosen), "{chosen} of {limit}");
}

#[test]
fn a_limit_that_kills_the_plain_program() {
    let turn = turn("cgroup");
    let limit = (BUDGET_MIB << 20) / 10 * 11;
    let group = match Group::create("pleat-e2e").and_then(|group| group.limit(limit, Swap::Forbidden).map(|()| group)) {
        Ok(group) => group,
        Err(why) => return skipped(&why),
    };
    let job = concat!(env!("CARGO_MANIFEST_DIR"), "/../../bench/jobs/dictionary.py");
    let command = words([python(), job, "500000"]);

    let killed = plain_by(group.command(&command));
    assert_eq!(killed.shell_status(), 137, "the limit does not hold: {}", killed.stderr);
    assert!(group.oom_kills() > 0, "it was not the kernel that killed it");

    let before = plain(&command);
    let kills = group.oom_kills();
    let after = folded_by(group.command(&pleat_words(&turn.options(&format!("{BUDGET_MIB}M")), &command)));
    assert_same(&before, &after);
    assert_eq!(group.oom_kills(), kills, "something was killed under pleat");
    turn.assert_clean(&after);
}
