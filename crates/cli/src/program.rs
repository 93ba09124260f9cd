//! Finds the program to run as `execvp` does, and tells whether an agent can be put into it.

use std::ffi::{CString, OsStr, OsString};
use std::fmt;
use std::fs::{File, Metadata};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt as _, MetadataExt};
use std::path::{Path, PathBuf};

use elf::abi::{DT_SONAME, PT_INTERP};
use elf::endian::AnyEndian;
use elf::file::Class;
use elf::{ElfStream, ParseError};
use nix::errno::Errno;
use nix::unistd::{AccessFlags, getgid, getuid};

use crate::failure::{Failure, STATUS_NOT_EXECUTABLE, STATUS_NOT_FOUND};

/// Scripts that name scripts: the kernel follows as many (`BINPRM_MAX_RECURSION`).
const SCRIPT_DEPTH_MAX: usize = 4;
/// What the kernel reads of a file to tell what it is (`BINPRM_BUF_SIZE`).
const HEAD_BYTES: u64 = 256;
/// What `execvp` searches when there is no `PATH`.
const DEFAULT_PATH: &str = "/bin:/usr/bin";

#[cfg(target_arch = "x86_64")]
const MACHINE: u16 = elf::abi::EM_X86_64;
#[cfg(target_arch = "aarch64")]
const MACHINE: u16 = elf::abi::EM_AARCH64;

/// Why a file cannot be preloaded into.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Unmanageable {
    /// No dynamic loader.
    Static,
    /// Runs with another user's or group's rights: the loader ignores `LD_PRELOAD`.
    SetId,
    /// Runs with capabilities of the file: likewise.
    Capabilities,
    /// Made for another processor, or for 32 bits.
    Architecture,
    /// Its loader is musl's, whose library lacks what the agent needs of glibc.
    Musl,
}

impl fmt::Display for Unmanageable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Static => "static",
            Self::SetId => "set-user-ID or set-group-ID",
            Self::Capabilities => "given file capabilities",
            Self::Architecture => "made for another architecture",
            Self::Musl => "linked with musl instead of glibc",
        })
    }
}

/// What a file is to `execve`.
#[derive(PartialEq, Eq, Debug)]
enum Kind {
    /// An ELF file that can be preloaded into.
    Manageable,
    /// One that cannot.
    Unmanageable(Unmanageable),
    /// `#!`, the interpreter, and the argument behind it.
    Script(PathBuf, Option<OsString>),
    /// Neither ELF nor script: a shell reads it, or a `binfmt_misc` handler.
    Other,
}

/// The file that `execvp(command)` would execute.
pub(crate) fn find(command: &OsStr) -> Result<PathBuf, Failure> {
    let failure =
        |status, reason: Errno| Failure { status, message: format!("{}: {}", command.display(), reason.desc()) };
    if command.is_empty() {
        return Err(failure(STATUS_NOT_FOUND, Errno::ENOENT));
    }
    if command.as_bytes().contains(&b'/') {
        return match executable(Path::new(command)) {
            Ok(()) => Ok(command.into()),
            Err(errno @ (Errno::ENOENT | Errno::ENOTDIR)) => Err(failure(STATUS_NOT_FOUND, errno)),
            Err(errno) => Err(failure(STATUS_NOT_EXECUTABLE, errno)),
        };
    }
    let path = std::env::var_os("PATH").unwrap_or_else(|| DEFAULT_PATH.into());
    let mut denied = None;
    for directory in path.as_bytes().split(|byte| *byte == b':') {
        // An empty element is the current directory (POSIX, 8.3).
        let directory = if directory.is_empty() { b"." } else { directory };
        let candidate = Path::new(OsStr::from_bytes(directory)).join(command);
        match executable(&candidate) {
            Ok(()) => return Ok(candidate),
            // The search goes on; only if nothing better comes does this one count.
            Err(errno @ (Errno::EACCES | Errno::EISDIR)) => denied = Some(errno),
            Err(_) => {}
        }
    }
    // `execvp` does not tell a directory of that name from nothing.
    match denied {
        Some(Errno::EACCES) => Err(failure(STATUS_NOT_EXECUTABLE, Errno::EACCES)),
        _ => Err(Failure { status: STATUS_NOT_FOUND, message: format!("{}: command not found", command.display()) }),
    }
}

/// Fails if the agent cannot be put into the program that executing `path` starts.
pub(crate) fn check(path: &Path) -> Result<(), Failure> {
    check_to_depth(path, SCRIPT_DEPTH_MAX)
}

