//! What is known of the sound server's graph: its sinks, its links, the default sink and the clock's settings. Fed by
//! the registry's events, pure.

use crate::audio::output::Device;
use std::collections::BTreeMap;

/// The rate that PipeWire runs at unless it is told otherwise, Hz (`default.clock.rate`).
pub(super) const DEFAULT_RATE: u32 = 48_000;
/// The sink that session managers make up while there is no other (PulseAudio's name for it, which WirePlumber took).
pub const DUMMY_SINK: &str = "auto_null";

/// A node: a sink, a stream, a filter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Node {
    pub name: String,
    pub description: String,
    /// Whether sound can be played to it.
    sink: bool,
}

/// What a property of a node, a link or a metadata object says: `None` when there is no such property.
pub(crate) trait Properties {
    fn property(&self, key: &str) -> Option<&str>;
}

#[derive(Debug, Default)]
pub(crate) struct Graph {
    nodes: BTreeMap<u32, Node>,
    /// Link → (node that puts out, node that takes in).
    links: BTreeMap<u32, (u32, u32)>,
    /// Input port → node.
    ports: BTreeMap<u32, u32>,
    default_sink: Option<String>,
    clock_rate: Option<u32>,
    forced_rate: Option<u32>,
}

impl Graph {
    /// A node appeared.
    pub fn add_node(&mut self, id: u32, properties: &impl Properties) {
        let class = properties.property("media.class").unwrap_or_default();
        let sink = class == "Audio/Sink" || class == "Audio/Duplex";
        let Some(name) = properties.property("node.name") else { return };
        let description = properties
            .property("node.description")
            .or_else(|| properties.property("node.nick"))
            .filter(|text| !text.is_empty())
            .unwrap_or(name);
        self.nodes.insert(id, Node { name: name.into(), description: description.into(), sink });
    }

    /// A link appeared.
    pub fn add_link(&mut self, id: u32, properties: &impl Properties) {
        let node = |key| properties.property(key).and_then(|id| id.parse().ok());
        if let (Some(from), Some(to)) = (node("link.output.node"), node("link.input.node")) {
            self.links.insert(id, (from, to));
        }
    }

    /// A port appeared.
    pub fn add_port(&mut self, id: u32, properties: &impl Properties) {
        if let (Some("in"), Some(node)) =
            (properties.property("port.direction"), properties.property("node.id").and_then(|id| id.parse().ok()))
        {
            self.ports.insert(id, node);
        }
    }

    /// Whatever had this number went away.
    pub fn remove(&mut self, id: u32) {
        self.nodes.remove(&id);
        self.links.remove(&id);
        self.ports.remove(&id);
    }

    /// A property of the metadata object called `metadata` changed.
    pub fn set_metadata(&mut self, metadata: &str, key: Option<&str>, value: Option<&str>) {
        match (metadata, key) {
            ("default", Some("default.audio.sink")) => self.default_sink = value.and_then(json_name),
            ("settings", Some("clock.rate")) => self.clock_rate = value.and_then(rate),
            ("settings", Some("clock.force-rate")) => self.forced_rate = value.and_then(rate),
            // All properties were cleared.
            ("default", None) => self.default_sink = None,
            ("settings", None) => (self.clock_rate, self.forced_rate) = (None, None),
            _ => {}
        }
    }

    fn sinks(&self) -> impl Iterator<Item = (u32, &Node)> {
        self.nodes.iter().filter(|(_, node)| node.sink).map(|(id, node)| (*id, node))
    }

    /// Whether there is anything to play to.
    pub fn has_sinks(&self) -> bool {
        self.sinks().next().is_some()
    }

    /// The sink of that name.
    pub fn sink(&self, name: &str) -> Option<(u32, &Node)> {
        self.sinks().find(|(_, sink)| sink.name == name)
    }

    /// Whether there is a node of that name, sink or filter.
    pub fn has_node(&self, name: &str) -> bool {
        self.nodes.values().any(|node| node.name == name)
    }

    /// What this node plays to: a sink, or a filter that the session manager put in between.
    pub fn target_of(&self, node: u32) -> Option<&Node> {
        let targets = self.links.values().filter(|(from, _)| *from == node).filter_map(|(_, to)| self.nodes.get(to));
        // Sinks are the greatest.
        targets.max_by_key(|target| target.sink)
    }

    /// Whether this node is linked to anything.
    pub fn is_linked(&self, node: u32) -> bool {
        self.links.values().any(|(from, _)| *from == node)
    }

    /// An input port of this sink; any of them reports the sink's latency.
    pub fn port_of(&self, sink: u32) -> Option<u32> {
        self.ports.iter().find(|(_, node)| **node == sink).map(|(id, _)| *id)
    }

    /// The default sink's name, if the session manager named one that is there.
    pub fn default_sink(&self) -> Option<&str> {
        self.default_sink.as_deref().filter(|name| self.sink(name).is_some())
    }

