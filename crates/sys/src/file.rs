//! Files that hold pages below RAM: opened close-on-exec and private, read and written at an offset.
//!
//! A descriptor belongs to the descriptor table of the thread that opened it. A thread with a table of its own (see
//! `thread`) opens, uses and drops its files itself.

use core::ffi::CStr;

use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, CWD, FallocateFlags, FileType, FlockOperation, Mode, OFlags};

use crate::Errno;

/// Names to try where the file system has no unnamed files. One is enough unless somebody plays tricks.
const NAMES_MAX: u32 = 16;
/// `.pleat-`, 16 hexadecimal digits, and the final zero.
const NAME_BYTES: usize = 24;

/// An open regular file.
#[derive(Debug)]
pub struct File {
    fd: OwnedFd,
}

/// Device and number there.
pub type Identity = (u64, u64);

/// Of what a path leads to.
pub fn identity(path: &CStr) -> Option<Identity> {
    rustix::fs::stat(path).ok().map(|stat| (stat.st_dev, stat.st_ino))
}

/// Without a name in the directory that a path has before its last name.
fn create_unnamed_beside(path: &CStr) -> Result<File, Errno> {
    let bytes = path.to_bytes();
    let end = bytes.iter().rposition(|byte| *byte == b'/').map_or(0, |slash| slash + 1);
    // No `CString`: making one can unwind as alloc is built, and an agent has nobody who could.
    let directory = [&bytes[..end], b"\0"].concat();
    File::create_unnamed(CStr::from_bytes_with_nul(&directory).map_err(|_| Errno::INVAL)?)
}

impl File {
    /// A new, empty file of mode 0600 on the file system of `directory`, without a name: it goes when its last
    /// descriptor does, however the program ends.
    pub fn create_unnamed(directory: &CStr) -> Result<Self, Errno> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = rustix::fs::openat(CWD, directory, flags, Mode::empty())?;
        // O_EXCL: nobody can give the file a name later.
        let flags = OFlags::TMPFILE | OFlags::EXCL | OFlags::RDWR | OFlags::CLOEXEC;
        match rustix::fs::openat(&directory, c".", flags, private()) {
            Ok(fd) => Ok(Self { fd }),
            // The file system has no O_TMPFILE: EOPNOTSUPP; EISDIR or ENOENT where it does not know the flag at all;
            // EINVAL from some user-space file systems.
            Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::NOENT | Errno::INVAL) => create_and_unlink(&directory),
            // EACCES, EROFS, ENOSPC, EDQUOT, EMFILE, ENFILE, …: a second way would meet the same.
            Err(errno) => Err(errno),
        }
    }

    /// The file at `path`, made with mode 0600 if it does not exist, and locked (flock) against a second user.
    /// `EWOULDBLOCK` says that somebody else has locked it, `ENODEV` that it is not a regular file.
    pub fn open(path: &CStr) -> Result<Self, Errno> {
        // NONBLOCK: opening a FIFO must not hang. It means nothing to regular files.
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        let file = Self::from_fd(rustix::fs::openat(CWD, path, flags, private())?)?;
        rustix::fs::flock(&file.fd, FlockOperation::NonBlockingLockExclusive)?;
        Ok(file)
    }

    /// A file for one user at a path, if that leads to this directory or file: without a name in the directory; the file itself; or one without
    /// a name beside it, if another has locked it.
    pub fn create_at(path: &CStr, place: Identity) -> Option<Self> {
        if identity(path) != Some(place) {
            return None;
        }
        let opened = match Self::create_unnamed(path) {
            Err(Errno::NOTDIR) => Self::open(path),
            other => return other.ok(),
        };
        match opened {
            Err(Errno::WOULDBLOCK) => create_unnamed_beside(path).ok(),
            other => other.ok(),
        }
    }

    /// One without a name in that directory; beside what is there, if that is none, or if there is nothing.
    pub fn create_unnamed_near(path: &CStr) -> Result<Self, Errno> {
        match Self::create_unnamed(path) {
            Err(Errno::NOENT | Errno::NOTDIR) => create_unnamed_beside(path),
            other => other,
        }
    }

    /// Whether it is that file.
    pub fn is(&self, file: Identity) -> bool {
        rustix::fs::fstat(&self.fd).is_ok_and(|stat| (stat.st_dev, stat.st_ino) == file)
    }

    /// Takes an open descriptor; `ENODEV` if it is not that of a regular file.
    pub fn from_fd(fd: OwnedFd) -> Result<Self, Errno> {
        let stat = rustix::fs::fstat(&fd)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(Errno::NODEV);
        }
        Ok(Self { fd })
    }

    /// The number of its descriptor, to be handed to a forked child.
    pub fn number(&self) -> i32 {
        use rustix::fd::AsRawFd;
        self.fd.as_raw_fd()
    }

    /// Reads at `offset`; how many bytes came, 0 at the end of the file.
    pub fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<usize, Errno> {
        rustix::io::pread(&self.fd, out, offset)
    }

    /// Writes at `offset`; how many bytes went.
    pub fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<usize, Errno> {
        rustix::io::pwrite(&self.fd, bytes, offset)
    }

    /// Gives the blocks under a range back to the file system; the range reads as zeros afterwards.
    pub fn punch_hole(&self, offset: u64, bytes: u64) -> Result<(), Errno> {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        rustix::fs::fallocate(&self.fd, flags, offset, bytes)
    }

    /// Switches direct I/O, past the page cache, on or off; `EINVAL` where the file system has none. Direct I/O wants
    /// offsets, lengths and memory in whole blocks.
    pub fn set_direct(&self, caching: Caching) -> Result<(), Errno> {
        let flags = rustix::fs::fcntl_getfl(&self.fd)?;
        let flags = match caching {
            Caching::Direct => flags | OFlags::DIRECT,
            Caching::PageCache => flags - OFlags::DIRECT,
        };
        rustix::fs::fcntl_setfl(&self.fd, flags)
    }

    /// What the file looks like from outside.
    #[allow(clippy::useless_conversion, reason = "st_nlink has 32 bits on aarch64")]
    pub fn shape(&self) -> Result<FileShape, Errno> {
        let stat = rustix::fs::fstat(&self.fd)?;
        Ok(FileShape {
            mode: stat.st_mode & 0o7777,
            links: u64::from(stat.st_nlink),
            bytes: stat.st_size as u64,
            // st_blocks counts units of 512 bytes whatever the file system's block is: stat(2).
            stored_bytes: stat.st_blocks as u64 * 512,
        })
    }
}

