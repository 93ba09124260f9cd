//! `pleat bench codecs`: what it prints, writes and refuses.
#![forbid(unsafe_code)]

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};

use serde_json::Value;

fn codecs(words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_pleat")).args(["bench", "codecs"]).args(words).output().unwrap()
}

fn temporary(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("pleat-codecs-{}-{name}", std::process::id()))
}

#[test]
fn tables_document_and_plot() {
    let (pages, json, plot) = (temporary("mine.pages"), temporary("out.json"), temporary("out.svg"));
    let text = "a line that comes again and again, with a number: ";
    let content = (0..2000).map(|number| number.to_string()).collect::<Vec<_>>().join(text);
    fs::write(&pages, &content).unwrap();
    let words = [&pages, &json, &plot].map(|path| path.to_str().unwrap());
    let output =
        codecs(&["--pages", words[0], "--codec", "fold,auto", "--cold", "1M", "--json", words[1], "--plot", words[2]]);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && error.is_empty(), "{error}");
    let table = String::from_utf8(output.stdout).unwrap();
    for codec in ["memcpy", "lz4", "fold", "auto"] {
        assert!(table.contains(&format!("\n| {codec} |")), "{table}");
    }
    let document: Value = serde_json::from_str(&fs::read_to_string(&json).unwrap()).unwrap();
    assert_eq!(document["files"][0]["file_pages"], content.len().div_ceil(4096));
    assert!(document["machine"]["cpus"].as_u64() > Some(0) && document["commit"].is_string());
    let results = document["results"].as_array().unwrap();
    // One file: it has a set of its own, and is all there is.
    assert_eq!(results.len(), 4 * 2);
    for result in results {
        for key in ["ratio", "encode_ns_mean", "decode_ns_mean", "encode_ns_p50", "encode_ns_p99"] {
            assert!(result[key].as_f64() > Some(0.0), "{key} of {result}");
        }
        for key in ["decode_ns_p50", "decode_ns_p99", "cold_decode_ns_p50"] {
            assert!(result[key].as_u64() > Some(0), "{key} of {result}");
        }
    }
    let ratio =
        |codec: &str| results.iter().find(|result| result["codec"] == codec).unwrap()["ratio"].as_f64().unwrap();
    assert!(ratio("auto") < 0.5 && ratio("fold") > ratio("auto"));
    let drawn = fs::read_to_string(&plot).unwrap();
    assert!(drawn.starts_with("<svg") && drawn.contains("fold") && drawn.contains("ALL: decoding"), "{drawn}");
    for file in [pages, json, plot] {
        fs::remove_file(file).unwrap();
    }
}

#[test]
fn what_cannot_be_measured_is_refused_in_a_line() {
    let nothing = temporary("nothing");
    let nothing = nothing.to_str().unwrap();
    let foreign = if cfg!(target_arch = "aarch64") { "fold@avx2" } else { "fold@neon" };
    let beneath = format!("{nothing}/out.json");
    for (words, parts) in [
        (&["--codec", "gzip"][..], &["--codec gzip", "lzo1x-1, ", "fold"][..]),
        (&["--codec", foreign], &["--codec", foreign, "this processor"]),
        (&["--pages", nothing], &["--pages", nothing, "No such file"]),
        (&["--pages", "/dev/null"], &["--pages", "/dev/null"]),
        (&["--json", &beneath], &["--json", &beneath]),
        (&["--cold", "much"], &["--cold", "much"]),
        (&["--sample", "0"], &["--sample"]),
    ] {
        let output = codecs(words);
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(125), "{words:?}: {error}");
        assert_eq!(error.lines().count(), 1, "{words:?}: {error}");
        assert!(parts.iter().all(|part| error.contains(part)), "{words:?}: {error}");
        assert!(output.stdout.is_empty());
    }
}
