//! Sectors: lines of 1 KiB in sectors of 256 bytes, after IBM's MXT (Abali and others, 2000), section 2.
//!
//! A page is four lines, each encoded by itself. The translation table (CTT) has an entry of 16 bytes for each line: the
//! numbers of up to four sectors, or, if the line is trivial, its encoding. Lines of one page are cohorts, and two of them
//! may share a sector, one from its beginning, the other to its end. So nothing is ever fragmented: any free sector is as
//! good as any other, and only the rests of last sectors are lost.
//!
//! Where a line ends in an encoding of a page only the codec knows; it is asked by a function that comes with the store.
//! A page's entry also says whose it is, and keeps the byte that its encoding begins with. MXT never makes its memory
//! smaller. Here a unit is given back by moving its sectors, for which each sector knows its line.
//!
//! Invariants: see `Sectors::check`.

use alloc::vec::Vec;

use page::{ByteCount, PAGE_BYTES, PageIndex};
use sys::Errno;

use crate::handle::Handle;
use crate::records::{Records, key, number};
use crate::units::Units;
use crate::{Blocked, Full, Resize, Store, StoreFigures, StoreKey};

mod line;

pub use line::LINES;
use line::{LINE_BYTES, Line, NO_SECTOR, SECTOR_BYTES};

/// How an encoding of a page divides: a byte for all, and then so many bytes for each of the four lines. `None` if it is
/// not of a codec of lines.
pub type DivideLines = fn(&[u8]) -> Option<[usize; LINES]>;

/// Sectors, and the lines in them.
pub struct Sectors {
    units: Units,
    divide: DivideLines,
    /// The translation table: four entries for each page.
    table: Vec<[Line; LINES]>,
    pages: Records<Whole>,
    /// The line that is in a sector, or the first of two; `NO_LINE` in a free one.
    lines: Vec<u32>,
    /// Sectors that are free.
    free: Vec<u32>,
    sums: Sums,
}

/// What a page's lines do not say.
#[derive(Clone, Copy, Debug)]
enum Whole {
    /// They are an encoding that begins with this byte.
    Encoded(u8),
    /// They are the page as it is.
    Plain,
}

#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
struct Sums {
    /// Bytes in sectors.
    sector_bytes: u64,
    shared_sectors: u64,
}

/// No line: the sector is free, or belongs to a unit that is not taken.
const NO_LINE: u32 = u32::MAX;

fn line_number(page: u32, line: usize) -> u32 {
    page * LINES as u32 + line as u32
}

impl Sectors {
    /// Reserves `bytes_max` of address space for units of `unit_bytes`, and takes none yet.
    pub fn new(bytes_max: usize, unit_bytes: usize, divide: DivideLines) -> Result<Self, Errno> {
        let bytes_max = bytes_max.min((NO_SECTOR as usize) * SECTOR_BYTES);
        Ok(Self {
            units: Units::reserve(bytes_max, unit_bytes)?,
            divide,
            table: Vec::new(),
            pages: Records::new(),
            lines: Vec::new(),
            free: Vec::new(),
            sums: Sums::default(),
        })
    }

    /// Sectors in use: what MXT's register of that name tells the operating system.
    pub fn used(&self) -> u64 {
        (self.lines_of_units() - self.free.len()) as u64
    }

    fn lines_of_units(&self) -> usize {
        self.units.taken() * self.sectors_per_unit()
    }

    fn sectors_per_unit(&self) -> usize {
        self.units.unit_bytes() / SECTOR_BYTES
    }

