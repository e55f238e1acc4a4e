//! What each wall costs at the start of a run, for whom wants to know: `netbox run -v`, and the benchmark.
//!
//! Reading the clock costs some ten nanoseconds, so it is always done.

use std::fmt;
use std::time::{Duration, Instant};

/// Steps of the start, in order, and how long each took.
#[derive(Clone, Debug, Default)]
pub struct Costs(Vec<(String, Duration)>);

impl Costs {
    /// One more step.
    pub(crate) fn add(&mut self, step: &str, time: Duration) {
        self.0.push((step.to_owned(), time));
    }

    /// As they travel from pid 1.
    pub(crate) fn to_text(&self) -> String {
        let words = self.0.iter().map(|(step, time)| format!("{step}={}", time.as_nanos()));
        words.collect::<Vec<_>>().join(",")
    }

    /// Adds what came like that; a word that makes no sense is left out.
    pub(crate) fn add_text(&mut self, text: &str) {
        let parse = |word: &str| {
            let (step, nanoseconds) = word.split_once('=')?;
            Some((step.to_owned(), Duration::from_nanos(nanoseconds.parse().ok()?)))
        };
        self.0.extend(text.split(',').filter_map(parse));
    }
}

impl fmt::Display for Costs {
    /// `namespaces 0.81 ms, interfaces 0.93 ms`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (step, time)) in self.0.iter().enumerate() {
            let comma = if at == 0 { "" } else { ", " };
            write!(f, "{comma}{step} {:.2} ms", time.as_secs_f64() * 1000.0)?;
        }
        Ok(())
    }
}

/// A watch that is looked at after each step.
pub(crate) struct Stopwatch {
    since: Instant,
    costs: Costs,
}

impl Stopwatch {
    pub(crate) fn start() -> Self {
        Self { since: Instant::now(), costs: Costs::default() }
    }

    /// What was done since the last look is this step.
    pub(crate) fn lap(&mut self, step: &'static str) {
        let now = Instant::now();
        self.costs.add(step, now - self.since);
        self.since = now;
    }

    /// What was done since the last look is no step.
    pub(crate) fn skip(&mut self) {
        self.since = Instant::now();
    }

    pub(crate) fn stop(self) -> Costs {
        self.costs
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_arrive_as_they_were_sent() {
        let mut sent = Costs::default();
        sent.add("interfaces", Duration::from_micros(930));
        sent.add("capture rules", Duration::from_nanos(1_250_000));
        let mut costs = Costs::default();
        costs.add("namespaces", Duration::from_millis(1));
        costs.add_text(&format!("{},nonsense,other=x", sent.to_text()));
        assert_eq!(costs.to_string(), "namespaces 1.00 ms, interfaces 0.93 ms, capture rules 1.25 ms");
    }
}
