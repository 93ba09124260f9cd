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

/// What `sh -c SCRIPT` is recorded as: how many references, and what is said.
fn recorded_script(script: &str) -> (u64, String) {
    let trace = Temporary::new("script", b"");
    let words = ["record", "--out", trace.path(), "--reduce", "0", "--", "sh", "-c", script];
    let output = Command::new(env!("CARGO_BIN_EXE_pleat")).args(words).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");
    let output = sim(&[trace.path(), "--replacement", "lru", "--pages", "1000", "--json", "-"]);
    let rows: Value = serde_json::from_slice(&output.stdout).unwrap();
    (rows[0]["references"].as_u64().unwrap(), said)
}

#[test]
fn a_recording_is_of_the_program_alone() {
    if !can_record() {
        return;
    }
    let counts = "i=0; while [ $i -lt 500 ]; do i=$((i + 1)); done";
    let (itself, _) = recorded_script(counts);
    let (parent, said) = recorded_script(&format!("({counts}); :"));
    assert!(parent * 4 < itself && said.is_empty(), "{parent} references of the parent of {itself}: {said}");
    let (_, said) = recorded_script("exec sleep 1");
    assert!(
        said.starts_with("pleat: the trace ends where the program executed ") && said.contains("/sleep, "),
        "{said}"
    );
    assert_eq!(said.lines().count(), 1, "{said}");
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
    // How short its pages get was sampled, and is kept.
    for path in [whole.path(), reduced.path()] {
        let output = sim(&[path, "--estimate", "90%", "--codec", "auto,wkdm", "--json", "-"]);
        let rows: Value = serde_json::from_slice(&output.stdout).unwrap();
        for row in rows.as_array().unwrap() {
            assert!(row["sampled_pages"].as_u64() > Some(50), "{row}");
            assert!((0.05..0.9).contains(&row["mean_ratio"].as_f64().unwrap()), "{row}");
        }
    }
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

/// Options put other parts in the place of a system's own, as with `pleat run`.
#[test]
fn parts_of_a_system_can_be_replaced() {
    let trace = Temporary::new("parts", b"");
    let made = Command::new(env!("CARGO_BIN_EXE_pleat"))
        .args(["synth", "rand", "--pages", "8000", "--references", "30000", "--out", trace.path()])
        .status();
    assert!(made.unwrap().success());
    let with = |options: &str| {
        let words: Vec<_> = ["--ram", "50%", "--json", "-"].into_iter().chain(options.split(' ')).collect();
        let output = sim(&[&[trace.path()][..], &words].concat());
        assert!(output.status.success(), "{options}: {}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice::<Value>(&output.stdout).unwrap()
    };
    // All parts of another system are that system.
    let zswap = with("--system zswap");
    let parts = json!({"store": "buddies", "codec": "lzo1x-1", "sizing": "percent", "admission": "reject-poor",
        "write_back": "pages"});
    assert_eq!((&zswap[0]["parts"], zswap[0].get("pool_size_bytes")), (&parts, None));
    let mut other = with(
        "--system castro --store buddies --codec lzo1x-1 --sizing percent --admission reject-poor --write-back pages",
    );
    assert_ne!(other[0]["run_seconds"], with("--system castro")[0]["run_seconds"]);
    other[0]["system"] = json!("zswap");
    assert_eq!(other, zswap);
    // One row for each size of a fixed pool, and no pool is larger than that.
    let rows = with("--system tuduce-gross,pleat --sizing fixed --pool-size 10%,8M");
    let sizes = rows.as_array().unwrap().iter().map(|row| row["pool_size_bytes"].as_u64().unwrap());
    let tenth = rows[0]["ram_bytes"].as_u64().unwrap() / 10;
    assert_eq!(sizes.collect::<Vec<_>>(), [tenth, 8 << 20, tenth, 8 << 20]);
    for row in rows.as_array().unwrap() {
        let (size, most) = (row["pool_size_bytes"].as_u64().unwrap(), row["pool_bytes_max"].as_u64().unwrap());
        // Slabs are written back after they have grown, by a batch.
        assert!(most > size / 2 && most <= size + (512 << 10), "{row}");
    }
    assert!(rows[0]["faults"]["backed"].as_u64() > rows[1]["faults"]["backed"].as_u64(), "{rows}");
    for (options, reason) in [
        ("--system pleat,off --codec wkdm", "off has no parts"),
        ("--system mxt --codec wkdm", "mxt-lz1"),
        ("--system pleat --sizing fixed", "needs --pool-size"),
        ("--system castro --pool-size 8M", "only for --sizing fixed"),
        ("--system castro --codec wkdm,lz4", "one for all"),
        ("--replacement lru --pages 3 --store cells", "--system"),
    ] {
        let words: Vec<_> = options.split(' ').chain(["--ram", "50%"]).collect();
        let words = if options.starts_with("--system") { &words[..] } else { &words[..words.len() - 2] };
        assert!(refused(&[&[trace.path()][..], words].concat()).contains(reason), "{options}");
    }
}

/// Whole runs under each system, with costs that no profile changes, come out as they once did, digit by digit. What changes
/// them on purpose puts `actual` in the place of the file, which its difference then shows.
#[test]
fn golden_runs() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden");
    let (machine, expected) = (format!("{folder}/machine.json"), format!("{folder}/runs.json"));
    let trace = Temporary::new("golden", b"");
    let made = Command::new(env!("CARGO_BIN_EXE_pleat"))
        .args(["synth", "3*rand", "sequential", "--pages", "6000", "--references", "40000", "--out", trace.path()])
        .status();
    assert!(made.unwrap().success());
    let systems = "pleat,tuduce-gross,castro,crames,zswap,mxt,off";
    let words = [trace.path(), "--system", systems, "--ram", "60%", "--json", "-"];
    let output = sim(&[&words[..], &["--machine", &machine, "--backing", &machine]].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let mut rows: Value = serde_json::from_slice(&output.stdout).unwrap();
    for row in rows.as_array_mut().unwrap() {
        let row = row.as_object_mut().unwrap();
        row.remove("trace");
        // Its last moment is what the rest of the row says.
        row.remove("over_time");
    }
    let actual = serde_json::to_string_pretty(&rows).unwrap() + "\n";
    let golden = fs::read_to_string(&expected).unwrap_or_default();
    assert!(actual == golden, "{expected} differs from actual:\n{actual}");
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
    refused(&[trace.path(), "--codec", "pbpm", "--replacement", "lru", "--pages", "3"]);
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

/// A trace of lines: 120 MiB of them, skewed.
fn lines(name: &str) -> Temporary {
    let trace = Temporary::new(name, b"");
    let words = ["synth", "zipf:0.5", "--lines", "--pages", "122880", "--references", "700000", "--out", trace.path()];
    assert!(Command::new(env!("CARGO_BIN_EXE_pleat")).args(words).status().unwrap().success());
    trace
}

#[test]
fn mxt_hardware_is_simulated_on_lines() {
    let trace = lines("lines");
    let words = [trace.path(), "--mxt-hardware", "--ram", "64M,512M", "--content", "0.35,1", "--json", "-"];
    let output = sim(&words);
    assert!(output.status.success() && output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    let rows: Value = serde_json::from_slice(&output.stdout).unwrap();
    let number = |row: usize, key: &str| rows[row][key].as_f64().unwrap();
    let (small, large) = (0, 1);
    assert_eq!((&rows[small]["ram_bytes"], &rows[large]["ram_bytes"]), (&json!(64 << 20), &json!(512 << 20)));
    assert_eq!((&rows[small]["machine"], &rows[small]["references"]), (&json!("mxt"), &json!(700_000)));
    // It does not fit when it turns incompressible; with the paper's memory nobody notices.
    assert!(number(small, "interrupts") >= 1.0 && number(small, "pages_forced_out") > 1000.0);
    assert_eq!((number(large, "interrupts"), number(large, "pages_forced_out")), (0.0, 0.0));
    assert!(number(small, "physical_bytes_max") <= 64.0 * 1_048_576.0);
    assert!(number(small, "run_seconds") > number(large, "run_seconds"));
    let (on, off) = (number(large, "run_seconds"), number(large, "compression_off_seconds"));
    assert!((number(large, "overhead_percent") - (on / off - 1.0) * 100.0).abs() < 1e-6 && on > off);
    assert!((1.0..64.0).contains(&number(large, "average_ratio")));
    let moments = rows[large]["over_time"].as_array().unwrap();
    let last = &moments[moments.len() - 1];
    assert!(moments.len() > 100 && last["real_bytes"].as_u64() > last["physical_bytes"].as_u64(), "{last}");
    assert_eq!(last["real_bytes"].as_u64().unwrap(), rows[large]["trace_pages"].as_u64().unwrap() * 4096);
    assert!(rows[large]["estimates"].as_array().unwrap().contains(&json!("decode")));
    assert_eq!(output.stdout, sim(&words).stdout);
    let table = String::from_utf8(sim(&[trace.path(), "--mxt-hardware"]).stdout).unwrap();
    assert!(table.contains("\n| 512 MiB | ") && table.contains("on mxt with nvme"), "{table}");
    // Content of pages: noise takes more than zeros.
    let (noise, zeros) = (Temporary::new("noise.pages", &half_noise()), Temporary::new("zeros.pages", &[0; 8192]));
    let most = |content: &str| {
        let output = sim(&[trace.path(), "--mxt-hardware", "--content", content, "--json", "-"]);
        serde_json::from_slice::<Value>(&output.stdout).unwrap()[0]["physical_bytes_max"].as_u64().unwrap()
    };
    assert!(most(noise.path()) > most("0.2"));
    assert!(refused(&[trace.path(), "--mxt-hardware", "--content", zeros.path()]).contains("all zero"));
    assert!(
        String::from_utf8(sim(&["--costs"]).stdout).unwrap().contains("\n| mxt-hardware | decode | 1407 | estimate |")
    );
}

#[test]
fn what_mxt_hardware_cannot_play_is_refused() {
    let trace = lines("refused-lines");
    let pages = Temporary::new("refused-pages", b"");
    let words = ["synth", "zipf:1", "--references", "1000", "--out", pages.path()];
    assert!(Command::new(env!("CARGO_BIN_EXE_pleat")).args(words).status().unwrap().success());
    assert!(refused(&[pages.path(), "--mxt-hardware"]).contains("record --lines"));
    assert!(refused(&["-", "--mxt-hardware"]).contains("standard input"));
    assert!(refused(&[trace.path(), "--mxt-hardware", "--ram", "32M"]).contains("64"));
    assert!(refused(&[trace.path(), "--mxt-hardware", "--content", "1.5"]).contains("0 to 1"));
    assert!(refused(&[trace.path(), "--mxt-hardware", "--content", "/does/not/exist"]).contains("No such file"));
    assert!(refused(&[trace.path(), "--system", "mxt-hardware", "--ram", "64M"]).contains("--mxt-hardware"));
    refused(&[trace.path(), "--mxt-hardware", "--system", "mxt", "--ram", "64M"]);
    refused(&[trace.path(), "--content", "0.5", "--replacement", "lru", "--pages", "10"]);
    // A trace of lines is one of pages, too.
    let output = sim(&[trace.path(), "--replacement", "lru", "--pages", "1000", "--json", "-"]);
    let rows: Value = serde_json::from_slice(&output.stdout).unwrap();
    let distinct = rows[0]["cold_misses"].as_u64().unwrap();
    assert!(distinct <= 122_880 / 4 && distinct > 25_000, "{rows}");
    // Cut off: what is whole is played.
    let whole = fs::read(&trace.0).unwrap();
    let cut = Temporary::new("cut-lines", &whole[..whole.len() / 2]);
    let output = sim(&[cut.path(), "--mxt-hardware", "--json", "-"]);
    let rows: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stderr).matches("truncated").count(), 1);
    assert!(rows[0]["truncated_at_byte"].as_u64().is_some_and(|at| at <= whole.len() as u64 / 2), "{rows}");
}

#[test]
fn lackeys_lines_are_imported() {
    let lackey =
        Temporary::new("lackey", b"==1== lackey\nI  400,3\n S 13fc,8\nI  403,3\n L 1000,4\n L 1000,4\n L 1000,4\n");
    let out = Temporary::new("imported", b"");
    let record = |more: &[&str]| {
        let words = ["record", "--from", lackey.path(), "--lines", "--out", out.path()];
        Command::new(env!("CARGO_BIN_EXE_pleat")).args(words).args(more).output().unwrap()
    };
    assert!(record(&["--reduce", "0"]).status.success());
    let played = |path: &str| {
        let output = sim(&[path, "--mxt-hardware", "--json", "-"]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let rows: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap();
        ["references", "trace_pages", "cache_misses", "run_seconds"].map(|key| rows[0][key].clone())
    };
    // Two lines of one page, all four of which come in as zeros; an instruction takes 2.2 ns, and lackey counts it before.
    let first_touch_and_lines = 9_200.0 + 4.0 * (100.0 + 100.0);
    let seconds = (first_touch_and_lines + 2.2) / 1e9;
    assert_eq!(played(out.path()), [json!(5), json!(1), json!(4), json!(seconds)]);
    assert_eq!(played(lackey.path()), played(out.path()));
    assert!(record(&[]).status.success());
    // Of the four references to one line the first and the last are left.
    assert_eq!(played(out.path())[0], json!(3));
    let output = record(&["--reduce", "5"]);
    assert!(output.status.code() == Some(125) && String::from_utf8_lossy(&output.stderr).contains("at most 4"));
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
    let lines = lines("plotted-lines");
    assert!(sim(&[&[lines.path(), "--mxt-hardware"][..], &plot].concat()).status.success());
    let drawn = fs::read_dir(&plots).unwrap().map(|file| file.unwrap().path());
    let mut drawn = drawn.filter(|path| path.to_str().unwrap().ends_with("-mxt_hardware-512_MiB.svg"));
    let drawn = fs::read_to_string(drawn.next().unwrap()).unwrap();
    assert!(
        ["real", "physical", "RAM", "forced out"].iter().all(|line| drawn.contains(&format!("\n{line}\n"))),
        "{drawn}"
    );
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