/// Whether the kernel's page cache stands between a file and its medium.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Caching {
    /// It does.
    PageCache,
    /// It does not (`O_DIRECT`).
    Direct,
}

/// See [`File::shape`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FileShape {
    /// Permission bits.
    pub mode: u32,
    /// Names in directories.
    pub links: u64,
    /// Length, holes included.
    pub bytes: u64,
    /// What the file system has allocated.
    pub stored_bytes: u64,
}

fn private() -> Mode {
    Mode::RUSR | Mode::WUSR
}

/// The way of file systems without `O_TMPFILE`: the name exists for the time of two calls.
fn create_and_unlink(directory: &OwnedFd) -> Result<File, Errno> {
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::RDWR | OFlags::CLOEXEC;
    for _ in 0..NAMES_MAX {
        let name = random_name()?;
        let name = CStr::from_bytes_until_nul(&name).map_err(|_| Errno::INVAL)?;
        match rustix::fs::openat(directory, name, flags, private()) {
            Ok(fd) => {
                rustix::fs::unlinkat(directory, name, AtFlags::empty())?;
                return Ok(File { fd });
            }
            Err(Errno::EXIST) => {} // Somebody has that name: draw another.
            Err(errno) => return Err(errno),
        }
    }
    Err(Errno::EXIST)
}

fn random_name() -> Result<[u8; NAME_BYTES], Errno> {
    let mut drawn = [0; 8];
    // NONBLOCK: a machine that has just started may have no randomness yet (EAGAIN), and a name is not worth a wait.
    rustix::rand::getrandom(&mut drawn[..], rustix::rand::GetRandomFlags::NONBLOCK)?;
    let mut name = *b".pleat-0000000000000000\0";
    for (digit, at) in (7..NAME_BYTES - 1).enumerate() {
        let nibble = drawn[digit / 2] >> (4 * (digit % 2)) & 0xf;
        name[at] = b"0123456789abcdef"[usize::from(nibble)];
    }
    Ok(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CString;
    use std::os::unix::ffi::OsStrExt;
    use std::path::{Path, PathBuf};

    /// A directory of this test's own, removed on drop.
    struct Directory(PathBuf);

    impl Directory {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("pleat-file-{}-{name}", std::process::id()));
            std::fs::create_dir_all(&path).unwrap();
            Self(path)
        }

        fn names(&self) -> usize {
            std::fs::read_dir(&self.0).unwrap().count()
        }
    }

    impl Drop for Directory {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    fn c(path: &Path) -> CString {
        CString::new(path.as_os_str().as_bytes()).unwrap()
    }

    fn private_and_nameless(file: &File, directory: &Directory) {
        let shape = file.shape().unwrap();
        assert_eq!((shape.mode, shape.links, shape.bytes), (0o600, 0, 0));
        assert_eq!(directory.names(), 0);
        assert_eq!(file.write_at(4096, b"below").unwrap(), 5);
        let mut back = [1; 8];
        assert_eq!(file.read_at(4094, &mut back).unwrap(), 7);
        assert_eq!(&back[..7], b"\0\0below");
    }

    #[test]
    fn both_ways_leave_no_name() {
        let directory = Directory::new("unnamed");
        private_and_nameless(&File::create_unnamed(&c(&directory.0)).unwrap(), &directory);
        let fd = rustix::fs::openat(CWD, c(&directory.0).as_c_str(), OFlags::PATH | OFlags::DIRECTORY, Mode::empty())
            .unwrap();
        private_and_nameless(&create_and_unlink(&fd).unwrap(), &directory);
    }

    #[test]
    fn a_named_file_has_one_user_and_is_regular() {
        let directory = Directory::new("named");
        let path = c(&directory.0.join("swap"));
        let file = File::open(&path).unwrap();
        assert_eq!(file.shape().unwrap().mode, 0o600);
        assert_eq!(File::open(&path).unwrap_err(), Errno::WOULDBLOCK);
        drop(file);
        assert!(File::open(&path).is_ok());
        let place = identity(&path).unwrap();
        let first = File::create_at(&path, place).unwrap();
        let second = File::create_at(&path, place).unwrap();
        assert_eq!((first.is(place), second.is(place), second.shape().unwrap().links), (true, false, 0));
        let whole = c(&directory.0);
        assert_eq!(File::create_at(&whole, identity(&whole).unwrap()).unwrap().shape().unwrap().links, 0);
        assert!(File::create_at(&path, identity(&whole).unwrap()).is_none(), "it is another one");
        assert!(File::create_unnamed_near(&path).is_ok_and(|file| !file.is(place)));
        assert!(File::create_unnamed_near(&c(&directory.0.join("nothing"))).is_ok());
        assert_eq!(File::open(c"/dev/null").unwrap_err(), Errno::NODEV);
        assert_eq!(File::open(&c(&directory.0)).unwrap_err(), Errno::ISDIR);
        assert_eq!(File::create_unnamed(c"/no/such/directory").unwrap_err(), Errno::NOENT);
    }
}
