// fred with its default settings.
mod protocol;

use fred::prelude::*;
use fred::types::config::ReconnectPolicy;
use fred::types::{CustomCommand, Expiration, Key, RespVersion};
use futures_util::StreamExt;
use protocol::{soon, tell, tell_error, url, Lines, ADD, PATIENCE};
use std::collections::{BTreeSet, HashMap};
use std::io::BufRead;
use std::sync::Mutex;
use std::time::{Duration, Instant};

static SUBSCRIBERS: Mutex<Option<HashMap<String, Client>>> = Mutex::new(None);

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

/// With a client of its own: others would be between. The library has WATCH as a command of one's own only.
async fn watch(client: Client, key: String, lines: &mut Lines) -> Result<(), Error> {
    let own = connect(&url("", "")).await?;
    for is_late in [false, true] {
        client.set::<(), _, _>(&key, 5, None, None, false).await?;
        tell(lines, own.custom::<Value, _>(CustomCommand::new_static("WATCH", None::<u16>, false), vec![&key]).await?);
        let value: i64 = own.get(&key).await?;
        if is_late {
            client.set::<(), _, _>(&key, 7, None, None, false).await?;
        }
        let batch = own.multi();
        batch.set::<(), _, _>(&key, value * 2, None, None, false).await?;
        tell(lines, batch.exec::<Value>(true).await.map_err(|error| error.to_string()));
        tell(lines, own.get::<Value, _>(&key).await?);
    }
    own.quit().await
}

