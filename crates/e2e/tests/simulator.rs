//! `pleat sim --calibrate`: measures this machine, and what it writes is a machine and a device for the simulator.
#![forbid(unsafe_code)]

use std::fs;
use std::process::Command;

use pleat_e2e::{pleat, turn};
use serde_json::Value;

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