/// Why the program in this file runs without an agent, if it does. Files that cannot be read are not blamed.
pub(crate) fn unmanageable(path: &Path) -> Option<Unmanageable> {
    match kind(path) {
        Ok(Kind::Unmanageable(reason)) => Some(reason),
        _ => None,
    }
}

fn check_to_depth(path: &Path, depth: usize) -> Result<(), Failure> {
    let shown = path.display();
    let fail = |status, message| Err(Failure { status, message });
    match kind(path) {
        // `execvp` gives such a file to the shell.
        Ok(Kind::Other) if path != Path::new("/bin/sh") => check_to_depth(Path::new("/bin/sh"), depth),
        Ok(Kind::Unmanageable(reason)) => fail(
            crate::failure::STATUS_PLEAT,
            format!("{shown} is {reason}: the agent cannot be loaded into it, so its memory cannot be managed"),
        ),
        Ok(Kind::Script(..)) if depth == 0 => {
            fail(STATUS_NOT_EXECUTABLE, format!("{shown}: too many levels of interpreters"))
        }
        Ok(Kind::Script(interpreter, argument)) => {
            check_to_depth(&interpreter, depth - 1)?;
            match env_target(&interpreter, argument.as_deref()) {
                Some(name) => check_to_depth(&find(&name)?, depth - 1),
                None => Ok(()),
            }
        }
        Err(errno @ Errno::ENOENT) => fail(STATUS_NOT_FOUND, format!("{shown}: {}", errno.desc())),
        // It may be executed without being read: then what it is shows when it runs.
        Ok(Kind::Manageable | Kind::Other) | Err(Errno::EACCES) => Ok(()),
        Err(errno) => fail(STATUS_NOT_EXECUTABLE, format!("{shown}: {}", errno.desc())),
    }
}

/// Whether `execve` would be allowed.
fn executable(path: &Path) -> Result<(), Errno> {
    let metadata = std::fs::metadata(path).map_err(|error| to_errno(&error))?;
    if metadata.is_dir() {
        return Err(Errno::EISDIR);
    }
    nix::unistd::eaccess(path, AccessFlags::X_OK)
}

fn to_errno(error: &std::io::Error) -> Errno {
    error.raw_os_error().map_or(Errno::EIO, Errno::from_raw)
}

fn kind(path: &Path) -> Result<Kind, Errno> {
    let mut file = File::open(path).map_err(|error| to_errno(&error))?;
    let metadata = file.metadata().map_err(|error| to_errno(&error))?;
    let mut head = Vec::new();
    file.by_ref().take(HEAD_BYTES).read_to_end(&mut head).map_err(|error| to_errno(&error))?;
    if let Some(line) = head.strip_prefix(b"#!") {
        return Ok(script(line));
    }
    if !head.starts_with(b"\x7fELF") {
        return Ok(Kind::Other);
    }
    if head[4] == elf::abi::ELFCLASS32 {
        return Ok(Kind::Unmanageable(Unmanageable::Architecture));
    }
    let mut elf = ElfStream::<AnyEndian, _>::open_stream(file).map_err(|_| Errno::ENOEXEC)?;
    if elf.ehdr.class != Class::ELF64 || elf.ehdr.e_machine != MACHINE {
        return Ok(Kind::Unmanageable(Unmanageable::Architecture));
    }
    let Some(interpreter) = elf.segments().iter().find(|segment| segment.p_type == PT_INTERP) else {
        let is_loader = is_glibc_loader(&mut elf).map_err(|_| Errno::ENOEXEC)?;
        return Ok(if is_loader { Kind::Manageable } else { Kind::Unmanageable(Unmanageable::Static) });
    };
    if interpreter_is_musl(path, interpreter.p_offset, interpreter.p_filesz)? {
        return Ok(Kind::Unmanageable(Unmanageable::Musl));
    }
    Ok(privilege(path, &metadata).map_or(Kind::Manageable, Kind::Unmanageable))
}

/// Whether this is glibc's loader itself, which names no other. Executed with a program behind it, as a wrapper does that brings
/// libraries of its own, it preloads into that. A static program that may lie anywhere has no name as a library.
fn is_glibc_loader(elf: &mut ElfStream<AnyEndian, File>) -> Result<bool, ParseError> {
    let names = |entry: elf::dynamic::Dyn| (entry.d_tag == DT_SONAME).then_some(entry.d_val() as usize);
    let Some(at) = elf.dynamic()?.and_then(|table| table.iter().find_map(names)) else { return Ok(false) };
    let Some((_, strings)) = elf.dynamic_symbol_table()? else { return Ok(false) };
    Ok(strings.get_raw(at)?.starts_with(b"ld-linux"))
}

