//! A value that knows whether it may have changed since somebody looked.

use core::ops::{Deref, DerefMut};

/// Whoever gets it mutably may change it. What is worked out from it holds as long as nobody did.
#[derive(Debug)]
pub(crate) struct Tracked<T> {
    value: T,
    changed: bool,
}

impl<T> Tracked<T> {
    pub(crate) fn new(value: T) -> Self {
        Self {
            value,
            changed: true,
        }
    }

    /// Whether it may have changed since this was asked last.
    pub(crate) fn take_changed(&mut self) -> bool {
        core::mem::take(&mut self.changed)
    }

    /// For changes that nothing follows from that is kept.
    pub(crate) fn unnoticed(&mut self) -> &mut T {
        &mut self.value
    }
}

impl<T> Deref for Tracked<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> DerefMut for Tracked<T> {
    fn deref_mut(&mut self) -> &mut T {
        self.changed = true;
        &mut self.value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_who_may_change_it_is_noticed() {
        let mut value = Tracked::new(1);
        assert!(value.take_changed(), "nobody has looked yet");
        let _ = *value;
        *value.unnoticed() = 2;
        assert!(!value.take_changed());
        *value = 3;
        assert!(value.take_changed() && !value.take_changed());
        assert_eq!(*value, 3);
    }
}
