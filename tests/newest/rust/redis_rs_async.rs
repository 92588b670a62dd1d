// redis-rs with tokio: multiplexed connections, whose commands go out as they come.
mod protocol;

use futures_util::StreamExt;
use protocol::{soon, tell, tell_error, url, Lines, ADD, PATIENCE};
use redis::aio::{ConnectionManager, ConnectionManagerConfig, MultiplexedConnection, PubSub};
use redis::{AsyncCommands, RedisResult, Value};
use std::collections::HashMap;
use std::io::BufRead;
use std::sync::Mutex;
use std::time::{Duration, Instant};

static SUBSCRIPTIONS: Mutex<Option<HashMap<String, PubSub>>> = Mutex::new(None);

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

/// On a connection of its own, as the library wants it: on a shared one all that is under way would be between.
async fn watch(mut client: MultiplexedConnection, key: String, lines: &mut Lines) -> RedisResult<()> {
    client.set::<_, _, ()>(&key, 5).await?;
    let own = connect(&url("", "")).await?;
    let name = key.as_str();
    let replies: Vec<Value> = redis::aio::transaction_async(own, &[name], |mut own, mut batch| async move {
        let value: i64 = own.get(name).await?;
        batch.set(name, value * 2).get(name).query_async(&mut own).await
    })
    .await?;
    tell(lines, replies);
    Ok(())
}

