//! `cargo x neon`: the tests of what is written for aarch64 as such a processor runs them, where this machine is none by qemu: `fold`'s
//! path beside the plain twin, and the agent's functions on bytes.

use std::process::Command;

use anyhow::Result;

use crate::{sh, test};

const TARGET: &str = "aarch64-unknown-linux-gnu";
/// Programs that are needed elsewhere, and the Debian package of each.
const NEEDED: [(&str, &str); 2] = [("qemu-aarch64", "qemu-user"), ("aarch64-linux-gnu-gcc", "gcc-aarch64-linux-gnu")];
/// Comes with no program.
const LIBRARY: (&str, &str) = ("/usr/aarch64-linux-gnu/lib/libc.so.6", "libc6-dev-arm64-cross");

/// Packages, and which of their tests.
const TESTS: [(&str, &str); 2] = [("pleat-codec", "fold"), ("pleat-sys", "bytes::")];

/// Runs them; says why not where it cannot be done.
pub(crate) fn run() -> Result<()> {
    if cfg!(target_arch = "aarch64") {
        return TESTS.iter().try_for_each(|(package, which)| sh::run(&mut test_of(package, which)));
    }
    test::install_packages(&missing())?;
    let missing = missing();
    if !missing.is_empty() {
        println!("skipped: not installed: {}", missing.join(" "));
        return Ok(());
    }
    if let Err(why) = sh::read(Command::new("rustup").args(["target", "add", TARGET])) {
        println!("skipped: rustup cannot add the target {TARGET}: {why:#}");
        return Ok(());
    }
    TESTS.iter().try_for_each(|(package, which)| {
        let mut command = test_of(package, which);
        command.env("CARGO_BUILD_TARGET", TARGET);
        command.env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER", "aarch64-linux-gnu-gcc");
        command.env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER", "qemu-aarch64 -L /usr/aarch64-linux-gnu");
        sh::run(&mut command)
    })
}

fn test_of(package: &str, which: &str) -> Command {
    sh::cargo(&["test", "--quiet", "--package", package, "--lib", which])
}

/// Packages of what is not there.
fn missing() -> Vec<&'static str> {
    let programs = NEEDED.iter().filter(|(program, _)| !sh::has(program)).map(|(_, package)| *package);
    let (library, package) = LIBRARY;
    let has_library = std::path::Path::new(library).exists();
    programs.chain((!has_library).then_some(package)).collect()
}
