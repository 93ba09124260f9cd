//! The guarantee of reduced traces: LRU and MIN miss on them as on the whole trace, from the promised size on.
#![forbid(unsafe_code)]

use page::{PageCount, PageIndex};
use pleat_sim::replacement::{Contest, Policy};
use proptest::prelude::*;
use trace::{Access, Header, Reducer, Reference, TimeUnit, Writer};

const SIZES: [u64; 10] = [1, 2, 3, 4, 5, 6, 8, 11, 15, 30];

fn misses(references: &[Reference], size: u64) -> Vec<u64> {
    let mut writer = Writer::new(vec![], Header::new(TimeUnit::References)).unwrap();
    for &reference in references {
        writer.push(reference).unwrap();
    }
    let bytes = writer.finish(None).unwrap();
    let sizes: Vec<PageCount> = SIZES.into_iter().filter(|&pages| pages >= size).map(PageCount).collect();
    let mut contest = Contest::new(&[Policy::Lru, Policy::Min], &sizes);
    contest.play(&mut *trace::open(&bytes[..]).unwrap(), &mut |_| ()).unwrap();
    contest.scores().iter().flat_map(|score| [score.misses, score.cold_misses]).collect()
}

proptest! {
    #[test]
    fn faults_stay_the_same(
        pages in prop::collection::vec(prop_oneof![0..5_u64, 0..10_u64, 0..40_u64], 0..400),
        size in 1..9_u32,
    ) {
        let whole: Vec<Reference> = pages
            .iter()
            .map(|&page| Reference { page: PageIndex(page), time: 0, thread: 0, access: Access::Read })
            .collect();
        let mut reduced = vec![];
        let mut reducer = Reducer::new(size);
        let mut keep = |reference| -> Result<(), ()> { reduced.push(reference); Ok(()) };
        for &reference in &whole {
            reducer.push(reference, &mut keep).unwrap();
        }
        reducer.finish(&mut keep).unwrap();
        prop_assert!(reduced.len() <= whole.len());
        prop_assert_eq!(misses(&reduced, size.into()), misses(&whole, size.into()));
    }
}
