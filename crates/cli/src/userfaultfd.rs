//! Whether this machine lets pleat serve page faults, and what to say if not.

use anyhow::{Result, bail};
use sys::Errno;
use sys::host;
use sys::uffd::feature::{EVENT_FORK, MOVE, NEEDED};

/// Gives one command the capability, and leaves the user as it is.
const WITH_CAPABILITY: &str = "sudo setpriv --reuid $(id -u) --regid $(id -g) --init-groups \
     --inh-caps +sys_ptrace --ambient-caps +sys_ptrace pleat run ...";

/// Past the seccomp filter of a container, and with the capability. Podman takes the same words.
pub(crate) const PAST_FILTER: &str =
    "docker run --cap-add SYS_PTRACE --device /dev/userfaultfd (or --security-opt seccomp=unconfined) ...";

/// The ways to get one, for a message. Without fork events the two others would do; the kernel gives those only to
/// `CAP_SYS_PTRACE`, however the descriptor was got (`userfaultfd_api` in fs/userfaultfd.c; tried on 6.18).
const WAYS: &str = if NEEDED & EVENT_FORK == 0 {
    "run with CAP_SYS_PTRACE, or `sudo sysctl vm.unprivileged_userfaultfd=1`, \
     or give yourself read and write permission on /dev/userfaultfd"
} else {
    "run with CAP_SYS_PTRACE, as root or by `pleat doctor`'s command \
     (`sysctl vm.unprivileged_userfaultfd=1` or permission on /dev/userfaultfd give all but the fork events)"
};

/// What the filters of docker and podman answer. The kernel itself never refuses a userfaultfd of user mode in this way
/// (`userfaultfd_syscall_allowed` in fs/userfaultfd.c).
const FILTERED: Errno = Errno::PERM;

/// What `pleat run` finds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Access {
    /// Everything the agent needs.
    Full,
    /// No `UFFDIO_MOVE`.
    OldKernel,
    /// Faults could be served, but forks would not be reported.
    NoForkEvents,
    /// The kernel lacks another feature.
    MissingFeature,
    /// Refused to everybody here, whatever they may: a seccomp filter.
    Filtered,
    /// Not permitted, or not there.
    Refused(Errno),
}

/// Tries what the agent will do.
pub(crate) fn access() -> Access {
    let features = match host::try_userfaultfd() {
        Ok((_, features)) => features,
        Err(_) if host::try_user_mode_only() == Err(FILTERED) => return Access::Filtered,
        Err(errno) => return Access::Refused(errno),
    };
    if features & MOVE == 0 {
        return Access::OldKernel;
    }
    match host::accepts_features(NEEDED) {
        Ok(()) => Access::Full,
        // EPERM: fork events without CAP_SYS_PTRACE.
        Err(Errno::PERM) => Access::NoForkEvents,
        // EINVAL: a feature that this kernel does not know.
        Err(_) => Access::MissingFeature,
    }
}

/// The kernel's reason in words.
pub(crate) fn words(errno: Errno) -> &'static str {
    nix::errno::Errno::from_raw(errno.raw_os_error()).desc()
}

/// Fails if `pleat run` cannot work here.
pub(crate) fn check() -> Result<()> {
    match access() {
        Access::Full => Ok(()),
        Access::OldKernel => bail!("this kernel cannot move pages (UFFDIO_MOVE): pleat needs Linux 6.8 or newer"),
        Access::NoForkEvents => bail!("the fork events of userfaultfd are not permitted: {}{}", ways(), without()),
        Access::MissingFeature => bail!("this kernel's userfaultfd lacks a feature that pleat needs (Linux 6.8)"),
        Access::Filtered => bail!(
            "a seccomp filter (such as docker's) refuses userfaultfd: `{PAST_FILTER}`, \
             or a profile that allows it (docs/deploy.md)"
        ),
        Access::Refused(Errno::NOSYS) => {
            bail!("this kernel has no userfaultfd, or a seccomp filter (such as docker's) hides it")
        }
        Access::Refused(errno) => bail!("userfaultfd is not permitted ({}): {}{}", words(errno), ways(), without()),
    }
}

/// Where `CAP_SYS_PTRACE` could come from.
enum Source {
    /// sudo, for one.
    Inside,
    /// A container keeps it from everybody inside.
    Outside,
    /// A user namespace: the kernel asks for the capability of the machine itself (`capable` in fs/userfaultfd.c).
    Nowhere,
}

fn source() -> Source {
    const CAP_SYS_PTRACE: u32 = 19;
    let read = |path| std::fs::read_to_string(path).unwrap_or_default();
    // "first inside, first outside, how many": all are themselves in the first namespace.
    let users: Vec<_> = read("/proc/self/uid_map").split_whitespace().map(str::to_owned).collect();
    if !users.is_empty() && users != ["0", "0", "4294967295"] {
        return Source::Nowhere;
    }
    let bounds = read("/proc/self/status")
        .lines()
        .find_map(|line| u64::from_str_radix(line.strip_prefix("CapBnd:")?.trim(), 16).ok());
    if bounds.is_none_or(|bounds| bounds >> CAP_SYS_PTRACE & 1 != 0) { Source::Inside } else { Source::Outside }
}

/// The command that gives it, or does without.
pub(crate) fn remedy() -> &'static str {
    match source() {
        Source::Inside => WITH_CAPABILITY,
        Source::Outside => "docker run --cap-add SYS_PTRACE ...",
        Source::Nowhere => "pleat run --user-mode ...",
    }
}

/// All that would give it, for a message.
fn ways() -> &'static str {
    match source() {
        Source::Inside => WAYS,
        Source::Outside => "nobody can get CAP_SYS_PTRACE here: in a container, `docker run --cap-add SYS_PTRACE ...`",
        Source::Nowhere => "in a user namespace (a rootless container) CAP_SYS_PTRACE does not count",
    }
}

/// The way that needs no permission, for the end of a message.
fn without() -> &'static str {
    if user_mode().is_ok() { "; or do without, slower: `pleat run --user-mode`" } else { "" }
}

/// Whether `pleat run --user-mode` works here, and if not, why.
pub(crate) fn user_mode() -> Result<(), &'static str> {
    match host::try_user_mode_only() {
        Ok(features) if features & MOVE == 0 => Err("this kernel cannot move pages (UFFDIO_MOVE): Linux 6.8 or newer"),
        Ok(_) if !sys::user_mode::is_supported() => Err("system calls cannot be trapped here (Linux 5.11, x86-64)"),
        Ok(_) => Ok(()),
        Err(FILTERED) => Err("a seccomp filter (such as docker's) refuses userfaultfd: \
             `docker run --security-opt seccomp=FILE`, a profile that allows it (docs/deploy.md)"),
        Err(Errno::NOSYS) => Err("this kernel has no userfaultfd, or a seccomp filter hides it"),
        Err(errno) => Err(words(errno)),
    }
}

/// Fails if `pleat run --user-mode` cannot work here.
pub(crate) fn check_user_mode() -> Result<()> {
    user_mode().map_err(|why| anyhow::anyhow!("user mode does not work here: {why}"))
}
