//! The proxy's configuration file.

use manypath_proxy::config::read_text;
use manypath_proxy::target::rules::{Network, Pattern};

/// A file is understood as a whole, or each fault has a place in it. No file that it names is opened.
pub fn config(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    pattern(text);
    match read_text(text) {
        Ok(draft) => {
            assert_eq!(draft.listeners.len(), draft.config.listeners.len());
            assert_eq!(draft.rules.len(), draft.config.rules.len());
            assert_eq!(draft.paths.len(), draft.config.paths.len());
        }
        Err(faults) => {
            assert!(!faults.is_empty(), "refused without a reason");
            let lines = text.split('\n').count();
            for fault in faults {
                assert!((1..=lines).contains(&fault.line), "{fault:?}");
                assert!(fault.column >= 1, "{fault:?}");
                assert!(!fault.message.is_empty());
            }
        }
    }
}

/// A network reads back as it is shown, and is the pattern of a rule.
fn pattern(text: &str) {
    let pattern = text.parse::<Pattern>();
    if let Ok(network) = text.parse::<Network>() {
        assert_eq!(network.to_string().parse(), Ok(network));
        assert_eq!(pattern, Ok(Pattern::Network(network)));
    }
}
