// fred with its default settings.
use fred::prelude::*;
use fred::types::{CustomCommand, Expiration, RespVersion};
use std::collections::BTreeMap;
use std::io::BufRead;

const ADD: &str = "local sum = redis.call('INCRBY', KEYS[1], ARGV[1]) return {sum, ARGV[1]}";

type Lines = Vec<String>;

fn tell<T: std::fmt::Debug>(lines: &mut Lines, reply: T) {
    lines.push(format!("reply {reply:?}").replace('\n', " "));
}

async fn strings(client: Client, key: String, lines: &mut Lines) -> Result<(), Error> {
    let (count, timed, none) = (format!("{key}:count"), format!("{key}:timed"), format!("{key}:none"));
    tell(lines, client.set::<Value, _, _>(&key, "first", None, None, false).await?);
    tell(lines, client.get::<Value, _>(&key).await?);
    tell(lines, client.get::<Value, _>(&none).await?);
    for _ in 0..3 {
        tell(lines, client.incr::<Value, _>(&count).await?);
    }
    tell(lines, client.set::<Value, _, _>(&timed, "second", Some(Expiration::EX(1000)), None, false).await?);
    tell(lines, client.mget::<Value, _>(vec![&key, &timed, &none]).await?);
    Ok(())
}

async fn refused(client: Client, key: String, lines: &mut Lines) -> Result<(), Error> {
    client.set::<(), _, _>(&key, "no number", None, None, false).await?;
    tell(lines, client.incr::<Value, _>(&key).await.map_err(|error| error.to_string()));
    Ok(())
}

async fn hashes(client: Client, key: String, lines: &mut Lines) -> Result<(), Error> {
    tell(lines, client.hset::<Value, _, _>(&key, vec![("one", 1), ("two", 2)]).await?);
    tell(lines, client.hgetall::<BTreeMap<String, String>, _>(&key).await?);
    Ok(())
}

async fn lists(client: Client, key: String, lines: &mut Lines) -> Result<(), Error> {
    tell(lines, client.rpush::<Value, _, _>(&key, vec!["a", "b", "c"]).await?);
    tell(lines, client.lrange::<Value, _>(&key, 0, -1).await?);
    Ok(())
}

async fn pipeline(client: Client, key: String, lines: &mut Lines) -> Result<(), Error> {
    let batch = client.pipeline();
    for number in 0..50 {
        batch.rpush::<(), _, _>(&key, number).await?;
    }
    batch.lrange::<(), _>(&key, 0, -1).await?;
    tell(lines, batch.all::<Value>().await?);
    Ok(())
}

async fn transaction(client: Client, key: String, lines: &mut Lines) -> Result<(), Error> {
    let batch = client.multi();
    batch.set::<(), _, _>(&key, 1, None, None, false).await?;
    batch.incr::<(), _>(&key).await?;
    tell(lines, batch.exec::<Value>(true).await?);
    Ok(())
}

async fn script(client: Client, key: String, lines: &mut Lines) -> Result<(), Error> {
    for number in [7, 8] {
        tell(lines, client.eval::<Value, _, _, _>(ADD, key.as_str(), number).await?);
    }
    Ok(())
}

async fn big(client: Client, key: String, lines: &mut Lines) -> Result<(), Error> {
    let value = "headgate".repeat(131072);
    tell(lines, client.set::<Value, _, _>(&key, value.as_str(), None, None, false).await?);
    tell(lines, client.get::<String, _>(&key).await? == value);
    Ok(())
}

// A hundred at once over one connection.
async fn concurrent(client: Client, key: String, lines: &mut Lines) -> Result<(), Error> {
    let work = (0..100).map(|number| {
        let (client, name) = (client.clone(), format!("{key}:{number}"));
        async move {
            client.set::<(), _, _>(&name, number, None, None, false).await?;
            client.get::<String, _>(&name).await
        }
    });
    for reply in futures_util::future::join_all(work).await {
        tell(lines, reply?);
    }
    Ok(())
}

async fn blocking(client: Client, key: String, lines: &mut Lines) -> Result<(), Error> {
    tell(lines, client.blpop::<Value, _>(&key, 1.0).await.map_err(|error| error.to_string()));
    client.rpush::<(), _, _>(&key, "there").await?;
    tell(lines, client.blpop::<Value, _>(&key, 20.0).await?);
    Ok(())
}

async fn greeting(_: Client, key: String, lines: &mut Lines) -> Result<(), Error> {
    let arguments: Vec<String> = std::env::args().collect();
    let place = format!("{}:{}", arguments[1], arguments[2]);
    for version in [RespVersion::RESP2, RespVersion::RESP3] {
        for way in [format!("redis://{place}/3"), format!("redis://tested:secret@{place}")] {
            let mut settings = Config::from_url(&way)?;
            settings.version = version.clone();
            let own = Builder::from_config(settings).build()?;
            own.init().await?;
            tell(lines, own.set::<Value, _, _>(&key, "mine", None, None, false).await?);
            let who = CustomCommand::new_static("ACL", None::<u16>, false);
            tell(lines, own.custom::<Value, _>(who, vec!["WHOAMI"]).await?);
            own.quit().await?;
        }
    }
    Ok(())
}

async fn connect() -> Result<Client, Error> {
    let arguments: Vec<String> = std::env::args().collect();
    let settings = Config::from_url(&format!("redis://{}:{}/", arguments[1], arguments[2]))?;
    let client = Builder::from_config(settings).build()?;
    client.init().await?;
    Ok(client)
}

async fn outcome(client: Client, name: &str, number: usize) -> Lines {
    let mut lines = Vec::new();
    let key = format!("newest:{name}:{number}");
    let done = match name {
        "strings" => strings(client, key, &mut lines).await,
        "refused" => refused(client, key, &mut lines).await,
        "hashes" => hashes(client, key, &mut lines).await,
        "lists" => lists(client, key, &mut lines).await,
        "pipeline" => pipeline(client, key, &mut lines).await,
        "transaction" => transaction(client, key, &mut lines).await,
        "script" => script(client, key, &mut lines).await,
        "big" => big(client, key, &mut lines).await,
        "concurrent" => concurrent(client, key, &mut lines).await,
        "blocking" => blocking(client, key, &mut lines).await,
        "greeting" => greeting(client, key, &mut lines).await,
        _ => return vec!["unsupported".to_owned()],
    };
    if let Err(error) = done {
        lines.push(format!("error {error}").replace('\n', " "));
    }
    lines
}

/// As the lock file has it.
fn version() -> &'static str {
    let behind = include_str!("../Cargo.lock").split("name = \"fred\"\nversion = \"").nth(1);
    behind.and_then(|text| text.split('"').next()).unwrap_or("unknown")
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let count: usize = std::env::args().nth(3).and_then(|text| text.parse().ok()).expect("a number of clients");
    let mut clients = Vec::new();
    for _ in 0..count {
        clients.push(connect().await?);
    }
    println!("version {}\nready", version());
    for line in std::io::stdin().lock().lines() {
        let line = line.expect("a line");
        let words: Vec<&str> = line.split(' ').collect();
        let runs = clients.iter().enumerate().map(|(number, client)| outcome(client.clone(), words[1], number));
        let mut outcomes = Vec::new();
        if words[2] == "together" {
            outcomes = futures_util::future::join_all(runs).await;
        } else {
            for run in runs {
                outcomes.push(run.await);
            }
        }
        for text in outcomes.iter().flatten() {
            println!("{text}");
        }
        println!("done");
    }
    for client in &clients {
        client.quit().await?;
    }
    Ok(())
}
