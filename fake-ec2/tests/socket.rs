//! The same account on a socket, in real time.

use controller_clock::Clock;
use fake_ec2::{Bootstrap, Config, FakeEc2};
use std::net::SocketAddr;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

async fn ask(address: SocketAddr, body: &str) -> String {
    let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let length = body.len();
    let head = format!("POST / HTTP/1.1\r\nhost: ec2\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n");
    stream.write_all(format!("{head}{body}").as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

#[tokio::test]
async fn a_socket_answers_like_the_library() {
    let ec2 = FakeEc2::new(Config { families: vec!["m5".into()], ..Config::default() }, Clock::system());
    ec2.cloud().bootstrap(Bootstrap::named("demo"));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let answer = tokio::select! {
        biased;
        answer = ask(address, "Action=DescribeSubnets&Version=2016-11-15") => answer,
        result = ec2.serve(listener) => panic!("the server ended: {result:?}"),
    };
    assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
    assert_eq!(answer.matches("<availableIpAddressCount>8187</availableIpAddressCount>").count(), 3);
}
