//! Translations by the system's gettext. Messages carry their arguments by name: `"Connecting to {host}"`.

use crate::config::{GETTEXT_PACKAGE, LOCALE_DIR};

/// Chooses the user's language; to be called before other threads start. Without translations everything stays English; that is no error.
pub fn init() {
    // SAFETY: called before this process starts a second thread that could read the locale.
    unsafe { gettextrs::setlocale(gettextrs::LocaleCategory::LcAll, "") };
    // They fail only when memory is short.
    let _ = gettextrs::bindtextdomain(GETTEXT_PACKAGE, LOCALE_DIR);
    let _ = gettextrs::bind_textdomain_codeset(GETTEXT_PACKAGE, "UTF-8");
    let _ = gettextrs::textdomain(GETTEXT_PACKAGE);
}

/// The translation of a message.
pub fn gettext(message: &str) -> String {
    // gettext would panic at a NUL inside.
    if message.contains('\0') { message.to_owned() } else { gettextrs::gettext(message) }
}

/// The translation of a message with arguments by name.
pub fn gettext_f(message: &str, arguments: &[(&str, &str)]) -> String {
    fill(&gettext(message), arguments)
}

/// The translation of a message that depends on a number.
pub fn ngettext_f(singular: &str, plural: &str, number: u32, arguments: &[(&str, &str)]) -> String {
    fill(&gettextrs::ngettext(singular, plural, number), arguments)
}

/// Puts each argument where its `{name}` stands, in one pass: what stands in an argument is never read as a name.
fn fill(message: &str, arguments: &[(&str, &str)]) -> String {
    let mut filled = String::with_capacity(message.len());
    let mut rest = message;
    while let Some(at) = rest.find('{') {
        filled.push_str(&rest[..at]);
        rest = &rest[at..];
        let value = rest.find('}').and_then(|end| {
            let name = &rest[1..end];
            arguments.iter().find(|(argument, _)| *argument == name).map(|(_, value)| (*value, end + 1))
        });
        match value {
            Some((value, end)) => {
                filled.push_str(value);
                rest = &rest[end..];
            }
            None => {
                filled.push('{');
                rest = &rest[1..];
            }
        }
    }
    filled.push_str(rest);
    filled
}

#[cfg(test)]
mod tests {
    use super::fill;

    #[test]
    fn arguments_by_name() {
        assert_eq!(fill("{a} and {b}", &[("b", "2"), ("a", "1")]), "1 and 2");
        assert_eq!(fill("{a}", &[("a", "{b}"), ("b", "x")]), "{b}");
        assert_eq!(fill("{unknown} {", &[("a", "1")]), "{unknown} {");
    }
}
