//! What /proc says of this process, through files that stay open: there may be no descriptor to be had later
//! (`RLIMIT_NOFILE`), no path that leads there (chroot), or no right to use it (setuid).

mod dumpable;
mod relatives;

pub(crate) use relatives::{field_of_status, visit_numbers};

use alloc::boxed::Box;
use alloc::vec;
use core::fmt::Write as _;
use core::mem::ManuallyDrop;

use page::{ByteCount, PageCount, PageIndex};
use rustix::fd::{AsFd, AsRawFd, FromRawFd as _, OwnedFd};
use rustix::fs::{Mode, OFlags, SeekFrom};
use rustix::io::DupFlags;

use crate::kernel::{Mapping, PageRange, Uncopied};
use crate::maps::Content;
use crate::sync::Lock;
use crate::{Errno, maps};

/// The files of one process.
#[derive(Debug)]
pub struct ProcFiles {
    directory: OwnedFd,
    statm: OwnedFd,
    stat: OwnedFd,
    maps: OwnedFd,
    /// Who has changed its user may not open it any more.
    pagemap: OwnedFd,
    rollup: Option<OwnedFd>,
    maps_buffer: Lock<Box<[u8]>>,
}

const READ: OFlags = OFlags::RDONLY.union(OFlags::CLOEXEC);

impl ProcFiles {
    /// Opens those of the calling process. What they say of its memory they say by the calling thread, which is to live as
    /// long: the main thread may have ended (`pthread_exit`), and its files are empty then. `neighbour` is the directory of
    /// another process in /proc, for who has no path to its own; `page_map` is asked for the page map where that may not be opened.
    pub fn open(neighbour: Option<&OwnedFd>, page_map: &dyn Fn() -> Option<OwnedFd>) -> Result<Self, Errno> {
        let flags = READ | OFlags::DIRECTORY;
        let directory = match neighbour {
            Some(neighbour) => rustix::fs::openat(neighbour, c"../self", flags, Mode::empty())?,
            None => rustix::fs::open(c"/proc/self", flags, Mode::empty())?,
        };
        let file = |name: &core::ffi::CStr| rustix::fs::openat(&directory, name, READ, Mode::empty());
        Ok(Self {
            statm: file(c"../thread-self/statm")?,
            stat: file(c"stat")?,
            maps: file(c"../thread-self/maps")?,
            pagemap: dumpable::open(&directory, c"../thread-self/pagemap").or_else(|errno| match errno {
                Errno::ACCESS | Errno::PERM => page_map().ok_or(errno),
                _ => Err(errno),
            })?,
            rollup: file(c"../thread-self/smaps_rollup").ok(),
            directory,
            maps_buffer: Lock::new(vec![0; maps::BUFFER_BYTES].into_boxed_slice()),
        })
    }

    /// The number of the directory's descriptor, for [`ProcFiles::open`] in a forked child.
    pub fn number(&self) -> i32 {
        self.directory.as_raw_fd()
    }

    /// Forgets the descriptors without closing them, in a child, where their numbers mean something else.
    pub fn forget(self) {
        let Self { directory, statm, stat, maps, pagemap, rollup, maps_buffer: _ } = self;
        for fd in [Some(directory), Some(statm), Some(stat), Some(maps), Some(pagemap), rollup] {
            core::mem::forget(fd);
        }
    }

    /// From now on they say it by the calling thread, which goes on for the one that has opened them.
    pub fn go_on(&self) -> Result<(), Errno> {
        let _whoever_reads = self.maps_buffer.lock();
        let of_threads = [
            (c"../thread-self/statm", Some(&self.statm)),
            (c"../thread-self/maps", Some(&self.maps)),
            (c"../thread-self/smaps_rollup", self.rollup.as_ref()),
        ];
        // What is open of the page map is the memory's, whoever has opened it.
        for (name, file) in of_threads.into_iter().filter_map(|(name, file)| Some((name, file?))) {
            let anew = rustix::fs::openat(&self.directory, name, READ, Mode::empty())?;
            // SAFETY: the number stays open, and ours.
            let mut number = ManuallyDrop::new(unsafe { OwnedFd::from_raw_fd(file.as_raw_fd()) });
            rustix::io::dup3(&anew, &mut number, DupFlags::CLOEXEC)?;
        }
        Ok(())
    }

