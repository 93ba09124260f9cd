//! Cells: against a plain twin, and each rule of de Castro, do Lago and Da Silva (2003) by the sentence that states it.

use crate::common::{Model, any_step, bytes, churn, read, walk_all};
use page::{ByteCount, PAGE_BYTES, PageIndex};
use pleat_store::{Blocked, Cells, Full, Resize, Store, StoreKey};
use proptest::prelude::*;

fn cells(frames: usize, count: usize) -> Cells {
    let mut cells = Cells::new(16 << 20, frames).unwrap();
    for _ in 0..count {
        cells.grow().unwrap();
    }
    cells
}

fn put(cells: &mut Cells, owner: u64, length: usize) -> StoreKey {
    cells.put(PageIndex(owner), &bytes(owner, length)).unwrap()
}

fn no_move(_: PageIndex, _: StoreKey, _: StoreKey) {
    panic!("keys of cells do not change")
}

/// Where the encoding lies: the view is not a copy.
fn address(cells: &Cells, key: StoreKey) -> usize {
    cells.view(key, &mut [0; PAGE_BYTES]).as_ptr() as usize
}

/// In which cell, counted from the first one.
fn cell_of(cells: &Cells, key: StoreKey, base: usize) -> usize {
    (address(cells, key) - base) / 8192
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]
    #[test]
    fn cells_do_what_a_map_does(
        steps in prop::collection::vec(any_step(PAGE_BYTES), 1..500),
        frames in prop::sample::select(vec![1_usize, 2, 4]),
        count in 1_usize..8,
    ) {
        walk_all(&mut Cells::new(count * frames * PAGE_BYTES, frames).unwrap(), &steps, true);
    }
}

/// "we search for the cell with the smallest final free space where the compressed page can fit and store it at the
/// beginning of the final free space region"
#[test]
fn the_best_fit_is_by_final_free_space() {
    let mut area = cells(2, 3);
    let keys = [4000, 4000, 4000, 3000].map(|length| put(&mut area, 0, length));
    let [first, _, second, behind] = keys.map(|key| address(&area, key));
    // 192 bytes are left in the first cell, 1192 in the second, 8192 in the third.
    assert_eq!(behind, second + 4000);
    let [tiny, small, large] = [192, 193, 1000].map(|length| put(&mut area, 1, length));
    assert_eq!(address(&area, tiny), first + 8000);
    assert_eq!(address(&area, small), second + 7000);
    assert!(address(&area, large).abs_diff(first) >= 8192 && address(&area, large).abs_diff(second) >= 8192);
    area.check();
}

/// "To avoid unnecessary overhead, no movement of compressed pages inside the cell is performed when pages are added to or
/// removed from the compressed cache, which makes fragmentation in the cell a possible issue."
#[test]
fn nothing_moves_when_a_page_goes() {
    let mut area = cells(2, 1);
    let keys: Vec<_> = (0..8).map(|at| put(&mut area, at, 1000)).collect();
    let before: Vec<_> = keys.iter().map(|&key| address(&area, key)).collect();
    for at in [1, 4, 6] {
        area.remove(keys[at]);
    }
    for at in [0, 2, 3, 5, 7] {
        assert_eq!(address(&area, keys[at]), before[at]);
    }
    // What fits at the end goes there, though there are holes.
    let key = put(&mut area, 9, 192);
    assert_eq!(address(&area, key), before[7] + 1000);
    assert_eq!(area.figures().cells_compacted, 0);
}

/// "In this case, a cell with the smallest free space where the compressed page can be stored is selected. Then, this cell is
/// compacted, i.e., all compressed pages are moved to the beginning of the cell, making all free space available as final
/// free space."
#[test]
fn the_cell_with_the_smallest_sufficient_free_space_is_compacted() {
    let mut area = cells(2, 3);
    let mut model = Model::default();
    let mut keys = Vec::new();
    for at in 0..24 {
        keys.push(model.put(&mut area, PageIndex(at), bytes(at, 1020)).unwrap());
    }
    let base = keys.iter().map(|&key| address(&area, key)).min().unwrap();
    let cells: Vec<_> = keys.iter().map(|&key| cell_of(&area, key, base)).collect();
    // Holes of one, three and two pages, at the beginnings.
    for (cell, holes) in [(0, 1), (1, 3), (2, 2)] {
        let first = cells.iter().position(|&other| other == cell).unwrap();
        for &key in &keys[first..first + holes] {
            model.remove(&mut area, key);
        }
    }
    let key = model.put(&mut area, PageIndex(99), bytes(99, 1500)).unwrap();
    assert_eq!(cell_of(&area, key, base), 2);
    assert_eq!(area.figures().cells_compacted, 1);
    model.compare(&area, true);
}

/// "Before enlarging the compressed cache or releasing any compressed page, we always try compaction."
#[test]
fn compaction_comes_before_growth() {
    let mut area = cells(2, 2);
    let keys: Vec<_> = (0..16).map(|at| put(&mut area, at, 1024)).collect();
    assert_eq!(area.put(PageIndex(20), &[1; 1024]), Err(Full));
    area.remove(keys[2]);
    assert!(area.put(PageIndex(20), &[1; 1024]).is_ok());
    assert_eq!((area.figures().cells_compacted, area.figures().pool), (1, ByteCount(16384)));
    assert_eq!(area.put(PageIndex(21), &[1; 1]), Err(Full));
}

