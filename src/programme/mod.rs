//! The test programme: what `unisono-send` plays, computable by anyone from the shared clock's time alone, so that a
//! recording gives the absolute presentation error and not only the skew.
