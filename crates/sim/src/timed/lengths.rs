//! How long pages' encodings are.

use std::collections::HashMap;

use page::{PAGE_BYTES, PageIndex};
use trace::{Header, Sample};

/// Shortest encoding that is made up.
const BYTES_MIN: f64 = 16.0;

/// Lengths of encodings: as sampled, or made up around a mean, always the same for a page.
#[derive(Debug)]
pub struct Lengths {
    ratio: f64,
    /// Which of a trace's codecs counts.
    column: usize,
    sampled: HashMap<u64, u16>,
}

impl Lengths {
    /// Pages without a sample shrink to `ratio` on average, each to between half and one and a half times that.
    /// Of the samples those of `codec` count, or of the trace's first codec.
    pub fn new(ratio: f64, header: &Header, codec: &str) -> Self {
        let column = header.codecs.iter().position(|name| name == codec).unwrap_or(0);
        Self { ratio, column, sampled: HashMap::new() }
    }

    /// Takes note of samples.
    pub(super) fn learn(&mut self, samples: &[Sample]) {
        let column = self.column;
        let size = |sample: &Sample| sample.sizes.get(column).map(|&size| (sample.page.0, size));
        self.sampled.extend(samples.iter().filter_map(size));
    }

    /// Bytes of a page's encoding: 0 for a page of one word, a whole page if no codec gains.
    pub fn of(&self, page: PageIndex) -> usize {
        if let Some(&size) = self.sampled.get(&page.0) {
            return usize::from(size);
        }
        let mixed = page.0.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let part = f64::from((mixed ^ (mixed >> 29)) as u32) / f64::from(u32::MAX);
        let bytes = PAGE_BYTES as f64 * self.ratio * (0.5 + part);
        bytes.clamp(BYTES_MIN, PAGE_BYTES as f64) as usize
    }
}
