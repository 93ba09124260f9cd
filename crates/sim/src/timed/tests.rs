//! What must come out whatever the costs are.

use trace::synth::{Plan, synthesize};
use trace::{Header, Reference, TimeUnit, Writer};

use super::*;

fn plan(pattern: &str, pages: u64, references: u64) -> Vec<u8> {
    let parts = vec![pattern.parse().unwrap()];
    let plan = Plan { parts, pages, references, writes: 0.5, seed: 3 };
    let mut writer = Writer::new(vec![], Header::new(TimeUnit::References)).unwrap();
    synthesize(&plan).for_each(|reference| writer.push(reference).unwrap());
    writer.finish(None).unwrap()
}

fn pleat() -> System {
    System::named("pleat").unwrap()
}

fn simulate(system: System, trace: &[u8], ram_pages: u64, device: &str, ratio: f64) -> Outcome {
    let device = &Device::ALL.into_iter().find(|profile| profile.name == device).unwrap();
    let ram = ByteCount(ram_pages * page::PAGE_BYTES as u64);
    let setup = Setup { system, ram, machine: &Machine::ALL[0], device, ratio, pool: ByteCount::ZERO };
    play(setup, &mut *trace::open(trace).unwrap()).unwrap()
}

/// pleat's page table ends with 48 bits of address; what sees the device alone has no such end.
#[test]
fn pages_beyond_the_page_table_are_refused() {
    let device = &Device::ALL[0];
    for system in [pleat(), System::Off] {
        let setup = Setup {
            system,
            ram: ByteCount(4 << 20),
            machine: &Machine::ALL[0],
            device,
            ratio: 0.4,
            pool: ByteCount::ZERO,
        };
        let played = play(setup, &mut *trace::open(&b"R 1\nW 0x1000000000\n"[..]).unwrap());
        match system {
            System::Cached(..) => assert!(matches!(played, Err(PlayError::Beyond(PageIndex::END))), "{played:?}"),
            System::Off => assert_eq!(played.unwrap().faults.first_touch, 2),
        }
    }
}

#[test]
fn with_ram_enough_only_first_touches_fault() {
    let trace = plan("uniform", 2000, 50_000);
    for system in System::all() {
        let outcome = simulate(system, &trace, 8000, "nvme", 0.4);
        assert_eq!(outcome.faults, Faults { first_touch: 2000, ..Faults::default() });
        assert!((outcome.slowdown - 1.0).abs() < 1e-9 && outcome.pages_swapped_out == 0, "{outcome:?}");
    }
}

/// Above half of the RAM agents manage: each first touch is a fault of theirs, and in a walk it brings others along.
#[test]
fn first_touches_above_the_threshold_come_to_the_agent() {
    let more = |kind, references| {
        let outcome = simulate(pleat(), &plan(kind, 6000, references), 8000, "nvme", 0.4);
        assert_eq!(outcome.faults, Faults { first_touch: 6000, ..Faults::default() });
        (outcome.run_seconds - outcome.unlimited_seconds) * 1e9
    };
    let machine = &Machine::ALL[0];
    // The agent takes 0.8 MiB.
    let managed = 6000.0 - (4000.0 - 208.0);
    let alone = machine.fault.ns + machine.fill.ns - machine.first_touch.ns;
    let (at_random, in_order) = (more("uniform", 200_000), more("thrasher", 12_000));
    assert!((at_random / (managed * alone) - 1.0).abs() < 0.1, "{at_random} for {managed} times {alone}");
    assert!(in_order.abs() < at_random / 3.0, "{in_order} and {at_random}");
}

/// Each page twice in a row, five times round: with fewer frames than pages the clock has none that it will need. Of 1000 a 64th are for what is read
/// together.
#[test]
fn thrashing_without_compression_waits_for_each_cluster() {
    let trace = plan("thrasher", 2000, 20_000);
    let outcome = simulate(System::Off, &trace, 1000, "disk-7200", 0.4);
    let Outcome { faults, run_seconds, .. } = outcome;
    assert_eq!((faults.first_touch, faults.backed, faults.soft, outcome.prefetched), (2000, 1000, 7000, 7000));
    let seek = 0.0127;
    assert!(run_seconds > 1000.0 * seek && run_seconds < 1000.0 * seek * 1.4, "{run_seconds}");
    assert_eq!(outcome.pages_swapped_out, 10_000 - (1000 - 15));
}

