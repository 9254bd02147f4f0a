//! The table of results.

use std::path::Path;

/// One figure.
#[derive(Debug, Clone)]
pub struct Row {
    pub scenario: String,
    pub figure: &'static str,
    pub value: f64,
    pub unit: &'static str,
    pub bound: f64,
}

impl Row {
    pub fn new(scenario: impl Into<String>, figure: &'static str, value: f64, unit: &'static str, bound: f64) -> Self {
        Self { scenario: scenario.into(), figure, value, unit, bound }
    }

    pub fn holds(&self) -> bool {
        self.value <= self.bound
    }
}

fn line(row: &Row) -> String {
    let digits = if row.value.abs() < 10.0 && row.value.fract() != 0.0 { 3 } else { 0 };
    let Row { scenario, figure, value, unit, bound } = row;
    format!("| {scenario} | {figure} | {value:.digits$} {unit} | ≤ {bound} {unit} |")
}

/// Prints the rows as a table.
pub fn print(rows: &[Row]) {
    rows.iter().for_each(|row| println!("{}", line(row)));
}

/// Replaces the table in `docs/sync.md`.
pub fn document(rows: &[Row]) {
    const BEGIN: &str = "<!-- simulation: begin -->\n";
    const END: &str = "<!-- simulation: end -->";
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/sync.md");
    let text = std::fs::read_to_string(&path).expect("docs/sync.md");
    let (before, rest) = text.split_once(BEGIN).expect("the begin mark");
    let (_, after) = rest.split_once(END).expect("the end mark");
    let mut table = String::from("| scenario | figure | measured | bound |\n|---|---|---|---|\n");
    rows.iter().for_each(|row| table.extend([line(row), "\n".into()]));
    std::fs::write(path, format!("{before}{BEGIN}{table}{END}{after}")).expect("to write docs/sync.md");
}
