//! The demo without the command around it. Arguments: `ours` and `kernel` choose whose Multipath TCP is shown, `quick`
//! makes it short, and a path names the program that has the `forward` command.

use manypath_lab::demo::{Engine, Options, run, write_page};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut options = Options::default();
    for argument in std::env::args().skip(1) {
        match argument.as_str() {
            "quick" => options.quick = true,
            "kernel" => options.engines.push(Engine::Kernel),
            "ours" => options.engines.push(Engine::Ours),
            path => options.program = Some(path.into()),
        }
    }
    let report = run(&options)?;
    print!("{}", report.table());
    println!("{}", write_page(&options, &report)?.display());
    Ok(())
}