/// What is read together at random is junk that the next reads push out.
#[test]
fn clusters_gain_nothing_at_random() {
    let outcome = simulate(System::Off, &plan("uniform", 4000, 40_000), 2000, "nvme", 0.4);
    let (faults, read) = (outcome.faults, outcome.faults.backed + outcome.prefetched);
    assert!(faults.backed > 10_000 && faults.soft * 20 < faults.backed, "{faults:?}");
    assert!(faults.soft <= outcome.prefetched && read <= faults.backed * 8, "{faults:?}, {read} read");
    assert_eq!(outcome.read_bytes, read * page::PAGE_BYTES as u64);
}

#[test]
fn what_fits_compressed_never_waits_for_the_device() {
    let trace = plan("rand", 16_000, 100_000);
    let pleat = simulate(pleat(), &trace, 9000, "disk-castro", 0.25);
    assert_eq!((pleat.faults.backed, pleat.pages_swapped_out), (0, 0), "{pleat:?}");
    assert!(pleat.faults.compressed > 10_000 && pleat.pool_bytes_max > 4 << 20, "{pleat:?}");
    let off = simulate(System::Off, &trace, 9000, "disk-castro", 0.25);
    assert!(off.run_seconds > 20.0 * pleat.run_seconds, "{} {}", off.run_seconds, pleat.run_seconds);
}

/// Pages come along whichever way a walk goes.
#[test]
fn walks_up_and_down_bring_what_comes_next() {
    let upwards = plan("thrasher", 16_000, 160_000);
    let mut downwards = Writer::new(vec![], Header::new(TimeUnit::References)).unwrap();
    let mut reader = trace::open(&upwards[..]).unwrap();
    let (mut batch, mut samples) = (vec![], vec![]);
    loop {
        reader.read(&mut batch, &mut samples).unwrap();
        if batch.is_empty() {
            break;
        }
        for reference in &batch {
            let page = PageIndex(16_000 - reference.page.0);
            downwards.push(Reference { page, ..*reference }).unwrap();
        }
    }
    let downwards = downwards.finish(None).unwrap();
    for trace in [&upwards, &downwards] {
        let outcome = simulate(pleat(), trace, 6000, "nvme", 0.4);
        let faults = outcome.faults.compressed + outcome.faults.backed;
        assert!(faults > 1000 && outcome.prefetched > 5 * faults, "{outcome:?}");
    }
}

#[test]
fn what_does_not_fit_goes_below_and_comes_back() {
    let trace = plan("rand", 16_000, 60_000);
    let outcome = simulate(pleat(), &trace, 4500, "nvme", 0.9);
    assert!(outcome.faults.backed > 1000 && outcome.pages_swapped_out > outcome.faults.backed, "{outcome:?}");
    assert!(outcome.written_bytes > 0 && outcome.read_bytes > 0);
    assert!(outcome.pool_bytes_max <= 4500 * 4096, "{outcome:?}");
    assert_eq!(outcome.faults.first_touch, outcome.trace_pages);
    // The same again: the same to the last digit.
    assert_eq!(outcome, simulate(pleat(), &trace, 4500, "nvme", 0.9));
}

/// Each named system keeps inside its RAM, and what it lets go comes back.
#[test]
fn every_system_simulates() {
    let trace = plan("rand", 16_000, 60_000);
    for system in System::all().filter(|&system| system != System::Off) {
        let outcome = simulate(system, &trace, 6000, "nvme", 0.5);
        let Faults { first_touch, compressed, backed, .. } = outcome.faults;
        assert!(first_touch == outcome.trace_pages && compressed > 1000 && backed > 1000, "{system:?}: {outcome:?}");
        assert!(outcome.pool_bytes_max > 1 << 20 && outcome.pool_bytes_max < 6000 * 4096, "{system:?}: {outcome:?}");
        assert!(outcome.pages_swapped_out >= backed && outcome.read_bytes >= backed * 1024, "{system:?}: {outcome:?}");
        assert_eq!(outcome, simulate(system, &trace, 6000, "nvme", 0.5));
    }
}

