//! Where pages go that do not fit into the budget.

use std::ffi::CString;
use std::fs::{self, File, OpenOptions};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileTypeExt, MetadataExt as _, OpenOptionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::sys::statfs::{self, FsType};
use nix::sys::statvfs::statvfs;
use page::ByteCount;
use pager::ledger::PATH_BYTES;
use sys::file::Identity;

/// The swap file may take this many budgets if nothing else is said.
const BUDGETS: u64 = 4;

/// The swap file that a run may use.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Swap {
    /// A directory, or a file.
    pub(crate) path: PathBuf,
    pub(crate) bytes_max: ByteCount,
}

impl Swap {
    /// What to say before the first page goes there, if that page would stay in memory.
    pub(crate) fn warning(&self) -> Option<String> {
        is_in_ram(&self.path).then(|| {
            let path = self.path.display();
            format!(
                "the swap file at {path} stays in RAM, outside the budget: give --swap a directory on a disk, or none"
            )
        })
    }
}

/// Where the swap file is to be, found again by its number: in a namespace of mounts, and behind a chroot, its path may lead elsewhere.
#[derive(Debug)]
pub(crate) struct Place {
    /// Of the directory or the file, or of the directory of one that is to be made.
    pub(crate) path: CString,
    pub(crate) identity: Identity,
    /// Open for nothing but to be found.
    pub(crate) file: File,
}

impl Place {
    /// That of `--swap`.
    pub(crate) fn of(path: &Path) -> Result<Self> {
        let path = existing(path).context("no such directory")?;
        let file = OpenOptions::new().read(true).custom_flags(OFlag::O_PATH.bits()).open(path)?;
        let metadata = file.metadata()?;
        let path = CString::new(path.as_os_str().as_bytes())?;
        Ok(Self { path, identity: (metadata.dev(), metadata.ino()), file })
    }
}

/// Follows `--swap` and `--swap-size`. `None`: no swap.
pub(crate) fn choose(wanted: Option<&Path>, size: Option<ByteCount>, budget: ByteCount) -> Result<Option<Swap>> {
    let path = match wanted {
        Some(path) if path == Path::new("none") => return Ok(None),
        Some(path) => {
            let path = std::path::absolute(path).with_context(|| format!("--swap {}", path.display()))?;
            check(&path).with_context(|| format!("--swap {}", path.display()))?;
            path
        }
        None => match default_directory() {
            Some(path) => path,
            None => return Ok(None),
        },
    };
    ensure!(path.as_os_str().len() < PATH_BYTES, "--swap {}: the path is too long", path.display());
    let bytes_max = match size {
        Some(size) => size,
        None => ByteCount(budget.0.saturating_mul(BUDGETS)).min(ByteCount(free_bytes(&path)?.0 / 2)),
    };
    Ok((bytes_max > ByteCount::ZERO).then_some(Swap { path, bytes_max }))
}

/// `$TMPDIR` or `/var/tmp`: the first that can be written and is on a disk, or else the first that can be written.
pub(crate) fn default_directory() -> Option<PathBuf> {
    let chosen = std::env::var_os("TMPDIR").filter(|path| !path.is_empty());
    best(chosen.into_iter().map(PathBuf::from).chain([PathBuf::from("/var/tmp")]))
}

/// In RAM at last: what goes there is encoded at least, and [`Swap::warning`] says what it costs.
fn best(candidates: impl Iterator<Item = PathBuf>) -> Option<PathBuf> {
    let usable = candidates.filter_map(|path| path.canonicalize().ok()).filter(|path| check(path).is_ok());
    // Of equals the first.
    usable.min_by_key(|path| is_in_ram(path))
}

/// Whether files there are kept in memory, so that pages moved there would stay in it.
pub(crate) fn is_in_ram(path: &Path) -> bool {
    // include/uapi/linux/magic.h; nix has no name for it.
    const RAMFS_MAGIC: statfs::FsType = FsType(0x8584_58f6);
    let Some(path) = existing(path) else { return false };
    let kind = statfs::statfs(path).map(|found| found.filesystem_type());
    kind.is_ok_and(|kind| [statfs::TMPFS_MAGIC, RAMFS_MAGIC].contains(&kind))
}

/// What is free for this user on the file system of `path`.
pub(crate) fn free_bytes(path: &Path) -> Result<ByteCount> {
    let found = existing(path).context("no such directory")?;
    let space = statvfs(found).with_context(|| format!("{}", path.display()))?;
    Ok(ByteCount(space.blocks_available() * space.fragment_size()))
}

/// The kind of file system below a directory, as `mount` names it.
pub(crate) fn file_system(directory: &Path) -> Option<String> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    let kinds = mounts.lines().filter_map(|line| {
        let (front, back) = line.split_once(" - ")?;
        Some((Path::new(front.split(' ').nth(4)?), back.split(' ').next()?))
    });
    // The longest mount point above it; of several on one point the last covers the others.
    let above = kinds.filter(|(point, _)| directory.starts_with(point));
    above.max_by_key(|(point, _)| point.as_os_str().len()).map(|(_, kind)| kind.to_owned())
}

