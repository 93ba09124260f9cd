//! Who calls the custodian and is of another user than the run: heard with `--other-users`, until it has shown that it is of the run, and else
//! sent away. The socket's name is there for every process of the machine to read: from a stranger nothing is taken but a question, at most
//! [`EACH_MAX`] of one user are heard at a time, and none for long.

use std::time::{Duration, Instant};

use pager::ledger::{Ledger, Notice, REFUSED, USERFAULTFD};
use sys::handover::{Line, Peer};

use super::answers::{Run, answer};
use crate::failure::say;
use crate::proc::Stat;

/// So many are listened to at a time, and of one user: more than have called and not asked yet where many programs start together.
const ALL_MAX: usize = 128;
const EACH_MAX: usize = 32;
/// And each for so long: an agent asks at once.
const PATIENCE: Duration = Duration::from_secs(5);
/// A process has no more ancestors than this that are looked at.
const ANCESTORS_MAX: usize = 64;

#[derive(Debug)]
struct Stranger {
    line: Line,
    user: u32,
    until: Instant,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Strangers(Vec<Stranger>);

impl Strangers {
    /// Somebody has called.
    pub(super) fn meet(&mut self, line: Line, Peer { process, user, .. }: Peer, run: Option<&Run<'_>>) {
        let Some(run) = run else { return };
        if !run.has_other_users {
            return send_away(run.ledger, &line, process);
        }
        self.forget_late();
        let same = self.0.iter().filter(|stranger| stranger.user == user).count();
        if self.0.len() < ALL_MAX && same < EACH_MAX {
            self.0.push(Stranger { line, user, until: Instant::now() + PATIENCE });
        }
    }

    fn forget_late(&mut self) {
        let now = Instant::now();
        self.0.retain(|stranger| now < stranger.until);
    }

    /// Answers those that have asked. The lines of those that have got what a userfaultfd is made by.
    pub(super) fn look(&mut self, run: Option<&Run<'_>>) -> Vec<Line> {
        let has_asked = |stranger: &mut Stranger| stranger.line.is_readable(Duration::ZERO);
        let asked = self.0.extract_if(.., has_asked).map(|stranger| stranger.line);
        let make = |line: &Line| {
            let (question, secret) = line.hear_question().ok()?;
            answer(line, question, &secret, run).ok().filter(|()| question == USERFAULTFD)
        };
        let makers = asked.filter(|line| make(line).is_some()).collect();
        self.forget_late();
        makers
    }

    /// What to wait for.
    pub(super) fn numbers(&self) -> impl Iterator<Item = i32> {
        self.0.iter().map(|stranger| stranger.line.number())
    }

    /// How many descriptors.
    pub(super) fn held(&self) -> usize {
        self.0.len()
    }
}

/// A process of the run, by its ancestors, is told that the run's user knows, who is told once.
pub(super) fn send_away(ledger: &Ledger, line: &Line, process: u32) {
    let runner = ledger.runner_pid.load(std::sync::atomic::Ordering::Relaxed);
    if !descends(process, runner) {
        return;
    }
    if ledger.is_first(Notice::OtherUser) {
        let text =
            format!("process {process} runs outside the budget: its user may not join the run (see --other-users)");
        if ledger.leave_message(&format!("pleat: {text}\n")) {
            ledger.ask_for_look();
        } else {
            say(format_args!("{text}"));
        }
    }
    let _ = line.send(REFUSED, &[]);
}

fn descends(process: u32, from: u32) -> bool {
    let parent = |process: &u32| Stat::of(*process).map(|stat| stat.parent).filter(|parent| *parent > 1);
    std::iter::successors(Some(process), parent).take(ANCESTORS_MAX).any(|ancestor| ancestor == from)
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead as _, BufReader};
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn who_descends_from_the_run_is_known_by_its_ancestors() {
        let own = std::process::id();
        let mut shell = Command::new("sh");
        let mut child = shell
            .args(["-c", "exec 3<&0; cat <&3 & echo $!; wait"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut grandchild = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut grandchild).unwrap();
        let grandchild = grandchild.trim_end().parse().unwrap();
        let stranger = Stat::of(own).unwrap().parent;
        let pairs = [(child.id(), own), (grandchild, own), (own, own), (own, child.id()), (stranger, own)];
        let told = pairs.map(|(of, from)| descends(of, from));
        drop(child.stdin.take());
        child.wait().unwrap();
        assert_eq!(told, [true, true, true, false, false]);
    }
}
