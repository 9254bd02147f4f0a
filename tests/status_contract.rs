//! docs/status.md is a contract: every line that the program writes fits the schema, and every field is documented.

mod support;

use serde_json::Value;
use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;
use support::camera::stream::Ntp64;
use support::camera::{Camera, Script};
use support::room::Room;

fn file(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn keys(value: &Value, into: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                into.insert(name.clone());
                keys(value, into);
            }
        }
        Value::Array(values) => values.iter().for_each(|value| keys(value, into)),
        _ => {}
    }
}

/// All kinds of lines: a room that plays sound and picture and loses its camera, and one that fails.
fn lines() -> Vec<Value> {
    let mut camera = Camera::start(Script::both().each_stream(|stream| stream.ntp64 = Some(Ntp64::default())));
    let mut said = Vec::new();
    for options in [&["--no-audio"][..], &["--video-sink", "fakesink sync=true"]] {
        let mut room = Room::start(&camera.url(), options);
        room.wait_for("frames", Duration::from_secs(40), |line| line["video"]["error_us"]["p50"].is_number());
        camera.kill();
        room.wait_for("the loss", Duration::from_secs(40), |line| line["event"] == "lost");
        camera.revive();
        room.signal(libc::SIGTERM);
        said.extend(room.wait_for_end(Duration::from_secs(20)).2);
    }
    let room = Room::start("rtsp://nosuch.invalid/x", &[]);
    said.extend(room.wait_for_end(Duration::from_secs(20)).2);
    said
}

#[test]
fn every_line_fits_the_schema_and_every_field_is_documented() {
    let schema: Value = serde_json::from_str(&file("docs/status.schema.json")).expect("the schema is JSON");
    let validator = jsonschema::validator_for(&schema).expect("the schema is a schema");
    let documented = file("docs/status.md");
    let said = lines();
    for kind in ["start", "status", "event", "end"] {
        assert!(said.iter().any(|line| line["type"] == kind), "no {kind} line was seen");
    }
    for line in &said {
        let errors: Vec<String> = validator.iter_errors(line).map(|error| error.to_string()).collect();
        assert!(errors.is_empty(), "{errors:?} in {line}");
        let mut names = BTreeSet::new();
        keys(line, &mut names);
        for name in names {
            assert!(documented.contains(&format!("`{name}`")), "{name} is not in docs/status.md");
        }
        if let Some(code) = line["reason"]["code"].as_str() {
            assert!(documented.contains(&format!("`{code}`")), "the reason {code} is not in docs/status.md");
        }
        if let Some(code) = line["event"].as_str() {
            assert!(documented.contains(&format!("`{code}`")), "the event {code} is not in docs/status.md");
        }
    }
}

/// The schema can say no: a line with a field of another type, and one without a field, do not fit.
#[test]
fn the_schema_refuses_what_is_wrong() {
    let schema: Value = serde_json::from_str(&file("docs/status.schema.json")).unwrap();
    let validator = jsonschema::validator_for(&schema).unwrap();
    let good = serde_json::json!({"type": "end", "version": 1, "uptime_s": 1.5, "exit_code": 0, "error": null});
    assert!(validator.is_valid(&good));
    for (field, value) in [("uptime_s", Value::from("1")), ("type", "finish".into()), ("exit_code", (-1).into())] {
        let mut bad = good.clone();
        bad[field] = value;
        assert!(!validator.is_valid(&bad), "{bad}");
        bad.as_object_mut().unwrap().remove(field);
        assert!(!validator.is_valid(&bad), "{bad}");
    }
}
