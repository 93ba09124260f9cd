//! The swap file: private, without a name, past the page cache where the file system allows it.

use core::ffi::CStr;
use core::sync::atomic::{AtomicBool, Ordering};

use sys::Errno;
use sys::file::{Caching, File};
use sys::ring::{Queue, Read};

use crate::{BackingError, BackingStore, read_in_turn};

/// A swap file. Opened, used and dropped by threads that share a descriptor table.
#[derive(Debug)]
pub struct SwapFile {
    file: File,
    bytes_max: u64,
    /// Requests go past the page cache. That cache would be charged to the very budget we are trying to keep.
    direct: AtomicBool,
    /// Blocks that are not needed go back to the file system.
    shrinks: bool,
}

impl SwapFile {
    /// A new file of mode 0600 in `directory`. It has no name, so it goes with its last descriptor.
    pub fn create_in(directory: &CStr, bytes_max: u64) -> Result<Self, Errno> {
        Ok(Self::on(File::create_unnamed(directory)?, bytes_max, true))
    }

    /// The regular file at `path`, which the user has set aside for this: its content is lost, its name and its blocks
    /// stay. Made if it does not exist. `EWOULDBLOCK`: another run uses it. `ENODEV`: not a regular file.
    pub fn open(path: &CStr, bytes_max: u64) -> Result<Self, Errno> {
        Ok(Self::on(File::open(path)?, bytes_max, false))
    }

    /// An open file that the user has set aside, as for [`SwapFile::open`].
    pub fn set_aside(file: File, bytes_max: u64) -> Self {
        Self::on(file, bytes_max, false)
    }

    /// An open file; [`File::from_fd`] makes one of a descriptor.
    pub fn from_file(file: File, bytes_max: u64) -> Self {
        Self::on(file, bytes_max, true)
    }

    fn on(file: File, bytes_max: u64, shrinks: bool) -> Self {
        // EINVAL: the file system has no direct I/O. Any other error too leaves us with the page cache, which works.
        let direct = file.set_direct(Caching::Direct).is_ok();
        Self { file, bytes_max, direct: AtomicBool::new(direct), shrinks }
    }

    /// The file itself, for those who want to look at it from outside.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Whether requests go past the page cache.
    pub fn caching(&self) -> Caching {
        // Relaxed: a hint; the flag that counts is the kernel's.
        if self.direct.load(Ordering::Relaxed) { Caching::Direct } else { Caching::PageCache }
    }

    /// After EINVAL: some file systems take the flag and refuse the requests. Switches to the page cache; whether that
    /// changes anything, so that a second try makes sense.
    fn give_up_direct(&self) -> bool {
        // Relaxed: nothing is published through it. Of several threads one switches, and the others fail at most once.
        self.direct.swap(false, Ordering::Relaxed) && self.file.set_direct(Caching::PageCache).is_ok()
    }

    fn answer(&self, errno: Errno, offset: u64) -> Answer {
        match errno {
            Errno::INTR => Answer::Again,
            Errno::INVAL if self.give_up_direct() => Answer::Again,
            // EFBIG: RLIMIT_FSIZE, or more than the file system can put into one file.
            Errno::NOSPC | Errno::DQUOT | Errno::FBIG => Answer::Error(BackingError::Full),
            // EIO and whatever a network file system adds (ESTALE, ETIMEDOUT, …). EBADF, EFAULT, EISDIR, ESPIPE and
            // the rest of pread(2) would be our mistakes, but a medium's error is never worth a panic.
            errno => Answer::Error(BackingError::Io { offset, errno }),
        }
    }
}

enum Answer {
    Again,
    Error(BackingError),
}

impl BackingStore for SwapFile {
    fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<(), BackingError> {
        let mut done = 0;
        while done < out.len() {
            let at = offset + done as u64;
            match self.file.read_at(at, &mut out[done..]) {
                Ok(0) => return Err(BackingError::Short { offset: at }),
                Ok(bytes) => done += bytes,
                Err(errno) => match self.answer(errno, at) {
                    Answer::Again => {}
                    Answer::Error(error) => return Err(error),
                },
            }
        }
        Ok(())
    }

    fn read_many(&self, reads: &mut [Read<'_>], queue: &mut Queue) {
        // Together, then one by one those that have not come whole: EINVAL, a signal, or no ring.
        if reads.iter().filter(|read| !read.is_whole()).nth(1).is_some() {
            queue.read(&self.file, reads);
        }
        read_in_turn(self, reads);
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), BackingError> {
        if offset.checked_add(bytes.len() as u64).is_none_or(|end| end > self.bytes_max) {
            return Err(BackingError::Full);
        }
        let mut done = 0;
        while done < bytes.len() {
            let at = offset + done as u64;
            match self.file.write_at(at, &bytes[done..]) {
                Ok(0) => return Err(BackingError::Short { offset: at }),
                Ok(bytes) => done += bytes,
                Err(errno) => match self.answer(errno, at) {
                    Answer::Again => {}
                    Answer::Error(error) => return Err(error),
                },
            }
        }
        Ok(())
    }

    fn discard(&self, offset: u64, bytes: u64) {
        if self.shrinks {
            // EOPNOTSUPP and everything else: the file stays as large as it is.
            let _ = self.file.punch_hole(offset, bytes);
        }
    }

    fn bytes_max(&self) -> u64 {
        self.bytes_max
    }
}
