//! What benchmarks and end-to-end tests share: programs with a known memory behaviour, and an outside view of others.
//!
//! [`content`] makes pages of a chosen compressibility that can be checked, [`loads`] walks over them. [`tree`] reads
//! what the kernel says of a tree of processes, [`cgroup`] puts one into a memory cgroup, [`measure`] runs a command
//! and takes its time. None of it knows anything of pleat's inside: what they report is what a user would see.
#![forbid(unsafe_code)]

pub mod cgroup;
pub mod content;
pub mod latency;
pub mod loads;
pub mod measure;
pub mod size;
pub mod tree;
