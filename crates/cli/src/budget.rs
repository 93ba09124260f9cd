//! How much memory there is to give: the machine's, and what memory cgroups leave of it.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use page::ByteCount;

use crate::proc::meminfo;
use crate::size::{BUDGET_BYTES_MIN, Human, Ram};

/// `--ram auto` leaves this share of what is free to everything else.
const AUTO_RESERVE_PERCENT: u64 = 10;

/// Which hierarchy limits memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Version {
    V1,
    V2,
}

/// One memory cgroup with a limit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Limit {
    pub(crate) version: Version,
    pub(crate) directory: PathBuf,
    pub(crate) bytes_max: ByteCount,
    /// What its processes hold now, without file pages that are given back when memory gets short.
    pub(crate) used: ByteCount,
}

impl Limit {
    fn free(&self) -> ByteCount {
        self.bytes_max.saturating_sub(self.used)
    }
}

/// The budget that `--ram` asks for.
pub(crate) fn budget(ram: Ram) -> Result<ByteCount> {
    let limits = limits();
    let bytes = match ram {
        Ram::Bytes(bytes) => bytes,
        Ram::Percent(percent) => {
            let total = meminfo("MemTotal").context("/proc/meminfo does not say how much memory there is")?;
            let total = limits.iter().map(|limit| limit.bytes_max).fold(total, Ord::min);
            ByteCount((total.0 as f64 * percent / 100.0) as u64)
        }
        Ram::Auto => {
            let available = meminfo("MemAvailable").context("/proc/meminfo does not say how much memory is free")?;
            let free = limits.iter().map(Limit::free).fold(available, Ord::min);
            ByteCount(free.0 / 100 * (100 - AUTO_RESERVE_PERCENT))
        }
    };
    if bytes < ByteCount(BUDGET_BYTES_MIN) {
        let (bytes, least) = (Human(bytes.0), Human(BUDGET_BYTES_MIN));
        match ram {
            Ram::Bytes(_) => bail!("--ram {bytes} is under the minimum of {least}"),
            Ram::Percent(percent) => bail!("--ram {percent}% is {bytes} here, under the minimum of {least}"),
            Ram::Auto => bail!("--ram auto finds only {bytes} free, under the minimum of {least}"),
        }
    }
    Ok(bytes)
}

/// The memory cgroups above this process that have a limit, innermost first.
pub(crate) fn limits() -> Vec<Limit> {
    let read = |path| fs::read_to_string(path).unwrap_or_default();
    let groups = read("/proc/self/cgroup");
    let mounts = read("/proc/self/mountinfo");
    [Version::V1, Version::V2]
        .into_iter()
        .filter_map(|version| Some((version, own_directory(version, &groups, &mounts)?)))
        .flat_map(|(version, (mount, directory))| limits_up(version, &mount, &directory))
        .collect()
}

