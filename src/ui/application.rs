//! The application: one instance a session, which opens a window for each stream.

use super::launch::{Launch, StreamUrlText};
use super::window::Window;
use crate::config::APP_ID;
use crate::i18n::gettext;
use adw::prelude::*;
use adw::subclass::prelude::*;
use gtk::{gdk, gio, glib};
use std::cell::OnceCell;

mod imp {
    use super::*;

    #[derive(Default)]
    pub struct Application {
        pub launch: OnceCell<Launch>,
    }

    #[glib::object_subclass]
    impl ObjectSubclass for Application {
        const NAME: &'static str = "UnisonoApplication";
        type Type = super::Application;
        type ParentType = adw::Application;
    }

    impl ObjectImpl for Application {}

    impl ApplicationImpl for Application {
        fn startup(&self) {
            self.parent_startup();
            load_style();
            self.obj().set_up_actions();
        }

        fn activate(&self) {
            self.parent_activate();
            let app = self.obj();
            match app.active_window() {
                Some(window) => window.present(),
                None => Window::new(&app).present(),
            }
        }

        fn open(&self, files: &[gio::File], hint: &str) {
            let launch = Launch::from_hint(hint);
            if launch.urls().is_empty() {
                // By D-Bus or a file manager: what GFile made of it.
                for file in files {
                    self.obj().play_in_window(&file.uri(), &launch);
                }
            } else {
                for url in launch.urls() {
                    self.obj().play_in_window(url, &launch);
                }
            }
        }

        /// Runs in the process that was started: sends what it shall play to the first instance, which may be itself.
        fn local_command_line(
            &self,
            arguments: &mut gio::subclass::ArgumentList,
        ) -> std::ops::ControlFlow<glib::ExitCode> {
            let launch = self.launch.get().cloned().unwrap_or_default();
            if launch.urls().is_empty() {
                return self.parent_local_command_line(arguments);
            }
            let app = self.obj();
            if let Err(error) = app.register(gio::Cancellable::NONE) {
                eprintln!("unisono: {}: {error}", gettext("the session bus cannot be used"));
                return std::ops::ControlFlow::Break(glib::ExitCode::FAILURE);
            }
            app.open(&launch.files(), &launch.hint());
            std::ops::ControlFlow::Break(glib::ExitCode::SUCCESS)
        }
    }

    impl GtkApplicationImpl for Application {}
    impl AdwApplicationImpl for Application {}
}

glib::wrapper! {
    /// The application.
    pub struct Application(ObjectSubclass<imp::Application>)
        @extends gio::Application, gtk::Application, adw::Application,
        @implements gio::ActionGroup, gio::ActionMap;
}

impl Application {
    /// The application of a process that was started by `launch`.
    pub fn new(launch: Launch) -> Self {
        let app: Self = glib::Object::builder()
            .property("application-id", APP_ID)
            .property("flags", gio::ApplicationFlags::HANDLES_OPEN)
            .build();
        // A new object has none yet.
        let _ = app.imp().launch.set(launch);
        app
    }

    /// Plays an address in the window that is still at its start page, or in a new one.
    fn play_in_window(&self, text: &str, launch: &Launch) {
        let idle =
            self.windows().into_iter().filter_map(|window| window.downcast::<Window>().ok()).find(Window::is_idle);
        let window = idle.unwrap_or_else(|| Window::new(self));
        window.present();
        match StreamUrlText::parse(text) {
            Ok((text, url)) => window.play(launch.play_args(&text), url),
            Err(error) => window.toast(&error.to_string()),
        }
    }

    fn set_up_actions(&self) {
        let new_window =
            gio::ActionEntry::builder("new-window").activate(|app: &Self, _, _| Window::new(app).present()).build();
        let quit = gio::ActionEntry::builder("quit")
            .activate(|app: &Self, _, _| app.windows().iter().for_each(GtkWindowExt::close))
            .build();
        self.add_action_entries([new_window, quit]);
        self.set_accels_for_action("app.new-window", &["<Control>n"]);
        self.set_accels_for_action("app.quit", &["<Control>q"]);
        self.set_accels_for_action("window.close", &["<Control>w"]);
        self.set_accels_for_action("win.fullscreen", &["F11", "f"]);
        self.set_accels_for_action("win.leave-fullscreen", &["Escape"]);
    }
}

fn load_style() {
    let provider = gtk::CssProvider::new();
    provider.load_from_data(include_str!("style.css"));
    if let Some(display) = gdk::Display::default() {
        gtk::style_context_add_provider_for_display(&display, &provider, gtk::STYLE_PROVIDER_PRIORITY_APPLICATION);
    }
}
