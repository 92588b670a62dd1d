// rslock: locks by its own LockManager.
mod protocol;

use protocol::{tell, tell_error, url, Lines};
use rslock::{LockError, LockManager};
use std::io::BufRead;
use std::time::Duration;

const LONG: Duration = Duration::from_secs(10);

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
        tell_error(&mut lines, error);
    }
    lines
}

#[tokio::main]
async fn main() {
    let managers: Vec<LockManager> =
        (0..protocol::clients()).map(|_| LockManager::new(vec![url("", "")])).collect();
    println!("version {}\nready", protocol::version("rslock"));
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
