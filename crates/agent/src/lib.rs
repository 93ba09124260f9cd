//! The library that `pleat run` puts inside a program.
//!
//! It needs nothing of its host: its heap, its stacks and its descriptors are its own, its threads are bare (see
//! [`sys::thread`]), memcpy and its kin are, too (`bytes`), and it touches libc in five files only, [`host`], [`calls`], [`detours`],
//! [`mutexes`] and [`limits`].
//!
//! ```text
//!  host     constructor and fork handlers, and
//!  calls    those of libc's calls that change the layout; `detours`: libc itself is to call them; `growth`: what is asked for
//!  raw_calls those of them, and forks, that the program makes by `syscall`, and copies of itself that it makes by `clone`
//!  mutexes  those whose word the kernel writes: their pages stay
//!  filters  filters of system calls, which must leave the agent's threads out
//!  exec     execve and its kin: what the program starts joins the run; `exit`: its end. Both wait for forks of other threads; and
//!  limits   those about limits: the only code that runs on the program's own threads
//!  watcher  the one thread of an idle agent: sleeps until the run is short of memory
//!  keeper   what it becomes then: opens userfaultfd and swap file, and reclaims for the rest of its life
//!  traced   has `pleat run` trace its threads where the program would stop them
//!  handler  the thread that serves faults, made by the keeper, as is the writer, which waits for the swap file
//!  fork     what forking thread and keeper do at a fork, and `stages` what they tell each other; `attend`: what the handler does for the child until the child's
//!           own agent has taken over, `takeover`; `refused`: what it does with children that cannot be followed; `custody`: who
//!           looks after the memory when the agent has ended; `afterlife`: the agent's end when the program has ended by threads
//! ```
// Checks that build for tests (clippy) bring a standard library and its panic handler.
#![cfg_attr(not(test), no_std)]

extern crate alloc;

mod afterlife;
mod attend;
#[cfg(not(test))]
mod bytes;
mod calls;
mod crew;
mod custodian;
mod custody;
mod detours;
mod entry;
mod exec;
mod exit;
mod failure;
mod filters;
mod fork;
mod growth;
mod handler;
mod heap;
mod host;
mod keeper;
mod limits;
mod mutexes;
mod placement;
mod raw_calls;
mod refused;
mod share;
mod stages;
mod swap;
mod takeover;
mod traced;
mod unshare;
mod watcher;