/// However long a run takes: from the first reference to the last, with steps that are about even, and inside the RAM.
#[test]
fn moments_tell_the_whole_run() {
    for references in [10, 60_000] {
        let trace = plan("rand", 16_000, references);
        for system in [pleat(), System::Off] {
            let outcome = simulate(system, &trace, 6000, "disk-7200", 0.5);
            let moments = &outcome.over_time;
            assert!(
                moments.is_sorted_by(|one, next| one.seconds < next.seconds && one.faults.soft <= next.faults.soft)
            );
            assert!(moments.len() <= 256 && (references < 100 || moments.len() > 100), "{}", moments.len());
            let (first, last) = (moments[0], moments[moments.len() - 1]);
            assert_eq!((first.faults.first_touch, first.resident_bytes), (1, 4096), "{system:?}");
            assert_eq!((last.seconds, last.faults), (outcome.run_seconds, outcome.faults), "{system:?}");
            // Not all: one reference may wait long for the device.
            let mut steps: Vec<f64> = moments.windows(2).map(|pair| pair[1].seconds - pair[0].seconds).collect();
            steps.sort_by(f64::total_cmp);
            let most = steps[steps.len() * 9 / 10];
            assert!(references < 100 || most < 0.02 * outcome.run_seconds, "{system:?}: {most}");
            assert!(
                moments.iter().all(|moment| moment.pool_bytes + moment.resident_bytes <= 6000 * 4096),
                "{system:?}"
            );
            assert!(moments.iter().all(|moment| moment.pool_bytes <= outcome.pool_bytes_max), "{system:?}");
        }
    }
}

/// Whatever is played where: after each reference every page that has been seen is in one place, and no more memory is held
/// than there is. `play` asks that (`Keeper::check`); here it gets something to ask it of.
#[test]
fn pages_are_kept_and_memory_is_kept_to() {
    const PATTERNS: [&str; 7] = ["uniform", "zipf:1", "thrasher", "rand", "stack:1.3", "phases:5", "strided:7"];
    let systems: Vec<_> = System::all().collect();
    for seed in 0..40_u64 {
        let mut random = trace::Random::new(seed);
        let mut below = |end: usize| (random.draw() % end as u64) as usize;
        let (pattern, pages) = (PATTERNS[below(PATTERNS.len())], 2000 + below(10_000) as u64);
        let (system, machine) = (systems[below(systems.len())], &Machine::ALL[below(5)]);
        let ram_pages = 2000 + below(pages as usize) as u64;
        let ratio = below(12) as f64 / 10.0;
        println!(
            "seed {seed}: {pattern} of {pages} pages in {ram_pages}, {ratio}, {} on {}",
            system.name(),
            machine.name
        );
        let ram = ByteCount(ram_pages * page::PAGE_BYTES as u64);
        let device = &Device::ALL[below(6)];
        let setup = Setup { system, ram, machine, device, ratio: ratio.min(1.0), pool: ByteCount::ZERO };
        let outcome = play(setup, &mut *trace::open(&plan(pattern, pages, 30_000)[..]).unwrap()).unwrap();
        assert_eq!(outcome.references, 30_000);
        assert!(outcome.over_time.iter().all(|moment| moment.pool_bytes + moment.resident_bytes <= ram.0));
        assert!(outcome.pages_swapped_out > 0 || outcome.faults.backed == 0, "{outcome:?}");
    }
}

/// A machine on which it is all the same who moves pages, so that what leaves does not depend on who has time.
fn indifferent() -> Machine {
    let mut machine = Machine::ALL[0].clone();
    (machine.interrupt.ns, machine.interrupted.ns) = (0.0, 0.0);
    machine
}

/// Where the reclaimer rests, faults move scattered pages themselves, since that interrupts nobody. With an interrupt for each page that
/// leaves, the program would wait for the reclaimer all the time.
#[test]
fn moves_at_faults_interrupt_nobody() {
    const INTERRUPT_NS: f64 = 17_000.0;
    let trace = plan("rand", 16_000, 100_000);
    let with = |processors, interrupt_ns| {
        let mut machine = Machine { processors, ..indifferent() };
        machine.interrupt.ns = interrupt_ns;
        let (ram, device) = (ByteCount(9000 * page::PAGE_BYTES as u64), &Device::ALL[0]);
        let setup = Setup { system: pleat(), ram, machine: &machine, device, ratio: 0.25, pool: ByteCount::ZERO };
        play(setup, &mut *trace::open(&trace[..]).unwrap()).unwrap()
    };
    let (free, dear) = (with(2, 0.0), with(2, INTERRUPT_NS));
    let (seconds, dear_seconds) = (free.run_seconds, dear.run_seconds);
    assert!(dear_seconds > seconds && dear_seconds < 1.2 * seconds, "{dear_seconds} {seconds}");
    assert!(dear.faults.compressed as f64 * INTERRUPT_NS > 2e9 * seconds, "{} faults", dear.faults.compressed);
    // One processor has nobody to interrupt.
    assert!((with(1, 0.0).run_seconds - with(1, INTERRUPT_NS).run_seconds).abs() < 1e-9);
}

