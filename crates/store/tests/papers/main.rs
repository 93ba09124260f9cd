//! The stores of the papers: each against a plain twin, and each rule by the sentence of its paper that states it.

mod buddies;
mod cells;
mod chunks;
mod common;
mod sectors;
mod zones;
