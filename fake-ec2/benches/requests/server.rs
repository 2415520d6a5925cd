//! The two programs, started on free ports of the loopback interface and ended when dropped.

use crate::Fallible;
use crate::client::Connection;
use crate::stage;
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long moto_server may take to begin; it imports some seconds' worth of Python.
const START: Duration = Duration::from_secs(60);

/// How often fake-ec2 is started to tell how long that takes.
const STARTS: usize = 11;

pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    process: Child,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Server {
    /// fake-ec2 as built with this benchmark, with the whole catalogue.
    pub(crate) fn fake_ec2() -> Fallible<Self> {
        let mut process = Command::new(env!("CARGO_BIN_EXE_fake-ec2"))
            .args(["--listen", "127.0.0.1:0", "--format", "json", "--bootstrap", "bench"])
            .stdout(Stdio::piped())
            .spawn()?;
        let mut line = String::new();
        let stdout = process.stdout.take().ok_or("fake-ec2 has no standard output")?;
        BufReader::new(stdout).read_line(&mut line)?;
        let started: Value = serde_json::from_str(&line)?;
        let url = started["endpointUrl"].as_str().ok_or("fake-ec2 did not tell its endpoint")?;
        let address = url.trim_start_matches("http://").parse()?;
        Ok(Self { address, process })
    }

    pub(crate) fn moto(program: &Path) -> Fallible<Self> {
        // Free now; moto_server cannot be asked for any port and tell which.
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port();
        let process = Command::new(program)
            .args(["-H", "127.0.0.1", "-p", &port.to_string()])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| format!("{}: {error}", program.display()))?;
        let server = Self { address: (Ipv4Addr::LOCALHOST, port).into(), process };
        let deadline = Instant::now() + START;
        while TcpStream::connect(server.address).is_err() {
            if Instant::now() > deadline {
                return Err(format!("moto_server does not listen after {} s", START.as_secs()).into());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(server)
    }

    pub(crate) fn connect(&self) -> Connection {
        Connection::to(self.address)
    }

    /// The memory it holds, in MiB.
    pub(crate) fn resident_mib(&self) -> Fallible<f64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.process.id()))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).ok_or("no VmRSS in /proc")?;
        let kib: f64 = line.trim().trim_end_matches(" kB").parse()?;
        Ok(kib / 1024.0)
    }
}

/// How soon fake-ec2 is there, and what it holds.
pub(crate) struct Start {
    /// From starting the program to its first answer, of the median start.
    pub(crate) start: Duration,
    pub(crate) slowest: Duration,
    /// When it has answered the whole catalogue, page by page.
    pub(crate) resident_mib: f64,
    pub(crate) instance_types: usize,
}

pub(crate) fn start_and_memory() -> Fallible<Start> {
    let mut times = Vec::new();
    let mut memory = 0.0;
    let mut instance_types = 0;
    for _ in 0..STARTS {
        let began = Instant::now();
        let server = Server::fake_ec2()?;
        let mut connection = server.connect();
        stage::first_page_of_instance_types(&mut connection)?;
        times.push(began.elapsed());
        instance_types = stage::all_instance_types(&mut connection)?.len();
        memory = server.resident_mib()?;
    }
    times.sort();
    let (start, slowest) = (times[STARTS / 2], times[STARTS - 1]);
    Ok(Start { start, slowest, resident_mib: memory, instance_types })
}
