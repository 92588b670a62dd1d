// rslock: locks by its own LockManager.
use rslock::{LockError, LockManager};
use std::io::BufRead;
use std::time::Duration;

const LONG: Duration = Duration::from_secs(10);

type Lines = Vec<String>;

fn tell<T: std::fmt::Debug>(lines: &mut Lines, reply: T) {
    lines.push(format!("reply {reply:?}").replace('\n', " "));
}

/// An error, without what names a lock, which is random.
fn kind(error: LockError) -> String {
    let text = error.to_string();
    text.split(':').next().unwrap_or_default().to_owned()
}

async fn locks(manager: LockManager, key: String, lines: &mut Lines) -> Result<(), LockError> {
    let mut impatient = manager.clone();
    impatient.set_retry(1, Duration::from_millis(10));
    let lock = manager.lock(key.as_bytes(), LONG).await?;
    tell(lines, impatient.lock(key.as_bytes(), LONG).await.err().map(kind));
    tell(lines, manager.is_freed(&lock).await?);
    let longer = manager.extend(&lock, 2 * LONG).await?;
    tell(lines, longer.validity_time > LONG.as_millis() as usize);

    let mut patient = manager.clone();
    patient.set_retry(500, Duration::from_millis(20));
    let name = key.clone();
    let waiting = tokio::spawn(async move { patient.lock(name.as_bytes(), LONG).await });
    tokio::time::sleep(Duration::from_millis(50)).await;
    manager.unlock(&longer).await;
    let next = waiting.await.expect("a task")?;
    tell(lines, manager.is_freed(&next).await?);
    manager.unlock(&next).await;
    // It says so by an error.
    tell(lines, manager.is_freed(&next).await.err().map(kind));
    Ok(())
}

async fn outcome(manager: LockManager, name: &str, number: usize) -> Lines {
    let mut lines = Vec::new();
    if name != "locks" {
        return vec!["unsupported".to_owned()];
    }
    if let Err(error) = locks(manager, format!("newest:{name}:{number}"), &mut lines).await {
        lines.push(format!("error {error}").replace('\n', " "));
    }
    lines
}

/// As the lock file has it.
fn version() -> &'static str {
    let behind = include_str!("../Cargo.lock").split("name = \"rslock\"\nversion = \"").nth(1);
    behind.and_then(|text| text.split('"').next()).unwrap_or("unknown")
}

#[tokio::main]
async fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let address = format!("redis://{}:{}/", arguments[1], arguments[2]);
    let count: usize = arguments[3].parse().expect("a number of clients");
    let managers: Vec<LockManager> = (0..count).map(|_| LockManager::new(vec![address.clone()])).collect();
    println!("version {}\nready", version());
    for line in std::io::stdin().lock().lines() {
        let line = line.expect("a line");
        let words: Vec<&str> = line.split(' ').collect();
        let runs = managers.iter().enumerate().map(|(number, manager)| outcome(manager.clone(), words[1], number));
        for text in futures_util::future::join_all(runs).await.iter().flatten() {
            println!("{text}");
        }
        println!("done");
    }
}
