//! One connection to the sound server: its graph is kept up to date, what happens is put into a queue.

use super::graph::{Graph, Properties};
use super::heard::PathLatency;
use crate::audio::output::OutputError;
use pipewire::{self as pw, core::CoreRc, metadata::Metadata, registry::RegistryRc, spa};
use pw::port::Port;
use pw::types::ObjectType;
use spa::utils::dict::DictRef;
use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::ffi::CStr;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// Before this version real-time scheduling was in a client configuration of its own (PipeWire's NEWS of 1.3.81; there
/// are no other 1.3 versions).
const CLIENT_RT_CONF_BEFORE: (u32, u32) = (1, 3);

/// The connection itself, not one of its objects.
const CORE_ID: u32 = 0;

/// What the sound server told. Handled outside of its callbacks, so that streams can be closed on the way.
#[derive(Debug)]
pub(crate) enum Note {
    /// The graph is known as a whole; once for a connection.
    Ready,
    /// The server has answered all that was asked before.
    Synced,
    /// Something in the graph changed.
    Graph,
    /// The connection broke.
    Lost(String),
    /// The stream of that number is in another state.
    Stream(u64, pw::stream::StreamState),
    /// The latency of the path of the stream of that number changed.
    Latency(u64, PathLatency),
}

/// Notes of one thread, to itself.
pub(crate) type Notes = Rc<RefCell<VecDeque<Note>>>;

impl Properties for &DictRef {
    fn property(&self, key: &str) -> Option<&str> {
        self.get(key)
    }
}

/// The library's own loop and settings; outlives connections.
pub(crate) struct Client {
    // Fields are dropped in this order.
    context: pw::context::ContextRc,
    pub main_loop: pw::main_loop::MainLoopRc,
    server: Option<String>,
}

impl Client {
    /// # Errors
    /// [`OutputError::Library`] when PipeWire's modules are not installed, [`OutputError::Name`].
    pub fn new(server: Option<&str>) -> Result<Self, OutputError> {
        if let Some(name) = server.filter(|name| name.contains('\0')) {
            return Err(OutputError::Name(name.into()));
        }
        let library = |error: pw::Error| OutputError::Library(error.to_string());
        pw::init();
        let main_loop = pw::main_loop::MainLoopRc::new(None).map_err(library)?;
        let mut properties = pw::properties::PropertiesBox::new();
        if library_version().is_some_and(|version| version < CLIENT_RT_CONF_BEFORE) {
            properties.insert("config.name", "client-rt.conf");
        }
        properties.insert("application.name", "Unisono");
        properties.insert("application.id", crate::config::APP_ID);
        let context = pw::context::ContextRc::new(&main_loop, Some(properties)).map_err(library)?;
        Ok(Self { context, main_loop, server: server.map(str::to_owned) })
    }

    /// Connects and asks for the graph.
    ///
    /// # Errors
    /// [`OutputError::Unreachable`] when no server listens there.
    pub fn connect(&self, notes: &Notes) -> Result<Connection, OutputError> {
        let unreachable = |error: pw::Error| OutputError::Unreachable(error.to_string());
        let properties = self.server.as_deref().map(|server| {
            let mut properties = pw::properties::PropertiesBox::new();
            properties.insert(*pw::keys::REMOTE_NAME, server);
            properties
        });
        let core = self.context.connect_rc(properties).map_err(unreachable)?;
        Connection::new(core, notes.clone()).map_err(unreachable)
    }
}

/// A connection that was made.
pub(crate) struct Connection {
    // Listeners go before what they listen to.
    _core_listener: pw::core::Listener,
    _registry_listener: pw::registry::Listener,
    _metadata: Rc<RefCell<HashMap<u32, (pw::metadata::MetadataListener, Metadata)>>>,
    pub registry: RegistryRc,
    pub core: CoreRc,
    pub graph: Rc<RefCell<Graph>>,
}

impl Connection {
    fn new(core: CoreRc, notes: Notes) -> Result<Self, pw::Error> {
        let graph = Rc::new(RefCell::new(Graph::default()));
        let registry = core.get_registry_rc()?;
        let metadata = Rc::new(RefCell::new(HashMap::new()));

        let registry_listener = {
            let (added, added_notes, found, weak) =
                (graph.clone(), notes.clone(), metadata.clone(), registry.downgrade());
            let (removed, removed_notes, gone) = (graph.clone(), notes.clone(), metadata.clone());
            registry
                .add_listener_local()
                .global(move |global| {
                    let Some(properties) = global.props else { return };
                    match global.type_ {
                        ObjectType::Node => added.borrow_mut().add_node(global.id, &properties),
                        ObjectType::Link => added.borrow_mut().add_link(global.id, &properties),
                        ObjectType::Port => added.borrow_mut().add_port(global.id, &properties),
                        ObjectType::Metadata => {
                            let name = properties.get("metadata.name").unwrap_or_default().to_owned();
                            if let Some(registry) = weak.upgrade()
                                && let Ok(proxy) = registry.bind::<Metadata, _>(global)
                            {
                                let listener = watch_metadata(&proxy, name, added.clone(), added_notes.clone());
                                found.borrow_mut().insert(global.id, (listener, proxy));
                            }
                            return;
                        }
                        _ => return,
                    }
                    added_notes.borrow_mut().push_back(Note::Graph);
                })
                .global_remove(move |id| {
                    removed.borrow_mut().remove(id);
                    drop(gone.borrow_mut().remove(&id));
                    removed_notes.borrow_mut().push_back(Note::Graph);
                })
                .register()
        };

        let core_listener = {
            let (done_notes, error_notes) = (notes.clone(), notes);
            let (rounds, weak) = (Cell::new(0), core.downgrade());
            core.add_listener_local()
                .done(move |id, _| {
                    if id != CORE_ID {
                        return;
                    }
                    rounds.set(rounds.get() + 1);
                    // The first answer comes after all globals, and the metadata were asked for; the second one after
                    // their values.
                    match (rounds.get(), weak.upgrade()) {
                        (1, Some(core)) => drop(core.sync(0)),
                        (2, _) => done_notes.borrow_mut().push_back(Note::Ready),
                        _ => done_notes.borrow_mut().push_back(Note::Synced),
                    }
                })
                .error(move |id, _, result, message| {
                    if id == CORE_ID && result == -libc::EPIPE {
                        error_notes.borrow_mut().push_back(Note::Lost(message.to_owned()));
                    } else {
                        tracing::debug!(id, result, message, "PipeWire reports an error");
                    }
                })
                .register()
        };
        core.sync(0)?;
        Ok(Self {
            _core_listener: core_listener,
            _registry_listener: registry_listener,
            _metadata: metadata,
            registry,
            core,
            graph,
        })
    }
}

