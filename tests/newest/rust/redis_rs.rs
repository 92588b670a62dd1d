// redis-rs with its default settings. The protocol: scripts/clients_program.py.
use redis::{Commands, Connection, PubSub, RedisResult, Value};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io::BufRead;
use std::sync::Mutex;
use std::time::Duration;

const ADD: &str = "local sum = redis.call('INCRBY', KEYS[1], ARGV[1]) return {sum, ARGV[1]}";
const PATIENCE: Duration = Duration::from_secs(20);

/// What all clients have in common.
struct World {
    library: redis::Client,
    subscriptions: Mutex<HashMap<String, PubSub<'static>>>,
}

type Feature = fn(&World, &mut Connection, &str, &mut Vec<String>) -> RedisResult<()>;

fn tell<T: std::fmt::Debug>(lines: &mut Vec<String>, reply: T) {
    lines.push(format!("reply {reply:?}").replace('\n', " "));
}

fn strings(_: &World, client: &mut Connection, key: &str, lines: &mut Vec<String>) -> RedisResult<()> {
    let (count, timed, none) = (format!("{key}:count"), format!("{key}:timed"), format!("{key}:none"));
    tell(lines, client.set::<_, _, Value>(key, "first")?);
    tell(lines, client.get::<_, Value>(key)?);
    tell(lines, client.get::<_, Value>(&none)?);
    for _ in 0..3 {
        tell(lines, client.incr::<_, _, Value>(&count, 1)?);
    }
    tell(lines, client.set_ex::<_, _, Value>(&timed, "second", 1000)?);
    tell(lines, client.mget::<_, Value>(vec![key, &timed, &none])?);
    Ok(())
}

fn refused(_: &World, client: &mut Connection, key: &str, lines: &mut Vec<String>) -> RedisResult<()> {
    client.set::<_, _, ()>(key, "no number")?;
    tell(lines, client.incr::<_, _, Value>(key, 1).map_err(|error| error.to_string()));
    Ok(())
}

fn hashes(_: &World, client: &mut Connection, key: &str, lines: &mut Vec<String>) -> RedisResult<()> {
    tell(lines, client.hset_multiple::<_, _, _, Value>(key, &[("one", 1), ("two", 2)])?);
    tell(lines, client.hgetall::<_, BTreeMap<String, String>>(key)?);
    tell(lines, client.hincr::<_, _, _, Value>(key, "two", 40)?);
    Ok(())
}

fn lists(_: &World, client: &mut Connection, key: &str, lines: &mut Vec<String>) -> RedisResult<()> {
    tell(lines, client.rpush::<_, _, Value>(key, &["a", "b", "c"])?);
    tell(lines, client.lrange::<_, Value>(key, 0, -1)?);
    tell(lines, client.lpop::<_, Value>(key, None)?);
    Ok(())
}

fn sorted_sets(_: &World, client: &mut Connection, key: &str, lines: &mut Vec<String>) -> RedisResult<()> {
    tell(lines, client.zadd_multiple::<_, _, _, Value>(key, &[(1.5, "a"), (2.0, "b")])?);
    tell(lines, client.zrange_withscores::<_, Value>(key, 0, -1)?);
    tell(lines, client.zscore::<_, _, Value>(key, "a")?);
    Ok(())
}

fn pipeline(_: &World, client: &mut Connection, key: &str, lines: &mut Vec<String>) -> RedisResult<()> {
    let mut batch = redis::pipe();
    for number in 0..50 {
        batch.rpush(key, number);
    }
    tell(lines, batch.lrange(key, 0, -1).query::<Vec<Value>>(client)?);
    Ok(())
}

fn transaction(_: &World, client: &mut Connection, key: &str, lines: &mut Vec<String>) -> RedisResult<()> {
    let replies: Vec<Value> = redis::pipe().atomic().set(key, 1).incr(key, 1).get(key).query(client)?;
    tell(lines, replies);
    Ok(())
}

fn watch(_: &World, client: &mut Connection, key: &str, lines: &mut Vec<String>) -> RedisResult<()> {
    client.set::<_, _, ()>(key, 5)?;
    let replies: Vec<Value> = redis::transaction(client, &[key], |client, batch| {
        let value: i64 = client.get(key)?;
        batch.set(key, value * 2).get(key).query(client)
    })?;
    tell(lines, replies);
    Ok(())
}

fn script(_: &World, client: &mut Connection, key: &str, lines: &mut Vec<String>) -> RedisResult<()> {
    let add = redis::Script::new(ADD);
    for number in [7, 8] {
        tell(lines, add.key(key).arg(number).invoke::<Value>(client)?);
    }
    Ok(())
}

fn scan(_: &World, client: &mut Connection, key: &str, lines: &mut Vec<String>) -> RedisResult<()> {
    for number in 0..30 {
        client.set::<_, _, ()>(format!("{key}:{number}"), number)?;
    }
    let mut found = BTreeSet::new();
    for each in client.scan_match::<_, Value>(format!("{key}:*"))? {
        found.insert(format!("{each:?}"));
    }
    tell(lines, found);
    Ok(())
}

