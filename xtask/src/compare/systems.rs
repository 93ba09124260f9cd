//! Under what a case is run: without a limit, under pleat, or in a memory cgroup over the kernel's swap, zswap or zram.
//!
//! All systems get the same total of anonymous memory and pool. A cgroup counts page tables and file pages besides,
//! and what zram holds (and zswap under cgroup version 1) is charged to nobody; so the limit of each is found by trial.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bench::cgroup::{self, Group, Swap, Version};
use bench::tree::field_kib;

use super::undo::{Undo, later, stop_if_ending};
use crate::sh;

/// What keeps the memory small.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub(crate) enum System {
    /// Nothing: all the memory it wants.
    None,
    /// `pleat run`.
    Pleat,
    /// A swap file.
    Swap,
    /// A swap file behind zswap.
    Zswap,
    /// Swap on a zram device.
    Zram,
    /// `pleat run --system tuduce-gross`.
    TuduceGross,
    /// `pleat run --system castro`.
    Castro,
    /// `pleat run --system crames`.
    Crames,
    /// `pleat run --system zswap`.
    PleatZswap,
    /// `pleat run --system mxt`.
    Mxt,
    /// `pleat run --sizing fixed` with a tenth of the budget for the pool.
    #[value(name = "fixed-10")]
    Fixed10,
    /// With two tenths.
    #[value(name = "fixed-20")]
    Fixed20,
    /// With three tenths.
    #[value(name = "fixed-30")]
    Fixed30,
    /// With four tenths.
    #[value(name = "fixed-40")]
    Fixed40,
    /// With five tenths.
    #[value(name = "fixed-50")]
    Fixed50,
    /// With six tenths.
    #[value(name = "fixed-60")]
    Fixed60,
    /// With seven tenths.
    #[value(name = "fixed-70")]
    Fixed70,
    /// With eight tenths.
    #[value(name = "fixed-80")]
    Fixed80,
    /// With nine tenths, of which pleat gives what leaves something to live in.
    #[value(name = "fixed-90")]
    Fixed90,
}

impl System {
    /// Those of the kernel, against pleat.
    pub(crate) const KERNELS: &'static [Self] = &[Self::None, Self::Pleat, Self::Swap, Self::Zswap, Self::Zram];
    /// pleat's own and those of the papers.
    pub(crate) const PAPERS: &'static [Self] =
        &[Self::None, Self::Pleat, Self::TuduceGross, Self::Castro, Self::Crames, Self::PleatZswap, Self::Mxt];
    /// pleat's own sizing and nine fixed sizes, as in tuduce-gross, figures 4 and 5.
    pub(crate) const SIZES: &'static [Self] = &[
        Self::None,
        Self::Pleat,
        Self::Fixed10,
        Self::Fixed20,
        Self::Fixed30,
        Self::Fixed40,
        Self::Fixed50,
        Self::Fixed60,
        Self::Fixed70,
        Self::Fixed80,
        Self::Fixed90,
    ];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Pleat => "pleat",
            Self::Swap => "swap",
            Self::Zswap => "zswap",
            Self::Zram => "zram",
            Self::TuduceGross => "tuduce-gross",
            Self::Castro => "castro",
            Self::Crames => "crames",
            Self::PleatZswap => "pleat-zswap",
            Self::Mxt => "mxt",
            Self::Fixed10 => "fixed-10",
            Self::Fixed20 => "fixed-20",
            Self::Fixed30 => "fixed-30",
            Self::Fixed40 => "fixed-40",
            Self::Fixed50 => "fixed-50",
            Self::Fixed60 => "fixed-60",
            Self::Fixed70 => "fixed-70",
            Self::Fixed80 => "fixed-80",
            Self::Fixed90 => "fixed-90",
        }
    }

    /// The options of `pleat run` that say which system it is, if it is pleat that runs the case within so many bytes.
    pub(crate) fn options(self, budget: u64) -> Option<Vec<String>> {
        let preset = |name: &str| Some(vec![format!("--system={name}")]);
        match self {
            Self::None | Self::Swap | Self::Zswap | Self::Zram => None,
            Self::PleatZswap => preset("zswap"),
            Self::Pleat | Self::TuduceGross | Self::Castro | Self::Crames | Self::Mxt => preset(self.name()),
            fixed => {
                let percent: u64 =
                    fixed.name().trim_start_matches("fixed-").parse().expect("its name ends with a number");
                Some(vec!["--sizing=fixed".into(), format!("--pool-size={}", budget / 100 * percent)])
            }
        }
    }

    pub(crate) const fn in_cgroup(self) -> bool {
        matches!(self, Self::Swap | Self::Zswap | Self::Zram)
    }
}