    /// The parts of an encoding that are lines.
    fn divided<'a>(&self, encoding: &'a [u8]) -> (Whole, [&'a [u8]; LINES]) {
        if encoding.len() == PAGE_BYTES {
            let (lines, _) = encoding.as_chunks::<LINE_BYTES>();
            return (Whole::Plain, core::array::from_fn(|line| &lines[line][..]));
        }
        let lengths = (self.divide)(encoding).expect("an encoding without lines");
        let (&first, mut rest) = encoding.split_first().expect("an encoding of no bytes");
        let lines = lengths.map(|length| {
            let (line, behind) = rest.split_at(length);
            rest = behind;
            line
        });
        assert!(rest.is_empty(), "an encoding that is longer than its lines");
        (Whole::Encoded(first), lines)
    }

    /// Copies a line into its sectors, whose numbers are known.
    fn write(&mut self, line: Line, bytes: &[u8]) {
        for (at, piece) in bytes.chunks(SECTOR_BYTES).enumerate() {
            let offset = line.sector(at) as usize * SECTOR_BYTES + line.offset_in(at);
            self.units.pool.bytes_mut(offset, piece.len()).copy_from_slice(piece);
        }
    }

    fn take_sector(&mut self, line: u32) -> u32 {
        let sector = self.free.pop().expect("more sectors than planned");
        self.lines[sector as usize] = line;
        sector
    }

    fn count(&mut self, lines: &[Line; LINES], add: impl Fn(&mut u64, u64)) {
        for line in lines {
            add(&mut self.sums.sector_bytes, if line.is_trivial() { 0 } else { line.length() as u64 });
            add(&mut self.sums.shared_sectors, u64::from(line.shares().is_some()));
        }
    }

    /// Moves what is in a sector to a free one.
    fn relocate(&mut self, from: u32) {
        let line = self.lines[from as usize];
        let to = self.take_sector(line);
        for entry in &mut self.table[line as usize / LINES] {
            entry.replace(from, to);
        }
        self.units.pool.copy(from as usize * SECTOR_BYTES, to as usize * SECTOR_BYTES, SECTOR_BYTES);
        self.lines[from as usize] = NO_LINE;
    }

    /// Each sector of the page's lines is theirs. Returns how many there are, and how many are shared.
    fn check_page(&self, page: u32) -> (usize, u64) {
        let entries = &self.table[page as usize];
        let (mut sectors, mut shared_sectors) = (0, 0);
        for (line, entry) in entries.iter().enumerate() {
            for at in 0..entry.sectors() {
                let mut first = line_number(page, line);
                match entry.shares().filter(|_| at + 1 == entry.sectors()) {
                    Some(cohort) => {
                        let other = entries[cohort];
                        assert!(cohort < line && !other.is_trivial() && other.shares().is_none());
                        assert_eq!(other.sector(other.sectors() - 1), entry.sector(at), "cohorts are apart");
                        assert!(other.last_bytes() + entry.last_bytes() <= SECTOR_BYTES, "cohorts overlap");
                        assert!(entries.iter().filter(|other| other.shares() == Some(cohort)).count() == 1);
                        first = line_number(page, cohort);
                        shared_sectors += 1;
                    }
                    None => sectors += 1,
                }
                assert_eq!(self.lines[entry.sector(at) as usize], first, "a sector of page {page} is another line's");
            }
        }
        (sectors, shared_sectors)
    }
}

/// How lines of these lengths lie in a page: sectors are shared where two last parts fit one. The numbers of sectors are missing.
fn plan(lengths: [usize; LINES]) -> [Line; LINES] {
    let mut plan = [Line::EMPTY; LINES];
    for at in 0..LINES {
        let line = Line::new(lengths[at]);
        let cohort = (0..at).find(|&cohort| line.can_share(plan[cohort]) && !shared(&plan[..at], cohort));
        plan[at] = match cohort {
            Some(cohort) => line.sharing(cohort),
            None => line,
        };
    }
    plan
}

/// Sectors that a page takes whose lines' encodings have these lengths.
pub fn sectors_of(lengths: [u16; LINES]) -> u64 {
    plan(lengths.map(usize::from)).iter().map(|line| line.own_sectors() as u64).sum()
}

/// Whether somebody shares the last sector of `cohort` already, or it shares somebody's.
fn shared(plan: &[Line], cohort: usize) -> bool {
    plan[cohort].shares().is_some() || plan.iter().any(|line| line.shares() == Some(cohort))
}

impl Store for Sectors {
    fn put(&mut self, owner: PageIndex, encoding: &[u8]) -> Result<StoreKey, Full> {
        let (whole, lines) = self.divided(encoding);
        let mut plan = plan(lines.map(<[u8]>::len));
        let wanted: usize = plan.iter().map(|line| line.own_sectors()).sum();
        if wanted > self.free.len() {
            return Err(Full);
        }
        let page = self.pages.insert(Handle { owner, length: encoding.len() }, whole);
        for line in 0..LINES {
            if plan[line].is_trivial() {
                plan[line].set_bytes(lines[line]);
                continue;
            }
            for at in 0..plan[line].own_sectors() {
                let sector = self.take_sector(line_number(page, line));
                plan[line].set_sector(at, sector);
            }
            if let Some(cohort) = plan[line].shares() {
                let last = plan[line].sectors() - 1;
                let sector = plan[cohort].sector(plan[cohort].sectors() - 1);
                plan[line].set_sector(last, sector);
            }
            self.write(plan[line], lines[line]);
        }
        self.count(&plan, |sum, more| *sum += more);
        if page as usize == self.table.len() {
            self.table.push(plan);
        } else {
            self.table[page as usize] = plan;
        }
        if cfg!(debug_assertions) {
            self.check_page(page);
        }
        Ok(key(page))
    }

    fn read(&self, key: StoreKey, copy: &mut [u8; PAGE_BYTES]) -> usize {
        let page = number(key);
        let length = self.pages.handle(page).length;
        let mut rest = &mut copy[..length];
        if let Whole::Encoded(first) = self.pages.place(page) {
            rest[0] = first;
            rest = &mut rest[1..];
        }
        for line in &self.table[page as usize] {
            let (bytes, behind) = rest.split_at_mut(line.length());
            rest = behind;
            if line.is_trivial() {
                bytes.copy_from_slice(line.bytes());
                continue;
            }
            for (at, piece) in bytes.chunks_mut(SECTOR_BYTES).enumerate() {
                let offset = line.sector(at) as usize * SECTOR_BYTES + line.offset_in(at);
                piece.copy_from_slice(self.units.pool.bytes(offset, piece.len()));
            }
        }
        length
    }

