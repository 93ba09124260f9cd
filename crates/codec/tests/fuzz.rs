//! Fuzzing without tools: spoiled encodings and drawn pages for each codec, for some seconds or as long as is asked for.
//!
//! `cargo x fuzz --seconds 600` runs these for ten minutes each; as tests they take two seconds each. They start from what
//! the codecs write for real pages, as a fuzzer's corpus would, and never repeat themselves: the seed is the time, and is
//! printed. `PLEAT_FUZZ_SEED` runs the same again.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use page::{PAGE_BYTES, PageBytes};
use pleat_codec::{ALL, Codec, Corrupt, PLAIN, Scratch, fold_paths};

const CORPUS: &[u8] = include_bytes!("../testdata/corpus.pages");
/// Room for any encoding of a page.
const ROOM_BYTES: usize = 2 * PAGE_BYTES;
/// Executions between two looks at the clock.
const ROUND: u64 = 64;

/// Numbers that look random: splitmix64.
struct Draw(u64);

impl Draw {
    fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, end: usize) -> usize {
        self.number() as usize % end.max(1)
    }
}

/// Executes `target` for each of these codecs, for all of them as long, until the time is over or it says what is wrong; how
/// often it was executed. Each codec draws numbers of its own, so that the same seed brings it the same whatever the clock says.
fn fuzz(
    name: &str,
    codecs: &[&str],
    mut target: impl FnMut(usize, &mut Draw) -> Result<(), String>,
) -> Result<u64, String> {
    let variable = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let time = Duration::from_secs(variable("PLEAT_FUZZ_SECONDS").unwrap_or(2));
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |since| since.as_nanos() as u64);
    let seed = variable("PLEAT_FUZZ_SEED").unwrap_or(now);
    // Before anything can panic.
    println!("fuzz {name}: seed {seed}");
    let mut turns: Vec<_> = codecs.iter().map(|codec| Turn::new(codec, seed)).collect();
    let start = Instant::now();
    while start.elapsed() < time {
        let next = (0..turns.len()).min_by_key(|&at| turns[at].spent).expect("there are codecs");
        let (turn, began) = (&mut turns[next], Instant::now());
        for _ in 0..ROUND {
            turn.executions += 1;
            target(next, &mut turn.draw)
                .map_err(|wrong| format!("{name}, seed {seed}, execution {}: {wrong}", turn.executions))?;
        }
        turn.spent += began.elapsed();
    }
    let executions = turns.iter().map(|turn| turn.executions).sum();
    let each: Vec<_> = turns.iter().zip(codecs).map(|(turn, codec)| format!("{codec} {}", turn.executions)).collect();
    println!("fuzz {name}: {executions} executions in {} s: {}", start.elapsed().as_secs(), each.join(", "));
    Ok(executions)
}

/// How far the work on a codec is.
struct Turn {
    draw: Draw,
    executions: u64,
    spent: Duration,
}

impl Turn {
    fn new(codec: &str, seed: u64) -> Self {
        let mixed = codec.bytes().fold(seed, |mixed, byte| Draw(mixed ^ u64::from(byte)).number());
        Self { draw: Draw(mixed), executions: 0, spent: Duration::ZERO }
    }
}

fn corpus() -> Vec<PageBytes> {
    CORPUS.as_chunks::<PAGE_BYTES>().0.iter().map(|&bytes| PageBytes(bytes)).collect()
}

/// All codecs, and each path of `fold` that this processor can run.
fn codecs() -> Vec<&'static dyn Codec> {
    let paths = fold_paths().into_iter().filter_map(|(_, path)| path);
    ALL.into_iter().chain(paths.map(|path| &*Box::leak(path))).collect()
}

