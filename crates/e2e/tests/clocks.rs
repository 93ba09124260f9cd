//! Clocks that are others in some processes of a run, or jump: what is counted and compared is time that only goes on.
#![forbid(unsafe_code)]

use std::fs;

use pleat_e2e::{MODES, assert_same, folded, plain, skipped, turn, words};
use serde_json::Value;

/// What the statistics say of a time when only the program and one child lived: both are there, and are managed. The child starts,
/// as it sees that itself, at another time than `pleat run` sees: its entry was taken for that of one who had ended and was given
/// to others.
fn assert_two_live(statistics: &str, name: &str) {
    let document: Value = serde_json::from_str(statistics).expect("JSON");
    let processes = document["processes"].as_array().expect("a list");
    let lives = |process: &&Value| process["alive"] == true && process["pages_encoded"].as_u64() > Some(1000);
    assert_eq!(processes.iter().filter(lives).count(), 2, "{name}: {processes:#?}");
}

/// A forked child's clock is hours behind that of its parent, whose state it has inherited; an executed one's is weeks ahead.
#[test]
fn processes_with_clocks_of_their_own_stay_known() {
    let turn = turn("clocks");
    let program = match turn.compile("clocks.c", &["-pthread"]) {
        Ok(program) => program,
        Err(why) => return skipped(&why),
    };
    let command = words([&program, &turn.word("stats.json"), &turn.word("then")]);
    let before = plain(&command);
    if before.stdout.starts_with(b"no ") {
        return skipped(&String::from_utf8_lossy(&before.stdout));
    }
    for mode in MODES {
        let after = folded(&turn.options_in(mode, "24M"), &command);
        println!("{mode}: {:.2?} against {:.2?}; {}", after.wall, before.wall, after.stderr);
        assert_same(&before, &after);
        for name in ["behind", "ahead"] {
            let path = turn.file(&format!("then-{name}"));
            assert_two_live(&fs::read_to_string(&path).expect("the program has kept it"), name);
        }
        turn.assert_clean(&after);
    }
}
