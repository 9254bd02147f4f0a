//! The verdict at a glance: word, shape and colour in a pill; a click tells the whole sentence.

use super::verdict_words::{CLASSES, VerdictWords};
use gtk::pango;
use gtk::prelude::*;

/// The widest that the sentence gets, in characters: two to three lines of a popover.
const SENTENCE_WIDTH: i32 = 40;

/// The pill.
#[derive(Clone)]
pub struct VerdictBadge {
    button: gtk::MenuButton,
    icon: gtk::Image,
    title: gtk::Label,
    sentence: gtk::Label,
}

impl VerdictBadge {
    /// A pill that shows nothing yet.
    pub fn new() -> Self {
        let icon = gtk::Image::new();
        let title = gtk::Label::builder().ellipsize(pango::EllipsizeMode::End).build();
        let content = gtk::Box::new(gtk::Orientation::Horizontal, 6);
        content.append(&icon);
        content.append(&title);
        let sentence = gtk::Label::builder()
            .wrap(true)
            .max_width_chars(SENTENCE_WIDTH)
            .xalign(0.0)
            .selectable(true)
            .margin_top(6)
            .margin_bottom(6)
            .margin_start(6)
            .margin_end(6)
            .build();
        let popover = gtk::Popover::builder().child(&sentence).build();
        let button = gtk::MenuButton::builder().child(&content).popover(&popover).has_frame(false).build();
        button.add_css_class("verdict-button");
        content.add_css_class("verdict");
        Self { button, icon, title, sentence }
    }

    /// The widget to place.
    pub fn widget(&self) -> &gtk::MenuButton {
        &self.button
    }

    /// Shows a verdict.
    pub fn show(&self, words: &VerdictWords) {
        self.icon.set_icon_name(Some(words.icon));
        self.title.set_label(&words.title);
        self.sentence.set_label(&words.sentence);
        self.button.set_tooltip_text(Some(&words.sentence));
        if let Some(content) = self.button.child() {
            CLASSES.iter().for_each(|class| content.remove_css_class(class));
            content.add_css_class(words.class);
        }
        self.button.update_property(&[
            gtk::accessible::Property::Label(&words.title),
            gtk::accessible::Property::Description(&words.sentence),
        ]);
    }
}

impl Default for VerdictBadge {
    fn default() -> Self {
        Self::new()
    }
}
