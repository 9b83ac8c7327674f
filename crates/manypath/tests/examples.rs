//! The examples do what they say.

// Each has a `main` that is not called here.
#![allow(dead_code, unreachable_pub)]

#[path = "../examples/axum.rs"]
mod axum_app;
#[path = "../examples/download.rs"]
mod download;
#[path = "../examples/hyper.rs"]
mod hyper_http;
#[path = "../examples/own_policies.rs"]
mod own_policies;
#[path = "../examples/tls.rs"]
mod tls;

use manypath::testing;
use std::time::Duration;

async fn within<T>(what: impl Future<Output = T>) -> T {
    let limit = Duration::from_secs(20);
    tokio::time::timeout(limit, what).await.expect("in time")
}

#[tokio::test]
async fn hyper_serves_and_asks() {
    let net = testing::pair(2).expect("two hosts");
    let listener = net.server.listen("0.0.0.0:80").expect("a free port");
    let server = tokio::spawn(hyper_http::serve(listener));
    let get = hyper_http::get(&net.client, "10.0.1.2:80", "/some/document");
    let text = within(get).await.expect("an answer");
    assert_eq!(text, "/some/document for 10.0.1.1\n");
    within(net.client.wait_idle()).await;
    server.abort();
}

#[tokio::test]
async fn axum_serves() {
    let net = testing::pair(2).expect("two hosts");
    let listener = net.server.listen("0.0.0.0:80").expect("a free port");
    let server = tokio::spawn(axum_app::serve(listener));
    let get = hyper_http::get(&net.client, "10.0.1.2:80", "/hello/world");
    let text = within(get).await.expect("an answer");
    assert_eq!(text, "Hello, world at 10.0.1.1!\n");
    server.abort();
}

#[tokio::test]
async fn tls_goes_over_it() {
    let net = testing::pair(2).expect("two hosts");
    let (server, client) = tls::configs("server.example");
    let listener = net.server.listen("0.0.0.0:443").expect("a free port");
    let served = tokio::spawn(tls::shout(listener, server));
    let ask = tls::ask(&net.client, "10.0.1.2:443", "server.example", client);
    assert_eq!(within(ask).await.expect("an answer"), "HELLO");
    within(served).await.expect("no panic").expect("served");
}

#[tokio::test]
async fn a_download_loses_a_path_in_the_middle_and_is_whole() {
    let net = testing::pair(2).expect("two hosts");
    let total = within(download::in_memory(&net, 30_000_000)).await;
    assert_eq!(total.expect("all of it"), 30_000_000);
}

#[tokio::test]
async fn policies_of_an_application_decide() {
    let net = testing::pair(2).expect("two hosts");
    let info = within(own_policies::upload(&net, 20_000_000)).await;
    let info = info.expect("all of it");
    assert_eq!(info.scheduler.to_string(), "youngest");
    assert_eq!(info.congestion.to_string(), "twenty");
    assert_eq!(info.path_manager.to_string(), "second-address");
    // The controller made one subflow, the scheduler sent on no other, and the window is what the congestion control says.
    let [first, second] = &info.subflows[..] else {
        panic!("{:?}", info.subflows);
    };
    assert_eq!(first.local.ip().to_string(), "10.0.1.1");
    assert_eq!(second.local.ip().to_string(), "10.0.2.1");
    // What was said before the second subflow was there, and nothing else.
    assert_eq!((first.bytes_sent, second.bytes_sent > 0), (2, true));
    assert_eq!(second.cwnd, 20 * second.mss);
}
