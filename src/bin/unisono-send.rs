// The reference sender. All of it is in the library, so that tests can drive it.
fn main() -> std::process::ExitCode {
    unisono::sender::run()
}