    /// The number of the thread that traces the calling one; 0 if nobody does whom this process can see.
    pub fn tracer(&self) -> Option<u32> {
        self.field_at(format_args!("../thread-self/status"), b"TracerPid:", |tracer| {
            core::str::from_utf8(tracer).ok()?.parse().ok()
        })
    }

    /// Whether the calling thread's system calls may be filtered: also where that cannot be told.
    pub fn may_be_filtered(&self) -> bool {
        self.field_at(format_args!("../thread-self/status"), b"Seccomp:", |mode| Some(mode != b"0")) != Some(false)
    }

    /// Whether two more descriptors can be had now.
    pub fn has_room(&self) -> bool {
        let more = [(); 2].map(|()| rustix::io::fcntl_dupfd_cloexec(&self.statm, 0));
        more.iter().all(Result::is_ok)
    }

    /// Visits the mappings by address.
    pub fn mappings(&self, visit: &mut dyn FnMut(Mapping)) -> Result<(), Errno> {
        let mut buffer = self.maps_buffer.lock();
        rustix::fs::seek(&self.maps, SeekFrom::Start(0))?;
        maps::visit(&self.maps, &mut buffer, visit)
    }

    /// Where the mapping is that a page is in, or else the next behind it.
    pub fn range_from(&self, page: PageIndex) -> Result<PageRange, Errno> {
        maps::range_from(&self.maps, page)
    }

    /// That mapping.
    pub fn mapping_from(&self, page: PageIndex) -> Result<Mapping, Errno> {
        maps::mapping_from(&self.maps, page)
    }

    /// Visits the ranges of which a forked child has something else than its parent.
    pub fn uncopied(&self, visit: &mut dyn FnMut(PageRange, Uncopied)) -> Result<(), Errno> {
        let smaps = rustix::fs::openat(&self.directory, c"../thread-self/smaps", READ, Mode::empty())?;
        maps::uncopied(&smaps, &mut self.maps_buffer.lock(), visit)
    }

    /// Visits the runs of resident pages of a range.
    pub fn resident(&self, range: PageRange, visit: &mut dyn FnMut(PageRange)) -> Result<(), Errno> {
        maps::resident(&self.pagemap, range, visit)
    }

    /// Visits the runs of pages of a range that are the kernel's page of zeros.
    pub fn zeros(&self, range: PageRange, visit: &mut dyn FnMut(PageRange)) -> Result<(), Errno> {
        maps::zeros(&self.pagemap, range, visit)
    }

    /// How many pages from `first` on hold this: see [`maps::leading`].
    pub fn leading(&self, first: PageIndex, count: PageCount, content: Content) -> Result<PageCount, Errno> {
        maps::leading(&self.pagemap, first, count, content)
    }

    /// Anonymous memory that is resident now.
    pub fn resident_anonymous(&self) -> Option<ByteCount> {
        resident_anonymous(&self.statm)
    }

    /// The part of it that is this process's alone: what it shares with forked ones counts in proportion.
    pub fn proportional_anonymous(&self) -> Option<ByteCount> {
        let mut text = [0; 2048];
        let length = rustix::io::pread(self.rollup.as_ref()?, &mut text, 0).ok()?;
        let text = core::str::from_utf8(&text[..length]).ok()?;
        bytes_of_line(text, "Pss_Anon")
    }

    /// Faults that needed no device: the tenth field of `stat`.
    pub fn minor_faults(&self) -> Option<u64> {
        Stat::read(&self.stat)?.field(10)
    }

    /// What a thread of this process is at, or a stand-in of one; `None` if there is none of that number.
    pub fn condition(&self, thread: u32) -> Option<Condition> {
        let of_thread = self.stat_at(format_args!("task/{thread}/stat"));
        Condition::read(&of_thread.or_else(|| self.stat_at(format_args!("../{thread}/stat")))?)
    }

