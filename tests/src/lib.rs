//! Integration and interoperability tests.
