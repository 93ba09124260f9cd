//! The model answers as Linux does.

use page::FrameIndex;

use super::kernel::partial;
use super::*;
use crate::kernel::{Kernel, Message};

fn range(start: u64, count: u64) -> PageRange {
    PageRange::new(PageIndex(start), PageCount(count))
}

fn kernel() -> FakeKernel {
    let kernel = FakeKernel::new(PageCount(8));
    kernel.map(range(16, 16));
    kernel.register(range(16, 16)).unwrap();
    kernel
}

fn fill(kernel: &FakeKernel, page: u64, byte: u8) {
    let filled = kernel.fill(PageIndex(page), &[PageBytes([byte; PAGE_BYTES])]);
    assert_eq!(filled, partial(1, None));
}

fn read(kernel: &FakeKernel, page: u64) -> Option<u8> {
    match kernel.access(1, PageIndex(page), None) {
        Access::Done(bytes) => Some(bytes.0[7]),
        _ => None,
    }
}

#[test]
fn a_missing_page_blocks_until_it_is_filled() {
    let kernel = kernel();
    assert_eq!(read(&kernel, 20), None);
    assert!(kernel.is_waiting(1));
    assert_eq!(kernel.next_message(), Some(Message::Fault { page: PageIndex(20), thread: 1, is_write: true }));
    fill(&kernel, 20, 7);
    assert!(!kernel.is_waiting(1));
    assert_eq!(read(&kernel, 20), Some(7));
    assert_eq!(kernel.fill(PageIndex(20), &[PageBytes::ZERO]).error, Some(Errno::EXIST));
    assert_eq!(kernel.fill(PageIndex(99), &[PageBytes::ZERO]).error, Some(Errno::NOENT));
}

#[test]
fn moves_are_partial_as_on_linux() {
    let kernel = kernel();
    for page in 16..20 {
        fill(&kernel, page, page as u8);
    }
    kernel.set(range(18, 1), Flag::Pinned, true);
    assert_eq!(kernel.move_out(PageIndex(16), PageCount(4), FrameIndex(0)), partial(2, None));
    assert_eq!(kernel.move_out(PageIndex(18), PageCount(2), FrameIndex(2)), partial(0, Some(Errno::BUSY)));
    assert_eq!(kernel.move_out(PageIndex(17), PageCount(2), FrameIndex(2)), partial(0, Some(Errno::NOENT)));
    kernel.set(range(19, 1), Flag::Locked, true);
    assert_eq!(kernel.move_out(PageIndex(18), PageCount(2), FrameIndex(2)), partial(0, Some(Errno::INVAL)));
    assert_eq!(kernel.move_back(FrameIndex(1), PageIndex(17)), Ok(()));
    assert_eq!(read(&kernel, 17), Some(17));
    assert_eq!(kernel.move_back(FrameIndex(0), PageIndex(17)), Err(Errno::EXIST));
}

#[test]
fn a_discard_has_two_halves() {
    let kernel = kernel();
    fill(&kernel, 16, 5);
    assert_eq!(kernel.discard(2, range(16, 2)), Progress::Stepped);
    assert_eq!(kernel.fill(PageIndex(17), &[PageBytes::ZERO]).error, Some(Errno::AGAIN));
    assert_eq!(kernel.advance(2), Progress::Blocked);
    assert_eq!(read(&kernel, 17), None);
    assert!(matches!(kernel.next_message(), Some(Message::Fault { .. })), "a fault comes before older events");
    assert_eq!(kernel.next_message(), Some(Message::Remove(range(16, 2))));
    assert!(kernel.layout_is_changing());
    assert_eq!(kernel.advance(2), Progress::Stepped);
    assert!(!kernel.layout_is_changing() && kernel.is_present(PageIndex(16)));
    assert_eq!(kernel.advance(2), Progress::Done);
    assert!(!kernel.is_present(PageIndex(16)));
}

#[test]
fn a_remap_moves_first_and_tells_afterwards() {
    let kernel = kernel();
    fill(&kernel, 16, 5);
    assert_eq!(kernel.remap(2, range(16, 2), PageIndex(64), false), Progress::Stepped);
    assert!(kernel.is_registered(PageIndex(65)) && !kernel.is_mapped(PageIndex(16)));
    assert_eq!(kernel.next_message(), Some(Message::Remap { from: range(16, 2), to: PageIndex(64) }));
    kernel.run_waiters();
    assert!(kernel.layout_is_changing());
    assert_eq!(kernel.next_message(), Some(Message::Unmap(range(16, 2))));
    kernel.run_waiters();
    assert!(!kernel.layout_is_changing());
}

#[test]
fn a_child_has_the_memory_and_nothing_of_the_messages() {
    let kernel = kernel();
    fill(&kernel, 16, 5);
    assert_eq!(read(&kernel, 20), None);
    kernel.fork(2);
    let _ = kernel.next_message();
    let Some(Message::Fork(forked)) = kernel.next_message() else { panic!() };
    let child = kernel.take_child(&forked);
    assert_eq!((read(&child, 16), child.next_message()), (Some(5), None));
    assert_eq!(child.move_out(PageIndex(16), PageCount(1), FrameIndex(0)).error, Some(Errno::BUSY));
    assert_eq!(child.unshare(range(16, 1)), Ok(()));
    assert_eq!(child.move_out(PageIndex(16), PageCount(1), FrameIndex(0)), partial(1, None));
}

#[test]
#[should_panic(expected = "would hang")]
fn an_empty_frame_cannot_be_read() {
    let _ = kernel().frame(FrameIndex(3));
}
