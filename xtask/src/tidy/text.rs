//! What can be seen in the files themselves: length, `unsafe`, links, decision records.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use super::layers::Member;
use crate::sh;

const LINES_MAX: usize = 1000;

/// Crates that may hold unsafe code; all others forbid it. `codec-bench` opens a library at run time, which must not be linked,
/// and `model` includes files of others.
const UNSAFE_ALLOWED: &[&str] =
    &["sys", "codec", "store", "pager", "agent", "capi", "python", "torture", "codec-bench", "model"];

const DECISION_HEADINGS: &[&str] = &["Status", "Context", "Decision", "Consequences"];

/// Paths of all files that git knows or would add, relative to the root.
pub(super) fn files(root: &Path) -> Result<Vec<PathBuf>> {
    let mut git = std::process::Command::new("git");
    git.args(["ls-files", "--cached", "--others", "--exclude-standard"]).current_dir(root);
    let list = sh::read(&mut git).context("tidy reads the list of files from git")?;
    Ok(list.lines().map(PathBuf::from).filter(|file| root.join(file).is_file()).collect())
}

/// Each breach, as a line.
pub(super) fn breaches(root: &Path, files: &[PathBuf], members: &[Member]) -> Vec<String> {
    let mut found = Vec::new();
    for file in files {
        let extension = file.extension().unwrap_or_default();
        if extension != "rs" && extension != "md" && extension != "c" && extension != "py" {
            continue;
        }
        let Ok(text) = fs::read_to_string(root.join(file)) else {
            found.push(format!("{} is no UTF-8 text", file.display()));
            continue;
        };
        found.extend(too_long(file, &text));
        if extension == "md" {
            found.extend(dead_links(root, file, &text));
        }
        if file.starts_with("docs/decisions") && extension == "md" {
            found.extend(missing_headings(file, &text));
        }
    }
    for member in members {
        found.extend(missing_forbid(member));
    }
    found
}

fn too_long(file: &Path, text: &str) -> Option<String> {
    let lines = text.lines().count();
    (lines > LINES_MAX).then(|| format!("{} has {lines} lines; {LINES_MAX} are allowed: split it", file.display()))
}

/// Links to files that are not there. Links to the web and to places inside a page are not followed.
fn dead_links(root: &Path, file: &Path, text: &str) -> Vec<String> {
    let here = root.join(file.parent().unwrap_or(Path::new("")));
    let dead = |target: &&str| !here.join(target.split('#').next().unwrap_or(target)).exists();
    links(text)
        .into_iter()
        .filter(dead)
        .map(|target| format!("{} links to {target}: no such file", file.display()))
        .collect()
}

/// Targets of `[text](target)` outside code blocks, those that name a file.
fn links(text: &str) -> Vec<&str> {
    let mut inside_code = false;
    let mut found = Vec::new();
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            inside_code = !inside_code;
        }
        if inside_code {
            continue;
        }
        for part in line.split("](").skip(1) {
            let target = part.split(')').next().unwrap_or_default().trim();
            if !target.is_empty() && !target.contains("://") && !target.starts_with(['#', '<']) {
                found.push(target);
            }
        }
    }
    found
}

fn missing_headings(file: &Path, text: &str) -> Vec<String> {
    let has = |heading: &str| {
        text.lines().any(|line| line.trim_start_matches('#').trim() == heading && line.starts_with('#'))
    };
    let missing = DECISION_HEADINGS.iter().filter(|heading| !has(heading));
    missing.map(|heading| format!("{} lacks the heading `{heading}`", file.display())).collect()
}

/// Every crate root of a crate without leave says `#![forbid(unsafe_code)]`.
fn missing_forbid(member: &Member) -> Vec<String> {
    if UNSAFE_ALLOWED.contains(&member.name.as_str()) {
        return Vec::new();
    }
    let folder = Path::new(&member.folder);
    let mut roots = vec![folder.join("src/lib.rs"), folder.join("src/main.rs"), folder.join("build.rs")];
    let tests = fs::read_dir(folder.join("tests")).into_iter().flatten().flatten().map(|entry| entry.path());
    roots.extend(tests.filter(|path| path.extension().is_some_and(|extension| extension == "rs")));
    let lacking = roots.iter().filter(|path| fs::read_to_string(path).is_ok_and(|text| !forbids(&text)));
    lacking.map(|path| format!("{} lacks #![forbid(unsafe_code)]", path.display())).collect()
}

fn forbids(text: &str) -> bool {
    text.lines().any(|line| line == "#![forbid(unsafe_code)]")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_found_where_they_are_links() {
        let text =
            "See [a](a.md) and [b](../b.md#top), [web](https://x.y), [here](#x).\n```\n[no](no.md)\n```\n[c](c.md)";
        assert_eq!(links(text), ["a.md", "../b.md#top", "c.md"]);
    }

    /// Canaries: each rule finds what breaks it.
    #[test]
    fn canary_each_breach_is_found() {
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        let page = Path::new("page.md");
        assert_eq!(dead_links(here, page, "[x](Cargo.toml) [y](none.md)").len(), 1);
        assert!(too_long(page, &"x\n".repeat(1000)).is_none());
        assert!(too_long(page, &"x\n".repeat(1001)).is_some());
        assert_eq!(missing_headings(page, "# T\n## Status\n## Context\n## Decision\nConsequences\n").len(), 1);
        assert!(forbids("//! x\n#![forbid(unsafe_code)]\n"));
        assert!(!forbids("//! #![forbid(unsafe_code)]\n"));
    }
}
