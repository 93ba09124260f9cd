//! The kernel's own scenarios of userfaultfd, without pleat: what docs/userfaultfd.md builds on holds on this kernel.
#![forbid(unsafe_code)]

use pleat_e2e::{plain, skipped, turn, words};

fn holds(what: &str) {
    let turn = turn(&format!("scenario-{what}"));
    let program = match turn.compile("scenarios.c", &["-pthread"]) {
        Ok(program) => program,
        Err(why) => return skipped(&why),
    };
    let run = plain(&words([&program, what]));
    let said = String::from_utf8_lossy(&run.stdout);
    if said.starts_with("no ") {
        return skipped(&format!("{what}: {}", said.trim_end()));
    }
    assert_eq!((said.as_ref(), run.shell_status()), ("as it should be\n", 0), "{what}");
}

#[test]
fn a_forked_childs_faults_come_to_a_userfaultfd_of_its_own() {
    holds("fork");
}

#[test]
fn a_move_is_told_and_faults_come_from_the_new_place() {
    holds("remap");
}

#[test]
fn a_discard_is_told_before_it_returns() {
    holds("remove");
}

#[test]
fn an_unmapping_is_told_and_what_comes_there_is_nobodys() {
    holds("unmap");
}

#[test]
fn write_protection_goes_over_to_a_forked_child() {
    holds("protect");
}

#[test]
fn a_page_moved_out_of_a_huge_one_splits_it_and_nothing_is_lost() {
    holds("split");
}

#[test]
fn a_poisoned_page_ends_only_who_touches_it() {
    holds("poison");
}