/// Whether the loader that an ELF file names is musl's.
fn interpreter_is_musl(path: &Path, offset: u64, length: u64) -> Result<bool, Errno> {
    let mut name = vec![0; length.min(HEAD_BYTES) as usize];
    let read = File::open(path).and_then(|file| file.read_exact_at(&mut name, offset));
    read.map_err(|_| Errno::ENOEXEC)?;
    Ok(name.windows(7).any(|part| part == b"ld-musl"))
}

/// What makes the kernel set `AT_SECURE` for the program.
fn privilege(path: &Path, metadata: &Metadata) -> Option<Unmanageable> {
    const SET_USER_ID: u32 = 0o4000;
    const SET_GROUP_ID: u32 = 0o2000;
    // Without the execute bit for the group, set-group-ID means something else (bprm_fill_uid in fs/exec.c).
    const GROUP_EXECUTES: u32 = 0o0010;
    let mode = metadata.mode();
    let group_id = SET_GROUP_ID | GROUP_EXECUTES;
    let other_user = mode & SET_USER_ID != 0 && metadata.uid() != getuid().as_raw();
    let other_group = mode & group_id == group_id && metadata.gid() != getgid().as_raw();
    if other_user || other_group {
        return Some(Unmanageable::SetId);
    }
    // Root has the capabilities anyway: the kernel does not call that a gain.
    let path = CString::new(path.as_os_str().as_bytes()).ok()?;
    (!getuid().is_root() && sys::host::has_file_capabilities(&path)).then_some(Unmanageable::Capabilities)
}

/// Reads the line behind `#!`: an interpreter, and at most one argument, which may hold spaces.
fn script(line: &[u8]) -> Kind {
    let line = line.split(|byte| *byte == b'\n').next().unwrap_or_default().trim_ascii();
    let end = line.iter().position(u8::is_ascii_whitespace).unwrap_or(line.len());
    let (interpreter, argument) = line.split_at(end);
    let argument = argument.trim_ascii();
    if interpreter.is_empty() {
        return Kind::Other;
    }
    let argument = (!argument.is_empty()).then(|| OsStr::from_bytes(argument).to_owned());
    Kind::Script(OsStr::from_bytes(interpreter).into(), argument)
}

/// The command that `#!/usr/bin/env NAME` and `#!/usr/bin/env -S NAME ARGS…` start.
fn env_target(interpreter: &Path, argument: Option<&OsStr>) -> Option<OsString> {
    if interpreter.file_name() != Some(OsStr::new("env")) {
        return None;
    }
    let words = argument?.as_bytes().split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
    let mut commands = words.filter(|word| !word.starts_with(b"-") && !word.contains(&b'='));
    Some(OsStr::from_bytes(commands.next()?).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn search() {
        assert!(find(OsStr::new("sh")).unwrap().ends_with("sh"));
        assert_eq!(find(OsStr::new("/bin/sh")).unwrap(), Path::new("/bin/sh"));
        for (command, status) in [
            ("", STATUS_NOT_FOUND),
            ("no-such-program-here", STATUS_NOT_FOUND),
            ("/no/such", STATUS_NOT_FOUND),
            ("/etc/passwd/x", STATUS_NOT_FOUND),
            ("/etc", STATUS_NOT_EXECUTABLE),
            ("/etc/passwd", STATUS_NOT_EXECUTABLE),
        ] {
            assert_eq!(find(OsStr::new(command)).unwrap_err().status, status, "{command}");
        }
    }

    #[test]
    fn scripts() {
        let of = |line: &[u8]| script(line);
        assert_eq!(of(b" /bin/sh\necho"), Kind::Script("/bin/sh".into(), None));
        assert_eq!(of(b"/bin/awk -f x \n"), Kind::Script("/bin/awk".into(), Some("-f x".into())));
        assert_eq!(of(b"\n"), Kind::Other);
        let env = |argument: &str| env_target(Path::new("/usr/bin/env"), Some(OsStr::new(argument)));
        assert_eq!(env("python3"), Some("python3".into()));
        assert_eq!(env("-S A=b python3 -u"), Some("python3".into()));
        assert_eq!(env("-i"), None);
        assert_eq!(env_target(Path::new("/bin/sh"), Some(OsStr::new("x"))), None);
    }

    #[test]
    fn the_shell_can_be_managed() {
        assert!(check(Path::new("/bin/sh")).is_ok());
        assert_eq!(kind(&std::env::current_exe().unwrap()), Ok(Kind::Manageable));
    }
}
