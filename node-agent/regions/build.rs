//! Options of the linker for the shared library.

#![allow(clippy::print_stdout, reason = "cargo reads the options from the standard output")]

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libpolymeter_regions.so.1");
    // Its thread and its handlers of fork and exit outlive a dlclose.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
