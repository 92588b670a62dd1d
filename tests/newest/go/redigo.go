// redigo: connections of a pool.
package main

import (
	"errors"
	"fmt"
	"net"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/gomodule/redigo/redis"
)

var add = redis.NewScript(1, "local sum = redis.call('INCRBY', KEYS[1], ARGV[1]) return {sum, ARGV[1]}")

var subscribers sync.Map

func dial(options ...redis.DialOption) (redis.Conn, error) {
	if config := tlsConfig(); config != nil {
		options = append(options, redis.DialUseTLS(true), redis.DialTLSConfig(config))
	}
	return redis.Dial("tcp", address, options...)
}

func connect() *redis.Pool {
	return &redis.Pool{MaxActive: 10, MaxIdle: 10, Wait: true, Dial: func() (redis.Conn, error) { return dial() }}
}

// readable is a reply as text, as far down as it goes.
func readable(reply any, err error) (any, error) {
	switch value := reply.(type) {
	case []byte:
		return string(value), err
	case []any:
		var texts []any
		for _, each := range value {
			text, _ := readable(each, nil)
			texts = append(texts, text)
		}
		return texts, err
	case redis.Error:
		return string(value), err
	}
	return reply, err
}

func one(client *redis.Pool, command string, arguments ...any) (any, error) {
	connection := client.Get()
	defer connection.Close()
	return readable(connection.Do(command, arguments...))
}

func stringsFeature(client *redis.Pool, key string, tell func(any, error)) error {
	tell(one(client, "SET", key, "first"))
	tell(one(client, "GET", key))
	tell(one(client, "GET", key+":none"))
	for number := 0; number < 3; number++ {
		tell(one(client, "INCR", key+":count"))
	}
	tell(one(client, "SET", key+":timed", "second", "EX", 1000))
	tell(one(client, "MGET", key, key+":timed", key+":none"))
	return nil
}

func pipeline(client *redis.Pool, key string, tell func(any, error)) error {
	connection := client.Get()
	defer connection.Close()
	for number := 0; number < 50; number++ {
		connection.Send("RPUSH", key, number)
	}
	connection.Send("LRANGE", key, 0, -1)
	connection.Flush()
	for number := 0; number <= 50; number++ {
		tell(readable(connection.Receive()))
	}
	return nil
}

func transaction(client *redis.Pool, key string, tell func(any, error)) error {
	connection := client.Get()
	defer connection.Close()
	connection.Send("MULTI")
	connection.Send("SET", key, 1)
	connection.Send("INCR", key)
	tell(readable(connection.Do("EXEC")))
	return nil
}

func watch(client *redis.Pool, key string, tell func(any, error)) error {
	connection := client.Get()
	defer connection.Close()
	connection.Do("SET", key, 5)
	connection.Do("WATCH", key)
	value, err := redis.Int(connection.Do("GET", key))
	if err != nil {
		return err
	}
	connection.Send("MULTI")
	connection.Send("SET", key, value*2)
	tell(readable(connection.Do("EXEC")))
	connection.Do("WATCH", key)
	tell(one(client, "SET", key, 1))
	connection.Send("MULTI")
	connection.Send("SET", key, 2)
	tell(readable(connection.Do("EXEC")))
	return nil
}

func script(client *redis.Pool, key string, tell func(any, error)) error {
	connection := client.Get()
	defer connection.Close()
	for number := 7; number <= 8; number++ {
		tell(readable(add.Do(connection, key, number)))
	}
	return nil
}

func scan(client *redis.Pool, key string, tell func(any, error)) error {
	for number := 0; number < 30; number++ {
		one(client, "SET", fmt.Sprintf("%s:%d", key, number), number)
	}
	connection := client.Get()
	defer connection.Close()
	found := map[string]bool{}
	for cursor, more := "0", true; more; more = cursor != "0" {
		reply, err := redis.Values(connection.Do("SCAN", cursor, "MATCH", key+":*"))
		if err != nil {
			return err
		}
		cursor, _ = redis.String(reply[0], nil)
		keys, _ := redis.Strings(reply[1], nil)
		for _, each := range keys {
			found[each] = true
		}
	}
	var keys []string
	for each := range found {
		keys = append(keys, each)
	}
	sort.Strings(keys)
	tell(keys, nil)
	return nil
}

func greeting(client *redis.Pool, key string, tell func(any, error)) error {
	user := redis.DialUsername("tested")
	for _, options := range [][]redis.DialOption{{redis.DialClientName("tested")}, {redis.DialDatabase(3)},
		{user, redis.DialPassword("secret")}, {user, redis.DialPassword("wrong")}} {
		own, err := dial(options...)
		if err != nil {
			tell(nil, err)
			continue
		}
		tell(readable(own.Do("SET", key, "mine")))
		tell(one(client, "GET", key))
		tell(readable(own.Do("CLIENT", "GETNAME")))
		tell(readable(own.Do("ACL", "WHOAMI")))
		own.Close()
	}
	return nil
}

func concurrent(client *redis.Pool, key string, tell func(any, error)) error {
	var all sync.WaitGroup
	texts := make([]string, 100)
	for number := range texts {
		all.Add(1)
		go func() {
			defer all.Done()
			name := fmt.Sprintf("%s:%d", key, number)
			set, err := one(client, "SET", name, number)
			got, other := one(client, "GET", name)
			texts[number] = fmt.Sprint(set, err, got, other)
		}()
	}
	all.Wait()
	tell(texts, nil)
	return nil
}