/// Whether a file opened there can bypass the page cache.
pub(crate) fn takes_direct_io(directory: &Path) -> bool {
    open_unnamed(directory, OFlag::O_DIRECT).is_ok()
}

/// Makes a file there and removes it again: permissions, quotas and read-only mounts all speak up.
fn check(path: &Path) -> Result<()> {
    let Ok(metadata) = fs::metadata(path) else {
        // A file to be made.
        let parent = path.parent().filter(|parent| parent.is_dir()).context("no such directory")?;
        return open_unnamed(parent, OFlag::empty());
    };
    let kind = metadata.file_type();
    if kind.is_dir() {
        return open_unnamed(path, OFlag::empty());
    }
    ensure!(!kind.is_block_device(), "a disk: give a directory on a file system there");
    ensure!(kind.is_file(), "neither a directory nor a file");
    ensure!(metadata.len() == 0, "there is a file of that name, and it is not empty");
    OpenOptions::new().read(true).write(true).open(path).map(drop).context("cannot be written")
}

fn open_unnamed(directory: &Path, flags: OFlag) -> Result<()> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).mode(0o600);
    let unnamed = options.clone().custom_flags((OFlag::O_TMPFILE | flags).bits()).open(directory);
    match unnamed {
        Ok(_) => Ok(()),
        // Some file systems (NFS, FUSE) know no files without a name: EOPNOTSUPP, and EISDIR from old kernels.
        Err(error) if matches!(errno_of(&error), Errno::EOPNOTSUPP | Errno::EISDIR) => {
            let path = directory.join(format!(".pleat-{}", std::process::id()));
            options.create_new(true).custom_flags(flags.bits()).open(&path).context("cannot be written")?;
            fs::remove_file(&path).context("cannot be written")
        }
        Err(error) => bail!(anyhow::Error::new(error).context("cannot be written")),
    }
}

fn errno_of(error: &std::io::Error) -> Errno {
    error.raw_os_error().map_or(Errno::EIO, Errno::from_raw)
}

/// The path, or the directory it is to be made in.
fn existing(path: &Path) -> Option<&Path> {
    path.ancestors().take(2).find(|path| path.exists())
}

#[cfg(test)]
mod tests {
    use super::*;

    const IN_RAM: &str = "/dev/shm";

    /// `--swap PATH` under a budget of 64 MiB.
    fn wanted(path: &Path) -> Swap {
        choose(Some(path), None, ByteCount(64 << 20)).unwrap().unwrap()
    }

    #[test]
    fn a_swap_file_in_ram_is_warned_about() {
        if file_system(Path::new(IN_RAM)).as_deref() != Some("tmpfs") || check(Path::new(IN_RAM)).is_err() {
            return println!("skipped: {IN_RAM} is no tmpfs that can be written");
        }
        let file = PathBuf::from(IN_RAM).join(format!("pleat-test-{}", std::process::id()));
        for path in [Path::new(IN_RAM), &file] {
            let warning = wanted(path).warning().unwrap();
            assert!(warning.contains(path.to_str().unwrap()) && warning.contains("--swap"), "{warning}");
        }
        // A link leads to where the file will be.
        let link = std::env::temp_dir().join(format!("pleat-test-link-{}", std::process::id()));
        std::os::unix::fs::symlink(IN_RAM, &link).unwrap();
        let warning = wanted(&link).warning();
        fs::remove_file(&link).unwrap();
        assert!(warning.is_some());
    }

    #[test]
    fn a_swap_file_on_a_disk_is_not() {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR"));
        if file_system(directory).as_deref() == Some("tmpfs") {
            return println!("skipped: the checkout is in RAM");
        }
        assert_eq!(wanted(directory).warning(), None);
        assert_eq!(wanted(&directory.join("no-such-file")).warning(), None);
    }

    #[test]
    fn a_directory_on_a_disk_is_preferred() {
        let on_disk = Path::new(env!("CARGO_MANIFEST_DIR"));
        if !is_in_ram(Path::new(IN_RAM)) || is_in_ram(on_disk) {
            return println!("skipped: needs {IN_RAM} in RAM and the checkout on a disk");
        }
        let chosen = |paths: &[&str]| best(paths.iter().map(PathBuf::from));
        let disk = on_disk.to_str().unwrap();
        assert_eq!(chosen(&[IN_RAM, disk]), on_disk.canonicalize().ok());
        assert_eq!(chosen(&["/no/such", IN_RAM, "/proc"]), Path::new(IN_RAM).canonicalize().ok());
        assert_eq!(chosen(&[disk, "/var/tmp"]), on_disk.canonicalize().ok());
        assert_eq!(chosen(&["/no/such", "/proc"]), None);
    }

    #[test]
    fn a_disk_is_refused() {
        let nodes = fs::read_dir("/dev").into_iter().flatten().flatten().map(|entry| entry.path());
        let is_disk = |path: &PathBuf| fs::metadata(path).is_ok_and(|found| found.file_type().is_block_device());
        let Some(disk) = nodes.into_iter().find(is_disk) else {
            return println!("skipped: no block device in /dev");
        };
        let error = choose(Some(&disk), None, ByteCount(64 << 20)).unwrap_err();
        assert!(format!("{error:#}").contains("give a directory"), "{error:#}");
    }
}
