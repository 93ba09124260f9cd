//! What the bench changes on the machine, it puts back: at the end of each run, on a signal, and on a panic.
//!
//! A release build aborts on panic, so `Drop` alone is not enough: the undo actions live in one list that the panic
//! hook and the signal thread can empty, too.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use nix::sys::signal::{SigSet, Signal};

type Action = Box<dyn FnOnce() + Send>;

static ACTIONS: Mutex<Vec<(u64, Action)>> = Mutex::new(Vec::new());
static NEXT: AtomicU64 = AtomicU64::new(0);
static ENDING: AtomicBool = AtomicBool::new(false);

/// Undoes its action when dropped, if nothing has done so before.
#[must_use]
pub(crate) struct Undo(u64);

/// Keeps an action for later.
pub(crate) fn later(action: impl FnOnce() + Send + 'static) -> Undo {
    // Relaxed: it only has to be a number nobody else has.
    let id = NEXT.fetch_add(1, Ordering::Relaxed);
    list().push((id, Box::new(action)));
    Undo(id)
}

impl Undo {
    /// There is nothing left to undo.
    pub(crate) fn forget(self) {
        list().retain(|(id, _)| *id != self.0);
    }
}

impl Drop for Undo {
    fn drop(&mut self) {
        let mut actions = list();
        let at = actions.iter().position(|(id, _)| *id == self.0);
        let action = at.map(|at| actions.remove(at).1);
        drop(actions);
        if let Some(action) = action {
            action();
        }
    }
}

/// Does not return once everything is being put back: nothing new may be changed then.
pub(crate) fn stop_if_ending() {
    while ENDING.load(Ordering::SeqCst) {
        std::thread::park();
    }
}

/// From now on a signal or a panic undoes everything before the process ends. Call it before any thread is started:
/// they inherit the blocked signals.
pub(crate) fn on_every_end() -> nix::Result<()> {
    let ends = SigSet::from_iter([Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP]);
    ends.thread_block()?;
    std::thread::spawn(move || {
        let _ = ends.wait();
        eprintln!("bench: interrupted, putting things back");
        ENDING.store(true, Ordering::SeqCst);
        all();
        std::process::exit(130);
    });
    let show = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        show(info);
        all();
    }));
    Ok(())
}

/// Undoes everything, last things first.
fn all() {
    loop {
        // Taken out one by one: an action may drop something that has an action of its own.
        let action = list().pop();
        match action {
            Some((_, action)) => action(),
            None => return,
        }
    }
}

fn list() -> std::sync::MutexGuard<'static, Vec<(u64, Action)>> {
    ACTIONS.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn actions_run_once_and_last_first() {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let note = |number: u32| {
            let seen = Arc::clone(&seen);
            later(move || seen.lock().unwrap().push(number))
        };
        let (first, second, third) = (note(1), note(2), note(3));
        drop(second);
        all();
        drop((first, third));
        assert_eq!(*seen.lock().unwrap(), [2, 3, 1]);
    }
}
