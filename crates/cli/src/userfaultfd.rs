//! Whether this machine lets pleat serve page faults, and what to say if not.

use anyhow::{Result, bail};
use sys::Errno;
use sys::host;
use sys::uffd::feature::{EVENT_FORK, MOVE, NEEDED};

/// Gives one command the capability, and leaves the user as it is.
pub(crate) const WITH_CAPABILITY: &str = "sudo setpriv --reuid $(id -u) --regid $(id -g) --init-groups \
     --inh-caps +sys_ptrace --ambient-caps +sys_ptrace pleat run ...";

/// The ways to get one, for a message. Without fork events the two others would do; the kernel gives those only to
/// `CAP_SYS_PTRACE`, however the descriptor was got (`userfaultfd_api` in fs/userfaultfd.c; tried on 6.18).
pub(crate) const WAYS: &str = if NEEDED & EVENT_FORK == 0 {
    "run with CAP_SYS_PTRACE, or `sudo sysctl vm.unprivileged_userfaultfd=1`, \
     or give yourself read and write permission on /dev/userfaultfd"
} else {
    "run with CAP_SYS_PTRACE, as root or by `pleat doctor`'s command \
     (`sysctl vm.unprivileged_userfaultfd=1` or permission on /dev/userfaultfd give all but the fork events)"
};

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
    /// Not permitted, or not there.
    Refused(Errno),
}

/// Tries what the agent will do.
pub(crate) fn access() -> Access {
    let features = match host::try_userfaultfd() {
        Ok((_, features)) => features,
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
        Access::NoForkEvents => bail!("the fork events of userfaultfd are not permitted: {WAYS}{}", without()),
        Access::MissingFeature => bail!("this kernel's userfaultfd lacks a feature that pleat needs (Linux 6.8)"),
        Access::Refused(Errno::NOSYS) => {
            bail!("this kernel has no userfaultfd, or a seccomp filter (such as docker's) hides it")
        }
        Access::Refused(errno) => bail!("userfaultfd is not permitted ({}): {WAYS}{}", words(errno), without()),
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
        Err(Errno::NOSYS | Errno::PERM) => Err("a seccomp filter (such as docker's) or the kernel refuses userfaultfd"),
        Err(errno) => Err(words(errno)),
    }
}

/// Fails if `pleat run --user-mode` cannot work here.
pub(crate) fn check_user_mode() -> Result<()> {
    user_mode().map_err(|why| anyhow::anyhow!("user mode does not work here: {why}"))
}
