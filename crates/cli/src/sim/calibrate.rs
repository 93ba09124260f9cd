//! `pleat sim --calibrate`: what steps cost on this machine.
//!
//! A probe, which is this command once more, runs under `pleat run` in less memory than it touches: at random, where each
//! fault brings one page, and in order, where it brings a window of them. It times each touch from inside; what the codec and
//! the reclaimer took comes from `--stats`. What a run of pages costs that moves is timed here (`moves`). What cannot be told from
//! that stays an estimate.

use std::fs::{self, File, OpenOptions};
use std::hint::black_box;
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::available_parallelism;
use std::time::Instant;

use anyhow::{Context, Result, anyhow, ensure};
use backing::{Nowhere, SEGMENT_BYTES, SegmentLog};
use clap::ValueEnum;
use nix::fcntl::OFlag;
use page::{PAGE_BYTES, PageIndex};
use policy::prefetch::WINDOW_MAX;
use serde_json::Value;
use sim::live::ENCODE_BATCH;
use sim::timed::{CodecCost, Cost, Device, Machine};
use trace::Random;

use self::moves::RunCosts;
use super::timed::Profile;
use crate::userfaultfd::words;

mod moves;

/// What the probe touches, and within how much.
const PROBE_PAGES: usize = 16_384;
const PROBE_RAM: usize = 32 << 20;
/// How often it runs in each way.
const PROBES: usize = 5;
/// Pages that leave before it has touched the last of them for the first time.
const LEFT_BEFORE: f64 = (PROBE_PAGES - PROBE_RAM / PAGE_BYTES) as f64;
const RANDOM_TOUCHES: usize = 30_000;
const ROUNDS: usize = 4;
/// A touch that takes longer has faulted: one that has not takes a tenth of that.
const FAULT_NS_MIN: u64 = 1_500;
/// What of a page is noise; the rest is zeros, so that it shrinks to about a third.
const NOISE_BYTES: usize = 1024;

/// How the probe touches its pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(super) enum Pattern {
    /// At random.
    Random,
    /// One after the other, round and round.
    Walk,
}

/// Touches pages and prints the mean of the touches that have faulted, in nanoseconds: what moving others out costs the
/// program that faults is in some of them, and in the middle one it is not.
pub(super) fn probe(pattern: Pattern) -> Result<()> {
    let mut memory = vec![0_u8; PROBE_PAGES * PAGE_BYTES];
    let mut random = Random::new(1);
    for page in memory.chunks_mut(PAGE_BYTES) {
        for word in page[..NOISE_BYTES].chunks_mut(8) {
            word.copy_from_slice(&random.draw().to_le_bytes());
        }
    }
    let touches = if pattern == Pattern::Walk { ROUNDS * PROBE_PAGES } else { RANDOM_TOUCHES };
    let mut faults = Vec::with_capacity(touches);
    for touch in 0..touches {
        let page =
            if pattern == Pattern::Walk { touch % PROBE_PAGES } else { random.below(PROBE_PAGES as u64) as usize };
        let begun = Instant::now();
        black_box(memory[page * PAGE_BYTES]);
        let ns = begun.elapsed().as_nanos() as u64;
        if ns >= FAULT_NS_MIN {
            faults.push(ns);
        }
    }
    ensure!(faults.len() * 50 > touches, "the probe hardly faulted: {} of {touches} touches", faults.len());
    println!("{}", usual_mean(&mut faults));
    Ok(())
}

/// The mean of all but the longest, one in a thousand, which say more about other programs.
fn usual_mean(values: &mut [u64]) -> u64 {
    values.sort_unstable();
    let usual = &values[..values.len() - values.len() / 1000];
    usual.iter().sum::<u64>() / usual.len() as u64
}

/// Measures and writes the profile.
pub(super) fn run(path: &Path) -> Result<()> {
    let mut out = File::create(path).with_context(|| format!("--calibrate {}", path.display()))?;
    let directory = Temporary::new()?;
    let machine = measure(&directory.0)?;
    let device = match measure_device(&directory.0) {
        Ok(device) => Some(device),
        Err(error) => {
            eprintln!("pleat: {}: no device to measure: {error}", directory.0.display());
            None
        }
    };
    let document = serde_json::to_string_pretty(&Profile { machine, device })? + "\n";
    out.write_all(document.as_bytes()).with_context(|| format!("--calibrate {}", path.display()))
}

