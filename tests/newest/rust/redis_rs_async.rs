// redis-rs with tokio: multiplexed connections, whose commands go out as they come.
use futures_util::StreamExt;
use redis::aio::MultiplexedConnection;
use redis::{AsyncCommands, RedisResult, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::io::BufRead;
use std::time::Duration;

const ADD: &str = "local sum = redis.call('INCRBY', KEYS[1], ARGV[1]) return {sum, ARGV[1]}";
const PATIENCE: Duration = Duration::from_secs(20);

type Lines = Vec<String>;

fn tell<T: std::fmt::Debug>(lines: &mut Lines, reply: T) {
    lines.push(format!("reply {reply:?}").replace('\n', " "));
}

async fn strings(mut client: MultiplexedConnection, key: String, lines: &mut Lines) -> RedisResult<()> {
    let (count, timed, none) = (format!("{key}:count"), format!("{key}:timed"), format!("{key}:none"));
    tell(lines, client.set::<_, _, Value>(&key, "first").await?);
    tell(lines, client.get::<_, Value>(&key).await?);
    tell(lines, client.get::<_, Value>(&none).await?);
    for _ in 0..3 {
        tell(lines, client.incr::<_, _, Value>(&count, 1).await?);
    }
    tell(lines, client.set_ex::<_, _, Value>(&timed, "second", 1000).await?);
    tell(lines, client.mget::<_, Value>(vec![&key, &timed, &none]).await?);
    Ok(())
}

async fn refused(mut client: MultiplexedConnection, key: String, lines: &mut Lines) -> RedisResult<()> {
    client.set::<_, _, ()>(&key, "no number").await?;
    tell(lines, client.incr::<_, _, Value>(&key, 1).await.map_err(|error| error.to_string()));
    Ok(())
}

async fn hashes(mut client: MultiplexedConnection, key: String, lines: &mut Lines) -> RedisResult<()> {
    tell(lines, client.hset_multiple::<_, _, _, Value>(&key, &[("one", 1), ("two", 2)]).await?);
    tell(lines, client.hgetall::<_, BTreeMap<String, String>>(&key).await?);
    Ok(())
}

async fn lists(mut client: MultiplexedConnection, key: String, lines: &mut Lines) -> RedisResult<()> {
    tell(lines, client.rpush::<_, _, Value>(&key, &["a", "b", "c"]).await?);
    tell(lines, client.lrange::<_, Value>(&key, 0, -1).await?);
    Ok(())
}

async fn sorted_sets(mut client: MultiplexedConnection, key: String, lines: &mut Lines) -> RedisResult<()> {
    tell(lines, client.zadd_multiple::<_, _, _, Value>(&key, &[(1.5, "a"), (2.0, "b")]).await?);
    tell(lines, client.zrange_withscores::<_, Value>(&key, 0, -1).await?);
    Ok(())
}

async fn pipeline(mut client: MultiplexedConnection, key: String, lines: &mut Lines) -> RedisResult<()> {
    let mut batch = redis::pipe();
    for number in 0..50 {
        batch.rpush(&key, number);
    }
    tell(lines, batch.lrange(&key, 0, -1).query_async::<Vec<Value>>(&mut client).await?);
    Ok(())
}

async fn transaction(mut client: MultiplexedConnection, key: String, lines: &mut Lines) -> RedisResult<()> {
    let batch = redis::pipe().atomic().set(&key, 1).incr(&key, 1).get(&key).clone();
    tell(lines, batch.query_async::<Vec<Value>>(&mut client).await?);
    Ok(())
}

async fn script(mut client: MultiplexedConnection, key: String, lines: &mut Lines) -> RedisResult<()> {
    let add = redis::Script::new(ADD);
    for number in [7, 8] {
        tell(lines, add.key(&key).arg(number).invoke_async::<Value>(&mut client).await?);
    }
    Ok(())
}

async fn scan(mut client: MultiplexedConnection, key: String, lines: &mut Lines) -> RedisResult<()> {
    for number in 0..30 {
        client.set::<_, _, ()>(format!("{key}:{number}"), number).await?;
    }
    let mut found = BTreeSet::new();
    let mut each = client.scan_match::<_, Value>(format!("{key}:*")).await?;
    while let Some(name) = each.next().await {
        found.insert(format!("{name:?}"));
    }
    tell(lines, found);
    Ok(())
}

async fn big(mut client: MultiplexedConnection, key: String, lines: &mut Lines) -> RedisResult<()> {
    let value = "headgate".repeat(131072);
    tell(lines, client.set::<_, _, Value>(&key, &value).await?);
    tell(lines, client.get::<_, String>(&key).await? == value);
    Ok(())
}

async fn streams(mut client: MultiplexedConnection, key: String, lines: &mut Lines) -> RedisResult<()> {
    for number in 1..=5 {
        let added = redis::cmd("XADD").arg(&key).arg(format!("1-{number}")).arg("number").arg(number).clone();
        tell(lines, added.query_async::<Value>(&mut client).await?);
    }
    let made = redis::cmd("XGROUP").arg("CREATE").arg(&key).arg("group").arg("0").clone();
    tell(lines, made.query_async::<Value>(&mut client).await?);
    let read = redis::cmd("XREADGROUP").arg("GROUP").arg("group").arg("one").arg("COUNT").arg(3).arg("STREAMS").arg(&key)
        .arg(">").clone();
    for _ in 0..3 {
        tell(lines, read.query_async::<Value>(&mut client).await?);
    }
    tell(lines, redis::cmd("XACK").arg(&key).arg("group").arg("1-1").query_async::<Value>(&mut client).await?);
    Ok(())
}

// A hundred at once over one connection.
async fn concurrent(client: MultiplexedConnection, key: String, lines: &mut Lines) -> RedisResult<()> {
    let work = (0..100).map(|number| {
        let (mut client, name) = (client.clone(), format!("{key}:{number}"));
        async move {
            client.set::<_, _, ()>(&name, number).await?;
            client.get::<_, String>(&name).await
        }
    });
    for reply in futures_util::future::join_all(work).await {
        tell(lines, reply?);
    }
    Ok(())
}

async fn subscribe(mut client: MultiplexedConnection, key: String, lines: &mut Lines) -> RedisResult<()> {
    let mut own = library()?.get_async_pubsub().await?;
    own.subscribe(&key).await?;
    own.psubscribe(format!("{key}:*")).await?;
    tell(lines, client.publish::<_, _, Value>(&key, "hello").await?);
    tell(lines, client.publish::<_, _, Value>(format!("{key}:one"), "there").await?);
    let mut messages = own.on_message();
    for _ in 0..2 {
        let message = tokio::time::timeout(PATIENCE, messages.next()).await.expect("a message").expect("a message");
        tell(lines, (message.get_channel_name().to_owned(), message.get_payload::<String>()?));
    }
    Ok(())
}

async fn greeting(_: MultiplexedConnection, key: String, lines: &mut Lines) -> RedisResult<()> {
    let arguments: Vec<String> = std::env::args().collect();
    let place = format!("{}:{}", arguments[1], arguments[2]);
    for way in [
        format!("redis://{place}/3"),
        format!("redis://{place}/?protocol=resp3"),
        format!("redis://tested:secret@{place}/"),
        format!("redis://tested:wrong@{place}/"),
    ] {
        match redis::Client::open(way)?.get_multiplexed_async_connection_with_config(&patient()).await {
            Err(error) => tell(lines, error.to_string()),
            Ok(mut own) => {
                tell(lines, own.set::<_, _, Value>(&key, "mine").await?);
                tell(lines, redis::cmd("ACL").arg("WHOAMI").query_async::<Value>(&mut own).await?);
            }
        }
    }
    Ok(())
}

fn library() -> RedisResult<redis::Client> {
    let arguments: Vec<String> = std::env::args().collect();
    redis::Client::open(format!("redis://{}:{}/", arguments[1], arguments[2]))
}

/// Half a second is not enough on a busy machine.
fn patient() -> redis::AsyncConnectionConfig {
    redis::AsyncConnectionConfig::new().set_response_timeout(Some(PATIENCE)).set_connection_timeout(Some(PATIENCE))
}

async fn outcome(client: MultiplexedConnection, name: &str, number: usize) -> Lines {
    let mut lines = Vec::new();
    let key = format!("newest:{name}:{number}");
    let done = match name {
        "strings" => strings(client, key, &mut lines).await,
        "refused" => refused(client, key, &mut lines).await,
        "hashes" => hashes(client, key, &mut lines).await,
        "lists" => lists(client, key, &mut lines).await,
        "sorted_sets" => sorted_sets(client, key, &mut lines).await,
        "pipeline" => pipeline(client, key, &mut lines).await,
        "transaction" => transaction(client, key, &mut lines).await,
        "script" => script(client, key, &mut lines).await,
        "scan" => scan(client, key, &mut lines).await,
        "big" => big(client, key, &mut lines).await,
        "streams" => streams(client, key, &mut lines).await,
        "concurrent" => concurrent(client, key, &mut lines).await,
        "greeting" => greeting(client, key, &mut lines).await,
        "patterns" => subscribe(client, key, &mut lines).await,
        _ => return vec!["unsupported".to_owned()],
    };
    if let Err(error) = done {
        lines.push(format!("error {error}").replace('\n', " "));
    }
    lines
}

/// As the lock file has it.
fn version() -> &'static str {
    let behind = include_str!("../Cargo.lock").split("name = \"redis\"\nversion = \"").nth(1);
    behind.and_then(|text| text.split('"').next()).unwrap_or("unknown")
}

#[tokio::main]
async fn main() -> RedisResult<()> {
    let count: usize = std::env::args().nth(3).and_then(|text| text.parse().ok()).expect("a number of clients");
    let mut clients = Vec::new();
    for _ in 0..count {
        clients.push(library()?.get_multiplexed_async_connection_with_config(&patient()).await?);
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
    Ok(())
}
