//! Means and percentiles of sets of files. Each file counts alike, however many pages it has.

use crate::pages::{HEAPS, NOISE, SETS, Source};

/// What was measured of the pages of one file with one codec.
#[derive(Clone, Default, Debug)]
pub(crate) struct Samples {
    pub(crate) encoded_bytes: Vec<u64>,
    pub(crate) encode_ns: Vec<u64>,
    pub(crate) decode_ns: Vec<u64>,
    pub(crate) cold_decode_ns: Vec<u64>,
}

/// Files that are averaged over, by their places.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Set {
    pub(crate) name: String,
    pub(crate) files: Vec<usize>,
}

/// The averages that have files, `HEAP` first, and a set for each file.
pub(crate) fn sets(sources: &[Source]) -> Vec<Set> {
    let files = |wanted: &dyn Fn(&str) -> bool| {
        let used = |source: &Source| !source.pages.is_empty() && wanted(&source.name);
        sources.iter().enumerate().filter(|(_, source)| used(source)).map(|(at, _)| at).collect::<Vec<_>>()
    };
    let [heap, all] = SETS.map(str::to_owned);
    let averages = [
        Set { name: heap, files: files(&|name| HEAPS.contains(&name)) },
        Set { name: all, files: files(&|name| name != NOISE) },
    ];
    let each = files(&|_| true).into_iter().map(|at| Set { name: sources[at].name.clone(), files: vec![at] });
    averages.into_iter().filter(|set| !set.files.is_empty()).chain(each).collect()
}

/// The mean over files of the means of their samples; `None` if there are none.
pub(crate) fn mean<'a>(files: impl Iterator<Item = &'a [u64]>) -> Option<f64> {
    let means: Vec<f64> = files
        .filter(|samples| !samples.is_empty())
        .map(|samples| samples.iter().sum::<u64>() as f64 / samples.len() as f64)
        .collect();
    (!means.is_empty()).then(|| means.iter().sum::<f64>() / means.len() as f64)
}

/// The smallest sample that `share` of the weight stays at or below; `None` if there are none.
pub(crate) fn percentile<'a>(files: impl Iterator<Item = &'a [u64]>, share: f64) -> Option<u64> {
    let weighed = |samples: &'a [u64]| samples.iter().map(|sample| (*sample, 1.0 / samples.len() as f64));
    let mut samples: Vec<(u64, f64)> = files.flat_map(weighed).collect();
    samples.sort_unstable_by_key(|(sample, _)| *sample);
    let total: f64 = samples.iter().map(|(_, weight)| weight).sum();
    let mut below = 0.0;
    // The tolerance is for weights that are not exact; it is far less than the weight of a sample.
    let reached = samples.iter().find(|(_, weight)| {
        below += weight;
        below >= total * (share - 1e-9)
    });
    reached.or(samples.last()).map(|(sample, _)| *sample)
}

#[cfg(test)]
mod tests {
    use page::PageBytes;

    use super::*;

    fn source(name: &str, pages: usize) -> Source {
        let pages = vec![PageBytes([1; page::PAGE_BYTES]); pages];
        Source { name: name.to_owned(), file_pages: pages.len() as u64, pages, zero_pages: 0 }
    }

    #[test]
    fn sets_are_heaps_all_and_each() {
        let sources = [("redis", 1), ("random", 1), ("mine", 1), ("html", 1), ("empty", 0), ("java", 1)];
        let sets = sets(&sources.map(|(name, pages)| source(name, pages)));
        let sets: Vec<_> = sets.iter().map(|set| (set.name.as_str(), set.files.as_slice())).collect();
        let averages: [(&str, &[usize]); 2] = [("HEAP", &[0, 5]), ("ALL", &[0, 2, 3, 5])];
        let each: [(&str, &[usize]); 5] =
            [("redis", &[0]), ("random", &[1]), ("mine", &[2]), ("html", &[3]), ("java", &[5])];
        assert_eq!(sets, [&averages[..], &each].concat());
    }

    #[test]
    fn files_weigh_alike() {
        let (many, few): (Vec<u64>, [u64; 2]) = (vec![1; 100], [3, 5]);
        let files = || [&many[..], &few[..], &[]].into_iter();
        assert_eq!(mean(files()), Some(2.5));
        assert_eq!(
            [0.4, 0.5, 0.6, 0.75, 0.8, 1.0].map(|share| percentile(files(), share).unwrap()),
            [1, 1, 3, 3, 5, 5]
        );
        assert_eq!((mean([].into_iter()), percentile([].into_iter(), 0.5)), (None, None));
    }

    #[test]
    fn percentiles_of_one_file_are_as_everywhere() {
        let samples: Vec<u64> = (1..=100).rev().collect();
        let at = |share| percentile(std::iter::once(&samples[..]), share).unwrap();
        assert_eq!([at(0.0), at(0.5), at(0.99), at(1.0)], [1, 50, 99, 100]);
    }
}
