//! The program's mappings and which of their pages are resident: /proc/self/maps and pagemap.

use alloc::vec::Vec;

use page::{PAGE_BYTES, PageCount, PageIndex};
use rustix::fd::{AsFd, AsRawFd};

use crate::Errno;
use crate::arch::{self, number};
use crate::kernel::{Mapping, MappingName, PageRange, Uncopied};
use crate::thread::errno;

/// The access of private data.
const DATA: &[u8] = b"rw-p";
/// The access of private memory that is written to and executed.
pub const CODE: &[u8] = b"rwxp";

/// Buffer for reading maps and smaps. A line is at most a path, of which each byte may be told with four.
pub const BUFFER_BYTES: usize = 32 << 10;

/// Reads `maps` (an open /proc/PID/maps, at its start) and visits each mapping. `buffer` has [`BUFFER_BYTES`].
pub fn visit(maps: impl AsFd, buffer: &mut [u8], visit: &mut dyn FnMut(Mapping)) -> Result<(), Errno> {
    lines(maps, buffer, &mut |line| {
        if let Some(mapping) = parse(line) {
            visit(mapping);
        }
    })
}

/// Reads `smaps` (an open /proc/PID/smaps, at its start) and visits each mapping of which a forked child has something else
/// than its parent.
pub fn uncopied(smaps: impl AsFd, buffer: &mut [u8], visit: &mut dyn FnMut(PageRange, Uncopied)) -> Result<(), Errno> {
    let mut current = None;
    lines(smaps, buffer, &mut |line| {
        if let Some(flags) = line.strip_prefix(b"VmFlags:") {
            let mut kinds = flags.split(|byte| *byte == b' ').filter_map(|flag| match flag {
                b"dc" => Some(Uncopied::Absent),
                b"wf" => Some(Uncopied::Empty),
                _ => None,
            });
            if let (Some(range), Some(kind)) = (current.take(), kinds.next()) {
                visit(range, kind);
            }
        } else if let Some(mapping) = parse(line) {
            current = Some(mapping.range);
        }
    })
}

/// Visits the lines of a file, each without its end.
fn lines(file: impl AsFd, buffer: &mut [u8], visit: &mut dyn FnMut(&[u8])) -> Result<(), Errno> {
    let mut kept = 0;
    loop {
        if kept == buffer.len() {
            return Err(Errno::NAMETOOLONG);
        }
        let read = rustix::io::read(&file, &mut buffer[kept..])?;
        if read == 0 {
            return Ok(());
        }
        let filled = kept + read;
        let mut start = 0;
        while let Some(length) = buffer[start..filled].iter().position(|byte| *byte == b'\n') {
            visit(&buffer[start..start + length]);
            start += length + 1;
        }
        buffer.copy_within(start..filled, 0);
        kept = filled - start;
    }
}

/// One line: `start-end perms offset dev inode   name`.
fn parse(line: &[u8]) -> Option<Mapping> {
    let mut fields = line.splitn(6, |byte| *byte == b' ');
    let mut addresses = fields.next()?.split(|byte| *byte == b'-');
    let start = hex(addresses.next()?)?;
    let end = hex(addresses.next()?)?;
    let permissions = fields.next()?;
    let _offset = fields.next()?;
    let _device = fields.next()?;
    let inode = fields.next()?;
    let name = fields.next().unwrap_or(b"").trim_ascii();
    let range = PageRange { start: PageIndex::containing(start), end: PageIndex::containing(end) };
    Some(described(range, permissions.try_into().ok()?, inode == b"0", name))
}

fn described(range: PageRange, access: [u8; 4], has_no_inode: bool, name: &[u8]) -> Mapping {
    let name = match name {
        b"[heap]" => MappingName::Heap,
        _ if name.is_empty() || name.starts_with(b"[anon:") => MappingName::Plain,
        _ if name.starts_with(b"[") => MappingName::Special,
        _ => MappingName::File,
    };
    Mapping {
        range,
        writable: [DATA, CODE].contains(&&access[..]),
        access,
        anonymous: has_no_inode && access[3] == b'p' && name != MappingName::File,
        name,
    }
}

fn hex(digits: &[u8]) -> Option<u64> {
    u64::from_str_radix(core::str::from_utf8(digits).ok()?, 16).ok()
}

