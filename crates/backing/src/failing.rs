//! A medium that fails by script, for tests: operations are counted from 0, reads and writes apart, and the script
//! says what happens to which. Callers keep the store in an `Arc`, to change the script while a log uses it.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::fmt;

use sys::Errno;
use sys::sync::{Held, Lock};

use crate::buffer::AlignedBytes;
use crate::{BLOCK_BYTES, BackingError, BackingStore};

/// What goes wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// The request fails and does nothing.
    Io(Errno),
    /// Only the first half of the blocks come or go, and the store says so.
    Short,
    /// Write: only the first half of the blocks reach the medium, and the store reports success. Read: as `Short`.
    Torn,
    /// Write: nothing reaches the medium, and the store reports success. Read: the memory is left as it was.
    Lost,
    /// The request goes to this offset instead.
    Misplaced(u64),
    /// The byte at this distance from the start of the request changes by the mask (exclusive or), on its way.
    Flip(usize, u8),
}

/// Called at the start of each operation, without any lock: lets a test make an operation late, by doing meanwhile what
/// should happen meanwhile.
pub type Meanwhile = Box<dyn Fn(Operation) + Send + Sync>;

/// An operation and its number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Operation {
    /// The n-th `read_at`.
    Read(u64),
    /// The n-th `write_at`.
    Write(u64),
}

#[derive(Debug, Default)]
struct Script {
    reads: u64,
    writes: u64,
    discards: Vec<(u64, u64)>,
    faults: BTreeMap<Operation, Fault>,
    full_from_write: Option<u64>,
}

/// See the top of the file.
pub struct FailingBacking<S> {
    inner: S,
    script: Lock<Script>,
    meanwhile: Option<Meanwhile>,
}

impl<S: BackingStore> FailingBacking<S> {
    /// A wrapper that does nothing yet.
    pub fn new(inner: S) -> Self {
        Self { inner, script: Lock::new(Script::default()), meanwhile: None }
    }

    /// The same, with something to be done at the start of each operation.
    #[must_use]
    pub fn with_meanwhile(mut self, meanwhile: Meanwhile) -> Self {
        self.meanwhile = Some(meanwhile);
        self
    }

    /// Lets this operation fail, once.
    pub fn fail(&self, operation: Operation, fault: Fault) {
        self.script().faults.insert(operation, fault);
    }

    /// From the n-th write on there is no room.
    pub fn full_from_write(&self, number: u64) {
        self.script().full_from_write = Some(number);
    }

    /// There is room again.
    pub fn recover(&self) {
        self.script().full_from_write = None;
    }

    /// Reads and writes so far, failed ones included: the numbers of the next ones.
    pub fn operations(&self) -> (u64, u64) {
        let script = self.script();
        (script.reads, script.writes)
    }

    /// Ranges discarded so far: offset and length.
    pub fn discards(&self) -> Vec<(u64, u64)> {
        self.script().discards.clone()
    }

    /// The medium itself.
    pub fn inner(&self) -> &S {
        &self.inner
    }

    fn script(&self) -> Held<'_, Script> {
        self.script.lock()
    }

    fn begin(&self, operation: Operation) -> Option<Fault> {
        if let Some(meanwhile) = &self.meanwhile {
            meanwhile(operation);
        }
        self.script().faults.remove(&operation)
    }
}

impl<S: BackingStore> BackingStore for FailingBacking<S> {
    fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<(), BackingError> {
        let number = next(&mut self.script().reads);
        let Some(fault) = self.begin(Operation::Read(number)) else { return self.inner.read_at(offset, out) };
        match fault {
            Fault::Io(errno) => Err(BackingError::Io { offset, errno }),
            Fault::Short | Fault::Torn => {
                let half = half(out.len());
                self.inner.read_at(offset, &mut out[..half])?;
                Err(BackingError::Short { offset: offset + half as u64 })
            }
            Fault::Lost => Ok(()),
            Fault::Misplaced(elsewhere) => self.inner.read_at(elsewhere, out),
            Fault::Flip(at, mask) => {
                self.inner.read_at(offset, out)?;
                out[at] ^= mask;
                Ok(())
            }
        }
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), BackingError> {
        let number = next(&mut self.script().writes);
        let fault = self.begin(Operation::Write(number));
        if self.script().full_from_write.is_some_and(|first| number >= first) {
            return Err(BackingError::Full);
        }
        let Some(fault) = fault else { return self.inner.write_at(offset, bytes) };
        let half = half(bytes.len());
        match fault {
            Fault::Io(errno) => Err(BackingError::Io { offset, errno }),
            Fault::Short => {
                self.inner.write_at(offset, &bytes[..half])?;
                Err(BackingError::Short { offset: offset + half as u64 })
            }
            Fault::Torn => self.inner.write_at(offset, &bytes[..half]),
            Fault::Lost => Ok(()),
            Fault::Misplaced(elsewhere) => self.inner.write_at(elsewhere, bytes),
            Fault::Flip(at, mask) => {
                self.inner.write_at(offset, bytes)?;
                let block = at / BLOCK_BYTES * BLOCK_BYTES;
                let mut spoiled = AlignedBytes::new(BLOCK_BYTES);
                spoiled.copy_from_slice(&bytes[block..block + BLOCK_BYTES]);
                spoiled[at - block] ^= mask;
                self.inner.write_at(offset + block as u64, &spoiled)
            }
        }
    }

    fn discard(&self, offset: u64, bytes: u64) {
        self.script().discards.push((offset, bytes));
        self.inner.discard(offset, bytes);
    }

    fn bytes_max(&self) -> u64 {
        self.inner.bytes_max()
    }
}

impl<S> fmt::Debug for FailingBacking<S> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "FailingBacking({:?})", self.script)
    }
}

/// Half of a request, in whole blocks.
fn half(bytes: usize) -> usize {
    bytes / 2 / BLOCK_BYTES * BLOCK_BYTES
}

fn next(count: &mut u64) -> u64 {
    *count += 1;
    *count - 1
}