fn names(codecs: &[&'static dyn Codec]) -> Vec<&'static str> {
    codecs.iter().map(|codec| codec.name()).collect()
}

/// What a codec makes of each page of the corpus.
fn encodings(codec: &dyn Codec, pages: &[PageBytes]) -> Vec<Vec<u8>> {
    let (mut scratch, mut out) = (Scratch::new(), [0; ROOM_BYTES]);
    let mut encoding = |page: &PageBytes| {
        let length = codec.encode(page, &mut scratch, &mut out).expect("twice the page is room for anything");
        out[..length].to_vec()
    };
    pages.iter().map(&mut encoding).collect()
}

/// Spoils some bytes: bits, values at limits, pieces of it or of another, an end that is cut or grows.
fn spoil(bytes: &mut Vec<u8>, other: &[u8], draw: &mut Draw) {
    for _ in 0..=draw.below(4) {
        let at = draw.below(bytes.len());
        match draw.below(7) {
            0 | 1 if !bytes.is_empty() => bytes[at] ^= 1 << draw.below(8),
            2 if !bytes.is_empty() => bytes[at] = [0, 1, 0x7f, 0x80, 0xfe, 0xff][draw.below(6)],
            3 if !bytes.is_empty() => bytes[at] = draw.number() as u8,
            4 => {
                let length = draw.below(64).min(bytes.len() - at).min(other.len());
                let from = draw.below(other.len() - length + 1);
                bytes[at..at + length].copy_from_slice(&other[from..from + length]);
            }
            5 => bytes.truncate(at),
            _ => bytes.extend((0..draw.below(9)).map(|_| draw.number() as u8).collect::<Vec<_>>()),
        }
    }
}

/// The plain twin of a codec, if it has one.
fn twin(codec: &dyn Codec, codecs: &[&'static dyn Codec]) -> Option<&'static dyn Codec> {
    let name = codec.name().split('@').next().expect("a name");
    let twins = [format!("{name}@plain"), format!("{name}@scalar")];
    let mut all = PLAIN.into_iter().chain(codecs.iter().copied());
    all.find(|one| twins.iter().any(|twin| twin == one.name())).filter(|twin| twin.name() != codec.name())
}

/// A decoder says yes or no to any bytes, the same each time and the same as its plain twin, and when it says yes every
/// byte of the page is its doing.
#[test]
fn garbage_into_each_decoder() {
    let (pages, codecs) = (corpus(), codecs());
    let targets: Vec<_> =
        codecs.iter().map(|&codec| (codec, twin(codec, &codecs).unwrap_or(codec), encodings(codec, &pages))).collect();
    assert!(targets.iter().filter(|(codec, plain, _)| codec.name() != plain.name()).count() >= PLAIN.len() + 2);
    let mut yes = 0;
    let executions = fuzz("garbage", &names(&codecs), |at, draw| {
        let (codec, plain, own) = &targets[at];
        let mut garbage = own[draw.below(own.len())].clone();
        spoil(&mut garbage, &own[draw.below(own.len())], draw);
        let (mut one, mut other) = (PageBytes([0x11; PAGE_BYTES]), PageBytes([0xee; PAGE_BYTES]));
        let (first, second) = (codec.decode(&garbage, &mut one), plain.decode(&garbage, &mut other));
        yes += u64::from(first.is_ok());
        if first != second || (first.is_ok() && one.0 != other.0) {
            return Err(format!("{}: another page than before, or than its twin's: {garbage:02x?}", codec.name()));
        }
        Ok(())
    });
    let executions = executions.unwrap_or_else(|wrong| panic!("{wrong}"));
    // Spoiled literals are as good as any.
    assert!(yes > executions / 100, "only {yes} of {executions} decode: most are not spoiled but destroyed");
}

/// A page of the corpus with some of it spoiled, moved or repeated, or drawn as a whole.
fn page(pages: &[PageBytes], draw: &mut Draw) -> PageBytes {
    let mut bytes = pages[draw.below(pages.len())].0.to_vec();
    let other = &pages[draw.below(pages.len())].0;
    match draw.below(4) {
        0 => {
            let period = 1 + draw.below(300);
            let start = bytes[..period].to_vec();
            bytes = start.into_iter().cycle().take(PAGE_BYTES).collect();
        }
        1 => {
            let mask = draw.number() & draw.number();
            bytes.as_chunks_mut::<8>().0.iter_mut().for_each(|word| *word = (draw.number() & mask).to_le_bytes());
        }
        _ => {
            let at = draw.below(PAGE_BYTES);
            bytes[at..].copy_from_slice(&other[at..]);
        }
    }
    spoil(&mut bytes, other, draw);
    bytes.resize(PAGE_BYTES, 0);
    PageBytes(bytes.try_into().expect("it has the length of a page"))
}

/// Encodes and decodes a page; what is wrong, if anything.
fn round_trip(
    codec: &dyn Codec,
    plain: Option<&dyn Codec>,
    page: &PageBytes,
    scratch: &mut Scratch,
) -> Result<(), String> {
    let (mut out, mut decoded) = ([0; ROOM_BYTES], PageBytes([0xee; PAGE_BYTES]));
    let wrong = |what: &str| Err(format!("{}: {what}: {:02x?}", codec.name(), page.0));
    let Some(length) = codec.encode(page, scratch, &mut out) else {
        return wrong("twice the page is no room");
    };
    if codec.decode(&out[..length], &mut decoded).is_err() {
        return wrong("what it writes it does not read");
    }
    if decoded.0 != page.0 {
        return wrong("another page comes back");
    }
    let mut plain_out = [0; ROOM_BYTES];
    if plain.is_some_and(|plain| {
        plain.encode(page, scratch, &mut plain_out) != Some(length) || plain_out[..length] != out[..length]
    }) {
        return wrong("its twin writes other bytes");
    }
    Ok(())
}

/// The oracle is the page itself, and what the plain twin writes.
#[test]
fn pages_round_trip() {
    let (pages, codecs) = (corpus(), codecs());
    // What a codec has learnt is its own, or a seed would not bring the same again.
    let mut targets: Vec<_> = codecs.iter().map(|&codec| (codec, twin(codec, &codecs), Scratch::new())).collect();
    let result = fuzz("round trip", &names(&codecs), |at, draw| {
        let (codec, plain, scratch) = &mut targets[at];
        round_trip(*codec, *plain, &page(&pages, draw), scratch)
    });
    result.unwrap_or_else(|wrong| panic!("{wrong}"));
}

/// Loses a bit where two high bytes are the same and the third is one more.
struct Losing;

impl Codec for Losing {
    fn name(&self) -> &'static str {
        "losing"
    }

    fn encode(&self, page: &PageBytes, _: &mut Scratch, out: &mut [u8]) -> Option<usize> {
        let kept = out.get_mut(..PAGE_BYTES)?;
        kept.copy_from_slice(&page.0);
        let is_rare = |three: &[u8]| matches!(three, &[a @ 0x80..=0xfe, b, c] if a == b && c == a + 1);
        if let Some(at) = page.0.windows(3).position(is_rare) {
            kept[at] ^= 1;
        }
        Some(PAGE_BYTES)
    }

    fn decode(&self, encoding: &[u8], page: &mut PageBytes) -> Result<(), Corrupt> {
        page.0 = encoding.try_into().map_err(|_| Corrupt)?;
        Ok(())
    }
}

/// The canary: a codec that loses a bit on rare pages must be found out.
#[test]
fn canary_a_codec_that_loses_a_bit_is_found() {
    let (pages, mut scratch) = (corpus(), Scratch::new());
    let result = fuzz("canary", &["losing"], |_, draw| round_trip(&Losing, None, &page(&pages, draw), &mut scratch));
    assert!(result.is_err_and(|wrong| wrong.contains("losing: another page comes back")));
}
