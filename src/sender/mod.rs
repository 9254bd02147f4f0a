//! The reference sender `unisono-send`.

/// Runs the sender with the arguments of the process.
pub fn run() -> std::process::ExitCode {
    std::process::ExitCode::SUCCESS
}
