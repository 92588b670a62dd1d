// What programs of tests/newest have in common: scripts/clients_program.py.
use std::time::{Duration, Instant};

pub const ADD: &str = "local sum = redis.call('INCRBY', KEYS[1], ARGV[1]) return {sum, ARGV[1]}";
/// How long something is waited for that should happen at once.
pub const PATIENCE: Duration = Duration::from_secs(20);

pub type Lines = Vec<String>;

pub fn tell<T: std::fmt::Debug>(lines: &mut Lines, reply: T) {
    lines.push(format!("reply {reply:?}").replace('\n', " "));
}

pub fn tell_error<T: std::fmt::Display>(lines: &mut Lines, error: T) {
    lines.push(format!("error {error}").replace('\n', " "));
}

/// Of Redis or Headgate; more: what comes before or behind host and port.
pub fn url(before: &str, behind: &str) -> String {
    let arguments: Vec<String> = std::env::args().collect();
    let scheme = if by_tls() { "rediss" } else { "redis" };
    format!("{scheme}://{before}{}:{}/{behind}", arguments[1], arguments[2])
}

pub fn by_tls() -> bool {
    std::env::var("TESTED_BY_TLS").is_ok()
}

pub fn clients() -> usize {
    std::env::args().nth(3).and_then(|text| text.parse().ok()).expect("a number of clients")
}

/// Of a crate, as the lock file has it.
pub fn version(library: &str) -> &'static str {
    let behind = include_str!("../Cargo.lock").split(&format!("name = \"{library}\"\nversion = \"")).nth(1);
    behind.and_then(|text| text.split('"').next()).unwrap_or("unknown")
}

/// When PATIENCE is over.
pub fn soon() -> Instant {
    Instant::now() + PATIENCE
}