/// A machine made ready for one run; everything is put back when it is dropped.
pub(crate) struct Stage {
    pub(crate) group: Option<Group>,
    zram: Option<PathBuf>,
    zswap: Option<Sampler>,
    // Dropped in this order: swap before the file it is in. The group goes first, so that nothing is left to swap in.
    #[expect(dead_code, reason = "kept for what its drop does")]
    undo: Vec<Undo>,
}

/// What a stage is built for.
#[derive(Clone, Debug)]
pub(crate) struct Setting {
    pub(crate) work: PathBuf,
    /// Codec of zram and zswap.
    pub(crate) codec: String,
    pub(crate) wants_bytes: u64,
    pub(crate) total_bytes: u64,
}

impl Stage {
    /// Makes the machine ready; the error says why it cannot.
    pub(crate) fn build(system: System, limit_bytes: u64, setting: &Setting) -> Result<Self, String> {
        let mut undo = Vec::new();
        let (mut zram, mut zswap) = (None, None);
        if !system.in_cgroup() {
            return Ok(Self { group: None, zram, zswap, undo });
        }
        stop_if_ending();
        let group = Group::create("pleat-compare")?;
        let dir = group.dir().to_owned();
        undo.push(later(move || cgroup::remove(&dir)));
        group.limit(limit_bytes, Swap::Allowed)?;
        match system {
            System::Zram => zram = Some(swap_on_zram(setting, &mut undo)?),
            System::Zswap => {
                let charged = group.version() == Version::V2;
                undo.extend(zswap_on(setting, charged)?);
                swap_on_file(setting, &mut undo)?;
                zswap = (!charged).then(Sampler::start);
            }
            _ => {
                if read_parameter("enabled").is_ok_and(|text| text == "Y") {
                    undo.push(set_parameter("enabled", "N")?);
                }
                swap_on_file(setting, &mut undo)?;
            }
        }
        Ok(Self { group: Some(group), zram, zswap, undo })
    }

    /// The codec that the kernel has taken.
    pub(crate) fn codec(&self, system: System) -> Option<String> {
        match (&self.zram, system) {
            (Some(dir), _) => Some(zram_codec(dir)),
            (None, System::Zswap) => read_parameter("compressor").ok(),
            (None, _) => None,
        }
    }

    /// Memory that the run has held at most outside its group.
    pub(crate) fn outside_bytes(&self) -> u64 {
        if let Some(dir) = &self.zram {
            // orig_data_size compr_data_size mem_used_total mem_limit mem_used_max …
            let stat = fs::read_to_string(dir.join("mm_stat")).unwrap_or_default();
            return stat.split_whitespace().nth(4).and_then(|text| text.parse().ok()).unwrap_or(0);
        }
        // Relaxed: a number that nothing else hangs on.
        self.zswap.as_ref().map_or(0, |sampler| sampler.peak.load(Ordering::Relaxed))
    }
}

/// Runs a tool of the machine; the error is its own complaint.
fn tool(words: &[&str]) -> Result<(), String> {
    sh::read(Command::new(words[0]).args(&words[1..])).map(drop).map_err(|error| format!("{error:#}"))
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))
}

fn swap_on_file(setting: &Setting, undo: &mut Vec<Undo>) -> Result<(), String> {
    let path = setting.work.join(format!("swap-{}", std::process::id()));
    let name = path.to_str().ok_or("the work directory is no UTF-8")?.to_owned();
    let bytes = setting.wants_bytes * 3 / 2 + (64 << 20);
    let file = path.clone();
    let remove = later(move || drop(fs::remove_file(&file)));
    // The mode is set before there is anything to read.
    write(&path, "")?;
    tool(&["chmod", "600", &name])?;
    tool(&["fallocate", "--length", &bytes.to_string(), &name])?;
    tool(&["mkswap", "--quiet", &name]).or_else(|_| tool(&["mkswap", &name]))?;
    tool(&["swapon", "--priority", "32767", &name])?;
    let off = later(move || drop(tool(&["swapoff", &name])));
    undo.extend([off, remove]);
    Ok(())
}

