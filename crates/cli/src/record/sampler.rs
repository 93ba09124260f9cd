//! How short a program's pages get while it is recorded. Valgrind keeps them at the program's own addresses, so they are read
//! where the program is; by then it is some thousands of accesses further.

use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::FileExt;

use cache::system::PRESETS;
use codec::{Codec, Scratch, same_filled};
use page::{PAGE_BYTES, PageBytes, PageIndex};
use trace::Sample;

/// Takes samples of a process's pages.
pub(super) struct Sampler {
    pid: u32,
    /// Opened with the first sample: what the process is by then has the program in it.
    memory: Option<File>,
    codecs: Vec<&'static dyn Codec>,
    scratch: Scratch,
    /// How often a page has been referenced, of what is kept.
    counts: HashMap<PageIndex, u32>,
    due: Vec<PageIndex>,
}

impl Sampler {
    pub(super) fn new(pid: u32) -> Self {
        let mut names: Vec<_> = PRESETS.iter().map(|(_, system)| system.codec).collect();
        let mut seen = Vec::new();
        // Each once, the default first.
        names.retain(|name| !seen.contains(name) && (seen.push(*name), true).1);
        let codecs = names.into_iter().filter_map(codec::named).collect();
        Self { pid, memory: None, codecs, scratch: Scratch::new(), counts: HashMap::new(), due: Vec::new() }
    }

    /// The codecs whose lengths a sample has, by name: those of the systems.
    pub(super) fn codecs(&self) -> Vec<String> {
        self.codecs.iter().map(|codec| codec.name().to_owned()).collect()
    }

    /// A reference that is kept. The first, second, fourth, eighth, … of each page asks for a sample: contents change.
    pub(super) fn note(&mut self, page: PageIndex) {
        let count = self.counts.entry(page).or_default();
        *count += 1;
        if count.is_power_of_two() {
            self.due.push(page);
        }
    }

    /// Takes the samples that have been asked for; none of pages that cannot be read (any more).
    pub(super) fn take(&mut self, samples: &mut Vec<Sample>) {
        let mut due = std::mem::take(&mut self.due);
        due.sort_unstable();
        due.dedup();
        samples.extend(due.into_iter().filter_map(|page| self.sample(page)));
    }

    fn sample(&mut self, page: PageIndex) -> Option<Sample> {
        if self.memory.is_none() {
            self.memory = File::open(format!("/proc/{}/mem", self.pid)).ok();
        }
        let mut bytes = PageBytes::ZERO;
        self.memory.as_ref()?.read_exact_at(&mut bytes.0, page.address()).ok()?;
        let Self { codecs, scratch, .. } = self;
        Some(Sample { page, sizes: codecs.iter().map(|codec| length(*codec, &bytes, scratch)).collect() })
    }
}

/// As the pager has it: nothing for one word repeated, and the page itself where that is not longer.
fn length(codec: &dyn Codec, bytes: &PageBytes, scratch: &mut Scratch) -> u16 {
    if same_filled(bytes).is_some() {
        return 0;
    }
    codec.encode(bytes, scratch, &mut [0; PAGE_BYTES]).unwrap_or(PAGE_BYTES) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_read_where_they_are() {
        let mut memory = vec![0_u8; 4 * PAGE_BYTES];
        let first = PageIndex::containing(memory.as_ptr() as u64 + PAGE_BYTES as u64 - 1);
        let start = memory.as_ptr().align_offset(PAGE_BYTES);
        for (at, byte) in memory[start + PAGE_BYTES..][..PAGE_BYTES].iter_mut().enumerate() {
            *byte = (at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()[2];
        }
        let mut sampler = Sampler::new(std::process::id());
        let noise = PageIndex(first.0 + 1);
        for page in [noise, first, noise, noise, PageIndex(1)] {
            sampler.note(page);
        }
        let mut samples = Vec::new();
        sampler.take(&mut samples);
        drop(memory);
        assert_eq!(sampler.codecs()[0], "auto");
        // Of the third reference none is due; of page 1 there is nothing to read.
        assert_eq!(samples.iter().map(|sample| sample.page).collect::<Vec<_>>(), [first, noise]);
        assert!(samples[0].sizes.iter().all(|size| *size == 0), "{samples:?}");
        assert!(samples[1].sizes.iter().all(|size| *size > 1000), "{samples:?}");
        sampler.take(&mut samples);
        assert_eq!(samples.len(), 2);
    }
}
