//! Each request is judged by itself, by the newest policy, whatever the connections that it goes by were good for before.

use std::net::SocketAddr;
use std::sync::Arc;

use manypath_proxy::endpoint::Proto;
use manypath_proxy::serve::{ListenerSpec, OpeningKind, Policy, Server};
use manypath_proxy::sockets::Sockets;
use manypath_proxy::target::rules::{Rule, Then};
use manypath_proxy::users::Users;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::support::{Origin, in_time, ok, read_head, status};

fn spec(name: &str) -> ListenerSpec {
    let on = "tcp:127.0.0.1:0".parse().expect("an endpoint");
    ListenerSpec::new(name, on, OpeningKind::Http, Proto::Tcp)
}

/// Each user's password is its name.
fn users(names: &[&str]) -> Arc<Users> {
    let line = |name: &&str| {
        let hash = bcrypt::hash(name, 4).expect("hashed");
        format!("{name}:{hash}\n")
    };
    let text: String = names.iter().map(line).collect();
    Arc::new(Users::read(&text).expect("well-formed"))
}

fn rule(user: &[&str], to: &[&str], then: Then) -> Rule {
    Rule {
        client: Vec::new(),
        user: user.iter().map(|&name| name.to_owned()).collect(),
        to: to.iter().map(|to| to.parse().expect("a pattern")).collect(),
        port: Vec::new(),
        then,
    }
}

async fn proxy(spec: ListenerSpec, policy: Policy) -> (Server, SocketAddr) {
    let policy = Arc::new(policy);
    let mut server = Server::new(Sockets::default(), Arc::new(()), Arc::clone(&policy));
    server.apply(vec![spec], policy).await.expect("loopback");
    let at = server.listeners()[0].address;
    (server, at)
}

async fn asks(client: &mut TcpStream, to: SocketAddr, user: Option<&str>) -> u16 {
    use base64::prelude::{BASE64_STANDARD, Engine};
    let credentials = user.map_or(String::new(), |user| {
        let token = BASE64_STANDARD.encode(format!("{user}:{user}"));
        format!("Proxy-Authorization: Basic {token}\r\n")
    });
    let words = format!("GET http://{to}/ HTTP/1.1\r\nHost: {to}\r\n{credentials}\r\n");
    client.write_all(words.as_bytes()).await.expect("open");
    let head = in_time(read_head(client)).await.expect("an answer");
    let length = head
        .lines()
        .find_map(|line| line.strip_prefix("Content-Length: "));
    let length = length.map_or(0, |n| n.parse().expect("a number"));
    let mut body = vec![0; length];
    in_time(client.read_exact(&mut body)).await.expect("a body");
    status(head.as_bytes())
}

#[tokio::test]
async fn a_listener_that_is_renamed_or_removed_asks_those_who_are_connected_as_before() {
    let origin = Origin::answering(|_| ok("x")).await;
    for next in [vec![spec("back")], Vec::new()] {
        let rules = || vec![rule(&[], &["127.0.0.0/8"], Then::Allow)];
        let policy = Policy::new(rules(), [("front".into(), users(&["alice"]))].into());
        let (mut server, at) = proxy(spec("front"), policy).await;
        let mut client = TcpStream::connect(at).await.expect("it listens");
        assert_eq!(asks(&mut client, origin.at, None).await, 407);
        let policy = Policy::new(rules(), [("back".into(), users(&["alice"]))].into());
        server
            .apply(next, Arc::new(policy))
            .await
            .expect("loopback");
        assert_eq!(asks(&mut client, origin.at, None).await, 407);
    }
}

#[tokio::test]
async fn a_user_that_may_not_is_refused_on_a_connection_that_another_has_used() {
    let origin = Origin::answering(|_| ok("x")).await;
    let rules = vec![rule(&["alice", "carol"], &["127.0.0.0/8"], Then::Allow)];
    let users = users(&["alice", "bob", "carol"]);
    let policy = Policy::new(rules, [("front".into(), users)].into());
    let (_server, at) = proxy(spec("front"), policy).await;
    let mut client = TcpStream::connect(at).await.expect("it listens");
    assert_eq!(asks(&mut client, origin.at, Some("alice")).await, 200);
    assert_eq!(asks(&mut client, origin.at, Some("alice")).await, 200);
    assert_eq!(origin.connections(), 1);
    assert_eq!(asks(&mut client, origin.at, Some("bob")).await, 403);
    // Who may gets a connection of its own: a server may know one by its connection.
    assert_eq!(asks(&mut client, origin.at, Some("alice")).await, 200);
    let before = origin.connections();
    assert_eq!(asks(&mut client, origin.at, Some("carol")).await, 200);
    assert_eq!(origin.connections(), before + 1);
}

#[tokio::test]
async fn a_rule_that_is_new_holds_for_the_next_request_of_a_connection() {
    let origin = Origin::answering(|_| ok("x")).await;
    let (mut server, at) = proxy(spec("front"), Policy::permissive()).await;
    let mut client = TcpStream::connect(at).await.expect("it listens");
    assert_eq!(asks(&mut client, origin.at, None).await, 200);
    let rules = vec![rule(&[], &["127.0.0.0/8"], Then::Deny)];
    let policy = Policy::new(rules, Default::default());
    server
        .apply(vec![spec("front")], Arc::new(policy))
        .await
        .expect("loopback");
    assert_eq!(asks(&mut client, origin.at, None).await, 403);
}

/// Every connection would be followed by one more, until none is left.
#[tokio::test]
async fn a_fixed_target_that_is_the_listener_itself_is_refused() {
    use crate::support::Proxy;
    use manypath_proxy::serve::Refusal;

    for host in ["127.0.0.1", "localhost"] {
        let free = crate::support::nobody().await;
        let to = format!("{host}:{}", free.port());
        let opening = OpeningKind::Fixed(format!("tcp:{to}").parse().expect("an endpoint"));
        let proxy = Proxy::with(opening, Policy::permissive(), |spec| {
            spec.on = format!("tcp:{free}").parse().expect("an endpoint");
        })
        .await;
        let (_, end) = proxy.talk(b"x").await;
        end.expect_err("a reset");
        proxy.reports.closed(1).await;
        assert_eq!(proxy.reports.refusals(), [Refusal::Loop]);
    }
}