/// The private anonymous mappings that hold something now, except the brk heap and the zero-filled data of the program itself:
/// those that belong to the loader, to libc and to other libraries. Addresses that an allocator has reserved by then, without
/// access, will be the program's. `program` is an address in its file: /proc/self/exe is the loader's where that was told to run it.
/// `heap_end` is the program's break, which a tracer may have laid into a mapping of its own (proot). `maps` is an open /proc/PID/maps.
pub fn library_memory(maps: impl AsFd, program: u64, heap_end: u64) -> Result<Vec<PageRange>, Errno> {
    let mut text = Vec::new();
    loop {
        let filled = text.len();
        text.resize(filled + 4 * PAGE_BYTES, 0);
        let read = rustix::io::read(&maps, &mut text[filled..])?;
        text.truncate(filled + read);
        if read == 0 {
            break;
        }
    }
    library_spans(&text, program, heap_end).ok_or(Errno::SRCH)
}

/// Nothing if these are not the program's mappings.
fn library_spans(maps: &[u8], program: u64, heap_end: u64) -> Option<Vec<PageRange>> {
    let mappings = || maps.split(|byte| *byte == b'\n').filter_map(|line| Some((line, parse(line)?)));
    let page = PageIndex::containing(program);
    let path = mappings().find(|(_, mapping)| mapping.range.contains(page)).map(|(line, _)| path(line))?;
    let mut spans = Vec::new();
    let mut program_end = None;
    for (line, mapping) in mappings() {
        let range = mapping.range;
        let is_open = mapping.access[..3] != *b"---";
        let is_programs = program_end == Some(range.start) || range.contains(PageIndex::containing(heap_end));
        if mapping.anonymous && mapping.name == MappingName::Plain && is_open && !is_programs {
            spans.push(range);
        }
        program_end = (path.is_some() && self::path(line) == path).then_some(range.end);
    }
    Some(spans)
}

/// What a line says of a file.
fn path(line: &[u8]) -> Option<&[u8]> {
    line.iter().position(|byte| *byte == b'/').map(|at| &line[at..])
}

/// `PAGEMAP_SCAN` (Linux 6.7): runs of pages with one category.
const PAGEMAP_SCAN: usize = 0xc060_6610;
const PAGE_IS_PRESENT: u64 = 1 << 3;
const PAGE_IS_PFNZERO: u64 = 1 << 5;
/// Runs that one call may return.
const RUNS: usize = 128;
/// Pages that [`leading`] looks at.
pub const LEADING_PAGES_MAX: usize = 64;

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Run {
    start: u64,
    end: u64,
    categories: u64,
}

#[repr(C)]
#[derive(Default)]
struct ScanArguments {
    size: u64,
    flags: u64,
    start: u64,
    end: u64,
    walk_end: u64,
    runs: u64,
    runs_max: u64,
    pages_max: u64,
    category_inverted: u64,
    category_mask: u64,
    category_anyof_mask: u64,
    return_mask: u64,
}

/// Visits the runs of resident pages of `range`; `pagemap` is an open /proc/PID/pagemap.
pub fn resident(pagemap: impl AsFd, range: PageRange, visit: &mut dyn FnMut(PageRange)) -> Result<(), Errno> {
    runs_of(PAGE_IS_PRESENT, pagemap, range, visit)
}

/// The same for pages that are the kernel's page of zeros: read, and never written.
pub fn zeros(pagemap: impl AsFd, range: PageRange, visit: &mut dyn FnMut(PageRange)) -> Result<(), Errno> {
    runs_of(PAGE_IS_PFNZERO, pagemap, range, visit)
}

fn runs_of(category: u64, pagemap: impl AsFd, range: PageRange, visit: &mut dyn FnMut(PageRange)) -> Result<(), Errno> {
    let mut runs = [Run::default(); RUNS];
    let mut next = range.start.address();
    let end = range.end.address();
    while next < end {
        let mut scan = ScanArguments {
            size: size_of::<ScanArguments>() as u64,
            start: next,
            end,
            runs: runs.as_mut_ptr() as u64,
            runs_max: RUNS as u64,
            category_mask: category,
            return_mask: category,
            ..Default::default()
        };
        let args = [pagemap.as_fd().as_raw_fd() as usize, PAGEMAP_SCAN, &raw mut scan as usize, 0, 0, 0];
        // SAFETY: the structure and the array it points at live on this stack, with the lengths it names.
        let found = errno(unsafe { arch::syscall(number::IOCTL, args) })?;
        for run in &runs[..found] {
            visit(PageRange { start: PageIndex::containing(run.start), end: PageIndex::containing(run.end) });
        }
        if scan.walk_end <= next {
            return Ok(()); // Cannot be; better to stop than to go round for ever.
        }
        next = scan.walk_end;
    }
    Ok(())
}