    /// With what the main thread has ended, if only `others` threads are left of this process: see [`ended_beside`].
    pub fn ended_beside(&self, others: u32) -> Option<u8> {
        Stat::read(&self.stat).and_then(|stat| ended_beside(&stat, others))
    }

    /// Whether a process is our child.
    pub fn is_child(&self, pid: u32) -> bool {
        let parent = self.stat_at(format_args!("../{pid}/stat")).and_then(|stat| stat.field(4));
        parent.is_some() && parent == Stat::read(&self.stat).and_then(|stat| stat.id())
    }

    fn stat_at(&self, path: core::fmt::Arguments<'_>) -> Option<Stat> {
        Stat::read(rustix::fs::openat(&self.directory, Path::of(path)?.as_c_str(), READ, Mode::empty()).ok()?)
    }
}

/// What a thread is at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Condition {
    /// The kernel's letter for it.
    state: u8,
    /// For how long it has had a processor, in hundredths of a second.
    ticks: u64,
}

impl Condition {
    /// That of a thread of another process.
    pub fn of(pid: u32, thread: u32) -> Option<Self> {
        let path = Path::of(format_args!("/proc/{pid}/task/{thread}/stat"))?;
        Self::read(&Stat::read(rustix::fs::open(path.as_c_str(), READ, Mode::empty()).ok()?)?)
    }

    fn read(stat: &Stat) -> Option<Self> {
        Some(Self { state: stat.state()?, ticks: stat.field(14)? + stat.field(15)? })
    }

    /// Whether it is stopped, which a debugger does to one thread alone.
    pub fn is_stopped(self) -> bool {
        matches!(self.state, b'T' | b't')
    }

    /// Whether it could run, and since it was at `before`, five seconds ago or more, others have had the processors: it is of low
    /// priority, or the machine has much more to do than it can.
    pub fn is_starved_since(self, before: Self) -> bool {
        self.state == b'R' && self.ticks.saturating_sub(before.ticks) < STARVED_TICKS
    }
}

/// A second: who does nothing but run has a fifth of two processors that ten others want, too.
const STARVED_TICKS: u64 = 100;

/// With what the main thread of a process has ended, if but so many others have not.
pub(crate) fn ended_beside(stat: &Stat, others: u32) -> Option<u8> {
    // The main thread counts until its process is gone.
    let is_all = stat.state() == Some(b'Z') && stat.field(20) == Some(u64::from(others) + 1);
    // In wait's form. Hidden from who may not trace the process, which each of its own threads may.
    is_all.then(|| stat.field(52).map_or(0, |status| (status >> 8) as u8))
}

/// What an open /proc/PID/statm says: see [`anonymous_of_statm`].
pub(crate) fn resident_anonymous(statm: impl AsFd) -> Option<ByteCount> {
    with_statm(statm, anonymous_of_statm)
}

/// Private memory that may be written, resident or not: the sixth field.
pub(crate) fn writable(statm: impl AsFd) -> Option<ByteCount> {
    with_statm(statm, |text| Some(PageCount(text.split(' ').nth(5)?.parse().ok()?).bytes()))
}

fn with_statm<T>(statm: impl AsFd, read: impl FnOnce(&str) -> Option<T>) -> Option<T> {
    let mut text = [0; 128];
    let length = rustix::io::pread(statm, &mut text, 0).ok()?;
    read(core::str::from_utf8(&text[..length]).ok()?)
}

/// Resident pages that are of no file: second field of /proc/PID/statm less the third.
pub fn anonymous_of_statm(text: &str) -> Option<ByteCount> {
    let mut fields = text.split(' ').skip(1).map(str::parse::<u64>);
    let resident = fields.next()?.ok()?;
    let of_files = fields.next()?.ok()?;
    Some(PageCount(resident.saturating_sub(of_files)).bytes())
}

