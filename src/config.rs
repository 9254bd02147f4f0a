//! Build-time constants. The build system may set them in the environment of `cargo build`; plain `cargo build` works
//! with the defaults.

/// The version, as in `Cargo.toml`.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
/// The application id, also the name of the desktop file, the icon and the GSettings schema.
pub const APP_ID: &str = "app.unisono.Unisono";
/// The gettext domain.
pub const GETTEXT_PACKAGE: &str = "unisono";
/// Where the compiled translations are.
pub const LOCALE_DIR: &str = match option_env!("UNISONO_LOCALE_DIR") {
    Some(dir) => dir,
    None => "/usr/share/locale",
};
