//! One room's engine behind a window. The engine starts and ends on other threads: its sink waits for the main loop when
//! it changes state, so that a main loop which waited for the engine would hang.

use crate::engine::{Command, Commander, Engine, EngineConfig, EngineError, EngineEvent};
use gtk::gio::prelude::*;
use gtk::{gio, glib};
use std::cell::RefCell;
use std::rc::Rc;

/// A room that plays for a window. Dropping it ends the room, in the background.
pub struct Session {
    state: Rc<RefCell<State>>,
}

enum State {
    /// The engine is being started, on another thread.
    Starting,
    Running(Commander),
    /// The window let go of it.
    Ended,
}

impl Session {
    /// Starts a room; `on_event` gets its events on the main loop until the session is dropped. `app` lives on until the
    /// room has said goodbye to its server.
    pub fn start(app: &gio::Application, config: EngineConfig, on_event: impl Fn(EngineEvent) + 'static) -> Self {
        let state = Rc::new(RefCell::new(State::Starting));
        let task = follow(state.clone(), config, on_event);
        let hold = app.hold();
        glib::spawn_future_local(async move {
            task.await;
            drop(hold);
        });
        Self { state }
    }

    /// Asks the engine to do something; nothing happens before it has started or after its end.
    pub fn send(&self, command: Command) {
        if let State::Running(commander) = &*self.state.borrow() {
            commander.send(command);
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if let State::Running(commander) = self.state.replace(State::Ended) {
            commander.send(Command::Quit);
        }
    }
}

/// Starts the engine, hands its events on, and lets it end.
async fn follow(state: Rc<RefCell<State>>, config: EngineConfig, on_event: impl Fn(EngineEvent)) {
    let wanted = || !matches!(*state.borrow(), State::Ended);
    let engine = match gio::spawn_blocking(move || Engine::start(config)).await {
        Ok(Ok(engine)) => engine,
        Ok(Err(error)) => {
            return if wanted() {
                on_event(EngineEvent::End(Err(error)))
            };
        }
        Err(_) => {
            let error = EngineError::Internal("the engine could not be started".into());
            return if wanted() {
                on_event(EngineEvent::End(Err(error)))
            };
        }
    };
    let events = engine.events().clone();
    if wanted() {
        state.replace(State::Running(engine.commander()));
        while let Some(event) = events.recv().await {
            let end = matches!(event, EngineEvent::End(_));
            if wanted() {
                on_event(event);
            }
            if end {
                break;
            }
        }
    }
    // Joins the engine's thread.
    let _ = gio::spawn_blocking(move || drop(engine)).await;
}
