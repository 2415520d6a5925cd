//! What an exchange takes where the server has nothing to do: on one connection no server answers sooner.

use crate::Fallible;
use crate::client;
use crate::measure::{Effort, measure as time_rounds};
use serde_json::json;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::time::Duration;

const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}";

/// The median of an exchange on one connection.
pub(crate) fn measure(time: Duration) -> Fallible<Duration> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let address = listener.local_addr()?;
    std::thread::spawn(move || listener.accept().and_then(|(stream, _)| answer_all(stream)));
    let request = client::sqs("SendMessage", &json!({"QueueUrl": "none", "MessageBody": "from 0"}));
    let effort = Effort { time, most_rounds: usize::MAX };
    let timing = time_rounds(address, 1, effort, &|_| {
        let request = request.clone();
        Box::new(move |connection| connection.send(&request).map(|_| 0))
    })?;
    Ok(timing.median)
}

/// Requests as short as these come in one piece.
fn answer_all(mut stream: TcpStream) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut request = [0; 4096];
    while stream.read(&mut request)? > 0 {
        stream.write_all(ANSWER)?;
    }
    Ok(())
}