fn measure(directory: &Path) -> Result<Machine> {
    const OWN: &str = "pleat sim --calibrate";
    let processors = available_parallelism().map_or(1, |count| count.get() as u32);
    let (mut random_ns, stats) = usual_run("random", directory)?;
    let (mut walk_ns, walk_stats) = usual_run("walk", directory)?;
    let number = |key: &str| number(&stats, key);
    let each = |ns: f64, pages: &str| Ok::<_, anyhow::Error>(ns / number(pages)?.max(1.0));
    let decode_ns = each(number("decode_ns")?, "pages_decoded")?;
    let encode_ns = each(number("encode_ns")?, "pages_encoded")?;
    let (scattered, walked) = (Moved::of(&stats)?, Moved::of(&walk_stats)?);
    // Without a userfaultfd nothing would be managed, and `under_pleat` has said so.
    let run = RunCosts::measure().map_err(|errno| anyhow!("moving pages: {}", words(errno)))?;
    if processors < 2 {
        // The reclaimer has had its part of that time; for each page that comes one goes.
        random_ns -= scattered.page_ns(0.0) + encode_ns;
        walk_ns -= (walked.page_ns(0.0) + encode_ns) * WINDOW_MAX.0 as f64;
    } else {
        random_ns -= scattered.interrupts_each() * run.interrupted;
        walk_ns -= walked.interrupts_each() * run.interrupted;
    }
    let move_ns = walked.page_ns(run.call + run.interrupt);
    // One fault and one page, and one fault and a window of pages: what a page takes, and what is left for the fault.
    let page_ns = (walk_ns - random_ns) / (WINDOW_MAX.0 - 1) as f64;
    let fault_ns = random_ns - page_ns;
    let base = &Machine::ALL[0];
    let or_base = |ns: f64, base: &Cost| if ns > 0.0 { Cost::measured(ns.round(), OWN) } else { carried(base) };
    let first_touch_ns = first_touch_ns();
    Ok(Machine {
        name: "calibrated".into(),
        processors,
        seat: base.seat,
        first_touch: Cost::measured(first_touch_ns.round(), OWN),
        fault: or_base(fault_ns, &base.fault),
        kernel_fault: Cost::estimate(first_touch_ns.round(), "that of a first touch"),
        fill: or_base(page_ns - decode_ns, &base.fill),
        move_out: or_base(move_ns, &base.move_out),
        move_run: or_base(run.call, &base.move_run),
        interrupt: or_base(run.interrupt, &base.interrupt),
        interrupted: or_base(run.interrupted, &base.interrupted),
        encode: Cost::measured(encode_ns.round(), OWN),
        decode: Cost::measured(decode_ns.round(), OWN),
        seal_mib: Cost::measured(seal_mib_ns().round(), OWN),
        codecs: base.codecs.iter().map(carried_codec).collect(),
        reference: base.reference.clone(),
        instruction: base.instruction.clone(),
    })
}

fn number(stats: &Value, key: &str) -> Result<f64> {
    stats[key].as_f64().with_context(|| format!("--stats has no {key}"))
}

/// What the reclaimer has moved out and encoded, for how long it worked besides encoding, and for how many faults.
#[derive(Clone, Copy, Debug)]
struct Moved {
    runs: f64,
    pages: f64,
    encoded: f64,
    ns: f64,
    faults: f64,
}

impl Moved {
    fn of(stats: &Value) -> Result<Self> {
        let faults = |kind: &str| number(&stats["faults"][kind], "count");
        let number = |key| number(stats, key);
        Ok(Self {
            runs: number("runs_reclaimed")?,
            pages: number("pages_reclaimed")? - number("pages_stocked")?,
            encoded: number("pages_encoded")?,
            ns: number("reclaim_ns")? - number("encode_ns")?,
            faults: faults("staged")? + faults("compressed")?,
        })
    }

    /// How often each fault of a program is interrupted that does nothing else, once its memory is full: a batch that is encoded is moved
    /// aside before, and given back then.
    fn interrupts_each(self) -> f64 {
        let all = self.runs + 2.0 * self.encoded / ENCODE_BATCH as f64;
        all * (1.0 - LEFT_BEFORE / self.encoded).max(0.0) / self.faults.max(1.0)
    }

    /// What a page has taken besides its run, which takes `run_ns`.
    fn page_ns(self, run_ns: f64) -> f64 {
        (self.ns - self.runs * run_ns) / self.pages.max(1.0)
    }
}

fn carried(base: &Cost) -> Cost {
    Cost::estimate(base.ns, "the reference machine's: what was measured here contradicts itself")
}

/// Only the default codec is measured.
fn carried_codec(base: &CodecCost) -> CodecCost {
    let carried = |cost: &Cost| Cost::estimate(cost.ns, "the reference machine's");
    CodecCost { codec: base.codec.clone(), encode: carried(&base.encode), decode: carried(&base.decode) }
}

/// The middle one of some runs of the probe, by its mean fault.
fn usual_run(pattern: &str, directory: &Path) -> Result<(f64, Value)> {
    let mut runs = (0..PROBES).map(|_| under_pleat(pattern, directory)).collect::<Result<Vec<_>>>()?;
    runs.sort_by(|one, other| one.0.total_cmp(&other.0));
    Ok(runs.swap_remove(PROBES / 2))
}