    fn owner(&self, key: StoreKey) -> PageIndex {
        self.pages.handle(number(key)).owner
    }

    fn set_owner(&mut self, key: StoreKey, owner: PageIndex) {
        self.pages.set_owner(number(key), owner);
    }

    fn remove(&mut self, key: StoreKey) {
        let page = number(key);
        self.pages.remove(page);
        let lines = core::mem::replace(&mut self.table[page as usize], [Line::EMPTY; LINES]);
        for line in lines {
            for at in 0..line.own_sectors() {
                self.lines[line.sector(at) as usize] = NO_LINE;
                self.free.push(line.sector(at));
            }
        }
        self.count(&lines, |sum, less| *sum -= less);
    }

    fn as_area(&mut self) -> Option<&mut dyn Resize> {
        Some(self)
    }

    fn figures(&self) -> StoreFigures {
        let used = self.used() * SECTOR_BYTES as u64;
        let free = (self.free.len() * SECTOR_BYTES) as u64;
        let metadata = size_of_val(&self.table[..])
            + self.pages.metadata_bytes()
            + size_of_val(&self.lines[..])
            + size_of_val(&self.free[..])
            + self.units.metadata_bytes();
        StoreFigures {
            encodings: self.pages.count(),
            stored: ByteCount(self.pages.stored_bytes()),
            in_tables: ByteCount(self.pages.stored_bytes() - self.sums.sector_bytes),
            rounding: ByteCount(used - self.sums.sector_bytes),
            free: ByteCount(free),
            pool: ByteCount(used + free),
            metadata: ByteCount(metadata as u64),
            sectors_shared: self.sums.shared_sectors,
            ..StoreFigures::default()
        }
    }

    fn check(&self) {
        self.pages.check();
        let mut sums = Sums::default();
        let mut sectors = 0;
        let mut stored_bytes = 0;
        for page in self.pages.numbers() {
            let (own, shared_sectors) = self.check_page(page);
            sectors += own;
            sums.shared_sectors += shared_sectors;
            for line in &self.table[page as usize] {
                stored_bytes += line.length() as u64;
                sums.sector_bytes += if line.is_trivial() { 0 } else { line.length() as u64 };
            }
            stored_bytes += u64::from(matches!(self.pages.place(page), Whole::Encoded(_)));
        }
        assert_eq!(sums, self.sums);
        assert_eq!(stored_bytes, self.pages.stored_bytes());
        assert_eq!(self.lines.iter().filter(|&&line| line != NO_LINE).count(), sectors, "sectors are lost");
        assert_eq!(sectors + self.free.len(), self.lines_of_units());
        assert!(self.free.iter().all(|&sector| self.lines[sector as usize] == NO_LINE), "a used sector is free");
        let mut free = self.free.clone();
        free.sort_unstable();
        free.dedup();
        assert_eq!(free.len(), self.free.len(), "a sector is free twice");
    }
}

impl Resize for Sectors {
    fn unit(&self) -> ByteCount {
        ByteCount(self.units.unit_bytes() as u64)
    }

    fn grow(&mut self) -> Result<(), Full> {
        let unit = self.units.take().ok_or(Full)?;
        let sectors = self.sectors_per_unit() as u32;
        let end = (unit + 1) * sectors;
        if self.lines.len() < end as usize {
            self.lines.resize(end as usize, NO_LINE);
        }
        self.free.extend((unit * sectors..end).rev());
        Ok(())
    }

    /// The unit with the fewest sectors in use. Nobody hears of the moves: keys stay.
    fn shrink(&mut self, _: &mut dyn FnMut(PageIndex, StoreKey, StoreKey)) -> Result<(), Blocked> {
        let sectors = self.sectors_per_unit();
        let mut free = alloc::vec![0_usize; self.lines.len() / sectors];
        for &sector in &self.free {
            free[sector as usize / sectors] += 1;
        }
        let Some(unit) = self.emptiest(&free) else { return Err(Blocked) };
        if self.free.len() - free[unit] < sectors - free[unit] {
            return Err(Blocked);
        }
        let own = (unit * sectors) as u32..((unit + 1) * sectors) as u32;
        self.free.retain(|sector| !own.contains(sector));
        for sector in own {
            if self.lines[sector as usize] != NO_LINE {
                self.relocate(sector);
            }
        }
        self.units.give_back(unit as u32);
        Ok(())
    }

    fn oldest(&self) -> Option<StoreKey> {
        self.pages.oldest()
    }

    fn would_be_resident(&mut self, key: StoreKey) -> bool {
        let frames = self.units.taken() * self.units.unit_bytes() / PAGE_BYTES;
        self.pages.is_among_youngest(number(key), frames as u64)
    }
}

impl Sectors {
    /// The unit with the most free sectors, given how many each has.
    fn emptiest(&self, free: &[usize]) -> Option<usize> {
        let in_use = |unit: &usize| {
            self.lines[unit * self.sectors_per_unit()..][..self.sectors_per_unit()].iter().any(|&line| line != NO_LINE)
        };
        (0..free.len()).filter(|unit| free[*unit] > 0 || in_use(unit)).max_by_key(|&unit| free[unit])
    }
}
