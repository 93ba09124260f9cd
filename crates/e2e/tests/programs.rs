//! Real programs at two budgets each: same output, memory inside the budget, nothing left behind.
#![forbid(unsafe_code)]

use std::io::Write as _;
use std::process::Command;

use bench::size::mib;
use pleat_e2e::{
    MODES, Run, Spill, Turn, assert_same, assert_within, compare, compare_in, compare_spilling, folded, folded_again,
    plain, program, python, skipped, stats, turn, words,
};

/// Whether a command can be run at all.
fn there(words: &[&str]) -> bool {
    Command::new(words[0]).args(&words[1..]).output().is_ok_and(|run| run.status.success())
}

#[test]
fn cpython_with_a_large_dictionary() {
    let turn = turn("cpython");
    let job = concat!(env!("CARGO_MANIFEST_DIR"), "/../../bench/jobs/dictionary.py");
    // At a third of its memory it fits without the swap file: a dictionary folds to a quarter.
    compare_spilling(&turn, &words([python(), job, "150000", "4000"]), &[42, 22], Spill::May);
}

/// The same, smaller, and below what it folds to.
#[test]
fn cpython_with_a_dictionary_that_does_not_fold_enough() {
    let turn = turn("cpython-spills");
    let job = concat!(env!("CARGO_MANIFEST_DIR"), "/../../bench/jobs/dictionary.py");
    compare(&turn, &words([python(), job, "200000", "4000"]), &[19]);
}

/// By fork, by a server that forks, and by fork and exec.
#[test]
fn cpythons_pools_of_processes() {
    let turn = turn("pools");
    for mode in MODES {
        compare_in(mode, &turn, &words([python(), &program("pools.py")]), &[44], Spill::May);
    }
}

#[test]
fn numpy() {
    let turn = turn("numpy");
    if !there(&[python(), "-c", "import numpy"]) {
        return skipped("Python has no numpy");
    }
    compare(&turn, &words([python(), &program("arrays.py"), "40"]), &[60, 32]);
}

#[test]
fn sqlite_in_memory() {
    let turn = turn("sqlite");
    if !there(&[python(), "-c", "import sqlite3"]) {
        return skipped("Python has no sqlite3");
    }
    compare(&turn, &words([python(), &program("table.py"), "60000"]), &[48, 25]);
}

#[test]
fn every_codec_keeps_what_a_program_has() {
    let turn = turn("codecs");
    let command = words([python(), &program("table.py"), "30000"]);
    let before = plain(&command);
    let ours = ["lz4", "fold", "fold-deep", "auto", "dense"];
    let papers = ["wkdm", "wk4x4", "lzrw1", "lzrw1-a", "lzo1x-1", "pbpm", "pbpm-separate", "pbpm-single", "mxt-lz1"];
    for codec in ours.into_iter().chain(papers) {
        let mut options = turn.options("22M");
        options.push(format!("--codec={codec}"));
        let after = folded(&options, &command);
        assert_same(&before, &after);
        let stats = stats(&turn);
        assert_eq!(stats["codec"], codec);
        assert!(stats["pages_encoded"].as_u64() > Some(1000), "{codec}: {stats}");
        assert!(stats["pages_decoded"].as_u64() > Some(100), "{codec}: {stats}");
        let made = stats["codecs"].as_object().unwrap();
        let encodings: u64 = made.values().map(|made| made["encodings"].as_u64().unwrap()).sum();
        let bytes: u64 = made.values().map(|made| made["bytes"].as_u64().unwrap()).sum();
        assert!(encodings > 1000 && bytes < encodings * 4096, "{codec}: {made:?}");
        assert!(codec == "auto" || made.keys().eq([codec]), "{codec}: {made:?}");
    }
}

#[test]
fn every_system_keeps_a_program_inside_its_budget() {
    let turn = turn("systems");
    let command = words([python(), &program("passes.py"), "80000"]);
    let systems = [
        ("pleat", "slabs", "auto", "marginal", "all", "encodings"),
        ("tuduce-gross", "zones", "wkdm", "free-space", "all", "pages"),
        ("castro", "cells", "lzo1x-1", "expense-profit", "all", "encodings"),
        ("crames", "chunks", "pbpm", "fill-rate", "all", "pages"),
        ("zswap", "buddies", "lzo1x-1", "percent", "reject-poor", "pages"),
        ("mxt", "sectors", "mxt-lz1", "exhaustion", "all", "pages"),
    ];
    let before = plain(&command);
    for (system, store, codec, sizing, admission, write_back) in systems {
        let stats = run_system(&turn, &before, &command, 18, &[&format!("--system={system}")]);
        let parts = [system, store, codec, sizing, admission, write_back];
        for (key, part) in ["system", "store", "codec", "sizing", "admission", "write_back"].into_iter().zip(parts) {
            assert_eq!(stats[key], part, "{system}: {stats}");
        }
        assert!((stats["units_added"].as_u64() > Some(0)) == (system != "pleat"), "{system}: {stats}");
    }
    // A part replaced.
    let options = ["--system=castro", "--store=cells-4", "--codec=wkdm", "--sizing=fixed", "--pool-size=6M"];
    let stats = run_system(&turn, &before, &command, 18, &options);
    assert_eq!((&stats["store"], &stats["sizing"]), (&"cells-4".into(), &"fixed".into()), "{stats}");
    assert!(stats["pages_released"].as_u64() > Some(0), "a fixed area is full: {stats}");
    // Slabs have no area: what is above goes below.
    let stats = run_system(&turn, &before, &command, 18, &["--sizing=fixed", "--pool-size=2M"]);
    assert_eq!((&stats["store"], &stats["sizing"]), (&"slabs".into(), &"fixed".into()), "{stats}");
    assert_eq!(stats["pool_bytes_max_peak"].as_u64(), Some(2 << 20), "{stats}");
    assert!(stats["written_back_bytes"].as_u64() > Some(0), "{stats}");
}

