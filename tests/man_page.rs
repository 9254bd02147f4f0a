//! The man pages name every option that the help names, and no other.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

fn options(text: &str) -> BTreeSet<String> {
    let text = text.replace("\\-", "-");
    text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '-'))
        .filter(|word| word.starts_with("--") && word.len() > 3)
        .map(str::to_owned)
        .collect()
}

fn compare(program: &str, page: &str) {
    let help = Command::new(program).arg("--help").output().expect("run the program");
    assert!(help.status.success());
    let help = options(&String::from_utf8(help.stdout).expect("UTF-8"));
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(page);
    let page = options(&std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display())));
    assert!(help.len() > 5, "{help:?}");
    assert_eq!(help.difference(&page).collect::<Vec<_>>(), Vec::<&String>::new(), "missing in the page");
    assert_eq!(page.difference(&help).collect::<Vec<_>>(), Vec::<&String>::new(), "in the page only");
}

#[test]
fn unisono() {
    compare(env!("CARGO_BIN_EXE_unisono"), "data/unisono.1");
}

#[cfg(feature = "sender")]
#[test]
fn unisono_send() {
    compare(env!("CARGO_BIN_EXE_unisono-send"), "data/unisono-send.1");
}