impl Connection {
    /// The latency that this sink reports, from the start of a cycle to the ear; nothing when it has no port.
    ///
    /// # Errors
    /// [`OutputError::NoAnswer`], or that the connection broke.
    pub fn latency_of(
        &self,
        client: &Client,
        notes: &Notes,
        sink: u32,
        timeout: Duration,
    ) -> Result<PathLatency, OutputError> {
        let found = Rc::new(Cell::new(PathLatency::default()));
        let Some(port) = self.graph.borrow().port_of(sink) else { return Ok(found.get()) };
        let (weak, answer) = (self.registry.downgrade(), found.clone());
        let bound = Rc::new(RefCell::new(None));
        // A second registry tells of every global again, with what binding needs.
        let registry = self.core.get_registry_rc().map_err(|error| OutputError::Unreachable(error.to_string()))?;
        let kept = bound.clone();
        let _listener = registry
            .add_listener_local()
            .global(move |global| {
                if global.id != port {
                    return;
                }
                let Some(Ok(proxy)) = weak.upgrade().map(|registry| registry.bind::<Port, _>(global)) else { return };
                let answer = answer.clone();
                let listener = proxy
                    .add_listener_local()
                    .param(move |_, id, _, _, param| {
                        if id == spa::param::ParamType::Latency
                            && let Some(path) =
                                param.and_then(|param| PathLatency::parse(param, spa::sys::SPA_DIRECTION_INPUT))
                        {
                            answer.set(path);
                        }
                    })
                    .register();
                proxy.enum_params(0, Some(spa::param::ParamType::Latency), 0, u32::MAX);
                *kept.borrow_mut() = Some((listener, proxy));
            })
            .register();
        // The first answer comes after the globals, the second after the port's parameters.
        for _ in 0..2 {
            self.sync()?;
            wait_until(client, notes, timeout, |note| matches!(note, Note::Synced))?;
        }
        drop(bound.borrow_mut().take());
        Ok(found.get())
    }

    /// Asks for [`Note::Synced`].
    fn sync(&self) -> Result<(), OutputError> {
        self.core.sync(0).map(drop).map_err(|error| OutputError::Unreachable(error.to_string()))
    }
}

/// Runs the loop until `wanted` says yes to a note.
///
/// # Errors
/// [`OutputError::NoAnswer`] after `timeout`, [`OutputError::Unreachable`] when the connection breaks.
pub(crate) fn wait_until(
    client: &Client,
    notes: &Notes,
    timeout: Duration,
    mut wanted: impl FnMut(&Note) -> bool,
) -> Result<(), OutputError> {
    let deadline = Instant::now() + timeout;
    loop {
        loop {
            let Some(note) = notes.borrow_mut().pop_front() else { break };
            if wanted(&note) {
                return Ok(());
            }
            if let Note::Lost(reason) = note {
                return Err(OutputError::Unreachable(reason));
            }
        }
        let now = Instant::now();
        if now >= deadline {
            return Err(OutputError::NoAnswer(timeout));
        }
        // Whole milliseconds, rounded up, so that it does not spin at the end.
        let left = deadline.duration_since(now) + Duration::from_millis(1);
        client.main_loop.loop_().iterate(pw::loop_::Timeout::Finite(left));
    }
}

fn watch_metadata(
    proxy: &Metadata,
    name: String,
    graph: Rc<RefCell<Graph>>,
    notes: Notes,
) -> pw::metadata::MetadataListener {
    proxy
        .add_listener_local()
        .property(move |_subject, key, _type, value| {
            graph.borrow_mut().set_metadata(&name, key, value);
            notes.borrow_mut().push_back(Note::Graph);
            0
        })
        .register()
}

/// Major and minor version of the library that runs (not the one that was built against).
fn library_version() -> Option<(u32, u32)> {
    // SAFETY: a static string.
    let text = unsafe {
        let text = pw::sys::pw_get_library_version();
        (!text.is_null()).then(|| CStr::from_ptr(text))
    }?;
    let mut parts = text.to_str().ok()?.split('.').map(|part| part.parse().ok());
    Some((parts.next()??, parts.next()??))
}