/// Runs that the reclaimer moves, and what it encodes, cost the program some of its own time; where nobody else works, or nothing leaves, none.
#[test]
fn interrupts_take_the_programs_time() {
    const NS: f64 = 50_000.0;
    let trace = plan("sequential", 16_000, 100_000);
    let seconds = |processors, pages: usize, interrupted_ns| {
        let mut machine = Machine { processors, ..indifferent() };
        machine.interrupted.ns = interrupted_ns;
        let (ram, device) = (ByteCount((pages * page::PAGE_BYTES) as u64), &Device::ALL[0]);
        let setup = Setup { system: pleat(), ram, machine: &machine, device, ratio: 0.25, pool: ByteCount::ZERO };
        play(setup, &mut *trace::open(&trace[..]).unwrap()).unwrap().run_seconds
    };
    let lost = |processors, pages| seconds(processors, pages, NS) - seconds(processors, pages, 0.0);
    // A batch of 64 costs two interrupts, and the moves before it one for each run of 32 or fewer.
    assert!(lost(2, 9000) > 1000.0 * NS / 1e9, "{}", lost(2, 9000));
    assert!(lost(1, 9000).abs() < 1e-9 && lost(2, 60_000).abs() < 1e-9);
}

/// A codec that has costs of its own is charged for them, and no other.
#[test]
fn each_system_pays_for_its_codec() {
    let trace = plan("rand", 16_000, 30_000);
    let with = |codec: &'static str| {
        let mut machine = indifferent();
        let cost = Cost::estimate(5_000_000.0, "a test");
        machine.codecs = vec![CodecCost { codec: codec.into(), encode: cost.clone(), decode: cost }].into();
        let ram = ByteCount(9000 * page::PAGE_BYTES as u64);
        let system = System::named("tuduce-gross").unwrap();
        let setup =
            Setup { system, ram, machine: &machine, device: &Device::ALL[0], ratio: 0.3, pool: ByteCount::ZERO };
        play(setup, &mut *trace::open(&trace[..]).unwrap()).unwrap()
    };
    let (own, others) = (with("wkdm"), with("pbpm"));
    assert_eq!(own.faults, others.faults);
    assert!(own.run_seconds > 20.0 * others.run_seconds, "{} {}", own.run_seconds, others.run_seconds);
}

/// Encodings that go below are encrypted, and decrypted when somebody waits for them; what stays in the pool is neither, and a kernel of
/// the papers does neither.
#[test]
fn what_goes_below_pays_for_encryption() {
    let trace = plan("rand", 16_000, 60_000);
    let with = |seal_ns: f64, ram_pages: u64, ratio: f64| {
        let mut machine = Machine::ALL[0].clone();
        machine.seal_mib.ns = seal_ns;
        let ram = ByteCount(ram_pages * page::PAGE_BYTES as u64);
        let device = &Device::ALL[0];
        play(
            Setup { system: pleat(), ram, machine: &machine, device, ratio, pool: ByteCount::ZERO },
            &mut *trace::open(&trace[..]).unwrap(),
        )
        .unwrap()
    };
    assert_eq!(with(0.0, 9000, 0.25), with(1e9, 9000, 0.25));
    let (free, sealed) = (with(0.0, 4500, 0.9), with(1e9, 4500, 0.9));
    // A page takes 0.9 of itself on average, and a mebibyte a second.
    let least = sealed.faults.backed as f64 * 0.8 * 4096.0 / f64::from(1 << 20);
    assert!(sealed.run_seconds > free.run_seconds + least, "{} {} {least}", sealed.run_seconds, free.run_seconds);
    assert!(Machine::ALL[1..].iter().all(|machine| machine.seal_mib.ns == 0.0));
}

