//! The page that a window starts with: an address to type, judged as one types.

use super::launch::StreamUrlText;
use crate::engine::UrlError;
use crate::i18n::gettext;
use adw::prelude::*;
use adw::subclass::prelude::*;
use gtk::glib;
use std::sync::OnceLock;

mod imp {
    use super::*;

    #[derive(Default, gtk::CompositeTemplate)]
    #[template(file = "start_page.ui")]
    pub struct StartPage {
        #[template_child]
        pub entry: TemplateChild<adw::EntryRow>,
        #[template_child]
        pub hint: TemplateChild<gtk::Label>,
        #[template_child]
        pub hint_revealer: TemplateChild<gtk::Revealer>,
        #[template_child]
        pub play: TemplateChild<gtk::Button>,
    }

    #[glib::object_subclass]
    impl ObjectSubclass for StartPage {
        const NAME: &'static str = "UnisonoStartPage";
        type Type = super::StartPage;
        type ParentType = adw::Bin;

        fn class_init(class: &mut Self::Class) {
            class.bind_template();
        }

        fn instance_init(object: &glib::subclass::InitializingObject<Self>) {
            object.init_template();
        }
    }

    impl ObjectImpl for StartPage {
        fn signals() -> &'static [glib::subclass::Signal] {
            static SIGNALS: OnceLock<Vec<glib::subclass::Signal>> = OnceLock::new();
            SIGNALS.get_or_init(|| {
                vec![glib::subclass::Signal::builder("play").param_types([String::static_type()]).build()]
            })
        }

        fn constructed(&self) {
            self.parent_constructed();
            let page = self.obj();
            self.entry.connect_changed(glib::clone!(
                #[weak]
                page,
                move |_| page.judge()
            ));
            self.entry.connect_entry_activated(glib::clone!(
                #[weak]
                page,
                move |_| page.try_play()
            ));
            self.play.connect_clicked(glib::clone!(
                #[weak]
                page,
                move |_| page.try_play()
            ));
            page.judge();
        }
    }

    impl WidgetImpl for StartPage {
        fn grab_focus(&self) -> bool {
            self.entry.grab_focus()
        }
    }

    impl BinImpl for StartPage {}
}

glib::wrapper! {
    /// The start page. Emits `play` with an address that was found to be valid.
    pub struct StartPage(ObjectSubclass<imp::StartPage>)
        @extends adw::Bin, gtk::Widget,
        @implements gtk::Accessible, gtk::Buildable, gtk::ConstraintTarget;
}

impl StartPage {
    /// Puts an address into the entry.
    pub fn set_address(&self, address: &str) {
        self.imp().entry.set_text(address);
    }

    /// Calls `play` with the address when the user wants it played.
    pub fn connect_play(&self, play: impl Fn(&Self, &str) + 'static) {
        self.connect_local("play", false, move |values| {
            if let (Some(Ok(page)), Some(Ok(address))) =
                (values.first().map(|value| value.get::<Self>()), values.get(1).map(|value| value.get::<String>()))
            {
                play(&page, &address);
            }
            None
        });
    }

    fn judge(&self) {
        let imp = self.imp();
        let verdict = StreamUrlText::parse(&imp.entry.text());
        imp.play.set_sensitive(verdict.is_ok());
        let fault = match &verdict {
            Ok(_) | Err(UrlError::Empty) => None,
            // Half-typed addresses are no mistakes yet.
            Err(UrlError::NotAnAddress | UrlError::NoHost) => None,
            Err(error) => Some(error),
        };
        self.show_fault(fault);
    }

    fn show_fault(&self, fault: Option<&UrlError>) {
        let imp = self.imp();
        if let Some(fault) = fault {
            imp.hint.set_label(&fault_words(fault));
            imp.entry.add_css_class("error");
        } else {
            imp.entry.remove_css_class("error");
        }
        imp.hint_revealer.set_reveal_child(fault.is_some());
        imp.entry.update_state(&[gtk::accessible::State::Invalid(if fault.is_some() {
            gtk::AccessibleInvalidState::True
        } else {
            gtk::AccessibleInvalidState::False
        })]);
    }

    fn try_play(&self) {
        let address = self.imp().entry.text().trim().to_owned();
        match StreamUrlText::parse(&address) {
            Ok(_) => self.emit_by_name::<()>("play", &[&address]),
            Err(error) => self.show_fault(Some(&error)),
        }
    }
}

/// What is wrong with an address, and what to write.
pub fn fault_words(fault: &UrlError) -> String {
    match fault {
        UrlError::Empty => gettext("Type an address, like rtsp://camera.local/live."),
        UrlError::Scheme(_) => gettext("Only addresses that start with rtsp:// or rtsps:// can be played."),
        UrlError::NotAnAddress => gettext("This is no address yet. Write it like rtsp://camera.local/live."),
        UrlError::NoHost => gettext("The address names no host. Write it like rtsp://camera.local/live."),
        UrlError::BadHost => gettext(
            "The host has characters that no host name has. In a user name or password, write @ as %40, / as %2F and : as %3A.",
        ),
        UrlError::BadPort => gettext("The port is a number from 1 to 65535."),
        UrlError::Blanks => gettext("An address has no blanks."),
    }
}