/// What a line `KEY: 123 kB` says, as `meminfo` and `smaps_rollup` have them.
pub fn bytes_of_line(text: &str, key: &str) -> Option<ByteCount> {
    let line = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'))?;
    let kib: u64 = line.trim().strip_suffix(" kB")?.trim().parse().ok()?;
    Some(ByteCount(kib << 10))
}

/// What a /proc/PID/stat says.
pub(crate) struct Stat {
    text: [u8; 1024],
    length: usize,
    /// Where the second field ends, which is the program's name in parentheses and may hold anything.
    name_end: usize,
}

impl Stat {
    /// Reads an open one.
    pub(crate) fn read(stat: impl AsFd) -> Option<Self> {
        let mut text = [0; 1024];
        let length = rustix::io::pread(stat, &mut text, 0).ok()?;
        let name_end = text[..length].iter().rposition(|byte| *byte == b')')?;
        Some(Self { text, length, name_end })
    }

    /// The first field: the process's id as that /proc has it.
    pub(crate) fn id(&self) -> Option<u64> {
        let id = self.text.split(|byte| *byte == b' ').next()?;
        core::str::from_utf8(id).ok()?.parse().ok()
    }

    /// The third.
    fn state(&self) -> Option<u8> {
        self.fields()?.next()?.bytes().next()
    }

    /// One from the fourth on.
    pub(crate) fn field(&self, number: usize) -> Option<u64> {
        self.fields()?.nth(number - 3)?.parse().ok()
    }

    /// From the third on.
    fn fields(&self) -> Option<core::str::SplitAsciiWhitespace<'_>> {
        Some(core::str::from_utf8(&self.text[self.name_end + 1..self.length]).ok()?.split_ascii_whitespace())
    }
}

/// A short path; what is longer is an error.
struct Path {
    bytes: [u8; 48],
    used: usize,
}

impl Path {
    fn of(path: core::fmt::Arguments<'_>) -> Option<Self> {
        let mut text = Self { bytes: [0; 48], used: 0 };
        write!(text, "{path}\0").ok()?;
        Some(text)
    }

    fn as_c_str(&self) -> &core::ffi::CStr {
        core::ffi::CStr::from_bytes_until_nul(&self.bytes).unwrap_or_default()
    }
}

