//! The layers: a crate imports lower layers only, never sideways.

use anyhow::{Context as _, Result};
use serde_json::Value;

/// The house, as the README draws it. A new crate needs a line here.
const LAYERS: &[(u32, &[&str])] = &[
    (0, &["page"]),
    (1, &["codec", "sys", "policy", "trace"]),
    (2, &["store", "backing", "codec-bench"]),
    (3, &["cache"]),
    (4, &["pager", "filecache", "blockdev", "sim"]),
    (5, &["pleat", "agent", "capi", "python"]),
    (6, &["cli"]),
];

/// Not part of what a user runs: may look at anything, and nothing may look at them.
const TOOLS: &[&str] = &["xtask", "bench", "e2e", "model", "protocol", "torture"];

/// A crate of the workspace.
#[derive(Debug)]
pub(super) struct Member {
    /// Its name without `pleat-`.
    pub(super) name: String,
    /// Its folder.
    pub(super) folder: String,
    /// Crates of the workspace that it is built with, by the same names. Tests may use what they like.
    pub(super) imports: Vec<String>,
}

/// The crates in the answer of `cargo metadata --no-deps`.
pub(super) fn members(metadata: &Value) -> Result<Vec<Member>> {
    let packages = metadata["packages"].as_array().context("cargo metadata lists no packages")?;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let member = |package: &Value| {
        let dependencies = package["dependencies"].as_array().into_iter().flatten();
        let imports = dependencies
            .filter(|dependency| dependency["kind"].as_str() != Some("dev") && dependency["path"].is_string())
            .map(|dependency| short(&text(&dependency["name"])))
            .collect();
        let manifest = text(&package["manifest_path"]);
        let folder = manifest.trim_end_matches("/Cargo.toml").to_owned();
        Member { name: short(&text(&package["name"])), folder, imports }
    };
    Ok(packages.iter().map(member).collect())
}

/// `pleat-cache` is `cache`; `pleat` is itself.
fn short(name: &str) -> String {
    name.strip_prefix("pleat-").unwrap_or(name).to_owned()
}

fn layer(name: &str) -> Option<u32> {
    LAYERS.iter().find(|(_, names)| names.contains(&name)).map(|(layer, _)| *layer)
}

/// Each breach of the layers, as a line.
pub(super) fn breaches(members: &[Member]) -> Vec<String> {
    let mut found = Vec::new();
    for member in members.iter().filter(|member| !TOOLS.contains(&member.name.as_str())) {
        let Some(own) = layer(&member.name) else {
            found.push(format!("crate `{}` has no layer: add it to LAYERS in {}", member.name, file!()));
            continue;
        };
        for import in &member.imports {
            match layer(import) {
                Some(other) if other < own => {}
                Some(other) => found.push(format!(
                    "crate `{}` (layer {own}) imports `{import}` (layer {other}): only lower layers may be imported",
                    member.name
                )),
                None => found.push(format!("crate `{}` imports `{import}`, which has no layer", member.name)),
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    type Import = (&'static str, Option<&'static str>);

    fn workspace(crates: &[(&str, &[Import])]) -> Vec<String> {
        let packages: Vec<_> = crates
            .iter()
            .map(|(name, imports)| {
                let dependencies: Vec<_> = imports
                    .iter()
                    .map(|(name, kind)| json!({ "name": name, "kind": kind, "path": "/x" }))
                    .chain([json!({ "name": "serde", "kind": null })])
                    .collect();
                json!({ "name": name, "manifest_path": format!("/x/{name}/Cargo.toml"), "dependencies": dependencies })
            })
            .collect();
        breaches(&members(&json!({ "packages": packages })).unwrap())
    }

    #[test]
    fn lower_layers_and_tests_are_free() {
        let found = workspace(&[
            ("pleat-page", &[]),
            ("pleat-codec", &[("pleat-page", None)]),
            ("pleat-sys", &[("pleat-page", None), ("pleat-codec", Some("dev"))]),
            ("pleat-cli", &[("pleat-sys", None), ("pleat-page", Some("build"))]),
            ("xtask", &[("pleat-cli", None)]),
            ("pleat-bench", &[]),
        ]);
        assert_eq!(found, Vec::<String>::new());
    }

    /// The canary: were the check to pass everything, this would tell.
    #[test]
    fn canary_each_breach_is_found() {
        let sideways = workspace(&[("pleat-codec", &[("pleat-sys", None)])]);
        assert!(sideways.len() == 1 && sideways[0].contains("`sys` (layer 1)"), "{sideways:?}");
        let upward = workspace(&[("pleat-store", &[("pleat-cache", None)])]);
        assert_eq!(upward.len(), 1, "{upward:?}");
        let in_build_script = workspace(&[("pleat-store", &[("pleat-cache", Some("build"))])]);
        assert_eq!(in_build_script.len(), 1, "{in_build_script:?}");
        let unknown = workspace(&[("pleat-attic", &[])]);
        assert!(unknown.len() == 1 && unknown[0].contains("no layer"), "{unknown:?}");
        let tool = workspace(&[("pleat-store", &[("pleat-bench", None)])]);
        assert_eq!(tool.len(), 1, "{tool:?}");
    }
}
