//! Locks in Rust: HOST PORT LIBRARY, where the host may be the path of a Unix socket. The protocol is told in tests/locks/laboratory.py.

use rslock::{Lock, LockError, LockManager};
use std::collections::HashMap;
use std::io::BufRead;

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let is_unix = arguments[1].starts_with('/');
    let address = if is_unix { format!("unix://{}", arguments[1]) } else { format!("redis://{}:{}", arguments[1], arguments[2]) };
    assert_eq!(arguments[3], "rslock");

    // rslock makes a connection for each of its commands. This one stands for the rest of the application: without it
    // nobody would be there who owns the lock.
    let client = redis::Client::open(address.as_str()).expect("an address");
    let mut connection = client.get_connection().expect("a connection");
    redis::cmd("PING").query::<String>(&mut connection).expect("PONG");

    // For the pauses of rslock; its connections have an executor of their own.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    let mut manager = LockManager::new(vec![address]);
    manager.set_retry(1, 10);
    let mut held: HashMap<String, Lock> = HashMap::new();
    println!("ready");
    for line in std::io::stdin().lock().lines() {
        // A lock borrows its name for as long as its manager lives.
        let line: &'static str = Box::leak(line.expect("a line").into_boxed_str());
        let words: Vec<&str> = line.split(' ').collect();
        let name = words[1];
        if words[0] == "acquire" {
            let lease_ms = words[2].parse().expect("milliseconds");
            match runtime.block_on(manager.lock(name.as_bytes(), lease_ms)) {
                Ok(lock) => {
                    held.insert(name.to_string(), lock);
                    println!("yes");
                }
                Err(LockError::Unavailable) => println!("no"),
                Err(error) => println!("error {:?}", error),
            }
        } else if words[0] == "extend" {
            let lock = held.get(name).expect("a lock that is held");
            let lease_ms = words[2].parse().expect("milliseconds");
            match runtime.block_on(manager.extend(lock, lease_ms)) {
                Ok(_) => println!("yes"),
                Err(error) => println!("error {:?}", error),
            }
        } else {
            let lock = held.remove(name).expect("a lock that is held");
            runtime.block_on(manager.unlock(&lock));
            println!("yes");
        }
    }
}