/// The probe's mean fault, and the statistics of its run.
fn under_pleat(pattern: &str, directory: &Path) -> Result<(f64, Value)> {
    let own = std::env::current_exe()?;
    let stats = directory.join("stats");
    let run = ["run", "--ram", &PROBE_RAM.to_string(), "--swap", "none", "--stats"];
    let output =
        Command::new(&own).args(run).arg(&stats).arg("--").arg(&own).args(["sim", "--probe", pattern]).output()?;
    let complaint = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "the probe does not run under pleat: {}", complaint.trim());
    let mean = String::from_utf8_lossy(&output.stdout).trim().parse().context("the probe's answer")?;
    Ok((mean, serde_json::from_str(&fs::read_to_string(stats)?)?))
}

fn first_touch_ns() -> f64 {
    let mut memory = vec![0_u8; PROBE_PAGES * PAGE_BYTES];
    let begun = Instant::now();
    for page in memory.chunks_mut(PAGE_BYTES) {
        page[0] = 1;
    }
    black_box(&memory);
    begun.elapsed().as_nanos() as f64 / PROBE_PAGES as f64
}

/// Encodings of a usual length, and the room for segments of them.
const ENCODING_BYTES: usize = 1400;
const LOG_BYTES: u64 = 16 * SEGMENT_BYTES as u64;

/// What encrypting takes, from segments that go nowhere. Decrypting takes the same: in counter mode it does the same.
fn seal_mib_ns() -> f64 {
    let mut log = SegmentLog::new(Box::new(Nowhere), [0; 32], LOG_BYTES);
    let (mut bytes, mut ns) = (0, 0);
    for page in 0..LOG_BYTES / 2 / ENCODING_BYTES as u64 {
        log.append(PageIndex(page), &[7; ENCODING_BYTES]).expect("half of its room is asked for");
        if let Some(mut job) = log.write_job() {
            bytes += job.bytes();
            let begun = Instant::now();
            let result = job.run();
            ns += begun.elapsed().as_nanos();
            log.finish_write(job, result);
        }
    }
    ns as f64 / bytes as f64 * f64::from(1 << 20)
}

/// Bytes of the file that the device is measured with, and of its large requests.
const FILE_BYTES: u64 = 64 << 20;
const LARGE_BYTES: usize = 1 << 20;

/// Reads past the system's caches: of a page, and of a mebibyte.
fn measure_device(directory: &Path) -> Result<Device> {
    const OWN: &str = "pleat sim --calibrate: mean of reads past the page cache";
    let path = directory.join("device");
    let mut file = File::create(&path)?;
    let (mut random, mut content) = (Random::new(2), vec![0_u8; LARGE_BYTES]);
    for _ in 0..FILE_BYTES / LARGE_BYTES as u64 {
        content.chunks_mut(8).for_each(|word| word.copy_from_slice(&random.draw().to_le_bytes()));
        file.write_all(&content)?;
    }
    file.sync_all()?;
    let mut file = OpenOptions::new().read(true).custom_flags(OFlag::O_DIRECT.bits()).open(&path)?;
    let mut room = vec![0_u8; LARGE_BYTES + PAGE_BYTES];
    // Such reads go to whole pages of memory.
    let start = room.as_ptr().align_offset(PAGE_BYTES);
    let mut read = |bytes: usize, times: usize| -> Result<f64> {
        let mut taken = Vec::new();
        for _ in 0..times {
            let at = random.below(FILE_BYTES / bytes as u64) * bytes as u64;
            let begun = Instant::now();
            file.seek(SeekFrom::Start(at))?;
            file.read_exact(&mut room[start..start + bytes])?;
            taken.push(begun.elapsed().as_nanos() as u64);
        }
        Ok(usual_mean(&mut taken) as f64)
    };
    let (large_ns, page_ns) = (read(LARGE_BYTES, 40)?, read(PAGE_BYTES, 3000)?);
    let transfer_ns = (large_ns - page_ns).max(1.0) * LARGE_BYTES as f64 / (LARGE_BYTES - PAGE_BYTES) as f64;
    let access_ns = (page_ns - transfer_ns * PAGE_BYTES as f64 / LARGE_BYTES as f64).max(1.0);
    Ok(Device {
        name: "calibrated".into(),
        access: Cost::measured(access_ns.round(), OWN),
        transfer_mib: Cost::measured(transfer_ns.round(), OWN),
    })
}

/// A directory that goes with the measurement.
struct Temporary(PathBuf);

impl Temporary {
    fn new() -> Result<Self> {
        let path = std::env::temp_dir().join(format!("pleat-calibrate-{}", std::process::id()));
        fs::create_dir(&path).with_context(|| path.display().to_string())?;
        Ok(Self(path))
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
