//! `cargo x neon`: the tests of `fold` as an aarch64 processor runs them, where this machine is none by qemu: its path
//! beside the plain twin.

use anyhow::Result;

use crate::{sh, test};

const TARGET: &str = "aarch64-unknown-linux-gnu";
/// Programs that are needed elsewhere, and the Debian package of each.
const NEEDED: [(&str, &str); 2] = [("qemu-aarch64", "qemu-user"), ("aarch64-linux-gnu-gcc", "gcc-aarch64-linux-gnu")];
/// Comes with no program.
const LIBRARY: (&str, &str) = ("/usr/aarch64-linux-gnu/lib/libc.so.6", "libc6-dev-arm64-cross");

/// Runs them; says why not where it cannot be done.
pub(crate) fn run() -> Result<()> {
    let tests = ["test", "--quiet", "--package", "pleat-codec", "--lib"];
    if cfg!(target_arch = "aarch64") {
        return sh::run(sh::cargo(&tests).arg("fold"));
    }
    test::install_packages(&missing())?;
    let missing = missing();
    if !missing.is_empty() {
        println!("skipped: not installed: {}", missing.join(" "));
        return Ok(());
    }
    if let Err(why) = sh::read(std::process::Command::new("rustup").args(["target", "add", TARGET])) {
        println!("skipped: rustup cannot add the target {TARGET}: {why:#}");
        return Ok(());
    }
    let mut command = sh::cargo(&[&tests[..], &["--target", TARGET]].concat());
    command.env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER", "aarch64-linux-gnu-gcc");
    command.env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER", "qemu-aarch64 -L /usr/aarch64-linux-gnu");
    sh::run(command.arg("fold"))
}

/// Packages of what is not there.
fn missing() -> Vec<&'static str> {
    let programs = NEEDED.iter().filter(|(program, _)| !sh::has(program)).map(|(_, package)| *package);
    let (library, package) = LIBRARY;
    let has_library = std::path::Path::new(library).exists();
    programs.chain((!has_library).then_some(package)).collect()
}
