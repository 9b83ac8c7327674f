//! A value with a flag that tells whether it may have changed since it was last read.

use core::ops::{Deref, DerefMut};

/// Mutable access sets the flag. What was derived from the value holds as long as the flag is clear.
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

    /// Whether it may have changed since the last call.
    pub(crate) fn take_changed(&mut self) -> bool {
        core::mem::take(&mut self.changed)
    }

    /// Mutable access for changes that no derived value depends on.
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
    fn only_mutable_access_marks_the_value_as_changed() {
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
