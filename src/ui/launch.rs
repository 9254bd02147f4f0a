//! What a process was asked to play, in a form that fits through GApplication's `open`: the arguments travel as its hint
//! to the instance that runs already, and are read there as they would have been here.

use crate::cli::{Cli, PlayArgs};
use crate::engine::StreamUrl;
use clap::Parser;
use gtk::gio;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// The command line of a process.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Launch {
    /// Without the program's name.
    arguments: Vec<String>,
    /// What relative file names are relative to.
    directory: PathBuf,
    /// The addresses among the arguments.
    urls: Vec<String>,
}

impl Launch {
    /// The launch of this process, which was understood as `args`.
    pub fn of_process(args: &PlayArgs) -> Self {
        Self {
            arguments: std::env::args().skip(1).collect(),
            directory: std::env::current_dir().unwrap_or_default(),
            urls: args.urls.clone(),
        }
    }

    /// Reads the hint of an `open`; an empty or foreign one stands for no options.
    pub fn from_hint(hint: &str) -> Self {
        serde_json::from_str(hint).unwrap_or_default()
    }

    /// The hint for `open`.
    pub fn hint(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// The addresses as files, with their scheme: without one, GFile would take them for names of local files.
    pub fn files(&self) -> Vec<gio::File> {
        self.urls.iter().map(|url| gio::File::for_uri(&with_scheme(url))).collect()
    }

    /// The addresses that were asked for.
    pub fn urls(&self) -> &[String] {
        &self.urls
    }

    /// The options for a room that plays `url`.
    pub fn play_args(&self, url: &StreamUrlText) -> PlayArgs {
        let mut args = self.parse();
        args.urls = vec![url.0.clone()];
        if let Some(file) = &mut args.password_file {
            *file = self.directory.join(&file);
        }
        args
    }

    fn parse(&self) -> PlayArgs {
        let program = std::iter::once("unisono");
        let read = Cli::try_parse_from(program.clone().chain(self.arguments.iter().map(String::as_str)));
        // The arguments were understood by the process that sent them; another version may not, and plays by defaults.
        match read.or_else(|_| Cli::try_parse_from(program)) {
            Ok(cli) => cli.play,
            Err(error) => unreachable!("no arguments at all are valid: {error}"),
        }
    }
}

/// The text of an address that was found to be valid.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamUrlText(String);

impl StreamUrlText {
    /// Checks an address as people type it.
    ///
    /// # Errors
    /// Says what to write instead.
    pub fn parse(text: &str) -> Result<(Self, StreamUrl), crate::engine::UrlError> {
        let url = StreamUrl::parse(text)?;
        Ok((Self(text.trim().to_owned()), url))
    }
}

fn with_scheme(url: &str) -> String {
    if url.contains("://") { url.to_owned() } else { format!("rtsp://{url}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gtk::gio::prelude::*;

    #[test]
    fn an_address_without_scheme_is_no_file_name() {
        let launch = Launch { urls: vec!["cam.local/live".into(), "rtsps://cam".into()], ..Launch::default() };
        let uris: Vec<String> = launch.files().iter().map(|file| file.uri().to_string()).collect();
        assert_eq!(uris, ["rtsp://cam.local/live", "rtsps://cam"]);
    }

    #[test]
    fn options_travel_in_the_hint() {
        let sent = Launch {
            arguments: ["cam:554", "--latency", "250ms", "--user", "me", "--password-file", "secret"]
                .map(Into::into)
                .into(),
            directory: "/home/me".into(),
            urls: vec!["cam:554".into()],
        };
        let (url, _) = StreamUrlText::parse("cam:554").unwrap();
        let args = Launch::from_hint(&sent.hint()).play_args(&url);
        assert_eq!(args.latency, std::time::Duration::from_millis(250));
        assert_eq!(args.password_file, Some("/home/me/secret".into()));
        assert_eq!(args.urls, ["cam:554"]);
    }

    #[test]
    fn a_foreign_hint_stands_for_defaults() {
        let (url, _) = StreamUrlText::parse("cam:554").unwrap();
        for hint in ["", "preview", "{}", r#"{"arguments":["--no-such-option"],"directory":"","urls":[]}"#] {
            assert_eq!(Launch::from_hint(hint).play_args(&url).latency, std::time::Duration::from_secs(1), "{hint}");
        }
    }
}