async fn script(client: Client, key: String, lines: &mut Lines) -> Result<(), Error> {
    for number in [7, 8] {
        tell(lines, client.eval::<Value, _, _, _>(ADD, key.as_str(), number).await?);
    }
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

/// fred is done with subscribing before the server has answered: what is published too early nobody hears.
async fn hear(own: &Client, client: &Client, channel: &str, sharded: bool, lines: &mut Lines) -> Result<(), Error> {
    let (mut messages, end) = (own.message_rx(), soon());
    let mut count = 0;
    while count == 0 && Instant::now() < end {
        count = match sharded {
            true => client.spublish::<i64, _, _>(channel, "hello").await?,
            false => client.publish::<i64, _, _>(channel, "hello").await?,
        };
    }
    tell(lines, count);
    let message = tokio::time::timeout(PATIENCE, messages.recv()).await.expect("a message in time").expect("a message");
    tell(lines, (message.kind, message.channel, message.value));
    Ok(())
}

async fn subscribe(client: Client, key: String, lines: &mut Lines) -> Result<(), Error> {
    let own = connect(&url("", "")).await?;
    own.subscribe(&key).await?;
    hear(&own, &client, &key, false, lines).await?;
    SUBSCRIBERS.lock().expect("subscribers").get_or_insert_default().insert(key, own);
    Ok(())
}

async fn unsubscribe(_: Client, key: String, lines: &mut Lines) -> Result<(), Error> {
    let channel = key.replace("unsubscribe", "subscribe");
    let own = SUBSCRIBERS.lock().expect("subscribers").get_or_insert_default().remove(&channel).expect("a subscriber");
    own.unsubscribe(&channel).await?;
    tell(lines, own.echo::<Value, _>(&key).await?);
    own.quit().await
}

/// It has no cache, but tells what has changed.
async fn caching(client: Client, key: String, lines: &mut Lines) -> Result<(), Error> {
    let mut settings = Config::from_url(&url("", ""))?;
    settings.version = RespVersion::RESP3;
    let own = Builder::from_config(settings).build()?;
    own.init().await?;
    let mut came = own.invalidation_rx();
    own.start_tracking(Vec::<String>::new(), false, false, false, false).await?;
    client.set::<(), _, _>(&key, "old", None, None, false).await?;
    tell(lines, own.get::<Value, _>(&key).await?);
    client.set::<(), _, _>(&key, "new", None, None, false).await?;
    let told = tokio::time::timeout(PATIENCE, came.recv()).await.expect("an invalidation in time");
    tell(lines, told.map(|told| told.keys).ok());
    tell(lines, own.get::<Value, _>(&key).await?);
    own.stop_tracking().await?;
    own.quit().await
}

/// Until the server has been killed and is there again, without its data. It connects anew by itself if it is told to.
async fn killed(_: Client, key: String, lines: &mut Lines) -> Result<(), Error> {
    let mut builder = Builder::from_config(Config::from_url(&url("", ""))?);
    let own = builder.set_policy(ReconnectPolicy::new_constant(0, 50)).build()?;
    own.init().await?;
    let (mut lost, end) = (0, soon());
    own.set::<(), _, _>(&key, "before", None, None, false).await?;
    while Instant::now() < end {
        match own.get::<Value, _>(&key).await {
            Ok(Value::Null) => break,
            Ok(_) => (),
            Err(_) => lost += 1,
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    tell(lines, format!("lost={lost}"));
    tell(lines, own.set::<Value, _, _>(format!("{key}:after"), "there", None, None, false).await?);
    tell(lines, own.get::<Value, _>(format!("{key}:after")).await?);
    own.quit().await
}

/// It learns where the slots are, and goes to the node of each key.
async fn cluster_mode(_: Client, key: String, lines: &mut Lines) -> Result<(), Error> {
    let cluster = Builder::from_config(Config::from_url_clustered(&url("", ""))?).build()?;
    cluster.init().await?;
    let names: Vec<String> = (0..20).map(|number| format!("{key}:{number}")).collect();
    for name in &names {
        tell(lines, cluster.set::<Value, _, _>(name, name, None, None, false).await?);
        tell(lines, cluster.get::<Value, _>(name).await?);
    }
    let batch = cluster.pipeline();
    for name in &names {
        batch.append::<(), _, _>(name, "!").await?;
        batch.get::<(), _>(name).await?;
    }
    tell(lines, batch.all::<Value>().await?);
    transaction(cluster.clone(), format!("{{{key}}}a"), lines).await?;
    tell(lines, cluster.eval::<Value, _, _, _>(ADD, format!("{{{key}}}b"), 7).await?);
    tell(lines, cluster.blpop::<Value, _>(format!("{{{key}}}c"), 1.0).await.map_err(|error| error.to_string()));
    let each = cluster.scan_cluster_buffered(format!("{key}:*"), None, None);
    let found: Vec<Result<Key, Error>> = each.collect().await;
    tell(lines, found.into_iter().map(|name| name.map(Key::into_string)).collect::<Result<BTreeSet<_>, _>>()?);
    let ears = cluster.clone_new();
    ears.init().await?;
    ears.ssubscribe(&key).await?;
    hear(&ears, &cluster, &key, true, lines).await?;
    ears.quit().await?;
    for name in &names {
        cluster.del::<(), _>(name).await?;
    }
    cluster.quit().await
}

async fn greeting(_: Client, key: String, lines: &mut Lines) -> Result<(), Error> {
    for version in [RespVersion::RESP2, RespVersion::RESP3] {
        for place in [url("", "3"), url("tested:secret@", ""), url("tested:wrong@", "")] {
            let mut settings = Config::from_url(&place)?;
            settings.version = version.clone();
            let own = Builder::from_config(settings).build()?;
            if let Err(error) = own.init().await {
                tell(lines, error.to_string());
                continue;
            }
            tell(lines, own.set::<Value, _, _>(&key, "mine", None, None, false).await?);
            let who = CustomCommand::new_static("ACL", None::<u16>, false);
            tell(lines, own.custom::<Value, _>(who, vec!["WHOAMI"]).await?);
            own.quit().await?;
        }
    }
    Ok(())
}

async fn connect(place: &str) -> Result<Client, Error> {
    let client = Builder::from_config(Config::from_url(place)?).build()?;
    client.init().await?;
    Ok(client)
}

async fn outcome(client: Client, name: &str, number: usize) -> Lines {
    let mut lines = Vec::new();
    let key = format!("newest:{name}:{number}");
    let done = match name {
        "strings" => strings(client, key, &mut lines).await,
        "watch" => watch(client, key, &mut lines).await,
        "subscribe" => subscribe(client, key, &mut lines).await,
        "unsubscribe" => unsubscribe(client, key, &mut lines).await,
        "caching" => caching(client, key, &mut lines).await,
        "killed" => killed(client, key, &mut lines).await,
        "cluster_mode" => cluster_mode(client, key, &mut lines).await,
        "pipeline" => pipeline(client, key, &mut lines).await,
        "transaction" => transaction(client, key, &mut lines).await,
        "script" => script(client, key, &mut lines).await,
        "concurrent" => concurrent(client, key, &mut lines).await,
        "blocking" => blocking(client, key, &mut lines).await,
        "greeting" => greeting(client, key, &mut lines).await,
        _ => return vec!["unsupported".to_owned()],
    };
    if let Err(error) = done {
        tell_error(&mut lines, error);
    }
    lines
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let mut clients = Vec::new();
    for _ in 0..protocol::clients() {
        clients.push(connect(&url("", "")).await?);
    }
    println!("version {}\nready", protocol::version("fred"));
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