    /// All sinks, the default one marked, in the order in which they appeared.
    pub fn devices(&self) -> Vec<Device> {
        let default = self.default_sink();
        let device = |sink: &Node| Device {
            name: sink.name.clone(),
            description: sink.description.clone(),
            default: default == Some(&sink.name),
        };
        self.sinks().map(|(_, sink)| device(sink)).collect()
    }

    /// The rate that the graph will most likely run at, Hz. The first cycle tells for sure.
    pub fn rate_hint(&self) -> u32 {
        self.forced_rate.or(self.clock_rate).unwrap_or(DEFAULT_RATE)
    }
}

/// `{"name": "alsa_output…"}`, as session managers write the default sink.
fn json_name(text: &str) -> Option<String> {
    let value: serde_json::Value = serde_json::from_str(text).ok()?;
    Some(value.get("name")?.as_str()?.to_owned())
}

/// A rate; 0 means that none is set.
fn rate(text: &str) -> Option<u32> {
    text.parse().ok().filter(|rate| *rate > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Properties for &[(&str, &str)] {
        fn property(&self, key: &str) -> Option<&str> {
            self.iter().find(|(name, _)| *name == key).map(|(_, value)| *value)
        }
    }

    fn sink(name: &str) -> Vec<(&str, &str)> {
        vec![("media.class", "Audio/Sink"), ("node.name", name), ("node.description", "A box")]
    }

    fn graph() -> Graph {
        let mut graph = Graph::default();
        graph.add_node(31, &sink("one").as_slice());
        graph.add_node(32, &sink("two").as_slice());
        graph.add_node(33, &[("media.class", "Audio/Source"), ("node.name", "microphone")].as_slice());
        graph.add_link(50, &[("link.output.node", "40"), ("link.input.node", "32")].as_slice());
        graph.add_port(60, &[("port.direction", "out"), ("node.id", "32")].as_slice());
        graph.add_port(61, &[("port.direction", "in"), ("node.id", "32")].as_slice());
        graph
    }

    #[test]
    fn sinks_and_what_plays_to_them() {
        let mut graph = graph();
        assert_eq!(graph.sink("one").unwrap().0, 31);
        assert!(graph.sink("microphone").is_none());
        assert_eq!(graph.target_of(40).unwrap().name, "two");
        assert_eq!(graph.port_of(32), Some(61));
        assert!(graph.is_linked(40));
        graph.remove(32);
        assert!(graph.target_of(40).is_none() && !graph.has_node("two"));
        graph.remove(50);
        assert!(!graph.is_linked(40) && graph.has_sinks());
    }

    #[test]
    fn a_stream_may_play_to_a_filter_and_to_a_sink_beside() {
        let mut graph = graph();
        graph.add_node(34, &[("media.class", "Stream/Input/Audio"), ("node.name", "equalizer")].as_slice());
        graph.add_link(51, &[("link.output.node", "41"), ("link.input.node", "34")].as_slice());
        assert_eq!(graph.target_of(41).unwrap().name, "equalizer");
        assert!(graph.sink("equalizer").is_none() && graph.has_node("equalizer"));
        graph.add_link(52, &[("link.output.node", "41"), ("link.input.node", "31")].as_slice());
        assert_eq!(graph.target_of(41).unwrap().name, "one");
    }

    #[test]
    fn the_default_is_marked_while_it_is_there() {
        let mut graph = graph();
        assert!(graph.devices().iter().all(|device| !device.default));
        graph.set_metadata("default", Some("default.audio.sink"), Some(r#"{ "name": "two" }"#));
        assert_eq!(graph.default_sink(), Some("two"));
        assert_eq!(graph.devices().iter().map(|device| device.default).collect::<Vec<_>>(), [false, true]);
        graph.remove(32);
        assert_eq!(graph.default_sink(), None);
        for broken in ["", "two", "{}", r#"{"name": 3}"#] {
            graph.set_metadata("default", Some("default.audio.sink"), Some(broken));
            assert_eq!(graph.default_sink(), None);
        }
    }

    #[test]
    fn a_forced_rate_wins() {
        let mut graph = graph();
        assert_eq!(graph.rate_hint(), DEFAULT_RATE);
        graph.set_metadata("settings", Some("clock.rate"), Some("44100"));
        graph.set_metadata("settings", Some("clock.force-rate"), Some("0"));
        assert_eq!(graph.rate_hint(), 44_100);
        graph.set_metadata("settings", Some("clock.force-rate"), Some("96000"));
        assert_eq!(graph.rate_hint(), 96_000);
        graph.set_metadata("settings", None, None);
        assert_eq!(graph.rate_hint(), DEFAULT_RATE);
    }

    #[test]
    fn a_sink_without_a_description_goes_by_its_name() {
        let mut graph = Graph::default();
        graph.add_node(1, &[("media.class", "Audio/Sink"), ("node.name", "bare"), ("node.description", "")].as_slice());
        assert_eq!(graph.devices()[0].description, "bare");
    }
}