func blocked(client *redis.Pool) func() (string, error) {
	return func() (string, error) {
		info, err := one(client, "INFO", "clients")
		return blockedIn(fmt.Sprint(info)), err
	}
}

func abandoned(client *redis.Pool, key string, tell func(any, error)) error {
	own, err := dial()
	if err != nil {
		return err
	}
	own.Send("BLPOP", key, 0)
	own.Flush()
	tell(until(blocked(client), "1"))
	own.Close()
	tell(until(blocked(client), "0"))
	tell(one(client, "RPUSH", key, "kept"))
	tell(one(client, "LRANGE", key, 0, -1))
	return nil
}

func timeouts(client *redis.Pool, key string, tell func(any, error)) error {
	connection := client.Get()
	_, err := redis.DoWithTimeout(connection, 300*time.Millisecond, "BLPOP", key, 2)
	var late net.Error
	tell(errors.As(err, &late) && late.Timeout(), nil)
	connection.Close()
	tell(one(client, "SET", key+":after", "mine"))
	tell(one(client, "GET", key+":after"))
	return nil
}

func blocking(client *redis.Pool, key string, tell func(any, error)) error {
	tell(one(client, "BLPOP", key, 1))
	one(client, "RPUSH", key, "there")
	tell(one(client, "BLPOP", key, patience.Seconds()))
	time.AfterFunc(100*time.Millisecond, func() { one(client, "RPUSH", key, "pushed") })
	tell(one(client, "BLPOP", key, patience.Seconds()))
	return nil
}

func subscribe(client *redis.Pool, key string, tell func(any, error)) error {
	own, err := dial()
	if err != nil {
		return err
	}
	subscriber := redis.PubSubConn{Conn: own}
	subscribers.Store(key, subscriber)
	subscriber.Subscribe(key)
	tell(fmt.Sprint(subscriber.ReceiveWithTimeout(patience)), nil)
	tell(one(client, "PUBLISH", key, "hello"))
	tell(fmt.Sprint(subscriber.ReceiveWithTimeout(patience)), nil)
	return nil
}

func unsubscribe(_ *redis.Pool, key string, tell func(any, error)) error {
	made, _ := subscribers.Load(strings.Replace(key, "unsubscribe", "subscribe", 1))
	subscriber := made.(redis.PubSubConn)
	subscriber.Unsubscribe()
	tell(fmt.Sprint(subscriber.ReceiveWithTimeout(patience)), nil)
	return subscriber.Close()
}

func patterns(client *redis.Pool, key string, tell func(any, error)) error {
	own, err := dial()
	if err != nil {
		return err
	}
	subscriber := redis.PubSubConn{Conn: own}
	defer subscriber.Close()
	subscriber.PSubscribe(key + ":*")
	tell(fmt.Sprint(subscriber.ReceiveWithTimeout(patience)), nil)
	tell(one(client, "PUBLISH", key+":one", "hello"))
	tell(fmt.Sprint(subscriber.ReceiveWithTimeout(patience)), nil)
	subscriber.PUnsubscribe()
	tell(fmt.Sprint(subscriber.ReceiveWithTimeout(patience)), nil)
	return nil
}

// shards are commands to it.
func shards(client *redis.Pool, key string, tell func(any, error)) error {
	own, err := dial()
	if err != nil {
		return err
	}
	defer own.Close()
	tell(readable(own.Do("SSUBSCRIBE", key)))
	tell(one(client, "SPUBLISH", key, "hello"))
	tell(readable(redis.ReceiveWithTimeout(own, patience)))
	tell(readable(own.Do("SUNSUBSCRIBE", key)))
	return nil
}

// caching in RESP2: another connection hears what has changed.
func caching(client *redis.Pool, key string, tell func(any, error)) error {
	own, err := dial()
	if err != nil {
		return err
	}
	defer own.Close()
	ears, err := dial()
	if err != nil {
		return err
	}
	defer ears.Close()
	id, err := redis.Int(ears.Do("CLIENT", "ID"))
	if err != nil {
		return err
	}
	tell(readable(ears.Do("SUBSCRIBE", "__redis__:invalidate")))
	tell(readable(own.Do("CLIENT", "TRACKING", "ON", "REDIRECT", id)))
	tell(one(client, "SET", key, "old"))
	tell(readable(own.Do("GET", key)))
	tell(one(client, "SET", key, "new"))
	tell(readable(redis.ReceiveWithTimeout(ears, patience)))
	tell(readable(own.Do("GET", key)))
	return nil
}

func killed(client *redis.Pool, key string, tell func(any, error)) error {
	_, err := one(client, "SET", key, "before")
	tell(untilLost(func() (bool, error) {
		got, err := one(client, "GET", key)
		return got == nil && err == nil, err
	}), err)
	tell(one(client, "SET", key+":after", "there"))
	return nil
}

func main() {
	serve(versionOf("github.com/gomodule/redigo"), connect, map[string]feature[*redis.Pool]{
		"strings":     stringsFeature,
		"pipeline":    pipeline,
		"transaction": transaction,
		"watch":       watch,
		"script":      script,
		"scan":        scan,
		"greeting":    greeting,
		"concurrent":  concurrent,
		"abandoned":   abandoned,
		"timeouts":    timeouts,
		"blocking":    blocking,
		"subscribe":   subscribe,
		"unsubscribe": unsubscribe,
		"patterns":    patterns,
		"shards":      shards,
		"caching":     caching,
		"killed":      killed,
	}, func(client *redis.Pool) { client.Close() })
}
