//! The words of the control socket, as requests that a process gets and as replies that a client gets: what was
//! understood means the same after it is written again, and everything a reader does with a reply holds up.

use manypath_control::wire::{Asked, Reply, Request};

/// One line of either side.
pub fn control(data: &[u8]) {
    match Asked::read(data) {
        Ok(asked) => {
            let again = serde_json::to_vec(&asked).expect("requests can be written");
            assert_eq!(Asked::read(&again).ok(), Some(asked));
        }
        Err(answer) => {
            serde_json::to_vec(&answer).expect("refusals can be written");
        }
    }
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    if let Ok(request) = serde_json::from_str::<Request>(text) {
        let again = serde_json::to_string(&request).expect("requests can be written");
        assert_eq!(serde_json::from_str::<Request>(&again).ok(), Some(request));
    }
    if let Ok(reply) = serde_json::from_str::<Reply>(text) {
        let again = serde_json::to_string(&reply).expect("replies can be written");
        let read: Reply = serde_json::from_str(&again).expect("what we write can be read");
        let third = serde_json::to_string(&read).expect("replies can be written");
        assert_eq!(again, third);
    }
}