/// "The cells used by the compressed cache are released to the system as soon as they are no longer needed (e.g., when all
/// compressed pages within a cell are freed)."
#[test]
fn an_empty_cell_is_given_back_at_once() {
    let mut area = cells(2, 2);
    let keys: Vec<_> = (0..4).map(|at| put(&mut area, at, 4096)).collect();
    area.remove(keys[0]);
    assert_eq!(area.figures().pool, ByteCount(16384));
    area.remove(keys[1]);
    assert_eq!(area.figures().pool, ByteCount(8192));
    area.check();
}

/// "if pages compress to 65% in average, we will still have space gains if we use cells composed of at least two contiguous
/// memory pages. In fact, in this case, it is possible to fit three compressed pages in one cell."
#[test]
fn larger_cells_rescue_poor_compressibility() {
    let gain = |frames: usize| {
        let mut area = cells(frames, 12 / frames);
        let mut pages = 0;
        while area.put(PageIndex(pages), &bytes(pages, PAGE_BYTES * 64 / 100)).is_ok() {
            pages += 1;
        }
        pages
    };
    // In twelve frames.
    assert_eq!([1, 2, 4].map(gain), [12, 18, 18]);
}

/// "compressed page, regardless of the form it is stored in": "it is possible for the page to be stored uncompressed when it is
/// incompressible".
#[test]
fn whole_pages_are_kept_as_they_are() {
    for frames in [1, 2, 4] {
        let mut area = cells(frames, 1);
        let keys: Vec<_> = (0..frames as u64).map(|at| put(&mut area, at, PAGE_BYTES)).collect();
        assert!(keys.iter().zip(0..).all(|(&key, at)| read(&area, key) == bytes(at, PAGE_BYTES)));
        assert_eq!(area.figures().external_waste(), ByteCount::ZERO);
    }
}

/// "The order the compressed pages are freed is in accordance to the order they were stored into the compressed cache."
#[test]
fn pages_go_in_the_order_in_which_they_came() {
    let mut area = cells(2, 40);
    let keys: Vec<_> = (0..100).map(|at| put(&mut area, at, 100 + (at as usize * 997) % 2000)).collect();
    area.remove(keys[0]);
    area.remove(keys[5]);
    let mut order = Vec::new();
    while let Some(oldest) = area.oldest() {
        order.push(area.owner(oldest).0);
        area.remove(oldest);
    }
    assert_eq!(order, (1..100).filter(|&at| at != 5).collect::<Vec<_>>());
}

/// "if we are able to relocate enough of the compressed pages from a cell to other cells, we do the relocation, decreasing the
/// compressed cache memory usage by freeing the initial cell; otherwise, […] we free the oldest compressed page"
#[test]
fn a_cell_is_emptied_into_others_or_not_at_all() {
    let mut area = cells(2, 3);
    let mut model = Model::default();
    let keys: Vec<_> = (0..12).map(|at| model.put(&mut area, PageIndex(at), bytes(at, 2048)).unwrap()).collect();
    assert_eq!(area.shrink(&mut no_move), Err(Blocked));
    for at in [1, 2, 5] {
        model.remove(&mut area, keys[at]);
    }
    assert_eq!(area.shrink(&mut no_move), Err(Blocked));
    assert_eq!(area.figures().cells_compacted, 0, "copied for nothing");
    model.remove(&mut area, keys[9]);
    area.shrink(&mut no_move).unwrap();
    assert_eq!(area.figures().pool, ByteCount(2 * 8192));
    assert_eq!(area.figures().external_waste(), ByteCount::ZERO);
    model.compare(&area, true);
}

/// "In comparison to a compressed cache of the same size and cells composed of one memory page, only half the data structures
/// for those metadata is needed when cells with two contiguous memory pages are used."
#[test]
fn larger_cells_need_less_metadata() {
    // Of an empty cell: what the tables grow by when there is another, beyond what they begin with.
    let per_frame = |frames: usize| {
        let grown = |count| cells(frames, count).figures().metadata.0;
        (grown(2048 / frames) - grown(1024 / frames)) as f64 / 1024.0
    };
    assert!((per_frame(1) / per_frame(2) - 2.0).abs() < 0.1, "{} {}", per_frame(1), per_frame(2));
}

#[test]
#[should_panic(expected = "nothing is stored")]
fn a_removed_key_is_a_bug() {
    let mut area = cells(2, 1);
    let keys = [put(&mut area, 1, 50), put(&mut area, 2, 50)];
    area.remove(keys[0]);
    area.remove(keys[0]);
}

#[test]
fn churn_in_a_full_area_adds_up() {
    for (frames, percent) in [(1, 75), (2, 90), (4, 95)] {
        let mut area = Cells::new(16 << 20, frames).unwrap();
        let figures = churn(&mut area, 4 << 20, 20_000, |random| 300 + random.below(2200));
        println!("cells of {frames}: {} compactions, {figures:?}", area.figures().cells_compacted);
        assert!(figures.stored.0 * 100 > figures.pool.0 * percent, "{figures:?}");
    }
}
