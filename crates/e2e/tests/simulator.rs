//! What the simulator is fed with from live runs: `pleat sim --calibrate` measures this machine, `pleat record --light` records
//! what a program asks for.
#![forbid(unsafe_code)]

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::process::Command;
use std::time::{Duration, Instant};

use page::PageIndex;
use pleat_e2e::{pleat, skipped, turn};
use serde_json::Value;
use trace::Access;

/// Within 16 MiB, which are 4096.
const WALKED_PAGES: u64 = 10_000;
const RESIDENT_PAGES_MAX: usize = 4096;

#[test]
fn a_light_recording_has_what_a_walk_asks_for() {
    let turn = turn("light");
    let walk = match turn.compile("walk.c", &[]) {
        Ok(walk) => walk,
        Err(why) => return skipped(&why),
    };
    let out = turn.word("walk.trace");
    let swap = turn.swap();
    let words = ["record", "--light", "--ram=16M", "--out", &out, "--", &walk, &WALKED_PAGES.to_string()];
    let output = Command::new(pleat()).args(words).env("PLEAT_SWAP", swap).output().expect("pleat runs");
    let (said, error) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && error.is_empty(), "{error}");
    let first = PageIndex(said.split(' ').next().unwrap().parse().unwrap());
    let mapping = first..PageIndex(first.0 + WALKED_PAGES);

    let mut trace = trace::open(File::open(&out).unwrap()).unwrap();
    let (mut references, mut lengths) = (Vec::new(), Vec::new());
    let (mut batch, mut samples) = (Vec::new(), Vec::new());
    loop {
        trace.read(&mut batch, &mut samples).unwrap();
        lengths.extend(samples.iter().filter(|one| mapping.contains(&one.page)).map(|one| one.sizes[0]));
        if batch.is_empty() {
            break;
        }
        references.extend(batch.iter().filter(|reference| mapping.contains(&reference.page)).copied());
    }
    assert!(matches!(trace.ending(), trace::Ending::Whole { .. }), "{:?}", trace.ending());
    let pages = |access| references.iter().filter(move |one| one.access == access).map(|one| one.page);
    let written: Vec<_> = pages(Access::Write).collect();
    assert!(
        written.iter().copied().eq((0..WALKED_PAGES).map(|page| PageIndex(first.0 + page))),
        "each page once, in order"
    );
    // In each of both walks all that could not stay, in order.
    let read: Vec<_> = pages(Access::Read).collect();
    let turns: Vec<_> = (1..read.len()).filter(|&at| read[at] < read[at - 1]).collect();
    assert_eq!(turns.len(), 1, "two walks");
    for walk in [&read[..turns[0]], &read[turns[0]..]] {
        let distinct: BTreeSet<_> = walk.iter().collect();
        assert_eq!(distinct.len(), walk.len(), "a page twice in a walk");
        assert!(walk.len() + RESIDENT_PAGES_MAX >= WALKED_PAGES as usize, "only {} of a walk", walk.len());
    }
    assert!(references.windows(2).all(|pair| pair[0].thread == pair[1].thread && pair[0].time <= pair[1].time));
    // One word and zeros: some tens of bytes.
    assert!(lengths.len() > 1000 && lengths.iter().all(|length| *length < 200), "{}", lengths.len());
}

/// A shell that is managed before it becomes the program.
#[test]
fn a_light_recording_follows_an_exec() {
    let turn = turn("light-exec");
    let walk = match turn.compile("walk.c", &[]) {
        Ok(walk) => walk,
        Err(why) => return skipped(&why),
    };
    let (out, rows) = (turn.word("walk.trace"), turn.word("rows.json"));
    let script = "x=$(head -c 2000000 /dev/zero | tr '\\0' a); y=$x$x; exec \"$0\" 10000";
    let words = ["record", "--light", "--ram=16M", "--out", &out, "--", "bash", "-c", script, &walk];
    let output = Command::new(pleat()).args(words).env("PLEAT_SWAP", turn.swap()).output().expect("pleat runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let words = ["sim", &out, "--replacement", "lru", "--pages", "4096", "--json", &rows];
    assert!(Command::new(pleat()).args(words).output().expect("pleat runs").status.success());
    let rows: Value = serde_json::from_str(&fs::read_to_string(&rows).unwrap()).unwrap();
    assert!(rows[0]["cold_misses"].as_u64() >= Some(WALKED_PAGES), "{rows}");
}

#[test]
fn a_light_recording_of_a_program_that_fits_says_that_it_is_empty() {
    let turn = turn("light-empty");
    let out = turn.word("true.trace");
    let words = ["record", "--light", "--ram=64M", "--out", &out, "--", "/bin/true"];
    let output = Command::new(pleat()).args(words).env("PLEAT_SWAP", turn.swap()).output().expect("pleat runs");
    assert!(output.status.success());
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.starts_with("pleat: the trace is empty") && said.lines().count() == 1, "{said}");
}

#[test]
fn a_recording_that_cannot_be_written_does_not_hold_the_program_up() {
    let turn = turn("light-full");
    let walk = match turn.compile("walk.c", &[]) {
        Ok(walk) => walk,
        Err(why) => return skipped(&why),
    };
    let words = ["record", "--light", "--ram=16M", "--out=/dev/full", "--", &walk, "60000"];
    let begun = Instant::now();
    let output = Command::new(pleat()).args(words).env("PLEAT_SWAP", turn.swap()).output().expect("pleat runs");
    assert!(!output.stdout.is_empty(), "the program has not ended by itself");
    assert_eq!(output.status.code(), Some(125));
    assert_eq!(
        String::from_utf8_lossy(&output.stderr),
        "pleat: --out /dev/full: No space left on device (os error 28)\n"
    );
    // More references than there is room for, each of which could have waited a second.
    assert!(begun.elapsed() < Duration::from_mins(1), "{:?}", begun.elapsed());
}

#[test]
fn a_calibrated_machine_can_be_simulated() {
    let turn = turn("simulator");
    let (profile, trace, rows) = (turn.word("here.json"), turn.word("walk.trace"), turn.word("rows.json"));
    let run = |words: &[&str]| {
        let output = Command::new(pleat()).args(words).output().expect("pleat runs");
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{words:?}: {error}");
        error.into_owned()
    };
    let said = run(&["sim", "--calibrate", &profile]);
    let measured: Value = serde_json::from_str(&fs::read_to_string(&profile).unwrap()).unwrap();
    for step in ["first_touch", "encode", "decode"] {
        let cost = &measured["machine"][step];
        let ns = cost["ns"].as_f64().unwrap();
        assert!((10.0..1e6).contains(&ns), "{step}: {cost}");
        assert!(cost.to_string().contains("pleat sim --calibrate"), "{step} was not measured: {cost}");
    }
    assert!(measured["machine"]["processors"].as_u64().unwrap() >= 1);
    run(&["synth", "zipf:1", "--pages", "20000", "--references", "200000", "--out", &trace]);
    let mut words = vec!["sim", &trace, "--system", "pleat", "--ram", "50%", "--machine", &profile, "--json", &rows];
    // The temporary directory may lie in RAM: then it says so, and there is no device.
    if !said.contains("no device to measure") {
        words.extend(["--backing", &profile]);
    }
    run(&words);
    let rows: Value = serde_json::from_str(&fs::read_to_string(&rows).unwrap()).unwrap();
    let row = &rows[0];
    assert!(row["slowdown"].as_f64().unwrap() > 1.0 && row["machine"] == "calibrated", "{row}");
    assert!(row["faults"]["compressed"].as_u64().unwrap() > 1000, "{row}");
}
