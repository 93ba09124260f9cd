//! Programs that change their mappings and fork under pressure, checking every page themselves.
#![forbid(unsafe_code)]

use pleat_e2e::{assert_same, folded, plain, skipped, turn, words};

#[test]
fn forks_with_dirty_memory() {
    let turn = turn("fork");
    let program = match turn.compile("fork.c", &[]) {
        Ok(program) => program,
        Err(why) => return skipped(&why),
    };
    let command = words([&program, "96", "6"]);
    let before = plain(&command);
    let after = folded(&turn.options("64M"), &command);
    assert_same(&before, &after);
    turn.assert_clean(&after);
}

#[test]
fn threads_map_unmap_move_discard_and_grow() {
    let turn = turn("churn");
    let program = match turn.compile("churn.c", &["-pthread"]) {
        Ok(program) => program,
        Err(why) => return skipped(&why),
    };
    let seed = std::env::var("PLEAT_SEED").unwrap_or_else(|_| std::process::id().to_string());
    println!("seed {seed} (PLEAT_SEED={seed} repeats it)");
    let command = words([&program, &seed, "160", "10"]);
    let after = folded(&turn.options("64M"), &command);
    print!("{}", after.stderr);
    assert_eq!(String::from_utf8_lossy(&after.stdout), "all well\n", "seed {seed}: {}", after.stderr);
    assert!(after.status.success(), "seed {seed}: {}", after.stderr);
    // Not the 2 % of quiet programs: while the layout changes all the time a scan for new memory is often put off.
    // Measured: 3 % above; issue 3 is to bring it down.
    assert!(after.peaks.anon_bytes <= 64 * 1024 * 1024 * 125 / 100, "seed {seed}: {} bytes", after.peaks.anon_bytes);
    turn.assert_clean(&after);
}