impl core::fmt::Write for Path {
    fn write_str(&mut self, text: &str) -> core::fmt::Result {
        let room = self.bytes.get_mut(self.used..self.used + text.len()).ok_or(core::fmt::Error)?;
        room.copy_from_slice(text.as_bytes());
        self.used += text.len();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use page::{PAGE_BYTES, PageCount, PageIndex};

    use super::*;
    use crate::Area;

    #[test]
    fn a_thread_is_starved_that_could_run_and_does_not() {
        let at = |state, ticks| Condition { state, ticks };
        let before = at(b'R', 5000);
        for (now, is_starved) in [
            (at(b'R', 5099), true),
            (at(b'R', 5100), false),
            (at(b'S', 5000), false),
            (at(b'D', 5000), false),
            (at(b't', 5000), false),
        ] {
            assert_eq!(now.is_starved_since(before), is_starved, "{now:?}");
            assert_eq!(now.is_stopped(), now.state == b't');
        }
        let files = ProcFiles::open(None, &|| None).unwrap();
        let own = files.condition(crate::thread::thread_id()).unwrap();
        assert_eq!(own.state, b'R');
        while files.condition(crate::thread::thread_id()).unwrap().ticks <= own.ticks + 2 {}
        assert_eq!((files.condition(u32::MAX), Condition::of(crate::thread::process_id(), u32::MAX)), (None, None));
        let by_path = Condition::of(crate::thread::process_id(), crate::thread::thread_id()).unwrap();
        assert!(by_path.state == b'R' && by_path.ticks > own.ticks);
    }

    #[test]
    fn what_a_child_has_instead_is_told() {
        use rustix::mm::{Advice, madvise};
        let files = ProcFiles::open(None, &|| None).unwrap();
        let area = Area::reserve(3 * PAGE_BYTES).unwrap();
        let page = |number: usize| area.base().wrapping_add(number * PAGE_BYTES);
        // SAFETY: the pages are the area's, and no process is forked that needs them.
        unsafe { madvise(page(0).cast(), PAGE_BYTES, Advice::LinuxDontFork) }.unwrap();
        // SAFETY: as above.
        unsafe { madvise(page(2).cast(), PAGE_BYTES, Advice::LinuxWipeOnFork) }.unwrap();
        let mut seen = Vec::new();
        files.uncopied(&mut |range, kind| seen.push((range, kind))).unwrap();
        seen.retain(|(range, _)| area.span().contains(&range.start.address()));
        let one = |number| PageRange::new(PageIndex::containing(page(number) as u64), PageCount(1));
        assert_eq!(seen, [(one(0), Uncopied::Absent), (one(2), Uncopied::Empty)]);
    }

    #[test]
    fn files_of_a_thread_that_has_ended_go_on_with_another_one() {
        let files = std::thread::spawn(|| ProcFiles::open(None, &|| None).unwrap()).join().unwrap();
        let counted = || {
            let mut mappings = 0;
            files.mappings(&mut |_| mappings += 1).is_ok() && mappings > 0
        };
        // The kernel has it a moment longer than join.
        while files.resident_anonymous().is_some() {
            std::thread::yield_now();
        }
        assert_eq!((counted(), files.proportional_anonymous()), (false, None));
        files.go_on().unwrap();
        assert!(counted() && files.resident_anonymous().is_some() && files.proportional_anonymous().is_some());
    }

    /// The first write to a page is a minor fault. What the program is called does not matter.
    #[test]
    fn minor_faults_are_counted() {
        const PAGES: usize = 64;
        const NAME: &str = "/proc/self/comm";
        let files = ProcFiles::open(None, &|| None).unwrap();
        let name = std::fs::read(NAME).unwrap();
        std::fs::write(NAME, "a) 1 (2) 3").unwrap();
        let area = Area::reserve(PAGES * PAGE_BYTES).unwrap();
        let before = files.minor_faults().unwrap();
        for page in 0..PAGES {
            let byte = area.base().wrapping_add(page * PAGE_BYTES);
            // SAFETY: the byte lies in the area, which nobody else knows.
            unsafe { byte.write_volatile(1) };
        }
        let after = files.minor_faults().unwrap();
        std::fs::write(NAME, name).unwrap();
        assert!(after >= before + PAGES as u64, "{before}, then {after}");
    }

    #[test]
    fn children_are_known() {
        let files = ProcFiles::open(None, &|| None).unwrap();
        let mut child = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        assert!(files.is_child(child.id()));
        assert!(!files.is_child(1) && !files.is_child(std::process::id()) && !files.is_child(u32::MAX));
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// By another process's directory: the same answers, each time they are asked for.
    #[test]
    fn another_way_in_says_the_same() {
        let neighbour = rustix::fs::open(c"/proc/1", READ | OFlags::DIRECTORY, Mode::empty()).unwrap();
        let area = Area::reserve(600 * PAGE_BYTES).unwrap();
        for page in [0, 3, 4, 511, 512, 599] {
            // SAFETY: inside the area.
            unsafe { area.base().wrapping_add(page * PAGE_BYTES).write(1) };
        }
        let range = PageRange::new(PageIndex::containing(area.base() as u64), PageCount(600));
        for files in [ProcFiles::open(None, &|| None).unwrap(), ProcFiles::open(Some(&neighbour), &|| None).unwrap()] {
            for _ in 0..2 {
                let mut pages = vec![];
                let mut visit = |run: PageRange| pages.extend(run.start.until(run.end).map(|page| page - range.start));
                files.resident(range, &mut visit).unwrap();
                assert_eq!(pages, [0, 3, 4, 511, 512, 599].map(PageCount));
                let mut found = 0;
                files.mappings(&mut |mapping| found += u32::from(mapping.range == range)).unwrap();
                assert_eq!(found, 1);
                assert!(files.proportional_anonymous().is_some_and(|bytes| bytes.0 > 0));
            }
        }
    }
}
