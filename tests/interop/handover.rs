//! A path that dies silently and returns, on real packets: our client and the kernel's server, either of them sending.

use manypath_lab::handover::{Options, Report, Stack, run};
use manypath_tests::net::Net;
use manypath_tests::program::binary;

/// What is wrong with the transfers, in words. The bounds leave room for a busy machine: on a quiet one the reader waits
/// 0.2 s where we send and less than one where the kernel does, and the path is used again after 1.3 s at most. Between
/// two kernels that takes eight.
fn complaint(report: &Report) -> Option<String> {
    report.rows.iter().find_map(|row| {
        let Some(measured) = row.measured else {
            return Some(format!("{row:?}"));
        };
        let patience = match row.cast.ends() {
            (Stack::Manypath, _) => 1.5,
            (Stack::Kernel, _) => 4.0,
        };
        let back = measured.failback.is_some_and(|seconds| seconds < 4.0);
        (measured.stall > patience || !back).then(|| format!("{row:?}"))
    })
}

#[test]
fn a_path_that_returns_is_used_again_long_before_the_kernel_would() {
    // Only for the right to run, and to be where namespaces are permitted.
    let Some(_net) = Net::new(1) else { return };
    let options = Options {
        program: Some(binary().to_owned()),
        quick: true,
        verbose: false,
    };
    let look = || run(&options).expect("namespaces are permitted");
    let first = look();
    println!("{}", first.table());
    assert_eq!(first.rows.len(), 4, "two simulated, two real");
    if let Some(what) = complaint(&first) {
        // Somebody else may have had the processors. What is wrong is wrong again.
        let second = look();
        assert_eq!(complaint(&second), None, "first {what}\n{}", second.table());
    }
}
