//! A path that goes away in the middle of a transfer: the transfer goes on over the other.

use std::time::Duration;

use manypath_tests::amount;
use manypath_tests::net::{Family, Net, Own};
use manypath_tests::pair::{Plan, Role, Route, Way};
use manypath_tests::transfer::{both_ways, finish, send};

/// What no reader may have to wait for the next byte.
const LONGEST_STALL: Duration = Duration::from_secs(1);

/// How the path goes away.
#[derive(Debug, Clone, Copy)]
enum Cut {
    /// The switch swallows everything; no end is told.
    Silent,
    /// Our end's link goes down.
    OurLink,
    /// The kernel's end's link goes down.
    KernelsLink,
}

fn cut(role: Role, own: Own, cut: Cut, cable: u8, way: Way) {
    let Some(net) = Net::bridged(2) else { return };
    if role == Role::Client {
        net.add_endpoint(Net::kernel_address(Family::V4, 2), 2, "signal");
    }
    let plan = Plan {
        own,
        ..Plan::with_cut(&[Family::V4, Family::V4], way)
    };
    let mut route = Route::open(&net, role, plan);
    let ends = route.join();
    both_ways(&ends.ours, &ends.kernel, 1000);
    route.wait_for_subflows(2);
    let len = amount("MANYPATH_CUT_BYTES", 200 << 20, 500_000_000);
    let (from, to) = ends.along(way);
    let (mut cut_at, mut now_at) = (None, 0);
    let arrived = std::thread::scope(|scope| {
        let mut cutter = None;
        let result = send(from, to, len, 3, |got| {
            now_at = got;
            if got > len / 4 && cut_at.is_none() {
                cut_at = Some(got);
                // On a thread of its own, so that the reader's waiting is not counted as a stall.
                cutter = Some(scope.spawn(|| match cut {
                    Cut::Silent => net.swallow(cable),
                    Cut::OurLink => net.cut(&net.ours, cable),
                    Cut::KernelsLink => net.cut(&net.kernel, cable),
                }));
            }
        });
        let cutter = cutter.expect("a quarter has arrived");
        assert!(!cutter.is_finished() || now_at > len / 4);
        cutter.join().expect("the path is cut");
        result
    });
    let arrived = arrived.unwrap_or_else(|error| {
        panic!(
            "{error}; {:?}; {:?}",
            route.program.report(),
            net.counters()
        )
    });
    arrived.assert_same();
    println!(
        "{role:?} {own:?} {cut:?} of cable {cable} {way:?}: {:?} in all, longest stall {:?}",
        arrived.took, arrived.stall
    );
    assert!(
        arrived.stall < LONGEST_STALL,
        "{arrived:?} {:?}",
        route.program.report()
    );
    finish(&ends.ours, &ends.kernel);
    assert!(!route.program.said().contains("panicked"));
}

macro_rules! cuts {
    ($($name:ident: $role:ident $own:ident $cut:ident $cable:literal $way:ident;)*) => {$(
        #[test]
        fn $name() {
            cut(Role::$role, Own::$own, Cut::$cut, $cable, Way::$way);
        }
    )*};
}

cuts! {
    the_first_path_vanishes_while_we_send: Client Owned Silent 1 ToKernel;
    the_second_path_vanishes_while_we_send: Client Owned Silent 2 ToKernel;
    the_first_path_vanishes_while_the_kernel_sends: Client Owned Silent 1 FromKernel;
    the_second_path_vanishes_while_the_kernel_sends: Client Owned Silent 2 FromKernel;
    the_first_path_vanishes_while_we_serve: Server Owned Silent 1 ToKernel;
    the_first_path_vanishes_while_the_kernel_uploads: Server Owned Silent 1 FromKernel;
    our_link_goes_down_while_we_send: Client Shared OurLink 1 ToKernel;
    our_link_goes_down_while_the_kernel_sends: Client Shared OurLink 1 FromKernel;
    our_link_goes_down_while_we_serve: Server Shared OurLink 1 ToKernel;
    the_kernels_link_goes_down_while_we_send: Client Owned KernelsLink 1 ToKernel;
    the_kernels_link_goes_down_while_the_kernel_sends: Client Owned KernelsLink 1 FromKernel;
}
