//! Whether this machine lets pleat serve page faults, and what to say if not.

use anyhow::{Result, bail};
use sys::Errno;
use sys::host::{self, Way};

/// `UFFD_FEATURE_*` of include/uapi/linux/userfaultfd.h.
pub(crate) const FEATURE_EVENT_FORK: u64 = 1 << 1;
pub(crate) const FEATURE_EVENT_REMAP: u64 = 1 << 2;
pub(crate) const FEATURE_EVENT_REMOVE: u64 = 1 << 3;
pub(crate) const FEATURE_EVENT_UNMAP: u64 = 1 << 6;
pub(crate) const FEATURE_WP_ASYNC: u64 = 1 << 15;
pub(crate) const FEATURE_MOVE: u64 = 1 << 16;

/// The ways to be allowed one, for a message.
pub(crate) const WAYS: &str = "run with CAP_SYS_PTRACE, or `sysctl vm.unprivileged_userfaultfd=1`, \
     or give read and write permission on /dev/userfaultfd";

/// Fails if `pleat run` cannot work here.
pub(crate) fn check() -> Result<()> {
    match host::try_userfaultfd() {
        Ok((_, features)) if features & FEATURE_MOVE == 0 => {
            bail!("this kernel cannot move pages (UFFDIO_MOVE): pleat needs Linux 6.8 or newer")
        }
        Ok((Way::SystemCall | Way::Device, _)) => Ok(()),
        Err(Errno::NOSYS) => {
            bail!("this kernel has no userfaultfd, or a seccomp filter (such as docker's) hides it")
        }
        Err(errno) => bail!("userfaultfd is not permitted ({errno}): {WAYS}"),
    }
}
