//! A private PipeWire: its own runtime directory, session bus, session manager and null sinks. Killed, by process id,
//! when dropped.
//!
//! ```no_run
//! let Some(server) = pipewire::Server::start(&["roomA", "roomB"]) else { return };
//! ```

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};
use unisono::audio::output::pipewire::list_devices;

/// What must be installed: Debian's pipewire, pipewire-bin, wireplumber and dbus-daemon.
const PROGRAMS: [&str; 5] = ["pipewire", "wireplumber", "dbus-daemon", "pw-cli", "pw-metadata"];
/// For something to happen that takes a second on an idle host.
pub const PATIENCE: Duration = Duration::from_secs(30);
/// Between two looks.
const POLL: Duration = Duration::from_millis(20);

/// How the private PipeWire is set up.
#[derive(Debug, Clone)]
pub struct Setup {
    /// Null sinks that are there from the start, also after a restart.
    pub sinks: Vec<String>,
    /// Of the graph, Hz.
    pub rate: u32,
    /// Frames a cycle.
    pub quantum: u32,
}

impl Default for Setup {
    fn default() -> Self {
        Self { sinks: Vec::new(), rate: 48_000, quantum: 1024 }
    }
}

pub struct Server {
    pub dir: tempfile::TempDir,
    bus: Child,
    pipewire: Option<Child>,
    session: Option<Child>,
}

impl Server {
    /// Starts one with the given null sinks; `None`, said on stderr, when a program is not installed.
    pub fn start(sinks: &[&str]) -> Option<Self> {
        Self::start_with(&Setup { sinks: sinks.iter().map(|sink| (*sink).to_owned()).collect(), ..Setup::default() })
    }

    pub fn start_with(setup: &Setup) -> Option<Self> {
        if let Some(missing) = PROGRAMS.into_iter().find(|program| !is_installed(program)) {
            eprintln!("skipped: {missing} is not installed");
            return None;
        }
        // A short path: a socket's name has at most 107 bytes.
        let dir = tempfile::Builder::new().prefix("pw").tempdir_in("/tmp").unwrap();
        let fragments = dir.path().join("config/pipewire/pipewire.conf.d");
        std::fs::create_dir_all(&fragments).unwrap();
        std::fs::write(fragments.join("10-test.conf"), configuration(setup)).unwrap();
        without_bluetooth(&dir.path().join("config/wireplumber"));
        let bus = spawn(
            command(dir.path(), "dbus-daemon")
                .arg("--session")
                .arg("--nofork")
                .arg(format!("--address=unix:path={}", dir.path().join("bus").display())),
            &dir.path().join("bus.log"),
        );
        until("the session bus", || dir.path().join("bus").exists());
        let mut server = Self { dir, bus, pipewire: None, session: None };
        server.resume();
        for sink in &setup.sinks {
            server.wait_for_sink(sink);
        }
        until("the session manager", || setup.sinks.is_empty() || server.devices().iter().any(|device| device.default));
        Some(server)
    }

    /// The socket, for `--server` and [`unisono::audio::output::OutputConfig::server`].
    pub fn socket(&self) -> String {
        self.dir.path().join("pipewire-0").display().to_string()
    }

    pub fn devices(&self) -> Vec<unisono::audio::output::Device> {
        list_devices(Some(&self.socket())).unwrap_or_default()
    }

    pub fn wait_for_sink(&self, name: &str) {
        until(name, || self.devices().iter().any(|device| device.name == name));
    }

    /// A program that finds this PipeWire and no other.
    pub fn command(&self, program: &str) -> Command {
        command(self.dir.path(), program)
    }

    /// Runs a program to its end.
    pub fn run(&self, program: &str, arguments: &[&str]) -> Output {
        let output = self.command(program).args(arguments).stdin(Stdio::null()).output().unwrap();
        assert!(output.status.success(), "{program} {arguments:?}: {output:?}");
        output
    }

    /// Makes another null sink.
    pub fn add_sink(&self, name: &str) {
        self.run("pw-cli", &["create-node", "adapter", &format!("{{ {} }}", sink_properties(name))]);
        self.wait_for_sink(name);
    }

    /// Takes a sink away.
    pub fn remove_sink(&self, name: &str) {
        let id = self.node(name).unwrap_or_else(|| panic!("no sink {name}"));
        self.run("pw-cli", &["destroy", &id.to_string()]);
        until("the sink to go", || self.devices().iter().all(|device| device.name != name));
    }

    /// The number of the node of that name.
    pub fn node(&self, name: &str) -> Option<u32> {
        let listing = String::from_utf8(self.run("pw-cli", &["ls", "Node"]).stdout).unwrap();
        // Blocks of "\tid 31, type PipeWire:Interface:Node/3", each followed by its properties.
        let mut id = None;
        for line in listing.lines() {
            if let Some(rest) = line.trim_start().strip_prefix("id ") {
                id = rest.split(',').next().and_then(|number| number.parse().ok());
            }
            if line.contains(&format!("node.name = \"{name}\"")) {
                return id;
            }
        }
        None
    }

