//! Experiments: emulated paths between network namespaces, the demo, the scenarios.
#![forbid(unsafe_code)]
