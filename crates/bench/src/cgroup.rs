//! A memory cgroup of one's own, version 1 or 2, gone again when dropped.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Which interface the machine has for memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Version {
    /// `memory.limit_in_bytes` and the like. A zswap pool is not charged to the group.
    V1,
    /// `memory.max` and the like.
    V2,
}

/// What the group may do when it is full.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Swap {
    /// Nothing: its programs are killed.
    Forbidden,
    /// Swap out.
    Allowed,
}

/// A memory cgroup made here.
#[derive(Debug)]
pub struct Group {
    dir: PathBuf,
    version: Version,
}

impl Group {
    /// Makes an empty group below this process's own (or as near to it as is allowed). The error says why not.
    pub fn create(name: &str) -> Result<Self, String> {
        let (version, mount, own) = own_group()?;
        let mut why = String::from("no memory cgroup is mounted");
        // Version 2 gives controllers only to children of groups without processes, so an ancestor may have to do.
        for parent in own.ancestors().take_while(|dir| dir.starts_with(&mount)) {
            match Self::create_in(parent, name, version) {
                Ok(group) => return Ok(group),
                Err(error) => why = format!("no memory cgroup can be made in {}: {error}", parent.display()),
            }
        }
        Err(why)
    }

    fn create_in(parent: &Path, name: &str, version: Version) -> io::Result<Self> {
        if version == Version::V2 {
            // Fails where it is on already, or where it may not be put on: the check below tells the two apart.
            let _ = fs::write(parent.join("cgroup.subtree_control"), "+memory");
        }
        let dir = parent.join(format!("{name}-{}", std::process::id()));
        fs::create_dir(&dir)?;
        let group = Self { dir, version };
        fs::metadata(group.dir.join(group.limit_file()))?;
        Ok(group)
    }

    /// Its directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Its interface.
    pub const fn version(&self) -> Version {
        self.version
    }

    const fn limit_file(&self) -> &'static str {
        match self.version {
            Version::V1 => "memory.limit_in_bytes",
            Version::V2 => "memory.max",
        }
    }

    /// Limits the group to `bytes` of RAM. The error says what was refused.
    pub fn limit(&self, bytes: u64, swap: Swap) -> Result<(), String> {
        let write = |file: &str, text: &str| {
            let path = self.dir.join(file);
            fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))
        };
        match (self.version, swap) {
            (Version::V1, Swap::Allowed) => {
                // The sum's limit can never be below the limit: lift it first.
                let _ = write("memory.memsw.limit_in_bytes", "-1");
                write("memory.limit_in_bytes", &bytes.to_string())
            }
            (Version::V1, Swap::Forbidden) => {
                let _ = write("memory.memsw.limit_in_bytes", "-1");
                write("memory.limit_in_bytes", &bytes.to_string())?;
                // Absent on kernels without swap accounting; there swappiness 0 keeps anonymous memory in RAM.
                write("memory.memsw.limit_in_bytes", &bytes.to_string()).or_else(|_| write("memory.swappiness", "0"))
            }
            (Version::V2, Swap::Allowed) => {
                write("memory.swap.max", "max")?;
                write("memory.max", &bytes.to_string())
            }
            (Version::V2, Swap::Forbidden) => {
                write("memory.max", &bytes.to_string())?;
                // Absent on kernels without swap.
                let _ = write("memory.swap.max", "0");
                Ok(())
            }
        }
    }

    /// Most memory the group has held, as the kernel counts it: page cache and page tables too.
    pub fn peak_bytes(&self) -> Option<u64> {
        let file = match self.version {
            Version::V1 => "memory.max_usage_in_bytes",
            Version::V2 => "memory.peak",
        };
        fs::read_to_string(self.dir.join(file)).ok()?.trim().parse().ok()
    }

    /// How many of its processes the kernel has killed for want of memory.
    pub fn oom_kills(&self) -> u64 {
        let file = match self.version {
            Version::V1 => "memory.oom_control",
            Version::V2 => "memory.events",
        };
        let text = fs::read_to_string(self.dir.join(file)).unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix("oom_kill "));
        line.and_then(|count| count.trim().parse().ok()).unwrap_or(0)
    }

    /// A command line that runs `words` inside the group: a shell moves itself in and becomes the program.
    pub fn command(&self, words: &[String]) -> Command {
        enter(&self.dir, words)
    }

    /// Removes the group; also called when dropped.
    pub fn remove(&self) {
        remove(&self.dir);
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.remove();
    }
}

