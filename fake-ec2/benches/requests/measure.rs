//! Rounds of requests, timed one by one on one connection or several.

use crate::Fallible;
use crate::client::Connection;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// What is measured: one request, or a few that belong together. Answers how many items came back.
pub(crate) type Round = Box<dyn FnMut(&mut Connection) -> Fallible<usize> + Send>;

/// The times of one row on one side.
#[derive(Clone, Debug)]
pub(crate) struct Timing {
    pub(crate) rounds: usize,
    pub(crate) per_second: f64,
    pub(crate) median: Duration,
    pub(crate) p99: Duration,
    /// Of the first round; that the others had as many has been checked.
    pub(crate) items: usize,
}

/// How long and how often.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Effort {
    pub(crate) time: Duration,
    /// On each connection.
    pub(crate) most_rounds: usize,
}

/// Runs rounds on `connections` at a time; each connection first warms up.
pub(crate) fn measure(
    server: SocketAddr,
    connections: usize,
    effort: Effort,
    round: &dyn Fn(usize) -> Round,
) -> Fallible<Timing> {
    let workers = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..connections)
            .map(|number| {
                let (connection, round) = (Connection::to(server), round(number));
                scope.spawn(move || work(connection, round, effort))
            })
            .collect();
        let results = workers.into_iter().map(|worker| worker.join().map_err(|_| "a worker panicked".into()).flatten());
        results.collect::<Fallible<Vec<Worker>>>()
    })?;
    let items = workers[0].items;
    if let Some(other) = workers.iter().find(|worker| worker.items != items) {
        return Err(format!("connections got {items} and {} items for the same request", other.items).into());
    }
    // Each connection's own rate: those that end a little earlier do not count as idle.
    let rate = |worker: &Worker| worker.times.len() as f64 / worker.elapsed.as_secs_f64();
    let per_second = workers.iter().map(rate).sum();
    let mut times: Vec<Duration> = workers.into_iter().flat_map(|worker| worker.times).collect();
    times.sort();
    Ok(Timing { rounds: times.len(), per_second, median: quantile(&times, 0.5), p99: quantile(&times, 0.99), items })
}

struct Worker {
    times: Vec<Duration>,
    elapsed: Duration,
    items: usize,
}

fn work(mut connection: Connection, mut round: Round, effort: Effort) -> Fallible<Worker> {
    let warming = Instant::now();
    let items = round(&mut connection)?;
    let mut warm_rounds = 1;
    while warming.elapsed() < effort.time / 8 && warm_rounds < effort.most_rounds / 8 {
        round(&mut connection)?;
        warm_rounds += 1;
    }
    let began = Instant::now();
    let mut times = Vec::new();
    while times.is_empty() || (began.elapsed() < effort.time && times.len() < effort.most_rounds) {
        let sent = Instant::now();
        let got = round(&mut connection)?;
        times.push(sent.elapsed());
        if got != items {
            return Err(format!("a round got {got} items, and the first one {items}").into());
        }
    }
    Ok(Worker { times, elapsed: began.elapsed(), items })
}

/// Of sorted times.
pub(crate) fn quantile(times: &[Duration], of: f64) -> Duration {
    let index = (times.len() as f64 * of) as usize;
    times[index.min(times.len() - 1)]
}