fn big(_: &World, client: &mut Connection, key: &str, lines: &mut Vec<String>) -> RedisResult<()> {
    let value = "headgate".repeat(131072);
    tell(lines, client.set::<_, _, Value>(key, &value)?);
    tell(lines, client.get::<_, String>(key)? == value);
    Ok(())
}

fn blocking(world: &World, client: &mut Connection, key: &str, lines: &mut Vec<String>) -> RedisResult<()> {
    tell(lines, client.blpop::<_, Value>(key, 1.0)?);
    client.rpush::<_, _, ()>(key, "there")?;
    tell(lines, client.blpop::<_, Value>(key, 1.0)?);
    let mut other = world.library.get_connection()?;
    let name = key.to_owned();
    let push = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(100));
        other.rpush::<_, _, ()>(name, "pushed")
    });
    tell(lines, client.blpop::<_, Value>(key, PATIENCE.as_secs_f64())?);
    push.join().expect("the push")
}

fn subscribe(world: &World, client: &mut Connection, key: &str, lines: &mut Vec<String>) -> RedisResult<()> {
    // For as long as the program runs: what is subscribed borrows it.
    let own: &'static mut Connection = Box::leak(Box::new(world.library.get_connection()?));
    own.set_read_timeout(Some(PATIENCE))?;
    let mut subscription = own.as_pubsub();
    subscription.subscribe(key)?;
    tell(lines, client.publish::<_, _, Value>(key, "hello")?);
    let message = subscription.get_message()?;
    tell(lines, (message.get_channel_name().to_owned(), message.get_payload::<String>()?));
    world.subscriptions.lock().expect("subscriptions").insert(key.to_owned(), subscription);
    Ok(())
}

fn unsubscribe(world: &World, _: &mut Connection, key: &str, lines: &mut Vec<String>) -> RedisResult<()> {
    let channel = key.replace("unsubscribe", "subscribe");
    let subscription = world.subscriptions.lock().expect("subscriptions").remove(&channel);
    tell(lines, subscription.expect("a subscription").unsubscribe(&channel));
    Ok(())
}

const FEATURES: &[(&str, Feature)] = &[
    ("strings", strings),
    ("refused", refused),
    ("hashes", hashes),
    ("lists", lists),
    ("sorted_sets", sorted_sets),
    ("pipeline", pipeline),
    ("transaction", transaction),
    ("watch", watch),
    ("script", script),
    ("scan", scan),
    ("big", big),
    ("blocking", blocking),
    ("subscribe", subscribe),
    ("unsubscribe", unsubscribe),
];

fn outcome(world: &World, client: &mut Connection, name: &str, number: usize) -> Vec<String> {
    let mut lines = Vec::new();
    match FEATURES.iter().find(|(known, _)| *known == name) {
        None => lines.push("unsupported".to_owned()),
        Some((_, feature)) => {
            if let Err(error) = feature(world, client, &format!("newest:{name}:{number}"), &mut lines) {
                lines.push(format!("error {error}").replace('\n', " "));
            }
        }
    }
    lines
}

fn answer(world: &World, clients: &mut [Connection], name: &str, together: bool) {
    let outcomes: Vec<Vec<String>> = if together {
        std::thread::scope(|scope| {
            let started: Vec<_> = clients
                .iter_mut()
                .enumerate()
                .map(|(number, client)| scope.spawn(move || outcome(world, client, name, number)))
                .collect();
            started.into_iter().map(|thread| thread.join().expect("a feature")).collect()
        })
    } else {
        clients.iter_mut().enumerate().map(|(number, client)| outcome(world, client, name, number)).collect()
    };
    for line in outcomes.iter().flatten() {
        println!("{line}");
    }
    println!("done");
}

/// As the lock file has it.
fn version() -> &'static str {
    let behind = include_str!("../Cargo.lock").split("name = \"redis\"\nversion = \"").nth(1);
    behind.and_then(|text| text.split('"').next()).unwrap_or("unknown")
}

fn main() -> RedisResult<()> {
    let arguments: Vec<String> = std::env::args().collect();
    let library = redis::Client::open(format!("redis://{}:{}/", arguments[1], arguments[2]))?;
    let world = World { library, subscriptions: Mutex::new(HashMap::new()) };
    let count = arguments[3].parse().expect("a number of clients");
    let mut clients = (0..count).map(|_| world.library.get_connection()).collect::<RedisResult<Vec<_>>>()?;
    println!("version {}\nready", version());
    for line in std::io::stdin().lock().lines() {
        let line = line.expect("a line");
        let words: Vec<&str> = line.split(' ').collect();
        answer(&world, &mut clients, words[1], words[2] == "together");
    }
    Ok(())
}
