//! Limits of what is sent: by path, by class of connections and by connection.
//!
//! Where streams are of our stack its token buckets hold them, for each packet; where they are the host's, what is written waits for its time.

mod admission;
mod asking;
mod books;
pub mod calendar;
mod class;
mod keep;
mod keeping;
mod known;
mod limiter;
mod lock;
mod news;
mod order;
mod pace;
mod path;
mod quota;
mod route;
mod spells;
mod standing;
mod store;
mod told;

pub(crate) use admission::Seat;
pub use admission::{Admission, ConnectionRate};
pub(crate) use class::Bridle;
pub use class::{ClassHours, ClassSpec, Classes};
pub use limiter::Limiter;
pub(crate) use order::{Refused, ways};
pub(crate) use pace::Paced;
pub use path::{PathHours, PathLimit, PathRate, Priority, wanted};
pub use quota::{Count, QuotaSpec, Then, read_amount};
pub use route::RouteLimit;
pub(crate) use standing::note;
pub(crate) use store::beside;
pub(crate) use told::TellingClients;