/// Where this process's memory cgroup is mounted: the mount point, and the directory below it.
fn own_directory(version: Version, groups: &str, mounts: &str) -> Option<(PathBuf, PathBuf)> {
    let group = groups.lines().find_map(|line| {
        // hierarchy:controllers:path; version 2 has number 0 and no controllers.
        let mut fields = line.splitn(3, ':');
        let (number, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
        let fits = match version {
            Version::V1 => controllers.split(',').any(|name| name == "memory"),
            Version::V2 => number == "0" && controllers.is_empty(),
        };
        fits.then_some(path)
    })?;
    let (root, point) = mounts.lines().find_map(|line| {
        // id parent device root point options … - type source super-options (man 5 proc_pid_mountinfo).
        let (front, back) = line.split_once(" - ")?;
        let (mut front, mut back) = (front.split(' ').skip(3), back.split(' '));
        let (kind, options) = (back.next()?, back.nth(1)?);
        let fits = match version {
            Version::V1 => kind == "cgroup" && options.split(',').any(|name| name == "memory"),
            Version::V2 => kind == "cgroup2",
        };
        fits.then(|| Some((front.next()?, front.next()?))).flatten()
    })?;
    // A container sees its own group as the root of the mount; a path outside of it (a joined namespace) says
    // nothing more than that we are somewhere below.
    let below = Path::new(group).strip_prefix(root).unwrap_or(Path::new(""));
    Some((point.into(), Path::new(point).join(below)))
}

/// The limits of a directory and those above it, up to the mount point.
fn limits_up(version: Version, mount: &Path, directory: &Path) -> Vec<Limit> {
    let inside = directory.ancestors().take_while(|directory| directory.starts_with(mount));
    inside.filter_map(|directory| limit_of(version, directory)).collect()
}

fn limit_of(version: Version, directory: &Path) -> Option<Limit> {
    // Version 1 says "no limit" with the largest multiple of a page; no machine comes near this.
    const NO_LIMIT: u64 = 1 << 60;
    let (limit, used, inactive) = match version {
        Version::V1 => ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file "),
        Version::V2 => ("memory.max", "memory.current", "inactive_file "),
    };
    let read = |name: &str| fs::read_to_string(directory.join(name)).ok();
    // "max" is no number: no limit.
    let limit = read(limit)?.trim().parse().ok().filter(|limit| *limit < NO_LIMIT)?;
    let used: u64 = read(used).and_then(|text| text.trim().parse().ok()).unwrap_or(0);
    let statistics = read("memory.stat").unwrap_or_default();
    let inactive = statistics.lines().find_map(|line| line.strip_prefix(inactive)?.trim().parse().ok()).unwrap_or(0);
    let used = ByteCount(used).saturating_sub(ByteCount(inactive));
    Some(Limit { version, directory: directory.to_owned(), bytes_max: ByteCount(limit), used })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "\
35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime shared:9 - cgroup2 cgroup2 rw
";

    #[test]
    fn groups_of_both_versions_are_found() {
        let groups = "5:devices:/\n4:cpu,memory:/a/b\n0::/u\n";
        let (mount, directory) = own_directory(Version::V1, groups, MOUNTS).unwrap();
        assert_eq!(mount, Path::new("/sys/fs/cgroup/memory"));
        assert_eq!(directory, Path::new("/sys/fs/cgroup/memory/a/b"));
        let (_, directory) = own_directory(Version::V2, groups, MOUNTS).unwrap();
        assert_eq!(directory, Path::new("/sys/fs/cgroup/unified/u"));
        assert_eq!(own_directory(Version::V1, "0::/u\n", MOUNTS), None);
    }

    #[test]
    fn a_container_sees_its_group_as_the_root() {
        let mounts = "35 31 0:32 /docker/1 /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
        let (_, directory) = own_directory(Version::V2, "0::/docker/1/x\n", mounts).unwrap();
        assert_eq!(directory, Path::new("/sys/fs/cgroup/x"));
        let (_, directory) = own_directory(Version::V2, "0::/elsewhere\n", mounts).unwrap();
        assert_eq!(directory, Path::new("/sys/fs/cgroup"));
    }

    #[test]
    fn limits_are_read_up_to_the_mount() {
        let mount = std::env::temp_dir().join(format!("pleat-cgroup-{}", std::process::id()));
        let inner = mount.join("a/b");
        fs::create_dir_all(&inner).unwrap();
        fs::write(inner.join("memory.max"), "max\n").unwrap();
        fs::write(mount.join("a/memory.max"), "1000000\n").unwrap();
        fs::write(mount.join("a/memory.current"), "300000\n").unwrap();
        fs::write(mount.join("a/memory.stat"), "anon 5\ninactive_file 100000\n").unwrap();
        fs::write(mount.join("memory.max"), "2000000\n").unwrap();
        let limits = limits_up(Version::V2, &mount, &inner);
        fs::remove_dir_all(&mount).unwrap();
        let numbers: Vec<_> = limits.iter().map(|limit| (limit.bytes_max.0, limit.used.0, limit.free().0)).collect();
        assert_eq!(numbers, [(1_000_000, 200_000, 800_000), (2_000_000, 0, 2_000_000)]);
    }

    #[test]
    fn the_minimum() {
        let error = budget(Ram::Bytes(ByteCount(4 << 20))).unwrap_err().to_string();
        assert!(error.contains("4 MiB is under the minimum of 16 MiB"), "{error}");
        assert!(budget(Ram::Percent(100.0)).unwrap() <= meminfo("MemTotal").unwrap());
        assert!(budget(Ram::Auto).is_ok());
    }
}
