//! Logs go to stderr. What is logged never holds credentials: they are in [`crate::engine::Secret`]s.

use tracing_subscriber::EnvFilter;

/// Sets up logging: warnings, with `-v` what happens, with `-vv` why, with `-vvv` everything. The environment variable
/// `UNISONO_LOG` (a filter of tracing-subscriber) wins.
pub fn init(verbose: u8) {
    let level = match verbose {
        0 => "warn",
        1 => "info",
        2 => "debug",
        _ => "trace",
    };
    let filter = EnvFilter::try_from_env("UNISONO_LOG").unwrap_or_else(|_| EnvFilter::new(format!("unisono={level}")));
    // A second call, as in tests, keeps the first set-up.
    let _ = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).try_init();
}
