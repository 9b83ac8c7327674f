//! The proxy's file of users.

use manypath_proxy::users::{Users, check_name};

/// A file is understood as a whole, or each line that is wrong is told once. No password is checked, as that is made to take long.
pub fn users(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    match Users::read(text) {
        Ok(users) => {
            for name in users.names() {
                assert_eq!(check_name(name), Ok(()));
                assert!(text.contains(name));
            }
        }
        Err(bad) => {
            assert!(!bad.is_empty(), "refused without a reason");
            let lines = text.lines().count();
            assert!(bad.iter().all(|bad| (1..=lines).contains(&bad.line)));
            assert!(bad.windows(2).all(|two| two[0].line < two[1].line));
        }
    }
}