async fn script(mut client: MultiplexedConnection, key: String, lines: &mut Lines) -> RedisResult<()> {
    let add = redis::Script::new(ADD);
    for number in [7, 8] {
        tell(lines, add.key(&key).arg(number).invoke_async::<Value>(&mut client).await?);
    }
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

async fn blocking(mut client: MultiplexedConnection, key: String, lines: &mut Lines) -> RedisResult<()> {
    let mut own = connect(&url("", "")).await?;
    tell(lines, own.blpop::<_, Value>(&key, 1.0).await?);
    client.rpush::<_, _, ()>(&key, "there").await?;
    tell(lines, own.blpop::<_, Value>(&key, 1.0).await?);
    let name = key.clone();
    let push = tokio::spawn(async move {
        tokio::time::sleep(Duration::from_millis(100)).await;
        client.rpush::<_, _, ()>(name, "pushed").await
    });
    tell(lines, own.blpop::<_, Value>(&key, PATIENCE.as_secs_f64()).await?);
    push.await.expect("the push")
}

async fn tell_message(subscription: &mut PubSub, lines: &mut Lines) -> RedisResult<()> {
    let next = tokio::time::timeout(PATIENCE, subscription.on_message().next()).await;
    let message = next.expect("a message in time").expect("a message");
    let name = message.get_channel_name().to_owned();
    tell(lines, (message.get_pattern::<Option<String>>()?, name, message.get_payload::<String>()?));
    Ok(())
}

async fn subscribe(mut client: MultiplexedConnection, key: String, lines: &mut Lines) -> RedisResult<()> {
    let mut own = library(&url("", ""))?.get_async_pubsub().await?;
    own.subscribe(&key).await?;
    tell(lines, client.publish::<_, _, Value>(&key, "hello").await?);
    tell_message(&mut own, lines).await?;
    SUBSCRIPTIONS.lock().expect("subscriptions").get_or_insert_default().insert(key, own);
    Ok(())
}

async fn unsubscribe(_: MultiplexedConnection, key: String, lines: &mut Lines) -> RedisResult<()> {
    let channel = key.replace("unsubscribe", "subscribe");
    let own = SUBSCRIPTIONS.lock().expect("subscriptions").get_or_insert_default().remove(&channel);
    tell(lines, own.expect("a subscription").unsubscribe(&channel).await);
    Ok(())
}

/// Its client-side cache.
async fn caching(mut client: MultiplexedConnection, key: String, lines: &mut Lines) -> RedisResult<()> {
    let config = patient().set_cache_config(redis::caching::CacheConfig::new());
    let mut own = library(&url("", "?protocol=resp3"))?.get_multiplexed_async_connection_with_config(&config).await?;
    client.set::<_, _, ()>(&key, "old").await?;
    for _ in 0..3 {
        tell(lines, own.get::<_, Value>(&key).await?);
    }
    tell(lines, own.get_cache_statistics().map(|counts| (counts.hit, counts.miss)));
    client.set::<_, _, ()>(&key, "new").await?;
    let end = soon();
    while own.get::<_, String>(&key).await? != "new" && Instant::now() < end {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    tell(lines, own.get::<_, Value>(&key).await?);
    tell(lines, own.get_cache_statistics().map(|counts| counts.invalidate));
    Ok(())
}

async fn greeting(mut client: MultiplexedConnection, key: String, lines: &mut Lines) -> RedisResult<()> {
    for place in [
        url("", "3"),
        url("", "?protocol=resp3"),
        url("", "3?protocol=resp3"),
        url("tested:secret@", ""),
        url("tested:wrong@", ""),
        url("tested:wrong@", "?protocol=resp3"),
    ] {
        match connect(&place).await {
            Err(error) => tell(lines, error.to_string()),
            Ok(mut own) => {
                tell(lines, own.set::<_, _, Value>(&key, "mine").await?);
                tell(lines, redis::cmd("ACL").arg("WHOAMI").query_async::<Value>(&mut own).await?);
                tell(lines, client.get::<_, Value>(&key).await?);
            }
        }
    }
    Ok(())
}

/// Until the server has been killed and is there again, without its data. A manager connects anew by itself.
async fn killed(_: MultiplexedConnection, key: String, lines: &mut Lines) -> RedisResult<()> {
    let config = ConnectionManagerConfig::new().set_response_timeout(Some(PATIENCE)).set_connection_timeout(Some(PATIENCE));
    let mut own = ConnectionManager::new_with_config(library(&url("", ""))?, config).await?;
    let (mut lost, end) = (0, soon());
    own.set::<_, _, ()>(&key, "before").await?;
    while Instant::now() < end {
        match own.get::<_, Value>(&key).await {
            Ok(Value::Nil) => break,
            Ok(_) => (),
            Err(_) => lost += 1,
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    tell(lines, format!("lost={lost}"));
    tell(lines, own.set::<_, _, Value>(format!("{key}:after"), "there").await?);
    tell(lines, own.get::<_, Value>(format!("{key}:after")).await?);
    Ok(())
}

/// It learns where the slots are, and goes to the node of each key.
async fn cluster_mode(_: MultiplexedConnection, key: String, lines: &mut Lines) -> RedisResult<()> {
    let names: Vec<String> = (0..20).map(|number| format!("{key}:{number}")).collect();
    let (sender, mut came) = tokio::sync::mpsc::unbounded_channel();
    let client = redis::cluster::ClusterClientBuilder::new(vec![url("", "")])
        .use_protocol(redis::ProtocolVersion::RESP3)
        .connection_timeout(PATIENCE)
        .response_timeout(PATIENCE)
        .push_sender(sender)
        .build()?;
    let mut cluster = client.get_async_connection().await?;
    for name in &names {
        tell(lines, (cluster.set::<_, _, Value>(name, name).await?, cluster.get::<_, Value>(name).await?));
    }
    let batch = redis::pipe().atomic().set(&names[0], 1).incr(&names[0], 1).get(&names[0]).clone();
    tell(lines, batch.query_async::<Vec<Value>>(&mut cluster).await?);
    tell(lines, cluster.mget::<_, Value>(&names).await?);
    let (script, name) = (redis::Script::new(ADD), format!("{{{key}}}b"));
    tell(lines, script.key(name).arg(7).invoke_async::<Value>(&mut cluster).await?);
    tell(lines, cluster.blpop::<_, Value>(format!("{{{key}}}c"), 1.0).await?);
    cluster.ssubscribe(&key).await?;
    tell(lines, cluster.spublish::<_, _, Value>(&key, "hello").await?);
    for _ in 0..2 {
        let push = tokio::time::timeout(PATIENCE, came.recv()).await.expect("a push in time");
        tell(lines, push.map(|push| (push.kind, push.data)));
    }
    tell(lines, cluster.del::<_, Value>(&names).await?);
    Ok(())
}

fn library(place: &str) -> RedisResult<redis::Client> {
    redis::Client::open(place)
}

/// Half a second is not enough on a busy machine.
fn patient() -> redis::AsyncConnectionConfig {
    redis::AsyncConnectionConfig::new().set_response_timeout(Some(PATIENCE)).set_connection_timeout(Some(PATIENCE))
}

async fn connect(place: &str) -> RedisResult<MultiplexedConnection> {
    library(place)?.get_multiplexed_async_connection_with_config(&patient()).await
}

async fn outcome(client: MultiplexedConnection, name: &str, number: usize) -> Lines {
    let mut lines = Vec::new();
    let key = format!("newest:{name}:{number}");
    let done = match name {
        "strings" => strings(client, key, &mut lines).await,
        "pipeline" => pipeline(client, key, &mut lines).await,
        "transaction" => transaction(client, key, &mut lines).await,
        "watch" => watch(client, key, &mut lines).await,
        "script" => script(client, key, &mut lines).await,
        "concurrent" => concurrent(client, key, &mut lines).await,
        "greeting" => greeting(client, key, &mut lines).await,
        "blocking" => blocking(client, key, &mut lines).await,
        "subscribe" => subscribe(client, key, &mut lines).await,
        "unsubscribe" => unsubscribe(client, key, &mut lines).await,
        "caching" => caching(client, key, &mut lines).await,
        "killed" => killed(client, key, &mut lines).await,
        "cluster_mode" => cluster_mode(client, key, &mut lines).await,
        _ => return vec!["unsupported".to_owned()],
    };
    if let Err(error) = done {
        tell_error(&mut lines, error);
    }
    lines
}

#[tokio::main]
async fn main() -> RedisResult<()> {
    let mut clients = Vec::new();
    for _ in 0..protocol::clients() {
        clients.push(connect(&url("", "")).await?);
    }
    println!("version {}\nready", protocol::version("redis"));
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
