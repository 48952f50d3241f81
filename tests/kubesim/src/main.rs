//! A small stand-in for a member cluster; see `karmada_kubesim`.

/// The hub's allocator: it is the hub's server.
#[cfg(all(feature = "jemalloc", target_os = "linux", target_arch = "x86_64"))]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> std::process::ExitCode {
    karmada_kubesim::main(std::env::args_os())
}