/// A command line that runs `words` inside the group at `dir`.
pub fn enter(dir: &Path, words: &[String]) -> Command {
    let mut command = Command::new("/bin/sh");
    command.args(["-c", r#"echo 0 > "$0/cgroup.procs" && exec "$@""#]).arg(dir).args(words);
    command
}

/// Ends what still runs in the group at `dir` and removes it.
pub fn remove(dir: &Path) {
    for _ in 0..100 {
        let left = fs::read_to_string(dir.join("cgroup.procs")).unwrap_or_default();
        for pid in left.split_whitespace().flat_map(str::parse) {
            let _ = nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::Signal::SIGKILL);
        }
        match fs::remove_dir(dir) {
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy => std::thread::sleep(Duration::from_millis(20)),
            _ => return,
        }
    }
}

/// The interface, where it is mounted, and this process's own group in it.
fn own_group() -> Result<(Version, PathBuf, PathBuf), String> {
    let read = |path: &str| fs::read_to_string(path).map_err(|error| format!("{path}: {error}"));
    find_group(&read("/proc/self/cgroup")?, &read("/proc/self/mountinfo")?)
        .ok_or_else(|| "no memory cgroup is mounted".to_owned())
}

fn find_group(groups: &str, mounts: &str) -> Option<(Version, PathBuf, PathBuf)> {
    let controllers_and_path = |line: &str| {
        let mut parts = line.splitn(3, ':').skip(1);
        Some((parts.next()?.to_owned(), parts.next()?.to_owned()))
    };
    let all: Vec<_> = groups.lines().filter_map(controllers_and_path).collect();
    let v1 = all.iter().find(|(controllers, _)| controllers.split(',').any(|name| name == "memory"));
    let (version, path) = match v1 {
        Some((_, path)) => (Version::V1, path),
        None => (Version::V2, &all.iter().find(|(controllers, _)| controllers.is_empty())?.1),
    };
    let (root, mount) = mounts.lines().find_map(|line| mount_of(line, version))?;
    let inside = path.strip_prefix(root.trim_end_matches('/')).unwrap_or(path).trim_start_matches('/');
    let own = PathBuf::from(&mount).join(inside);
    Some((version, PathBuf::from(mount), if inside.is_empty() { own.components().collect() } else { own }))
}

/// Root and mount point of a mountinfo line, if it is the one.
fn mount_of(line: &str, version: Version) -> Option<(String, String)> {
    let (front, back) = line.split_once(" - ")?;
    let mut back = back.split_whitespace();
    let (kind, options) = (back.next()?, back.nth(1)?);
    let fits = match version {
        Version::V1 => kind == "cgroup" && options.split(',').any(|option| option == "memory"),
        Version::V2 => kind == "cgroup2",
    };
    let mut front = front.split_whitespace().skip(3);
    fits.then_some((front.next()?.to_owned(), front.next()?.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_1() {
        let groups = "9:name=systemd:/\n4:memory:/jobs/7\n0::/\n";
        let mounts = "30 24 0:26 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n\
                      34 24 0:30 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n\
                      35 24 0:31 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
        let (version, mount, own) = find_group(groups, mounts).unwrap();
        assert_eq!(version, Version::V1);
        assert_eq!(mount, Path::new("/sys/fs/cgroup/memory"));
        assert_eq!(own, Path::new("/sys/fs/cgroup/memory/jobs/7"));
    }

    #[test]
    fn version_2_inside_a_container() {
        let mounts = "35 24 0:31 /docker/abc /sys/fs/cgroup ro - cgroup2 cgroup rw\n";
        let (version, _, own) = find_group("0::/docker/abc/init\n", mounts).unwrap();
        assert_eq!((version, own.as_path()), (Version::V2, Path::new("/sys/fs/cgroup/init")));
        let (_, _, own) = find_group("0::/docker/abc\n", mounts).unwrap();
        assert_eq!(own, Path::new("/sys/fs/cgroup"));
        assert!(find_group("0::/\n", "").is_none());
    }

    #[test]
    fn a_group_limits_and_goes_away() {
        let group = match Group::create("pleat-test") {
            Ok(group) => group,
            Err(why) => return println!("skipped: {why}"),
        };
        group.limit(64 << 20, Swap::Forbidden).unwrap();
        let words = ["head", "-c", "1000", "/dev/zero"].map(str::to_owned);
        assert_eq!(group.command(&words).output().unwrap().stdout.len(), 1000);
        assert!(group.peak_bytes().is_some_and(|bytes| bytes > 0));
        assert_eq!(group.oom_kills(), 0);
        let dir = group.dir().to_owned();
        drop(group);
        assert!(!dir.exists());
    }
}
