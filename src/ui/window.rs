//! A window: a start page, a page for what is going on, and the picture. One engine at a time.

use super::application::Application;
use super::launch::{Launch, StreamUrlText};
use super::session::Session;
use super::start_page::StartPage;
use super::verdict_badge::VerdictBadge;
use super::verdict_words;
use super::video_view::VideoView;
use crate::cli::PlayArgs;
use crate::engine::{EngineEvent, Notice, StreamUrl, VideoOutput};
use crate::i18n::{gettext, gettext_f};
use adw::prelude::*;
use adw::subclass::prelude::*;
use gtk::{gdk, gio, glib};
use std::cell::{Cell, RefCell};

mod imp {
    use super::*;

    #[derive(Default, gtk::CompositeTemplate)]
    #[template(file = "window.ui")]
    pub struct Window {
        #[template_child]
        pub toasts: TemplateChild<adw::ToastOverlay>,
        #[template_child]
        pub pages: TemplateChild<gtk::Stack>,
        #[template_child]
        pub start_page: TemplateChild<StartPage>,
        #[template_child]
        pub status_page: TemplateChild<adw::StatusPage>,
        #[template_child]
        pub spinner: TemplateChild<gtk::Spinner>,
        #[template_child]
        pub retry: TemplateChild<gtk::Button>,
        #[template_child]
        pub copy_details: TemplateChild<gtk::Button>,
        #[template_child]
        pub picture: TemplateChild<gtk::Picture>,
        #[template_child]
        pub player_bar: TemplateChild<adw::HeaderBar>,
        #[template_child]
        pub player_title: TemplateChild<adw::WindowTitle>,
        pub badge: VerdictBadge,
        /// What is played, or was played last.
        pub playing: RefCell<Option<(PlayArgs, StreamUrl)>>,
        pub session: RefCell<Option<Session>>,
        /// Keeps the computer awake while something plays; 0: nothing to keep.
        pub inhibition: Cell<u32>,
    }

    #[glib::object_subclass]
    impl ObjectSubclass for Window {
        const NAME: &'static str = "UnisonoWindow";
        type Type = super::Window;
        type ParentType = adw::ApplicationWindow;

        fn class_init(class: &mut Self::Class) {
            StartPage::ensure_type();
            class.bind_template();
            class.install_action("win.stop", None, |window, _, _| window.stop());
            class.install_action("win.retry", None, |window, _, _| window.retry());
            class.install_action("win.copy-details", None, |window, _, _| window.copy_details());
            class.install_action("win.fullscreen", None, |window, _, _| {
                window.set_fullscreened(!window.is_fullscreen())
            });
            class.install_action("win.leave-fullscreen", None, |window, _, _| window.set_fullscreened(false));
        }

        fn instance_init(object: &glib::subclass::InitializingObject<Self>) {
            object.init_template();
        }
    }

    impl ObjectImpl for Window {
        fn constructed(&self) {
            self.parent_constructed();
            let window = self.obj();
            self.player_bar.pack_end(self.badge.widget());
            self.start_page.connect_play(glib::clone!(
                #[weak]
                window,
                move |_, address| if let Ok((text, url)) = StreamUrlText::parse(address) {
                    window.play(Launch::default().play_args(&text), url);
                }
            ));
        }
    }

    impl WidgetImpl for Window {}

    impl WindowImpl for Window {
        fn close_request(&self) -> glib::Propagation {
            self.obj().end_session();
            self.parent_close_request()
        }
    }

    impl ApplicationWindowImpl for Window {}
    impl AdwApplicationWindowImpl for Window {}
}

glib::wrapper! {
    /// A window.
    pub struct Window(ObjectSubclass<imp::Window>)
        @extends adw::ApplicationWindow, gtk::ApplicationWindow, gtk::Window, gtk::Widget,
        @implements gio::ActionGroup, gio::ActionMap, gtk::Accessible, gtk::Buildable, gtk::ConstraintTarget,
            gtk::Native, gtk::Root, gtk::ShortcutManager;
}

impl Window {
    /// A window at its start page.
    pub fn new(app: &Application) -> Self {
        glib::Object::builder().property("application", app).build()
    }

    /// Whether nothing plays or is about to.
    pub fn is_idle(&self) -> bool {
        self.imp().session.borrow().is_none() && self.imp().pages.visible_child_name().as_deref() == Some("start")
    }

    /// Says something in passing.
    pub fn toast(&self, text: &str) {
        self.imp().toasts.add_toast(adw::Toast::new(&glib::markup_escape_text(text)));
    }

    /// Plays `url` with the options of `args`. The window must have been presented.
    pub fn play(&self, args: PlayArgs, url: StreamUrl) {
        self.end_session();
        let imp = self.imp();
        imp.playing.replace(Some((args.clone(), url.clone())));
        imp.player_title.set_title(url.host());
        imp.player_title.set_subtitle(url.location());
        self.set_title(Some(url.host()));
        self.show_waiting(&gettext_f("Connecting to {host}", &[("host", url.host())]), "");
        let config = crate::app::engine_config(args).map_err(|error| error.to_string()).and_then(|mut config| {
            if !matches!(config.video, VideoOutput::Off) {
                let view = VideoView::new(self).map_err(|error| error.to_string())?;
                imp.picture.set_paintable(Some(&view.paintable));
                config.video = VideoOutput::Sink(view.sink);
            }
            Ok(config)
        });
        let config = match config {
            Ok(config) => config,
            Err(why) => return self.show_failed(&why),
        };
        let Some(app) = self.application() else { return };
        let weak = self.downgrade();
        let session = Session::start(app.upcast_ref(), config, move |event| {
            if let Some(window) = weak.upgrade() {
                window.handle(event);
            }
        });
        imp.session.replace(Some(session));
        self.keep_awake(true);
    }