    /// Sets one of the graph's settings, such as `clock.force-quantum`.
    pub fn set(&self, key: &str, value: impl ToString) {
        self.run("pw-metadata", &["-n", "settings", "0", key, &value.to_string()]);
    }

    /// Stops PipeWire's process for so long, as a host does that is overloaded or suspended.
    pub fn stall(&self, time: Duration) {
        let Some(pipewire) = &self.pipewire else { return };
        let pid = libc::pid_t::try_from(pipewire.id()).unwrap();
        // SAFETY: our own child, which was not waited for.
        unsafe { libc::kill(pid, libc::SIGSTOP) };
        std::thread::sleep(time);
        unsafe { libc::kill(pid, libc::SIGCONT) };
    }

    /// Ends PipeWire and its session manager, as when the user's session restarts them.
    pub fn pause(&mut self) {
        for child in [self.session.take(), self.pipewire.take()].into_iter().flatten() {
            end(child);
        }
    }

    /// Starts them again.
    pub fn resume(&mut self) {
        let dir = self.dir.path();
        self.pipewire = Some(spawn(&mut command(dir, "pipewire"), &dir.join("pipewire.log")));
        until("PipeWire", || list_devices(Some(&self.socket())).is_ok());
        self.session = Some(spawn(&mut command(dir, "wireplumber"), &dir.join("wireplumber.log")));
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.pause();
        let _ = self.bus.kill();
        let _ = self.bus.wait();
        if std::thread::panicking() {
            for log in ["pipewire.log", "wireplumber.log"] {
                let text = std::fs::read_to_string(self.dir.path().join(log)).unwrap_or_default();
                eprintln!("--- {log}\n{text}");
            }
        }
    }
}

/// Waits until `ready`; panics when that takes absurdly long.
pub fn until(what: &str, mut ready: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !ready() {
        assert!(Instant::now() < deadline, "{what}: nothing after {PATIENCE:?}");
        std::thread::sleep(POLL);
    }
}

fn end(mut child: Child) {
    let _ = child.kill();
    let _ = child.wait();
}

fn is_installed(program: &str) -> bool {
    std::env::var_os("PATH").is_some_and(|path| std::env::split_paths(&path).any(|dir| dir.join(program).is_file()))
}

fn command(dir: &Path, program: &str) -> Command {
    let mut command = Command::new(program);
    let at = |name: &str| -> PathBuf { dir.join(name) };
    command
        .env("XDG_RUNTIME_DIR", dir)
        .env("PIPEWIRE_RUNTIME_DIR", dir)
        .env("XDG_CONFIG_HOME", at("config"))
        .env("XDG_STATE_HOME", at("state"))
        .env("XDG_DATA_HOME", at("data"))
        .env("HOME", dir)
        .env("DBUS_SESSION_BUS_ADDRESS", format!("unix:path={}", at("bus").display()))
        .env_remove("PIPEWIRE_REMOTE")
        .env_remove("DISPLAY")
        .env_remove("WAYLAND_DISPLAY");
    command
}

fn spawn(command: &mut Command, log: &Path) -> Child {
    let log = File::options().create(true).append(true).open(log).unwrap();
    command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log).spawn().unwrap()
}

fn sink_properties(name: &str) -> String {
    format!(
        "factory.name = support.null-audio-sink node.name = {name} node.description = \"Test {name}\" \
         media.class = Audio/Sink object.linger = true audio.position = [ FL FR ]"
    )
}

/// Keeps WirePlumber (0.4, and 0.5 in its own language) from Bluetooth: for that it wants logind, and ends on a host
/// without one.
fn without_bluetooth(config: &Path) {
    for (folder, name, text) in [
        ("bluetooth.lua.d", "80-test.lua", "bluez_monitor.enabled = false\n"),
        ("wireplumber.conf.d", "80-test.conf", "wireplumber.profiles = { main = { monitor.bluez = disabled } }\n"),
    ] {
        std::fs::create_dir_all(config.join(folder)).unwrap();
        std::fs::write(config.join(folder).join(name), text).unwrap();
    }
}

fn configuration(setup: &Setup) -> String {
    let sinks: String = setup
        .sinks
        .iter()
        .map(|sink| format!("  {{ factory = adapter args = {{ {} }} }}\n", sink_properties(sink)))
        .collect();
    format!(
        "context.properties = {{\n  default.clock.rate = {rate}\n  default.clock.allowed-rates = [ 44100 48000 ]\n  \
         default.clock.quantum = {quantum}\n  default.clock.min-quantum = 32\n}}\ncontext.objects = [\n{sinks}]\n",
        rate = setup.rate,
        quantum = setup.quantum,
    )
}