/// `PROCMAP_QUERY` (Linux 6.11): one mapping.
const PROCMAP_QUERY: usize = 0xc068_6611;
const COVERING_OR_NEXT: u64 = 0x10;
/// Room for all names that are no paths: the longest is one of 79 bytes that a program has given, in `[anon:]`.
const NAME_BYTES: usize = 128;

#[repr(C)]
#[derive(Default)]
struct MappingQuery {
    size: u64,
    flags: u64,
    address: u64,
    start: u64,
    end: u64,
    /// Bits: may be read, written, executed, is shared.
    access: u64,
    page_bytes: u64,
    offset: u64,
    inode: u64,
    device: [u32; 2],
    /// Room for the name; then its length with the zero behind it, nothing if there is none.
    name_bytes: u32,
    build_id_bytes: u32,
    name: u64,
    build_id: u64,
}

impl MappingQuery {
    fn ask(maps: impl AsFd, page: PageIndex, name: &mut [u8]) -> Result<Self, Errno> {
        let mut query = Self {
            size: size_of::<Self>() as u64,
            flags: COVERING_OR_NEXT,
            address: page.address(),
            name_bytes: name.len() as u32,
            name: name.as_mut_ptr() as u64,
            ..Default::default()
        };
        if name.is_empty() {
            query.name = 0; // One without the other is INVAL.
        }
        let args = [maps.as_fd().as_raw_fd() as usize, PROCMAP_QUERY, &raw mut query as usize, 0, 0, 0];
        // SAFETY: the structure lives on this stack and names the lengths of itself and of the name, which is borrowed.
        errno(unsafe { arch::syscall(number::IOCTL, args) })?;
        Ok(query)
    }

    fn range(&self) -> PageRange {
        PageRange { start: PageIndex::containing(self.start), end: PageIndex::containing(self.end) }
    }

    fn access(&self) -> [u8; 4] {
        let letter = |bit: u32, set, clear| if self.access >> bit & 1 == 1 { set } else { clear };
        [letter(0, b'r', b'-'), letter(1, b'w', b'-'), letter(2, b'x', b'-'), letter(3, b's', b'p')]
    }
}

/// Where the mapping is that a page is in, or else the next behind it: see [`mapping_from`], which asks for its name as well.
pub fn range_from(maps: impl AsFd, page: PageIndex) -> Result<PageRange, Errno> {
    MappingQuery::ask(maps, page, &mut []).map(|query| query.range())
}

/// The mapping that a page is in, or else the next behind it; `NOENT` if there is none, `NOTTY` before Linux 6.11. `maps` is an
/// open /proc/PID/maps.
pub fn mapping_from(maps: impl AsFd, page: PageIndex) -> Result<Mapping, Errno> {
    let mut name = [0; NAME_BYTES];
    let query = match MappingQuery::ask(&maps, page, &mut name) {
        Err(Errno::NAMETOOLONG) => {
            // A path.
            let query = MappingQuery::ask(&maps, page, &mut [])?;
            name[0] = b'/';
            MappingQuery { name_bytes: 2, ..query }
        }
        answer => answer?,
    };
    let name = &name[..(query.name_bytes as usize).saturating_sub(1).min(NAME_BYTES)];
    Ok(described(query.range(), query.access(), query.inode == 0, name))
}

/// What a page of address space holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Content {
    /// A page, in memory or in the kernel's own swap, or a guard.
    Something,
    /// Neither.
    Nothing,
}