    fn handle(&self, event: EngineEvent) {
        let imp = self.imp();
        let host = || imp.playing.borrow().as_ref().map(|(_, url)| url.host().to_owned()).unwrap_or_default();
        match event {
            EngineEvent::Status(status) => imp.badge.show(&verdict_words::words(&status.verdict)),
            EngineEvent::Verdict(verdict) => imp.badge.show(&verdict_words::words(&verdict)),
            EngineEvent::Notice(Notice::Connecting { attempt }) if attempt > 1 => {
                self.show_waiting(&gettext_f("Connecting to {host}", &[("host", &host())]), "");
            }
            EngineEvent::Notice(Notice::Playing { .. }) => self.show_page("player"),
            EngineEvent::Notice(Notice::Lost { why, retry_in }) => {
                let seconds = retry_in.as_secs_f64().ceil() as u32;
                let again = crate::i18n::ngettext_f(
                    "Trying again in {seconds} second.",
                    "Trying again in {seconds} seconds.",
                    seconds,
                    &[("seconds", &seconds.to_string())],
                );
                self.show_waiting(&gettext("Connection Lost"), &format!("{}\n{again}", sentence(&why.to_string())));
            }
            EngineEvent::Notice(notice @ (Notice::Skipped { .. } | Notice::Warning(_))) => {
                self.toast(&sentence(&notice.text()));
            }
            EngineEvent::Notice(_) => {}
            EngineEvent::End(Ok(())) => {
                self.end_session();
                self.show_page("start");
            }
            EngineEvent::End(Err(error)) => {
                self.end_session();
                self.show_failed(&error.to_string());
            }
        }
    }

    fn show_page(&self, name: &str) {
        let imp = self.imp();
        imp.pages.set_visible_child_name(name);
        imp.spinner.set_spinning(name == "status" && imp.spinner.is_visible());
        if name == "start" {
            imp.start_page.grab_focus();
        }
    }

    fn show_waiting(&self, title: &str, description: &str) {
        self.show_status("network-wireless-acquiring-symbolic", title, description, true);
    }

    fn show_failed(&self, why: &str) {
        self.keep_awake(false);
        self.show_status("network-error-symbolic", &gettext("The Stream Cannot Be Played"), &sentence(why), false);
        self.imp().retry.grab_focus();
    }

    fn show_status(&self, icon: &str, title: &str, description: &str, waiting: bool) {
        let imp = self.imp();
        imp.status_page.set_icon_name(if waiting { None } else { Some(icon) });
        imp.status_page.set_title(&glib::markup_escape_text(title));
        imp.status_page.set_description(Some(&glib::markup_escape_text(description)));
        imp.spinner.set_visible(waiting);
        imp.retry.set_visible(!waiting);
        imp.copy_details.set_visible(!waiting);
        self.show_page("status");
    }

    fn copy_details(&self) {
        let imp = self.imp();
        let location = imp.playing.borrow().as_ref().map(|(_, url)| url.location().to_owned()).unwrap_or_default();
        let details = format!(
            "Unisono {}\n{location}\n{}",
            crate::config::VERSION,
            imp.status_page.description().unwrap_or_default()
        );
        self.clipboard().set_text(&details);
        self.toast(&gettext("Copied"));
    }

    fn retry(&self) {
        let playing = self.imp().playing.borrow().clone();
        if let Some((args, url)) = playing {
            self.play(args, url);
        }
    }

    fn stop(&self) {
        self.end_session();
        self.set_fullscreened(false);
        self.show_page("start");
    }

    fn end_session(&self) {
        // The engine ends in the background.
        drop(self.imp().session.take());
        self.imp().picture.set_paintable(gdk::Paintable::NONE);
        self.keep_awake(false);
    }

    fn keep_awake(&self, awake: bool) {
        let Some(app) = self.application() else { return };
        let inhibition = &self.imp().inhibition;
        if awake && inhibition.get() == 0 {
            let flags = gtk::ApplicationInhibitFlags::SUSPEND | gtk::ApplicationInhibitFlags::IDLE;
            inhibition.set(app.inhibit(Some(self), flags, Some(&gettext("A stream is playing"))));
        } else if !awake && inhibition.get() != 0 {
            app.uninhibit(inhibition.replace(0));
        }
    }
}

/// The engine's texts begin small, since they follow the program's name on a command line.
fn sentence(text: &str) -> String {
    let mut chars = text.chars();
    let Some(first) = chars.next() else { return String::new() };
    let end = if text.ends_with(['.', '?', '!']) { "" } else { "." };
    format!("{}{}{end}", first.to_uppercase(), chars.as_str())
}

#[cfg(test)]
mod tests {
    use super::sentence;

    #[test]
    fn sentences_begin_large_and_end() {
        assert_eq!(sentence("no answer: is it on?"), "No answer: is it on?");
        assert_eq!(sentence("the host is away"), "The host is away.");
        assert_eq!(sentence(""), "");
    }
}