/// A zram device of our own where the kernel gives one, else the first if it is not in use. Its folder in /sys.
fn swap_on_zram(setting: &Setting, undo: &mut Vec<Undo>) -> Result<PathBuf, String> {
    let (dir, give_back) = zram_device()?;
    // From here on it is ours: whatever fails now gives it back.
    let give_back = later(give_back);
    let name = dir.file_name().unwrap_or_default().to_string_lossy().into_owned();
    write(&dir.join("comp_algorithm"), &setting.codec)?;
    write(&dir.join("disksize"), &(setting.wants_bytes * 2).to_string())?;
    let device = format!("/dev/{name}");
    if !Path::new(&device).exists() {
        return Err(format!("{device} is missing"));
    }
    tool(&["mkswap", &device])?;
    tool(&["swapon", "--priority", "32767", &device])?;
    let off = later(move || drop(tool(&["swapoff", &device])));
    undo.extend([off, give_back]);
    Ok(dir)
}

type GiveBack = Box<dyn FnOnce() + Send>;

fn zram_device() -> Result<(PathBuf, GiveBack), String> {
    let control = Path::new("/sys/class/zram-control");
    if let Ok(number) = fs::read_to_string(control.join("hot_add")) {
        let number = number.trim().to_owned();
        let dir = PathBuf::from(format!("/sys/block/zram{number}"));
        let has_node = Path::new(&format!("/dev/zram{number}")).exists();
        let reset = dir.join("reset");
        let give_back = move || {
            let _ = fs::write(reset, "1");
            let _ = fs::write(control.join("hot_remove"), &number);
        };
        if has_node {
            return Ok((dir, Box::new(give_back)));
        }
        // No device node (a container without devtmpfs): the first device may have one.
        give_back();
    }
    let dir = PathBuf::from("/sys/block/zram0");
    let size = fs::read_to_string(dir.join("disksize")).map_err(|error| format!("no zram device: {error}"))?;
    if size.trim() != "0" {
        return Err("/dev/zram0 is in use and the kernel gives no second one".into());
    }
    let before = zram_codec(&dir);
    let folder = dir.clone();
    let give_back = move || {
        let _ = fs::write(folder.join("reset"), "1");
        let _ = fs::write(folder.join("comp_algorithm"), before);
    };
    Ok((dir, Box::new(give_back)))
}

/// The one in brackets of `lzo-rle [lz4] zstd`.
fn zram_codec(dir: &Path) -> String {
    let codecs = fs::read_to_string(dir.join("comp_algorithm")).unwrap_or_default();
    codecs.split(['[', ']']).nth(1).unwrap_or("lzo-rle").to_owned()
}

const ZSWAP: &str = "/sys/module/zswap/parameters";

fn read_parameter(name: &str) -> Result<String, String> {
    let path = Path::new(ZSWAP).join(name);
    fs::read_to_string(&path)
        .map(|text| text.trim().to_owned())
        .map_err(|error| format!("no zswap: {}: {error}", path.display()))
}

fn set_parameter(name: &'static str, value: &str) -> Result<Undo, String> {
    let before = read_parameter(name)?;
    write(&Path::new(ZSWAP).join(name), value)?;
    Ok(later(move || drop(fs::write(Path::new(ZSWAP).join(name), before))))
}

fn zswap_on(setting: &Setting, charged: bool) -> Result<Vec<Undo>, String> {
    let before = read_parameter("compressor")?;
    // Not every kernel has every codec for zswap; then it keeps its own, and the run's line says which.
    let mut undo = vec![set_parameter("compressor", &setting.codec).or_else(|_| set_parameter("compressor", &before))?];
    if !charged {
        // The pool is bounded for the whole machine only, in per cent: as near as can be to half of the total.
        let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let ram = field_kib(&meminfo, "MemTotal:").unwrap_or(1 << 30).max(1);
        let percent = (setting.total_bytes * 50).div_ceil(ram).clamp(1, 90);
        undo.push(set_parameter("max_pool_percent", &percent.to_string())?);
    }
    undo.push(set_parameter("enabled", "Y")?);
    // Switched off before the rest is put back.
    undo.reverse();
    Ok(undo)
}

/// Looks at the size of the zswap pool again and again.
struct Sampler {
    peak: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
}

impl Sampler {
    fn start() -> Self {
        let sampler = Self { peak: Arc::default(), stop: Arc::default() };
        let (peak, stop) = (Arc::clone(&sampler.peak), Arc::clone(&sampler.stop));
        std::thread::spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
                peak.fetch_max(field_kib(&meminfo, "Zswap:").unwrap_or(0), Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(10));
            }
        });
        sampler
    }
}

impl Drop for Sampler {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}
