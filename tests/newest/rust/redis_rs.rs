// redis-rs with its default settings. The protocol: scripts/clients_program.py.
mod protocol;

use protocol::{blocked_in, soon, tell, tell_error, url, Lines, ADD, PATIENCE};
use redis::{Commands, Connection, ConnectionLike, PubSub, RedisResult, Value};
use std::collections::{BTreeSet, HashMap};
use std::io::BufRead;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// What all clients have in common.
struct World {
    library: redis::Client,
    subscriptions: Mutex<HashMap<String, PubSub<'static>>>,
}

type Feature = fn(&World, &mut Connection, &str, &mut Lines) -> RedisResult<()>;

fn strings(_: &World, client: &mut Connection, key: &str, lines: &mut Lines) -> RedisResult<()> {
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

fn pipeline(_: &World, client: &mut Connection, key: &str, lines: &mut Lines) -> RedisResult<()> {
    let mut batch = redis::pipe();
    for number in 0..50 {
        batch.rpush(key, number);
    }
    tell(lines, batch.lrange(key, 0, -1).query::<Vec<Value>>(client)?);
    Ok(())
}

fn transaction(_: &World, client: &mut Connection, key: &str, lines: &mut Lines) -> RedisResult<()> {
    let replies: Vec<Value> = redis::pipe().atomic().set(key, 1).incr(key, 1).get(key).query(client)?;
    tell(lines, replies);
    Ok(())
}

fn watch(_: &World, client: &mut Connection, key: &str, lines: &mut Lines) -> RedisResult<()> {
    client.set::<_, _, ()>(key, 5)?;
    let replies: Vec<Value> = redis::transaction(client, &[key], |client, batch| {
        let value: i64 = client.get(key)?;
        batch.set(key, value * 2).get(key).query(client)
    })?;
    tell(lines, replies);
    Ok(())
}

fn script(_: &World, client: &mut Connection, key: &str, lines: &mut Lines) -> RedisResult<()> {
    let add = redis::Script::new(ADD);
    for number in [7, 8] {
        tell(lines, add.key(key).arg(number).invoke::<Value>(client)?);
    }
    Ok(())
}

fn scan(_: &World, client: &mut Connection, key: &str, lines: &mut Lines) -> RedisResult<()> {
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

/// Every way to begin a connection: RESP, databases, users, wrong passwords.
fn greeting(_: &World, client: &mut Connection, key: &str, lines: &mut Lines) -> RedisResult<()> {
    for place in [
        url("", "3"),
        url("", "?protocol=resp3"),
        url("", "3?protocol=resp3"),
        url("tested:secret@", ""),
        url("tested:secret@", "?protocol=resp3"),
        url("tested:wrong@", ""),
        url("tested:wrong@", "?protocol=resp3"),
    ] {
        match redis::Client::open(place)?.get_connection() {
            Err(error) => tell(lines, error.to_string()),
            Ok(mut own) => {
                tell(lines, own.set::<_, _, Value>(key, "mine")?);
                tell(lines, redis::cmd("CLIENT").arg("SETNAME").arg("tested").query::<Value>(&mut own)?);
                tell(lines, redis::cmd("ACL").arg("WHOAMI").query::<Value>(&mut own)?);
                tell(lines, client.get::<_, Value>(key)?);
            }
        }
    }
    Ok(())
}

/// Connections of a pool, in many threads.
fn concurrent(world: &World, _: &mut Connection, key: &str, lines: &mut Lines) -> RedisResult<()> {
    let pool = r2d2::Pool::builder().max_size(5).build(world.library.clone()).expect("a pool");
    let work = |part: usize| -> RedisResult<Vec<(Value, Value)>> {
        let names = (part..100).step_by(10).map(|number| format!("{key}:{number}"));
        let mut replies = Vec::new();
        for name in names {
            let mut client = pool.get().expect("a connection");
            replies.push((client.set(&name, &name)?, client.get(&name)?));
        }
        Ok(replies)
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..10).map(|part| scope.spawn(move || work(part))).collect();
        for thread in threads {
            tell(lines, thread.join().expect("a thread")?);
        }
        Ok(())
    })
}

