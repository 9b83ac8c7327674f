//! What a client sees of a server that ends early, through `manypath forward`.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};

use manypath_tests::net::{Family, Net};
use manypath_tests::peer::{self, Speaks};
use manypath_tests::program::Program;

fn local() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 7000))
}

/// Writes until somebody objects, then reads to the end or the error.
fn upload(mut stream: &TcpStream) -> (Vec<u8>, Option<ErrorKind>) {
    let block = [7; 16384];
    for _ in 0..400 {
        if stream.write_all(&block).is_err() {
            break;
        }
    }
    let mut answer = Vec::new();
    let error = stream.read_to_end(&mut answer).err();
    (answer, error.map(|error| error.kind()))
}

/// A server that answers, ends (by a FIN of its own before, or not) and takes no more: the answer arrives each time.
fn early_answer(to: &str, speaks: Speaks, half_close: bool) {
    let Some(net) = Net::new(1) else { return };
    let at = SocketAddr::new(Net::kernel_address(Family::V4, 1), 7001);
    let listener = peer::listen(&net.kernel, at, speaks);
    let program = Program::forward(
        &net.ours,
        "tcp:127.0.0.1:7000",
        &format!("{to}:{at}"),
        ["--path", "v1"],
    );
    for n in 0..20 {
        let client = peer::connect(&net.ours, local(), Speaks::Tcp).expect("it listens");
        let (answer, error) = std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut server = peer::accept(&listener).expect("carried to us");
                server.read_exact(&mut [0; 100]).expect("carried");
                server.write_all(b"413").expect("open");
                if half_close {
                    server.shutdown(Shutdown::Write).expect("open");
                    server.read_exact(&mut [0; 100_000]).expect("carried");
                }
            });
            upload(&client)
        });
        assert_eq!(answer, b"413", "{to}, connection {n}: {error:?}");
    }
    program.interrupt();
}

#[test]
fn an_early_answer_arrives_over_our_stack() {
    early_answer("mptcp", Speaks::Mptcp, false);
    early_answer("mptcp", Speaks::Mptcp, true);
}

#[test]
fn an_early_answer_arrives_over_plain_tcp_of_our_stack() {
    early_answer("mptcp", Speaks::Tcp, false);
    early_answer("mptcp", Speaks::Tcp, true);
}

#[test]
fn an_early_answer_arrives_over_the_hosts_tcp() {
    early_answer("tcp", Speaks::Tcp, false);
    early_answer("tcp", Speaks::Tcp, true);
}

#[test]
fn an_urgent_byte_arrives_in_its_place() {
    let Some(net) = Net::new(1) else { return };
    let at = SocketAddr::new(Net::kernel_address(Family::V4, 1), 7001);
    let listener = peer::listen(&net.kernel, at, Speaks::Mptcp);
    let to = format!("mptcp:{at}");
    let program = Program::forward(&net.ours, "tcp:127.0.0.1:7000", &to, ["--path", "v1"]);
    let mut client = peer::connect(&net.ours, local(), Speaks::Tcp).expect("it listens");
    client.write_all(b"ab").expect("open");
    let mut server = peer::accept(&listener).expect("carried to us");
    server.read_exact(&mut [0; 2]).expect("carried");
    rustix::net::send(&client, b"!", rustix::net::SendFlags::OOB).expect("open");
    client.write_all(b"cd").expect("open");
    client.shutdown(Shutdown::Write).expect("open");
    let mut rest = Vec::new();
    server.read_to_end(&mut rest).expect("a regular end");
    assert_eq!(rest, b"!cd");
    drop(server);
    program.interrupt();
}