/// Of a process all buffers of the log count, as in the pager's accounts.
#[test]
fn buffers_of_the_log_are_memory() {
    let parts = pleat().parts().unwrap();
    let taken = |seat| {
        let mut cached = cached::Cached::new(&parts, ByteCount(64 << 20), ByteCount::ZERO, seat);
        let before = cached.free();
        cached.live.cache.log().unwrap().append(PageIndex(1), &[7; 100]).unwrap();
        let buffers = cached.live.cache.log_figures().unwrap().buffer_bytes;
        assert!(buffers >= 1 << 20, "{buffers}");
        (before - cached.free()) / buffers as i64
    };
    assert_eq!((taken(Seat::Process), taken(Seat::Kernel)), (1, 0));
}

#[test]
fn the_systems_codec_chooses_among_samples() {
    let header = Header { codecs: vec!["fold".to_owned(), "wkdm".to_owned()], ..Header::new(TimeUnit::References) };
    let sample = Sample { page: PageIndex(7), sizes: vec![100, 200] };
    for (codec, bytes) in [("fold", 100), ("wkdm", 200), ("pbpm", 100)] {
        let mut lengths = Lengths::new(0.5, &header, codec);
        lengths.learn(std::slice::from_ref(&sample));
        assert_eq!(lengths.of(PageIndex(7)), bytes);
    }
}

#[test]
fn samples_decide_how_small_pages_get() {
    let header = Header { codecs: vec!["fold".to_owned()], ..Header::new(TimeUnit::References) };
    let mut writer = Writer::new(vec![], header).unwrap();
    for page in 0..4000 {
        writer.push_sample(Sample { page: PageIndex(page), sizes: vec![0] }).unwrap();
    }
    let plan = Plan { parts: vec!["uniform".parse().unwrap()], pages: 4000, references: 20_000, writes: 0.5, seed: 3 };
    synthesize(&plan).for_each(|reference| writer.push(reference).unwrap());
    let outcome = simulate(pleat(), &writer.finish(None).unwrap(), 3000, "nvme", 0.9);
    assert!(outcome.faults.same_filled > 1000, "{outcome:?}");
    assert_eq!((outcome.faults.compressed, outcome.pool_bytes_max), (0, 0), "{outcome:?}");
}

/// With a codec slower than the faults the program goes at the codec's pace, whatever processors there are.
#[test]
fn a_slow_codec_holds_the_program_up() {
    let trace = plan("rand", 16_000, 100_000);
    let with = |encode_ns: f64| {
        let mut machine = indifferent();
        machine.encode.ns = encode_ns;
        let ram = ByteCount(9000 * page::PAGE_BYTES as u64);
        let setup = Setup {
            system: pleat(),
            ram,
            machine: &machine,
            device: &Device::ALL[0],
            ratio: 0.25,
            pool: ByteCount::ZERO,
        };
        play(setup, &mut *trace::open(&trace[..]).unwrap()).unwrap()
    };
    let (free, fast, slow) = (with(0.0), with(1_000.0), with(1_000_000.0));
    assert_eq!(free.faults, fast.faults);
    assert!(fast.run_seconds < free.run_seconds * 1.02, "{} {}", fast.run_seconds, free.run_seconds);
    let encoded = slow.faults.compressed as f64;
    assert!(slow.run_seconds > 0.9 * encoded * 1e-3, "{} s for {encoded} pages", slow.run_seconds);
}

#[test]
fn profiles_have_names_of_their_own_and_say_where_they_come_from() {
    let machines =
        Machine::ALL.into_iter().flat_map(|machine| machine.costs().map(|(name, cost)| (name, cost.clone())));
    let devices = Device::ALL.into_iter().flat_map(|device| device.costs().map(|(name, cost)| (name, cost.clone())));
    // The papers' kernels encrypt nothing, and need no call to move a page.
    let may_be_free = |name| ["seal_mib", "move_run", "interrupt", "interrupted"].contains(&name);
    let is_told = |(name, cost): (_, Cost)| (cost.ns > 0.0 || may_be_free(name)) && !cost.source.is_empty();
    assert!(machines.chain(devices).all(is_told));
    let names: std::collections::HashSet<_> =
        Machine::ALL.map(|machine| machine.name).into_iter().chain(Device::ALL.map(|device| device.name)).collect();
    assert_eq!(names.len(), Machine::ALL.len() + Device::ALL.len());
}