fn wait_blocked(client: &mut Connection, wanted: &str) -> RedisResult<String> {
    let end = soon();
    loop {
        let now = blocked_in(&redis::cmd("INFO").arg("clients").query::<String>(client)?);
        if now == wanted || Instant::now() > end {
            return Ok(now);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A client that goes away while it blocks takes nothing with it.
fn abandoned(world: &World, client: &mut Connection, key: &str, lines: &mut Lines) -> RedisResult<()> {
    let mut own = world.library.get_connection()?;
    own.send_packed_command(&redis::cmd("BLPOP").arg(key).arg(0).get_packed_command())?;
    tell(lines, wait_blocked(client, "1")?);
    drop(own);
    tell(lines, wait_blocked(client, "0")?);
    tell(lines, client.rpush::<_, _, Value>(key, "kept")?);
    tell(lines, client.lrange::<_, Value>(key, 0, -1)?);
    Ok(())
}

/// What comes after a reply that nobody waits for any more is the right one, once the late one has come.
fn timeouts(world: &World, _: &mut Connection, key: &str, lines: &mut Lines) -> RedisResult<()> {
    let mut own = world.library.get_connection()?;
    own.set_read_timeout(Some(Duration::from_millis(500)))?;
    tell(lines, own.blpop::<_, Value>(key, 2.0).map_err(|error| error.is_timeout()));
    own.set_read_timeout(Some(PATIENCE))?;
    tell(lines, own.is_open());
    tell(lines, own.set::<_, _, Value>(format!("{key}:after"), "mine")?);
    tell(lines, own.get::<_, Value>(format!("{key}:after"))?);
    Ok(())
}

fn blocking(world: &World, client: &mut Connection, key: &str, lines: &mut Lines) -> RedisResult<()> {
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

fn subscribe(world: &World, client: &mut Connection, key: &str, lines: &mut Lines) -> RedisResult<()> {
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

fn unsubscribe(world: &World, _: &mut Connection, key: &str, lines: &mut Lines) -> RedisResult<()> {
    let channel = key.replace("unsubscribe", "subscribe");
    let subscription = world.subscriptions.lock().expect("subscriptions").remove(&channel);
    tell(lines, subscription.expect("a subscription").unsubscribe(&channel));
    Ok(())
}

fn patterns(world: &World, client: &mut Connection, key: &str, lines: &mut Lines) -> RedisResult<()> {
    let mut own = world.library.get_connection()?;
    own.set_read_timeout(Some(PATIENCE))?;
    let mut subscription = own.as_pubsub();
    subscription.psubscribe(format!("{key}:*"))?;
    tell(lines, client.publish::<_, _, Value>(format!("{key}:one"), "hello")?);
    let message = subscription.get_message()?;
    let names = (message.get_pattern::<String>()?, message.get_channel_name().to_owned());
    tell(lines, (names, message.get_payload::<String>()?));
    subscription.punsubscribe(format!("{key}:*"))
}

/// Until the server has been killed and is there again, without its data. A connection that has failed is for its user to
/// open anew.
fn killed(world: &World, client: &mut Connection, key: &str, lines: &mut Lines) -> RedisResult<()> {
    let (mut lost, end) = (0, soon());
    client.set::<_, _, ()>(key, "before")?;
    while Instant::now() < end {
        match client.get::<_, Value>(key) {
            Ok(Value::Nil) => break,
            Ok(_) => (),
            Err(_) => {
                lost += 1;
                if let Ok(anew) = world.library.get_connection() {
                    *client = anew;
                }
            }
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    tell(lines, format!("lost={lost}"));
    tell(lines, client.set::<_, _, Value>(format!("{key}:after"), "there")?);
    tell(lines, client.get::<_, Value>(format!("{key}:after"))?);
    Ok(())
}

/// It learns where the slots are, and goes to the node of each key.
fn cluster_mode(_: &World, _: &mut Connection, key: &str, lines: &mut Lines) -> RedisResult<()> {
    let names: Vec<String> = (0..20).map(|number| format!("{key}:{number}")).collect();
    let mut cluster = redis::cluster::ClusterClient::new(vec![url("", "")])?.get_connection()?;
    for name in &names {
        tell(lines, (cluster.set::<_, _, Value>(name, name)?, cluster.get::<_, Value>(name)?));
    }
    let mut batch = redis::cluster::cluster_pipe();
    for name in &names {
        batch.append(name, "!").get(name);
    }
    tell(lines, batch.query::<Vec<Value>>(&mut cluster)?);
    tell(lines, cluster.mget::<_, Value>(&names)?);
    tell(lines, redis::Script::new(ADD).key(format!("{{{key}}}b")).arg(7).invoke::<Value>(&mut cluster)?);
    tell(lines, cluster.blpop::<_, Value>(format!("{{{key}}}c"), 1.0)?);
    tell(lines, cluster.del::<_, Value>(&names)?);
    Ok(())
}

const FEATURES: &[(&str, Feature)] = &[
    ("strings", strings),
    ("pipeline", pipeline),
    ("transaction", transaction),
    ("watch", watch),
    ("script", script),
    ("scan", scan),
    ("greeting", greeting),
    ("concurrent", concurrent),
    ("abandoned", abandoned),
    ("timeouts", timeouts),
    ("blocking", blocking),
    ("subscribe", subscribe),
    ("unsubscribe", unsubscribe),
    ("patterns", patterns),
    ("killed", killed),
    ("cluster_mode", cluster_mode),
];

fn outcome(world: &World, client: &mut Connection, name: &str, number: usize) -> Lines {
    let mut lines = Vec::new();
    match FEATURES.iter().find(|(known, _)| *known == name) {
        None => lines.push("unsupported".to_owned()),
        Some((_, feature)) => {
            if let Err(error) = feature(world, client, &format!("newest:{name}:{number}"), &mut lines) {
                tell_error(&mut lines, error);
            }
        }
    }
    lines
}

fn answer(world: &World, clients: &mut [Connection], name: &str, together: bool) {
    let outcomes: Vec<Lines> = if together {
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

fn main() -> RedisResult<()> {
    let world = World { library: redis::Client::open(url("", ""))?, subscriptions: Mutex::new(HashMap::new()) };
    let mut clients =
        (0..protocol::clients()).map(|_| world.library.get_connection()).collect::<RedisResult<Vec<_>>>()?;
    println!("version {}\nready", protocol::version("redis"));
    for line in std::io::stdin().lock().lines() {
        let line = line.expect("a line");
        let words: Vec<&str> = line.split(' ').collect();
        answer(&world, &mut clients, words[1], words[2] == "together");
    }
    Ok(())
}
