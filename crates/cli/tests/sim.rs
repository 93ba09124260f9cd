//! `pleat sim`: what it counts, writes and refuses.
#![forbid(unsafe_code)]

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};

fn sim(words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_pleat")).arg("sim").args(words).output().unwrap()
}

/// A file that goes with the test.
struct Temporary(PathBuf);

impl Temporary {
    fn new(name: &str, content: &[u8]) -> Self {
        let path = std::env::temp_dir().join(format!("pleat-sim-{}-{name}", std::process::id()));
        fs::write(&path, content).unwrap();
        Self(path)
    }

    fn path(&self) -> &str {
        self.0.to_str().unwrap()
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

fn refused(words: &[&str]) -> String {
    let output = sim(words);
    assert_eq!(output.status.code(), Some(125), "{words:?}");
    let message = String::from_utf8(output.stderr).unwrap();
    assert!(message.starts_with("pleat: ") && message.lines().count() == 1, "{message}");
    message
}

/// Four pages round and round, three times: with room for three LRU misses each time, MIN twice (by hand).
const LOOP: &str = "R 1\nW 0x2\nR 3\nR 4\nR 1\nR 2\nR 3\nR 4\nR 1\nR 2\nR 3\nR 4\n";

#[test]
fn golden_scores() {
    let trace = Temporary::new("loop", LOOP.as_bytes());
    let out = Temporary::new("loop.json", b"");
    let words = [trace.path(), "--replacement", "lru,min,fifo,clock", "--pages", "3,4", "--json", out.path()];
    let output = sim(&words);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && error.is_empty(), "{error}");
    let table = String::from_utf8(output.stdout).unwrap();
    assert!(table.contains("12 references, 4 of them") && table.contains("\n| min | 3 | 2 |"), "{table}");
    let rows: Value = serde_json::from_str(&fs::read_to_string(&out.0).unwrap()).unwrap();
    let expected: Vec<_> = [("lru", 3, 8), ("lru", 4, 0), ("min", 3, 2), ("min", 4, 0), ("fifo", 3, 8), ("fifo", 4, 0)]
        .into_iter()
        .chain([("clock", 3, 8), ("clock", 4, 0)])
        .map(|(policy, pages, misses)| {
            json!({ "trace": trace.path(), "policy": policy, "pages": pages, "references": 12,
                    "misses": misses, "cold_misses": 4 })
        })
        .collect();
    assert_eq!(rows, Value::from(expected));
    // The same again, to standard output: the same bytes.
    let again = sim(&[&words[..words.len() - 1], &["-"]].concat());
    assert_eq!(again.stdout, fs::read(&out.0).unwrap());
}

#[test]
fn curves_have_every_size() {
    let trace = Temporary::new("curved", LOOP.as_bytes());
    let output = sim(&[trace.path(), "--curve", "lru,min", "--json", "-"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let row = |policy, curve| json!({ "trace": trace.path(), "policy": policy, "references": 12, "cold_misses": 4, "curve": curve });
    let (lru, min) = (row("lru", json!([[1, 8], [4, 0]])), row("min", json!([[1, 8], [2, 5], [3, 2], [4, 0]])));
    assert_eq!(serde_json::from_slice::<Value>(&output.stdout).unwrap(), json!([lru, min]));
    let table = String::from_utf8(sim(&[trace.path(), "--curve", "lru,min"]).stdout).unwrap();
    assert!(
        table.contains("| pages | lru | min |\n|---|---|---|\n| 1 | 8 | 8 |\n| 2 | 8 | 5 |\n| 3 | 8 | 2 |"),
        "{table}"
    );
    // A reduced trace tells nothing of memories smaller than that.
    let reduced = Temporary::new("curved-reduced", b"");
    let words = ["record", "--from", trace.path(), "--reduce", "3", "--out", reduced.path()];
    assert!(Command::new(env!("CARGO_BIN_EXE_pleat")).args(words).status().unwrap().success());
    let output = sim(&[reduced.path(), "--curve", "min", "--json", "-"]);
    let rows: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(rows[0]["curve"], json!([[3, 2], [4, 0]]));
    assert!(refused(&[trace.path(), "--curve", "clock"]).contains("lru and min"));
    refused(&[trace.path(), "--curve", "lru", "--replacement", "lru", "--pages", "3"]);
}

#[test]
fn a_truncated_trace_is_played_and_named() {
    let trace = Temporary::new("cut", b"R 1\nR 2\nR ");
    let output = sim(&[trace.path(), "--replacement", "lru", "--pages", "5", "--json", "-"]);
    assert!(output.status.success());
    let warning = String::from_utf8(output.stderr).unwrap();
    assert!(warning.contains("truncated") && warning.contains("8 bytes"), "{warning}");
    let rows: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&rows[0]["references"], &rows[0]["truncated_at_byte"]), (&json!(2), &json!(8)));
}

#[test]
fn what_is_no_trace_is_refused_with_its_place() {
    let options = ["--replacement", "lru", "--pages", "5"];
    let with = |path| [&[path][..], &options].concat();
    let bad = Temporary::new("bad", b"R 1\nQ 2\nR 3\n");
    assert!(refused(&with(bad.path())).contains("line 2, at byte 4"));
    let foreign = Temporary::new("elf", &fs::read(env!("CARGO_BIN_EXE_pleat")).unwrap()[..10_000]);
    assert!(refused(&with(foreign.path())).contains("no trace: at byte 0"));
    assert!(refused(&with("/does/not/exist")).contains("/does/not/exist: No such file"));
    assert!(refused(&with("/")).contains("Is a directory"));
    for words in [["--replacement", "lfu", "--pages", "5"], ["--replacement", "lru", "--pages", "0"]] {
        refused(&[&[bad.path()][..], &words].concat());
    }
    assert!(refused(&[bad.path(), "--replacement", "lfu", "--pages", "5"]).contains("lru, min, fifo, clock, pleat"));
}

#[test]
fn synthetic_traces_are_the_same_each_time_and_can_be_played() {
    let options = ["synth", "2*zipf:1", "sequential", "--pages", "500", "--references", "20000", "--out"];
    let pleat = |last: &[&str]| Command::new(env!("CARGO_BIN_EXE_pleat")).args(options).args(last).output().unwrap();
    let trace = Temporary::new("synth", b"");
    assert!(pleat(&[trace.path()]).status.success());
    let blocks = pleat(&["-"]).stdout;
    assert_eq!(blocks, fs::read(&trace.0).unwrap());
    assert_ne!(blocks, pleat(&["-", "--seed", "2"]).stdout);
    let text = Temporary::new("synth.txt", &pleat(&["-", "--text"]).stdout);
    let rows = |path| {
        let output = sim(&[path, "--replacement", "lru,min", "--pages", "100", "--json", "-"]);
        let mut rows: Value = serde_json::from_slice(&output.stdout).unwrap();
        for row in rows.as_array_mut().unwrap() {
            row.as_object_mut().unwrap().remove("trace");
        }
        rows
    };
    assert_eq!(rows(trace.path()), rows(text.path()));
    assert!(rows(trace.path())[0]["misses"].as_u64() > rows(trace.path())[1]["misses"].as_u64());
    let bad = Command::new(env!("CARGO_BIN_EXE_pleat")).args(["synth", "zip:1", "--out", "-"]).output().unwrap();
    assert!(bad.status.code() == Some(125) && String::from_utf8_lossy(&bad.stderr).contains("zipf:A"));
}

/// Valgrind is there; says so if it is not.
fn can_record() -> bool {
    let has_valgrind = Command::new("valgrind").arg("--version").output().is_ok();
    if !has_valgrind {
        println!("skipped: pleat record (no valgrind)");
    }
    has_valgrind
}

/// What ends `pleat record` ends the program; what was recorded until then is kept.
#[test]
fn a_recording_is_ended_by_a_signal() {
    if !can_record() {
        return;
    }
    let ended = Temporary::new("ended", b"");
    let mut record = Command::new(env!("CARGO_BIN_EXE_pleat"))
        .args(["record", "--out", ended.path(), "--reduce", "0", "--", "sh", "-c", "echo up; while :; do :; done"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(record.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "up\n");
    let sent = Command::new("kill").arg(record.id().to_string()).status();
    assert!(sent.is_ok_and(|status| status.success()));
    // Not before valgrind has ended.
    assert_eq!(record.wait().unwrap().code(), Some(143));
    let output = sim(&[ended.path(), "--replacement", "lru", "--pages", "1000", "--json", "-"]);
    let rows: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(rows[0]["references"].as_u64().unwrap() > 10_000, "{rows}");
}

#[test]
fn a_program_is_recorded() {
    if !can_record() {
        return;
    }
    let record = |words: &[&str]| Command::new(env!("CARGO_BIN_EXE_pleat")).arg("record").args(words).output().unwrap();
    let (whole, reduced) = (Temporary::new("whole", b""), Temporary::new("reduced", b""));
    let output = record(&["--out", whole.path(), "--reduce", "0", "--", "sh", "-c", "echo out; exit 3"]);
    assert_eq!((output.status.code(), &output.stdout[..]), (Some(3), &b"out\n"[..]));
    assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    let output = record(&["--out", reduced.path(), "--reduce", "32", "--from", whole.path()]);
    assert!(output.status.success() && output.stderr.is_empty());
    let misses = |path| {
        let output = sim(&[path, "--replacement", "lru,min", "--pages", "32,50", "--json", "-"]);
        assert!(output.status.success() && output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
        let rows: Value = serde_json::from_slice(&output.stdout).unwrap();
        let number = |row: &Value, key: &str| row[key].as_u64().unwrap();
        let rows = rows.as_array().unwrap();
        let misses: Vec<_> = rows.iter().map(|row| (number(row, "misses"), number(row, "cold_misses"))).collect();
        (misses, number(&rows[0], "references"))
    };
    let ((all, references), (kept, kept_references)) = (misses(whole.path()), misses(reduced.path()));
    assert_eq!(all, kept);
    assert!(
        all[0].0 > 0 && all[0].1 > 50 && kept_references * 4 < references,
        "{all:?} {kept_references} {references}"
    );
    let output = sim(&[reduced.path(), "--replacement", "lru", "--pages", "31"]);
    assert!(String::from_utf8_lossy(&output.stderr).contains("reduced for memories of 32 pages"));
}

#[test]
fn runs_are_told_by_system_and_size() {
    let trace = Temporary::new("rand", b"");
    let made = Command::new(env!("CARGO_BIN_EXE_pleat"))
        .args(["synth", "rand", "--pages", "16000", "--references", "60000", "--out", trace.path()])
        .status();
    assert!(made.unwrap().success());
    let words = [
        trace.path(),
        "--system",
        "pleat,off",
        "--ram",
        "50%,128M",
        "--ratio",
        "0.25",
        "--backing",
        "disk-7200",
        "--json",
        "-",
    ];
    let output = sim(&words);
    assert!(output.status.success() && output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    let rows: Value = serde_json::from_slice(&output.stdout).unwrap();
    let slowdown = |row: usize| rows[row]["slowdown"].as_f64().unwrap();
    let named: Vec<_> = rows.as_array().unwrap().iter().map(|row| (&row["system"], &row["ram_bytes"])).collect();
    let pages = rows[0]["trace_pages"].as_u64().unwrap();
    let (half, all) = (json!(pages * 4096 / 2), json!(128 << 20));
    let (pleat, off) = (json!("pleat"), json!("off"));
    assert_eq!(named, [(&pleat, &half), (&pleat, &all), (&off, &half), (&off, &all)]);
    assert!(slowdown(0) > 1.0 && slowdown(2) > 5.0 * slowdown(0), "{rows}");
    assert!((slowdown(1) - 1.0).abs() < 1e-9 && (slowdown(3) - 1.0).abs() < 1e-9, "{rows}");
    assert_eq!(output.stdout, sim(&words).stdout);
    let table = String::from_utf8(sim(&words[..words.len() - 2]).stdout).unwrap();
    assert!(table.contains("\n| pleat | 30.") && table.contains("not measured: kernel_fault,"), "{table}");
    let estimates = rows[0]["estimates"].as_array().unwrap();
    assert!(estimates.contains(&json!("access")) && !estimates.contains(&json!("encode")), "{rows}");
    assert!(refused(&[trace.path(), "--system", "castor", "--ram", "50%"]).contains("castro, crames, zswap, mxt, off"));
    assert!(refused(&[trace.path(), "--system", "pleat", "--ram", "1K"]).contains("1M"));
    let with_machine = |machine| refused(&[trace.path(), "--system", "pleat", "--ram", "50%", "--machine", machine]);
    assert!(with_machine("cray").contains("castro") && with_machine(trace.path()).contains("no profile"));
    let costs = sim(&["--costs"]).stdout;
    assert!(String::from_utf8(costs).unwrap().contains("\n| castro | encode | 50000 | measured | castro, table 2"));
    // What is wrong with a trace is told with its place, and what is whole is simulated.
    let whole = fs::read(&trace.0).unwrap();
    let cut = Temporary::new("rand-cut", &whole[..whole.len() / 2]);
    let output = sim(&[cut.path(), "--system", "pleat", "--ram", "128M", "--json", "-"]);
    let rows: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(String::from_utf8_lossy(&output.stderr).contains("truncated"));
    assert!(rows[0]["truncated_at_byte"].as_u64().is_some_and(|at| at < whole.len() as u64 / 2), "{rows}");
    let mut spoiled = whole;
    *spoiled.last_mut().unwrap() ^= 1;
    let spoiled = Temporary::new("rand-spoiled", &spoiled);
    assert!(refused(&[spoiled.path(), "--system", "pleat", "--ram", "128M"]).contains("at byte"));
}

/// Pages of which the first half is zeros and the other noise.
fn half_noise() -> Vec<u8> {
    let mut state = 1_u64;
    let mut noise = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    (0..64 * 4096).map(|at| if at < 32 * 4096 { 0 } else { noise() }).collect()
}

#[test]
fn the_probability_of_missing_a_ratio_is_estimated() {
    let pages = Temporary::new("half.pages", &half_noise());
    let words = [pages.path(), "--estimate", "50%,0.6", "--codec", "pbpm,lz4", "--pages", "100,8192", "--json", "-"];
    let output = sim(&words);
    assert!(output.status.success() && output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    let rows: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(rows.len(), 8);
    for row in &rows {
        let number = |key: &str| row[key].as_f64().unwrap();
        // Half of the pages take nothing, the others all: a mean and a deviation of a half.
        assert_eq!((number("sampled_pages"), number("mean_ratio"), number("deviation")), (64.0, 0.5, 0.5), "{row}");
        let probability = match (number("target"), number("pages")) {
            // Two deviations, by a printed table, and 18.
            (0.6, 100.0) => 0.022_750_131_948_179,
            (0.6, 8192.0) => 1.5384e-73,
            _ => 0.5,
        };
        assert!((number("probability") / probability - 1.0).abs() < 2e-3, "{row}");
        assert!(number("log10_bound") >= number("log10_probability"), "{row}");
        assert!((10_f64.powf(number("log10_probability")) / probability - 1.0).abs() < 2e-3, "{row}");
    }
    assert_eq!(output.stdout, sim(&words).stdout);
    let table = String::from_utf8(sim(&[pages.path(), "--estimate", "0.6"]).stdout).unwrap();
    assert!(table.contains("64 pages sampled with pbpm, 50.0 % ± 50.0 %"), "{table}");
    assert!(table.contains("\n| 60 % | 64 | 0.0548 | "), "{table}");
    let trace = Temporary::new("sampleless", LOOP.as_bytes());
    assert!(refused(&[trace.path(), "--estimate", "50%"]).contains("no samples"));
    assert!(refused(&[pages.path(), "--estimate", "150%"]).contains("ratio such as 50%"));
    assert!(refused(&[pages.path(), "--estimate", "0.5", "--codec", "zip"]).contains("wkdm"));
    assert!(refused(&["/does/not/exist", "--estimate", "0.5"]).contains("No such file"));
    refused(&[pages.path(), "--estimate", "0.5", "--system", "pleat", "--ram", "1M"]);
}

/// Of a trace the samples count, whatever it references.
#[test]
fn samples_of_a_trace_are_estimated_from() {
    let header =
        trace::Header { codecs: vec!["wkdm".into(), "pbpm".into()], ..trace::Header::new(trace::TimeUnit::References) };
    let mut writer = trace::Writer::new(vec![], header).unwrap();
    for page in 0..100 {
        let sizes = vec![1024, if page % 2 == 0 { 1024 } else { 3072 }];
        writer.push_sample(trace::Sample { page: page::PageIndex(page), sizes }).unwrap();
    }
    let access = trace::Access::Read;
    writer.push(trace::Reference { page: page::PageIndex(1), time: 0, thread: 0, access }).unwrap();
    let sampled = Temporary::new("sampled", &writer.finish(None).unwrap());
    let rows = |more: &[&str]| {
        let output = sim(&[&[sampled.path(), "--estimate", "0.5", "--json", "-"], more].concat());
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice::<Vec<Value>>(&output.stdout).unwrap()
    };
    let both = rows(&[]);
    assert_eq!((&both[0]["codec"], &both[0]["probability"]), (&json!("wkdm"), &json!(0.0)));
    assert_eq!((&both[0]["log10_probability"], &both[0]["log10_bound"]), (&Value::Null, &Value::Null));
    assert_eq!(
        (&both[1]["codec"], &both[1]["probability"], &both[1]["pages"]),
        (&json!("pbpm"), &json!(0.5), &json!(100))
    );
    assert_eq!(rows(&["--codec", "pbpm"]), both[1..]);
    assert!(refused(&[sampled.path(), "--estimate", "0.5", "--codec", "lz4"]).contains("of wkdm, pbpm"));
}

#[test]
fn its_speed_can_be_measured() {
    let trace = Temporary::new("speed", LOOP.as_bytes());
    let out = Temporary::new("speed.json", b"");
    let words = ["bench", "sim", trace.path(), "--rounds", "2", "--json", out.path()];
    let output = Command::new(env!("CARGO_BIN_EXE_pleat")).args(words).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let table = String::from_utf8(output.stdout).unwrap();
    assert!(table.starts_with("| trace | pages | read | lru x 16 | lru | min | fifo | clock | pleat |"), "{table}");
    let rows: Vec<Value> = serde_json::from_str(&fs::read_to_string(&out.0).unwrap()).unwrap();
    assert_eq!(rows.len(), 7);
    for row in rows {
        assert_eq!((&row["references"], &row["pages"]), (&json!(12), &json!(4)));
        let speeds = row["million_references_per_second"].as_array().unwrap();
        assert!(speeds.len() == 2 && speeds.iter().all(|speed| speed.as_f64().unwrap() > 0.0), "{row}");
    }
}

/// A directory that goes with the test.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn plots_are_files_of_their_own() {
    let trace = Temporary::new("plotted", LOOP.as_bytes());
    let folder = Folder(std::env::temp_dir().join(format!("pleat-plots-{}", std::process::id())));
    let plots = folder.0.join("not there yet");
    let plot = ["--plot", plots.to_str().unwrap()];
    let played = |words: &[&str]| {
        let output = sim(&[&[trace.path()][..], words, &plot].concat());
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let files = fs::read_dir(&plots).unwrap().map(|file| file.unwrap().file_name().into_string().unwrap());
        let mut files: Vec<String> = files.collect();
        files.sort();
        files
    };
    let files = played(&["--replacement", "lru,min", "--pages", "3,4"]);
    assert!(files.len() == 1 && files[0].ends_with("plotted-misses.svg"), "{files:?}");
    let drawn = fs::read_to_string(plots.join(&files[0])).unwrap();
    assert!(drawn.starts_with("<svg") && drawn.matches("<circle").count() == 4, "{drawn}");
    // The loop is level up to three pages for LRU, with corners at both ends.
    let files = played(&["--curve", "lru"]);
    let drawn = fs::read_to_string(plots.join(&files[0])).unwrap();
    assert!(files.len() == 2 && drawn.matches("<circle").count() == 4, "{files:?} {drawn}");
    let files = played(&["--system", "pleat,off", "--ram", "1M,2M"]);
    assert!(files.len() == 6 && files.iter().any(|name| name.ends_with("-off-2_MiB.svg")), "{files:?}");
    let drawn = fs::read_to_string(plots.join(&files[2])).unwrap();
    assert!(["first touch", "resident", "RAM", "backed"].iter().all(|line| drawn.contains(&format!("\n{line}\n"))));
    let noise = Temporary::new("plotted.pages", &half_noise());
    let output = sim(&[&[noise.path(), "--estimate", "0.5", "--pages", "50,500"][..], &plot].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let drawn = fs::read_dir(&plots).unwrap().map(|file| file.unwrap().path());
    let drawn = drawn.filter(|path| path.to_str().unwrap().ends_with("-pbpm-estimate.svg")).collect::<Vec<_>>();
    let drawn = fs::read_to_string(&drawn[0]).unwrap();
    assert!(["50 pages", "500 pages"].iter().all(|line| drawn.contains(&format!("\n{line}\n"))), "{drawn}");
    assert!(
        refused(&[trace.path(), "--replacement", "lru", "--pages", "3", "--plot", trace.path()]).contains("--plot")
    );
}