/// How many of `count` pages from `first` on hold `content` before the first that does not. `count` is at most
/// [`LEADING_PAGES_MAX`]; `pagemap` is an open /proc/PID/pagemap.
pub fn leading(pagemap: impl AsFd, first: PageIndex, count: PageCount, content: Content) -> Result<PageCount, Errno> {
    /// /proc/PID/pagemap has eight bytes a page; these bits say that it is present, or swapped out, or a guard.
    const IS_SOMETHING: u64 = 3 << 62;
    let mut entries = [[0_u8; 8]; LEADING_PAGES_MAX];
    let entries = &mut entries[..count.0 as usize];
    let wanted = entries.as_flattened_mut();
    let bytes = wanted.len();
    if rustix::io::pread(pagemap, &mut *wanted, first.0 * 8)? < bytes {
        return Err(Errno::IO);
    }
    let differs = |entry: &[u8; 8]| {
        let is_something = u64::from_ne_bytes(*entry) & IS_SOMETHING != 0;
        is_something != (content == Content::Something)
    };
    Ok(PageCount(entries.iter().position(differs).map_or(count.0, |before| before as u64)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(path: &core::ffi::CStr) -> rustix::fd::OwnedFd {
        rustix::fs::open(path, rustix::fs::OFlags::RDONLY, rustix::fs::Mode::empty()).unwrap()
    }

    #[test]
    fn leading_pages_and_holes_are_counted() {
        let area = crate::Area::reserve(8 * PAGE_BYTES).unwrap();
        for page in [0, 1, 2, 5] {
            // SAFETY: inside the area, which nobody else knows.
            unsafe { area.base().wrapping_add(page * PAGE_BYTES).write_volatile(1) };
        }
        let pagemap = open(c"/proc/self/pagemap");
        let first = PageIndex::containing(area.base() as u64);
        let count =
            |content, start, count| leading(&pagemap, first + PageCount(start), PageCount(count), content).unwrap().0;
        let pages = |start, pages| count(Content::Something, start, pages);
        let holes = |start, pages| count(Content::Nothing, start, pages);
        assert_eq!([pages(0, 8), pages(0, 2), pages(3, 5), pages(5, 1)], [3, 2, 0, 1]);
        assert_eq!([holes(0, 8), holes(3, 5), holes(3, 1), holes(6, 2)], [0, 2, 1, 2]);
        // SAFETY: a guard in memory of our own.
        match unsafe { crate::remap::advise(area.base() as usize + 7 * PAGE_BYTES, PAGE_BYTES, 102) } {
            Ok(()) => assert_eq!([holes(6, 2), holes(7, 1)], [1, 0]),
            Err(errno) => println!("skipped: no guard regions: {errno:?}"),
        }
    }

    #[test]
    fn pages_that_have_only_been_read_are_zeros() {
        let area = crate::Area::reserve(8 * PAGE_BYTES).unwrap();
        let page = |number: usize| area.base().wrapping_add(number * PAGE_BYTES);
        for number in [1, 2, 6] {
            // SAFETY: inside the area, which nobody else knows.
            assert_eq!(unsafe { page(number).read_volatile() }, 0);
        }
        // SAFETY: as above.
        unsafe { page(4).write_volatile(0) };
        let first = PageIndex::containing(area.base() as u64);
        let mut found = vec![];
        zeros(open(c"/proc/self/pagemap"), PageRange::new(first, PageCount(8)), &mut |run| {
            found.push((run.start.0 - first.0, run.count().0));
        })
        .unwrap();
        assert_eq!(found, [(1, 2), (6, 1)]);
    }

    #[test]
    fn lines_are_parsed() {
        let heap = parse(b"5555-5557000 rw-p 00000000 00:00 0                          [heap]");
        assert!(heap.is_some_and(|heap| heap.name == MappingName::Heap && heap.anonymous && heap.writable));
        let plain = parse(b"7f0000000000-7f0000002000 rw-p 00000000 00:00 0 ").unwrap();
        assert_eq!(plain.name, MappingName::Plain);
        assert_eq!(plain.range.count().0, 2);
        let file = parse(b"7f0000000000-7f0000002000 rw-p 00001000 fe:00 123    /usr/lib/a b.so").unwrap();
        assert!(!file.anonymous && file.name == MappingName::File);
        let stack = parse(b"7ffc0000-7ffd0000 rw-p 00000000 00:00 0      [stack]").unwrap();
        assert_eq!(stack.name, MappingName::Special);
        let code = parse(b"7f0000000000-7f0000002000 rwxp 00000000 00:00 0 ").unwrap();
        assert!(code.writable && code.anonymous);
        let read_only = parse(b"7f0000000000-7f0000002000 r--p 00000000 00:00 0 ").unwrap();
        assert!(!read_only.writable && read_only.anonymous);
        assert!(parse(b"nonsense").is_none());
    }

    #[test]
    fn what_libraries_hold_is_left_to_them() {
        let maps = b"300000000000-300000004000 ---p 00000000 00:00 0 \n\
            300000004000-300000128000 rw-p 00000000 00:00 0 \n\
            300000128000-300400002000 ---p 00000000 00:00 0 \n\
            55b88b9000000-55b88b9004000 rw-p 00000000 fe:00 12                   /usr/bin/program\n\
            55b88b9004000-55b88b9008000 rw-p 00000000 00:00 0 \n\
            55b88b9009000-55b88b900a000 rw-p 00000000 fe:00 12                   /usr/bin/program\n\
            7f29e4a1b000-7f29e4e1e000 rw-p 00000000 00:00 0 \n\
            7f29e4e1e000-7f29e4e44000 r--p 00000000 fe:00 32                     /usr/lib/libc.so.6\n\
            7f29e4e44000-7f29e4e45000 rw-p 00000000 00:00 0 \n";
        // What an allocator has taken into use of what it has reserved, the loader's, and libc's zero-filled data.
        let held = [
            0x3000_0000_4000..0x3000_0012_8000,
            0x7f29_e4a1_b000..0x7f29_e4e1_e000,
            0x7f29_e4e4_4000..0x7f29_e4e4_5000,
        ];
        let program = 0x5_5b88_b900_0123;
        let spans = library_spans(maps, program, 0x5_5b88_ba00_0000).unwrap();
        assert!(spans.iter().map(|span| span.start.address()..span.end.address()).eq(held.clone()), "{spans:x?}");
        assert_eq!(library_spans(maps, 0x7777_0000_0000, 0), None, "somebody else's");
        let spans = library_spans(maps, program, 0x7f29_e4b0_0000).unwrap();
        let rest = [&held[0], &held[2]].map(Clone::clone);
        assert!(spans.iter().map(|span| span.start.address()..span.end.address()).eq(rest), "with a heap: {spans:x?}");
    }

    #[test]
    fn one_mapping_is_found_alone() {
        let area = crate::Area::reserve(3 * PAGE_BYTES).unwrap();
        let start = PageIndex::containing(area.base() as u64);
        let range = PageRange::new(start, page::PageCount(3));
        let maps = open(c"/proc/self/maps");
        match range_from(&maps, start + PageCount(2)) {
            Err(Errno::NOTTY) => println!("skipped: no PROCMAP_QUERY"),
            found => assert_eq!(found, Ok(range)),
        }
    }

    /// Those of a process that rests: in this one other tests' threads come and go.
    #[test]
    fn a_mapping_is_told_alone_as_among_all() {
        let mut sleeper = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let path = std::ffi::CString::new(format!("/proc/{}/maps", sleeper.id())).unwrap();
        let mut buffer = vec![0; BUFFER_BYTES];
        let mut all = || {
            let mut all = Vec::new();
            visit(open(&path), &mut buffer, &mut |mapping| all.push(mapping)).unwrap();
            all
        };
        let mut before = Vec::new();
        let settled = loop {
            let now = all();
            if now.len() > 10 && now == before {
                break now;
            }
            before = now;
            std::thread::sleep(std::time::Duration::from_millis(50));
        };
        let maps = open(&path);
        let ask = |from| mapping_from(&maps, from);
        // The page of old system calls, in the kernel's half, is in the list only.
        let told = settled.into_iter().filter(|mapping| mapping.range.end < PageIndex(1 << 35));
        let asked: Vec<_> = told.map(|mapping| (mapping, ask(mapping.range.start))).collect();
        let behind = ask(PageIndex(1 << 36));
        sleeper.kill().unwrap();
        sleeper.wait().unwrap();
        if behind == Err(Errno::NOTTY) {
            return println!("skipped: no PROCMAP_QUERY");
        }
        assert!(asked.len() > 10 && asked.iter().all(|(told, found)| *found == Ok(*told)), "{asked:x?}");
        assert_eq!(behind, Err(Errno::NOENT));
    }

    #[test]
    fn own_mappings_and_their_resident_pages_are_found() {
        let area = crate::Area::reserve(64 * PAGE_BYTES).unwrap();
        for page in [3, 4, 9] {
            // SAFETY: inside the area.
            unsafe { area.base().wrapping_add(page * PAGE_BYTES).write(1) };
        }
        let start = PageIndex::containing(area.base() as u64);
        let range = PageRange::new(start, page::PageCount(64));
        let mut buffer = vec![0; BUFFER_BYTES];
        let mut found = false;
        let maps = open(c"/proc/self/maps");
        visit(&maps, &mut buffer, &mut |mapping| found |= mapping.range == range && mapping.anonymous).unwrap();
        assert!(found, "an area is a mapping of its own");
        let pagemap = open(c"/proc/self/pagemap");
        let mut pages = Vec::new();
        resident(&pagemap, range, &mut |run| pages.extend(run.start.until(run.end).map(|page| page.0 - start.0)))
            .unwrap();
        assert_eq!(pages, [3, 4, 9]);
    }
}
