//! The loader is told to call the agent's constructor before those of all other libraries, so that it sees all that they map,
//! start and call. glibc does that for one library; elsewhere the agent comes when its turn comes.

fn main() {
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,initfirst");
    // A debugger's `break get`, or `break memcpy`, is about the program's functions.
    println!("cargo::rustc-cdylib-link-arg=-Wl,--strip-all");
    println!("cargo::rerun-if-changed=build.rs");
}
