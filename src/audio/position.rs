//! A place in the stream: an absolute sample index and a fraction.

/// A position in frames: `index + fraction`. One `f64` would not do: indices count from 1900, and at 48 kHz that leaves
/// only 5 bits of fraction, 0.6 µs.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Position {
    /// The frame at or before the position.
    pub index: i64,
    /// From that frame on, in 0.0..1.0 frames.
    pub fraction: f64,
}

impl Position {
    /// The frame `index` itself.
    pub fn frame(index: i64) -> Self {
        Self { index, fraction: 0.0 }
    }

    /// The position `frames` later (earlier if negative).
    #[must_use]
    pub fn plus(self, frames: f64) -> Self {
        let sum = self.fraction + frames;
        let whole = sum.floor();
        let fraction = sum - whole;
        // A tiny negative sum rounds up to a fraction of 1.0.
        if fraction >= 1.0 {
            return Self { index: self.index.saturating_add(whole as i64).saturating_add(1), fraction: 0.0 };
        }
        Self { index: self.index.saturating_add(whole as i64), fraction }
    }

    /// How many frames this is after `earlier`; exact to 1e-9 frames while they are within a minute.
    pub fn since(self, earlier: Self) -> f64 {
        self.index.saturating_sub(earlier.index) as f64 + (self.fraction - earlier.fraction)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn adding_and_subtracting_agree(index in -1i64 << 50..1i64 << 50, a in -1e6..1e6f64, b in 0.0..1.0f64) {
            let start = Position::frame(index).plus(b);
            let end = start.plus(a);
            prop_assert!((0.0..1.0).contains(&end.fraction));
            prop_assert!((end.since(start) - a).abs() < 1e-9);
        }
    }

    #[test]
    fn a_tiny_step_back_keeps_the_fraction_below_one() {
        let position = Position::frame(7).plus(-1e-18);
        assert_eq!(position, Position::frame(7));
    }
}
