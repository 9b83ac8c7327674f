//! A service after its set-up. What happens here happens to the whole process, so it is one test in a program of its own.

use std::fs::{self, Permissions};
use std::io::ErrorKind;
use std::net::{TcpListener, ToSocketAddrs, UdpSocket};
use std::os::unix::fs::PermissionsExt;

fn status(field: &str) -> String {
    let text = fs::read_to_string("/proc/self/status").expect("/proc is mounted");
    let line = text.lines().find_map(|line| line.strip_prefix(field));
    line.expect("every kernel tells").trim().to_owned()
}

#[test]
fn a_confined_service_reaches_what_it_needs_and_nothing_of_roots() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root can become somebody else");
        return;
    }
    let nobody = manypath_io::User::find("nobody").expect("every system has one");
    if !nobody.is_mapped() {
        eprintln!("skipped: this user namespace has no user nobody");
        return;
    }
    let folder = std::env::temp_dir().join(format!("manypath-confined-{}", std::process::id()));
    fs::create_dir(&folder).expect("a folder");
    let (secret, open) = (folder.join("secret"), folder.join("open"));
    for (file, mode) in [(&secret, 0o600), (&open, 0o644)] {
        fs::write(file, "root's").expect("a file");
        fs::set_permissions(file, Permissions::from_mode(mode)).expect("ours");
    }
    let has_raw = rustix::net::socket(
        rustix::net::AddressFamily::PACKET,
        rustix::net::SocketType::RAW,
        None,
    )
    .is_ok();

    // The test's own main thread has other privileges than this one; nothing of ours is in it.
    manypath_io::limit_privileges_for_now().expect("giving up is allowed");
    manypath_io::become_user(nobody).expect("root may");
    let denied = |result: std::io::Result<String>| result.expect_err("closed").kind();
    assert_eq!(
        denied(fs::read_to_string(&secret)),
        ErrorKind::PermissionDenied
    );
    assert_eq!(fs::read_to_string(&open).expect("open to all"), "root's");
    let confined = manypath_io::confine(&[], &[]).expect("this kernel has seccomp");

    assert_eq!(status("Uid:"), "65534\t65534\t65534\t65534");
    assert_eq!(status("Groups:"), manypath_io::GROUP.to_string());
    assert_eq!(
        (status("Seccomp:"), status("NoNewPrivs:")),
        ("2".to_owned(), "1".to_owned())
    );
    if confined.files {
        assert_eq!(
            denied(fs::read_to_string(&open)),
            ErrorKind::PermissionDenied
        );
    } else {
        eprintln!("this kernel has no Landlock");
    }
    assert_eq!(
        denied(fs::write(folder.join("new"), "x").map(|()| String::new())),
        ErrorKind::PermissionDenied
    );
    let other = rustix::fs::memfd_create("x", rustix::fs::MemfdFlags::empty());
    assert_eq!(other.expect_err("not in the list"), rustix::io::Errno::PERM);

    // What a service goes on doing.
    let listener = TcpListener::bind("127.0.0.1:0").expect("sockets");
    listener.local_addr().expect("bound");
    UdpSocket::bind("[::1]:0").ok();
    assert!(
        ("localhost", 80)
            .to_socket_addrs()
            .expect("names")
            .next()
            .is_some()
    );
    manypath_io::netlink::Snapshot::take().expect("netlink");
    let timer = rustix::time::timerfd_create(
        rustix::time::TimerfdClockId::Monotonic,
        rustix::time::TimerfdFlags::CLOEXEC,
    );
    let soon = rustix::time::Timespec {
        tv_sec: 0,
        tv_nsec: 1,
    };
    let once = rustix::time::Itimerspec {
        it_interval: rustix::time::Timespec::default(),
        it_value: soon,
    };
    let timer = timer.expect("the driver's timer");
    rustix::time::timerfd_settime(&timer, rustix::time::TimerfdTimerFlags::empty(), &once)
        .expect("the driver's timer");
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.enable_all().build().expect("a runtime");
    runtime.block_on(async {
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
            .await
            .expect("sockets");
        let at = listener.local_addr().expect("bound");
        let (near, far) = tokio::join!(tokio::net::TcpStream::connect(at), listener.accept());
        near.and(far).expect("connected");
    });
    assert!(
        std::process::Command::new("true").status().is_err(),
        "no programs"
    );
    let raw = rustix::net::socket(
        rustix::net::AddressFamily::PACKET,
        rustix::net::SocketType::RAW,
        None,
    );
    assert_eq!(raw.is_ok(), has_raw, "{raw:?}");
    std::thread::spawn(|| fs::read_to_string("/etc/passwd").expect("the resolver reads there"))
        .join()
        .expect("threads");
}
