//! Finds the library that is preloaded into the program.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};

/// Its file name, as Cargo makes it.
const FILE_NAME: &str = "libpleat_agent.so";
/// Names the library when it lies elsewhere.
const VARIABLE: &str = "PLEAT_AGENT";

/// Options of the address sanitizer.
pub(crate) const SANITIZER_VARIABLE: &str = "ASAN_OPTIONS";

/// The path of the agent, fit for `LD_PRELOAD`.
pub(crate) fn find() -> Result<PathBuf> {
    let path = match std::env::var_os(VARIABLE).filter(|value| !value.is_empty()) {
        Some(path) => std::path::absolute(&path)
            .ok()
            .filter(|path| path.is_file())
            .with_context(|| format!("{VARIABLE} names {}, and there is no such file", Path::new(&path).display()))?,
        None => beside_command()?,
    };
    // The loader takes both as the end of a name, and knows no escape (man ld.so).
    let separator = path.as_os_str().as_bytes().iter().any(|byte| matches!(byte, b' ' | b':'));
    ensure!(!separator, "the agent's path has a space or a colon and cannot be preloaded: {}", path.display());
    Ok(path)
}

/// The value of `LD_PRELOAD` that loads the agent first, then what the user preloads.
pub(crate) fn preload_value(agent: &Path, before: Option<OsString>) -> OsString {
    let mut value = agent.as_os_str().to_owned();
    let Some(before) = before else { return value };
    let is_other = |name: &&[u8]| !name.is_empty() && *name != agent.as_os_str().as_bytes();
    for name in before.as_bytes().split(|byte| matches!(byte, b' ' | b':')).filter(is_other) {
        value.push(":");
        value.push(OsStr::from_bytes(name));
    }
    value
}

/// The value of [`SANITIZER_VARIABLE`] for the program: a sanitizer that is a library of its own wants to be loaded before
/// all others, and ends the program else. The agent comes before it, stays idle, and replaces nothing of its.
pub(crate) fn sanitizer_value(before: Option<OsString>) -> OsString {
    let mut value = before.unwrap_or_default();
    if !value.is_empty() {
        value.push(":");
    }
    // The last one counts.
    value.push("verify_asan_link_order=0");
    value
}

fn beside_command() -> Result<PathBuf> {
    let command = std::env::current_exe().and_then(std::fs::canonicalize).context("cannot find pleat's own file")?;
    let directory = command.parent().context("pleat's own file has no directory")?;
    let candidates = ["", "../lib/pleat", "../lib"].map(|place| directory.join(place).join(FILE_NAME));
    for candidate in &candidates {
        if candidate.is_file() {
            return Ok(std::fs::canonicalize(candidate)?);
        }
    }
    let [first, second, third] = candidates.map(|candidate| candidate.display().to_string());
    bail!("no agent at {first}, {second} or {third}; build it with `cargo build --release`, or name it in {VARIABLE}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_of_a_sanitizer_are_kept() {
        assert_eq!(sanitizer_value(None), "verify_asan_link_order=0");
        assert_eq!(sanitizer_value(Some("a=1:b=2".into())), "a=1:b=2:verify_asan_link_order=0");
    }

    #[test]
    fn preload_keeps_what_was_there() {
        let agent = Path::new("/lib/agent.so");
        assert_eq!(preload_value(agent, None), "/lib/agent.so");
        assert_eq!(preload_value(agent, Some("".into())), "/lib/agent.so");
        assert_eq!(preload_value(agent, Some("/a.so /b.so:c.so".into())), "/lib/agent.so:/a.so:/b.so:c.so");
        assert_eq!(preload_value(agent, Some("/lib/agent.so:/a.so".into())), "/lib/agent.so:/a.so");
    }
}
