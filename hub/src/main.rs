//! The hub's process. What it does is in the library.

use std::process::ExitCode;

#[cfg(all(feature = "jemalloc", target_os = "linux", target_arch = "x86_64"))]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    karmada_hub::cli::run(std::env::args_os())
}