/// `cargo test --release -p pleat-e2e --test programs -- --ignored --nocapture every_system_under_half`
#[test]
#[ignore = "minutes: codecs that were made for hardware, and systems that read single pages from the disk"]
fn every_system_under_half_of_what_a_dictionary_takes() {
    let turn = turn("systems");
    let job = concat!(env!("CARGO_MANIFEST_DIR"), "/../../bench/jobs/dictionary.py");
    let command = words([python(), job, "150000"]);
    let before = plain(&command);
    for system in ["pleat", "tuduce-gross", "castro", "crames", "zswap", "mxt"] {
        run_system(&turn, &before, &command, 32, &[&format!("--system={system}")]);
    }
}

/// Runs a command in so many MiB with these options, compares, and returns the numbers.
fn run_system(turn: &Turn, before: &Run, command: &[String], ram: u64, system: &[&str]) -> serde_json::Value {
    let mut options = turn.options(&format!("{ram}M"));
    options.extend(system.iter().map(|option| (*option).to_owned()));
    let after = folded_again(&options, command, before, ram << 20);
    let stats = stats(turn);
    let reclaimed = stats["pages_reclaimed"].as_u64().unwrap_or(0);
    println!(
        "{system:?}: {:.2} s, peak {}, {reclaimed} reclaimed",
        after.wall.as_secs_f64(),
        mib(after.peaks.anon_bytes)
    );
    assert!(reclaimed > 1000, "{system:?}: {stats}");
    assert_within(before, &after, ram << 20);
    turn.assert_clean(&after);
    stats
}

#[test]
fn gnu_sort() {
    let turn = turn("sort");
    let input = turn.file("lines");
    let mut draw = bench::content::Draw::new(11);
    let mut lines = Vec::new();
    for at in 0..300_000_u64 {
        // Letters of six bits each: of a line of 100 bytes 72 are noise, which no codec makes shorter than 60.
        lines.extend(core::iter::repeat_with(|| b'0' + (draw.number() >> 58) as u8).take(80));
        writeln!(lines, " line {at}").expect("memory is long enough");
    }
    std::fs::write(&input, lines).expect("the test's own folder can be written");
    let command = words(["sort", "--parallel=1", "--buffer-size=1G", &turn.word("lines")]);
    compare(&turn, &command, &[34, 28]);
}

#[test]
fn gpp_on_templates() {
    let turn = turn("gpp");
    if !there(&["g++", "--version"]) {
        return skipped("g++ is not installed");
    }
    // Half-random memory is not to be had from a compiler: the last budget is small instead.
    let command = words(["g++", "-std=c++17", "-O1", "-DCOUNT=5", "-S", "-o", "-", &program("templates.cpp")]);
    compare(&turn, &command, &[110, 28]);
}

#[test]
fn node() {
    let turn = turn("node");
    if !there(&["node", "--version"]) {
        return skipped("node is not installed");
    }
    compare(&turn, &words(["node", &program("objects.js"), "100000"]), &[100, 50]);
}

#[test]
fn java() {
    let turn = turn("java");
    let classes = turn.word("classes");
    if !there(&["javac", "-d", &classes, &program("Objects.java")]) {
        return skipped("javac is not installed");
    }
    // A fixed heap and one collector thread: the default sizes depend on the machine.
    // Its crash report, too, goes where the test cleans up.
    let report = format!("-XX:ErrorFile={}", turn.word("hs_err.log"));
    let command = words(["java", &report, "-Xmx200m", "-XX:+UseSerialGC", "-cp", &classes, "Objects", "100000"]);
    compare(&turn, &command, &[80, 52]);
}

#[test]
fn perl() {
    let turn = turn("perl");
    if !there(&["perl", "-v"]) {
        return skipped("perl is not installed");
    }
    compare(&turn, &words(["perl", &program("hash.pl"), "30000", "2000"]), &[25, 21]);
}
