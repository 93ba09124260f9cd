//! Where settings of the machine decide: who may use userfaultfd, and where huge pages are made. They are put back.
#![forbid(unsafe_code)]

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt as _;

use pleat_e2e::nobody::{SYSCTL, as_nobody, compare, compare_source, possible};
use pleat_e2e::{Setting, assert_same, command, folded_by, plain, plain_by, pleat_words, skipped, turn, words};

const DEVICE: &str = "/dev/userfaultfd";

/// "no permission for userfaultfd (say the ways to get it)": one line with all three, and 125.
#[test]
fn who_may_not_is_told_the_ways() {
    let turn = turn("refused");
    let command = match as_nobody(&turn, pleat_words(&turn.options("32M"), &words(["true"]))) {
        Ok(command) => command,
        Err(why) => return skipped(&why),
    };
    let run = folded_by(command);
    assert_eq!(run.shell_status(), 125, "{}", run.stderr);
    assert_eq!(run.stderr.lines().count(), 1, "not one line: {}", run.stderr);
    for way in ["CAP_SYS_PTRACE", "pleat doctor", "vm.unprivileged_userfaultfd", "/dev/userfaultfd", "--user-mode"] {
        assert!(run.stderr.contains(way), "`{way}` is not mentioned: {}", run.stderr);
    }
    let doctor = as_nobody(&turn, vec![pleat_e2e::text(&pleat_e2e::pleat()), "doctor".to_owned()]);
    let doctor = plain_by(doctor.expect("it worked above"));
    let said = String::from_utf8_lossy(&doctor.stdout).into_owned();
    assert!(said.contains("sudo setpriv") && said.contains("+sys_ptrace"), "the exact command is not there: {said}");
    turn.assert_clean(&run);
}

/// What everybody is given of userfaultfd for a while, but for the fork events; as it was when dropped.
#[derive(Debug)]
enum Given {
    BySysctl { _until_dropped: Setting },
    ByDevice(Permissions),
}

impl Given {
    fn by_sysctl() -> io::Result<Self> {
        Setting::set(SYSCTL, "1\n").map(|setting| Self::BySysctl { _until_dropped: setting })
    }

    fn by_device() -> io::Result<Self> {
        let before = fs::metadata(DEVICE)?.permissions();
        fs::set_permissions(DEVICE, Permissions::from_mode(0o666)).map(|()| Self::ByDevice(before))
    }
}

impl Drop for Given {
    fn drop(&mut self) {
        if let Self::ByDevice(before) = self
            && let Err(error) = fs::set_permissions(DEVICE, before.clone())
        {
            println!("cannot put back {self:?}: {error}");
        }
    }
}

/// As docs/deploy.md has it: all but the fork events is not enough, and `--user-mode` is.
#[test]
fn who_gets_no_fork_events_is_told_so() {
    let turn = turn("no-fork-events");
    if !nix::unistd::geteuid().is_root() {
        return skipped("only root can give what is not enough");
    }
    let program = match possible().and_then(|()| turn.compile("fork.c", &[])) {
        Ok(program) => words([&program, "28", "1"]),
        Err(why) => return skipped(&why),
    };
    for give in [Given::by_sysctl, Given::by_device] {
        let given = match give() {
            Ok(given) => given,
            Err(error) => {
                skipped(&format!("userfaultfd cannot be given to everybody: {error}"));
                continue;
            }
        };
        let command = match as_nobody(&turn, pleat_words(&turn.options("24M"), &program)) {
            Ok(command) => command,
            Err(why) => return skipped(&why),
        };
        let run = folded_by(command);
        assert_eq!(run.shell_status(), 125, "{given:?}: {}", run.stderr);
        assert_eq!(run.stderr.lines().count(), 1, "{given:?}: not one line: {}", run.stderr);
        for word in ["the fork events of userfaultfd are not permitted", "CAP_SYS_PTRACE", "--user-mode"] {
            assert!(run.stderr.contains(word), "{given:?}: `{word}` is not mentioned: {}", run.stderr);
        }
        turn.assert_clean(&run);
        compare(&turn, "24M", &program);
    }
}

/// The ways of docs/deploy.md, each by itself: the capability alone, as a unit of systemd gives it; and where a container's profile
/// forbids the system call, the device, which root may open, or who has been given it and the capability.
#[test]
fn a_capability_or_the_device_is_enough() {
    let turn = turn("ways");
    let compiled = possible().and_then(|()| Ok([turn.compile("fork.c", &[])?, turn.compile("withheld.c", &[])?]));
    let [fork, withheld] = match compiled {
        Ok(programs) => programs,
        Err(why) => return skipped(&why),
    };
    // Makes the places of the test everybody's.
    if let Err(why) = as_nobody(&turn, words(["true"])) {
        return skipped(&why);
    }
    let nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"];
    let may_trace =
        [nobody.map(str::to_owned).to_vec(), words(["--inh-caps=+sys_ptrace", "--ambient-caps=+sys_ptrace"])];
    let (may_trace, filtered) = (may_trace.concat(), words([&withheld]));
    for around in [&may_trace, &filtered] {
        if !plain(&[&around[..], &words(["true"])].concat()).status.success() {
            return skipped("no capability to give, or no filters of system calls");
        }
    }
    let job = words([&fork, "28", "1"]);
    let before = plain(&job);
    let assert_folds = |around: &[String]| {
        let run = [around, &pleat_words(&turn.options("24M"), &job)].concat();
        let after = folded_by(command(&run));
        assert_same(&before, &after);
        assert_eq!(after.stderr, "", "{around:?}");
        turn.assert_folded(&after);
        turn.assert_clean(&after);
    };
    assert_folds(&may_trace);
    let given = match Given::by_device() {
        Ok(given) => given,
        Err(error) => return skipped(&format!("{DEVICE}: {error}")),
    };
    assert_folds(&filtered);
    assert_folds(&[&may_trace[..], &filtered].concat());
    drop(given);
    let run = [&filtered[..], &pleat_words(&turn.options_in("--user-mode", "24M"), &job)].concat();
    let refused = folded_by(command(&run));
    assert_eq!((refused.shell_status(), refused.stderr.lines().count()), (125, 1), "{}", refused.stderr);
    assert!(refused.stderr.contains("seccomp filter"), "{}", refused.stderr);
}

/// A child's memory is registered with nobody when it is forked, and khugepaged fills such memory up with zeros: here it never rests.
#[test]
fn no_huge_page_covers_what_a_forked_child_has_not_registered_yet() {
    let settings =
        [("enabled", "madvise"), ("khugepaged/scan_sleep_millisecs", "0"), ("khugepaged/pages_to_scan", "100000")]
            .map(|(name, value)| Setting::set(&format!("/sys/kernel/mm/transparent_hugepage/{name}"), value));
    if let Some(error) = settings.iter().find_map(|setting| setting.as_ref().err()) {
        return skipped(&format!("khugepaged cannot be set: {error}"));
    }
    if let Some(run) = compare_source("user-huge-forks", "24M", "hugeforks.c", &[])
        && !run.stderr.contains("khugepaged has come by")
    {
        skipped("khugepaged did not come by");
    }
}
