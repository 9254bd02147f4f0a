//! The verdict in words for people, with an icon whose shape differs for each, and a style class for its colour.

use crate::engine::verdict::{Reason, Verdict};
use crate::i18n::{gettext, gettext_f};

/// How a verdict is shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VerdictWords {
    /// One or two words.
    pub title: String,
    /// A sentence: what is so, why, and what to do.
    pub sentence: String,
    /// A symbolic icon of the icon theme.
    pub icon: &'static str,
    /// A style class of ours.
    pub class: &'static str,
}

/// All style classes that [`words`] may give.
pub const CLASSES: [&str; 4] = ["verdict-good", "verdict-fair", "verdict-wait", "verdict-bad"];

/// What to say of a verdict.
pub fn words(verdict: &Verdict) -> VerdictWords {
    let (title, icon, class) = match verdict {
        Verdict::Synced => (gettext("In sync"), "emblem-ok-symbolic", "verdict-good"),
        Verdict::Approximate(_) => (gettext("Nearly in sync"), "emblem-default-symbolic", "verdict-fair"),
        Verdict::Holdover => (gettext("Coasting"), "media-playback-pause-symbolic", "verdict-fair"),
        Verdict::Acquiring(_) => (gettext("Synchronizing"), "content-loading-symbolic", "verdict-wait"),
        Verdict::Unsynced(_) => (gettext("Not in sync"), "dialog-warning-symbolic", "verdict-bad"),
    };
    let sentence = match verdict {
        Verdict::Synced => gettext("Every frame is presented at the time that all rooms agreed on."),
        Verdict::Holdover => {
            gettext("The time source no longer answers. This room keeps time by itself, and is still exact enough.")
        }
        Verdict::Approximate(reason) | Verdict::Acquiring(reason) | Verdict::Unsynced(reason) => {
            reason_sentence(reason)
        }
    };
    VerdictWords { title, sentence, icon, class }
}

/// A reason with cause and remedy, for people at a window: options are named as the preferences name them.
fn reason_sentence(reason: &Reason) -> String {
    let ms = |ns: i64| format!("{:.1}", ns as f64 * 1e-6);
    match reason {
        Reason::SyncOff => gettext("Synchronization is switched off. Turn it on in the preferences."),
        Reason::ClockUnreachable => gettext(
            "The shared clock does not answer, so the stream plays without it. Check the clock in the preferences, \
             and that the time server is reachable by UDP.",
        ),
        Reason::WaitingForClock => gettext("Waiting for the shared clock."),
        Reason::ClockLost => gettext("The shared clock stopped answering. Check the time server and the network."),
        Reason::ClockUncertain(uncertainty) => gettext_f(
            "The shared clock is known to {ms} ms only. A time server nearer in the network is more exact.",
            &[("ms", &format!("{:.1}", uncertainty.as_secs_f64() * 1e3))],
        ),
        Reason::ClockNotDisciplined => gettext(
            "This computer’s clock is not known to be right. Turn on automatic date and time, or choose a time server \
             that the sender follows too.",
        ),
        Reason::Connecting => gettext("Connecting to the sender."),
        Reason::WaitingForFrames => gettext("Waiting for the first frame."),
        Reason::WaitingForReports => gettext("Waiting for the sender to tell the time of its frames."),
        Reason::NoSenderReports => gettext(
            "The sender never tells the time of its frames. Turn on RTCP sender reports or time stamps in the sender.",
        ),
        Reason::ImplausibleReports(_) => {
            gettext("The times that the sender tells make no sense. Check the date and time settings of the sender.")
        }
        Reason::SenderClockDiffers { text, .. } => gettext_f(
            "The sender uses another clock ({difference}). Let both follow the same time server.",
            &[("difference", text)],
        ),
        Reason::LateFrames { needed } => gettext_f(
            "Frames come too late. Set the latency to at least {ms} ms in every room.",
            &[("ms", &needed.as_millis().to_string())],
        ),
        Reason::PresentationError { error_ns, bound_ns } => gettext_f(
            "Frames are presented {error} ms off; {bound} ms would do.",
            &[("error", &ms(*error_ns)), ("bound", &ms(*bound_ns))],
        ),
        Reason::Predicted => gettext("The timing of the output cannot be measured, only predicted."),
        Reason::AudioUnsteered => gettext(
            "The sound goes through an output that does not follow the shared clock. Expect some milliseconds between rooms.",
        ),
        Reason::WaitingForServo => gettext("The sound is locking to the shared clock."),
        Reason::NoAudioOutput(_) => gettext("There is no sound output. Check the sound settings of this computer."),
        #[allow(unreachable_patterns)] // a reason that is newer than this table still speaks for itself
        other => other.text(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn verdicts_differ_by_word_and_by_shape() {
        let verdicts = [
            Verdict::Synced,
            Verdict::Approximate(Reason::Predicted),
            Verdict::Holdover,
            Verdict::Acquiring(Reason::Connecting),
            Verdict::Unsynced(Reason::SyncOff),
        ];
        let shown: Vec<VerdictWords> = verdicts.iter().map(words).collect();
        for (at, one) in shown.iter().enumerate() {
            assert!(CLASSES.contains(&one.class));
            for other in &shown[at + 1..] {
                assert_ne!(one.title, other.title);
                assert_ne!(one.icon, other.icon);
            }
        }
    }

    #[test]
    fn the_sentence_holds_the_figure_to_type() {
        let verdict = Verdict::Unsynced(Reason::LateFrames { needed: Duration::from_millis(1350) });
        assert!(words(&verdict).sentence.contains("1350 ms"), "{}", words(&verdict).sentence);
    }
}
