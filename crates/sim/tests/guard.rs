//! Which paths take part where the window that they share is narrow, in simulated time and with the default settings.

use manypath_sim::networks::Multihomed;
use manypath_sim::scenario::Scenario;
use manypath_sim::{RunOptions, Simulation};

/// Seconds that 10 MB need over two paths of 20 Mbit/s, round trips of one and of 101 ms, with buffers of `kilobytes`.
fn near_and_far(kilobytes: u32) -> f64 {
    let network = Multihomed {
        head: "title = \"One path near, one far\"",
        paths: &[
            (
                "near",
                "rate = \"20Mbit/s\"\ndelay = \"500us\"\nbuffer = \"120ms\"",
            ),
            (
                "far",
                "rate = \"20Mbit/s\"\ndelay = \"50500us\"\nbuffer = \"120ms\"",
            ),
        ],
        access: "rate = \"1Gbit/s\"",
        rest: &format!(
            "[[app]]\nname = \"app\"\nclient = \"client\"\nserver = \"server\"\nupload = \"10MB\"\n\
             options = {{ send-buffer = \"{kilobytes}KB\", recv-buffer = \"{kilobytes}KB\" }}"
        ),
    };
    let scenario = Scenario::parse(&network.text()).expect("the scenario is well-formed");
    let report = Simulation::new(scenario, RunOptions::default())
        .expect("the scenario makes sense")
        .finish();
    assert!(report.is_good(), "{report}");
    let connection = &report.connections[0];
    connection.over.expect("it ended") - connection.started
}

#[test]
fn a_far_path_grows_into_a_narrow_window() {
    // While a byte is under way over the far path, the near one carries 250 kB and both together 500 kB. TCP over one of
    // them needs 4.2 s, and as much is needed where the far one is left out.
    for (kilobytes, most) in [(300, 3.3), (400, 2.9), (500, 2.9)] {
        let seconds = near_and_far(kilobytes);
        assert!(seconds < most, "{kilobytes} KB: {seconds:.2} s");
    }
    let narrow = near_and_far(200);
    assert!(narrow < 4.4, "{narrow:.2} s");
}
