//! Who a thread is that a userfaultfd tells of: the kernel tells its number in the thread's own namespace of process ids,
//! where ours may be a stranger's. /proc knows all the numbers that a thread has.

use core::mem::MaybeUninit;

use rustix::fd::OwnedFd;
use rustix::fs::{Mode, OFlags, RawDir};

use super::{Path, ProcFiles, READ, Stat};
use crate::Errno;

/// The longest line of ancestors that is followed.
const ANCESTORS_MAX: usize = 64;

impl ProcFiles {
    /// Visits the processes that descend from this one, or run the same program, and have a thread that is `thread` to itself.
    /// As /proc has them.
    pub fn relatives_with(&self, thread: u32, visit: &mut dyn FnMut(u32)) {
        let Some(own) = Stat::read(&self.stat).and_then(|stat| stat.id()) else { return };
        self.numbers_at(format_args!(".."), &mut |pid| {
            if u64::from(pid) != own
                && (self.descends(pid, own) || self.runs_the_same(pid))
                && self.has_thread(pid, thread)
            {
                visit(pid);
            }
        });
    }

    /// Ends a process that /proc has by this number.
    pub fn kill(&self, pid: u32) -> Result<(), Errno> {
        let process = self.open_at(format_args!("../{pid}"), READ | OFlags::DIRECTORY)?;
        rustix::process::pidfd_send_signal(process, rustix::process::Signal::KILL)
    }

    /// Whether a thread is of a process, by the numbers that /proc has them by; `None` if it does not show that process.
    pub fn is_thread_of(&self, thread: u32, pid: u32) -> Option<bool> {
        let shows = |path: core::fmt::Arguments<'_>| self.open_at(path, OFlags::PATH | OFlags::CLOEXEC).is_ok();
        let is_there = shows(format_args!("../{pid}/task/{thread}"));
        (is_there || shows(format_args!("../{pid}"))).then_some(is_there)
    }

    fn has_thread(&self, pid: u32, thread: u32) -> bool {
        let mut is_found = false;
        self.numbers_at(format_args!("../{pid}/task"), &mut |task| {
            is_found = is_found || self.own_number(pid, task) == Some(thread);
        });
        is_found
    }

    /// What a thread is to itself: the last of its numbers.
    fn own_number(&self, pid: u32, task: u32) -> Option<u32> {
        self.field_at(format_args!("../{pid}/task/{task}/status"), b"NSpid:", |line| {
            core::str::from_utf8(line).ok()?.split_ascii_whitespace().last()?.parse().ok()
        })
    }

    /// What a status file says in a line of this name.
    pub(super) fn field_at<T>(
        &self,
        path: core::fmt::Arguments<'_>,
        name: &[u8],
        read: impl FnOnce(&[u8]) -> Option<T>,
    ) -> Option<T> {
        let status = self.open_at(path, READ).ok()?;
        let mut text = [0; 2048];
        let length = rustix::io::read(&status, &mut text).ok()?;
        read(field_of_status(&text[..length], name)?)
    }

    fn descends(&self, pid: u32, from: u64) -> bool {
        let parent = |pid: u64| self.stat_at(format_args!("../{pid}/stat"))?.field(4).filter(|parent| *parent > 1);
        core::iter::successors(parent(pid.into()), |pid| parent(*pid)).take(ANCESTORS_MAX).any(|pid| pid == from)
    }

    /// Whose parent has ended descends from nobody.
    fn runs_the_same(&self, pid: u32) -> bool {
        let program = |path: core::fmt::Arguments<'_>| {
            let file = self.open_at(path, OFlags::PATH | OFlags::CLOEXEC).ok()?;
            rustix::fs::fstat(file).ok().map(|stat| (stat.st_dev, stat.st_ino))
        };
        let other = program(format_args!("../{pid}/exe"));
        other.is_some() && other == program(format_args!("exe"))
    }

    /// The network namespace of the calling thread.
    pub fn network(&self) -> Result<OwnedFd, Errno> {
        self.open_at(format_args!("../thread-self/ns/net"), OFlags::RDONLY)
    }

    /// That of a thread of this process.
    pub fn network_of(&self, thread: u32) -> Result<OwnedFd, Errno> {
        self.open_at(format_args!("task/{thread}/ns/net"), OFlags::RDONLY)
    }

    fn open_at(&self, path: core::fmt::Arguments<'_>, flags: OFlags) -> Result<OwnedFd, Errno> {
        let path = Path::of(path).ok_or(Errno::NAMETOOLONG)?;
        rustix::fs::openat(&self.directory, path.as_c_str(), flags, Mode::empty())
    }

    /// Visits the names in a directory that are numbers, as far as they can be read.
    fn numbers_at(&self, path: core::fmt::Arguments<'_>, visit: &mut dyn FnMut(u32)) {
        if let Ok(directory) = self.open_at(path, READ | OFlags::DIRECTORY) {
            let _ = visit_numbers(&directory, visit);
        }
    }
}

/// What a status file of /proc says behind a name that ends in a colon.
pub(crate) fn field_of_status<'a>(text: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let value = text.split(|byte| *byte == b'\n').find_map(|line| line.strip_prefix(name))?;
    Some(value.trim_ascii())
}

/// Visits the names in a directory that are numbers, in the order of the kernel's.
pub(crate) fn visit_numbers(directory: &OwnedFd, visit: &mut dyn FnMut(u32)) -> Result<(), Errno> {
    let mut buffer = [const { MaybeUninit::<u8>::uninit() }; 2048];
    let mut entries = RawDir::new(directory, &mut buffer);
    while let Some(entry) = entries.next() {
        if let Some(number) = entry?.file_name().to_str().ok().and_then(|name| name.parse().ok()) {
            visit(number);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_is_found_by_its_number_and_ended() {
        let files = ProcFiles::open(None, &|| None).unwrap();
        let mut child = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        let found = |thread| {
            let mut found = vec![];
            files.relatives_with(thread, &mut |pid| found.push(pid));
            found
        };
        assert_eq!(found(child.id()), [child.id()]);
        assert_eq!((found(1), found(std::process::id())), (vec![], vec![]), "not below us");
        files.kill(child.id()).unwrap();
        assert!(!child.wait().unwrap().success());
        assert_eq!(files.kill(u32::MAX), Err(Errno::NOENT));
    }

    #[test]
    fn a_thread_is_of_one_process() {
        let files = ProcFiles::open(None, &|| None).unwrap();
        let (own, parent) = (std::process::id(), std::os::unix::process::parent_id());
        let thread = std::thread::spawn(crate::thread::thread_id).join().unwrap();
        let here = crate::thread::thread_id();
        assert_eq!([own, parent, u32::MAX].map(|pid| files.is_thread_of(here, pid)), [Some(true), Some(false), None]);
        assert_eq!(files.is_thread_of(thread, own), Some(false), "it has ended");
    }
}
