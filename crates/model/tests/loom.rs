//! Every scenario, one test each.

use pleat_model::scenarios;

macro_rules! tests {
    ($($name:ident),*) => {
        $(#[test]
        fn $name() {
            scenarios::$name();
        })*
    };
}

tests!(
    lock,
    readings,
    bell,
    announcements,
    places,
    desk,
    reference_log,
    fork_after_fork,
    fork_after_failed_fork,
    fork_after_late_fork,
    two_forking_threads,
    forks_in_user_mode,
    holds_and_moves
);
