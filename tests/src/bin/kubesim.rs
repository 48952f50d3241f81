//! A small stand-in for a member cluster; see `karmada_tests::kubesim`.

fn main() -> std::process::ExitCode {
    karmada_tests::kubesim::main(std::env::args_os())
}
