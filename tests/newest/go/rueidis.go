// rueidis with its default settings: it asks for client-side caching on each connection.
package main

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/redis/rueidis"
)

var ctx = context.Background()

var add = rueidis.NewLuaScript("local sum = redis.call('INCRBY', KEYS[1], ARGV[1]) return {sum, ARGV[1]}")

// A subscription: what comes, and how it ends.
type subscription struct {
	messages chan rueidis.PubSubMessage
	ended    chan error
}

var subscriptions sync.Map

func connect() rueidis.Client {
	client, err := connectWith(rueidis.ClientOption{})
	if err != nil {
		panic(err)
	}
	return client
}

func connectWith(options rueidis.ClientOption) (rueidis.Client, error) {
	options.InitAddress, options.TLSConfig = []string{address}, tlsConfig()
	options.Dialer.Timeout, options.ConnWriteTimeout = patience, patience // also on a busy machine
	return rueidis.NewClient(options)
}

func command(client rueidis.Client, name, key string, arguments ...string) rueidis.Completed {
	return client.B().Arbitrary(name).Keys(key).Args(arguments...).Build()
}

// one does a single command and gives its reply.
func one(client rueidis.Client, name, key string, arguments ...string) (any, error) {
	return client.Do(ctx, command(client, name, key, arguments...)).ToAny()
}

func all(results []rueidis.RedisResult) ([]any, error) {
	var replies []any
	for _, result := range results {
		reply, err := result.ToAny()
		if err != nil {
			return replies, err
		}
		replies = append(replies, reply)
	}
	return replies, nil
}

func stringsFeature(client rueidis.Client, key string, tell func(any, error)) error {
	tell(one(client, "SET", key, "first"))
	tell(one(client, "GET", key))
	tell(one(client, "GET", key+":none"))
	for number := 0; number < 3; number++ {
		tell(one(client, "INCR", key+":count"))
	}
	tell(one(client, "SET", key+":timed", "second", "EX", "1000"))
	tell(client.Do(ctx, client.B().Mget().Key(key, key+":timed", key+":none").Build()).ToAny())
	return nil
}

func pipeline(client rueidis.Client, key string, tell func(any, error)) error {
	var batch rueidis.Commands
	for number := 0; number < 50; number++ {
		batch = append(batch, command(client, "RPUSH", key, fmt.Sprint(number)))
	}
	tell(all(client.DoMulti(ctx, append(batch, command(client, "LRANGE", key, "0", "-1"))...)))
	return nil
}

func transaction(client rueidis.Client, key string, tell func(any, error)) error {
	multi, exec := client.B().Multi().Build(), client.B().Exec().Build()
	tell(all(client.DoMulti(ctx, multi, command(client, "SET", key, "1"), command(client, "INCR", key), exec)))
	return nil
}

func watch(client rueidis.Client, key string, tell func(any, error)) error {
	tell(one(client, "SET", key, "5"))
	return client.Dedicated(func(own rueidis.DedicatedClient) error {
		tell(own.Do(ctx, own.B().Watch().Key(key).Build()).ToAny())
		value, err := own.Do(ctx, own.B().Get().Key(key).Build()).AsInt64()
		if err != nil {
			return err
		}
		tell(all(own.DoMulti(ctx, own.B().Multi().Build(),
			own.B().Set().Key(key).Value(fmt.Sprint(value*2)).Build(), own.B().Exec().Build())))
		return nil
	})
}

func script(client rueidis.Client, key string, tell func(any, error)) error {
	for number := 7; number <= 8; number++ {
		tell(add.Exec(ctx, client, []string{key}, []string{fmt.Sprint(number)}).ToAny())
	}
	return nil
}

// greeting tries ways to begin a connection: RESP2, names, users, databases, wrong passwords.
func greeting(client rueidis.Client, key string, tell func(any, error)) error {
	ways := []rueidis.ClientOption{{DisableCache: true, AlwaysRESP2: true}, {DisableCache: true}, {SelectDB: 3},
		{ClientName: "tested"}, {Username: "tested", Password: "secret"}, {Username: "tested", Password: "wrong"}}
	for _, options := range ways {
		own, err := connectWith(options)
		if err != nil {
			tell(nil, err)
			continue
		}
		tell(one(own, "SET", key, "user "+options.Username))
		tell(one(own, "GET", key))
		tell(one(client, "GET", key))
		tell(own.Do(ctx, own.B().AclWhoami().Build()).ToAny())
		own.Close()
	}
	return nil
}

// concurrent uses one client from many goroutines: what they ask goes out in one pipeline.
func concurrent(client rueidis.Client, key string, tell func(any, error)) error {
	var all sync.WaitGroup
	texts := make([]string, 100)
	for number := range texts {
		all.Add(1)
		go func() {
			defer all.Done()
			name := fmt.Sprintf("%s:%d", key, number)
			set, err := one(client, "SET", name, fmt.Sprint(number))
			got, other := one(client, "GET", name)
			texts[number] = fmt.Sprint(set, err, got, other)
		}()
	}
	all.Wait()
	tell(texts, nil)
	return nil
}

// killed: until the server has been killed and is there again, without its data.
func killed(client rueidis.Client, key string, tell func(any, error)) error {
	_, err := one(client, "SET", key, "before")
	tell(untilLost(func() (bool, error) {
		got, err := client.Do(ctx, client.B().Get().Key(key).Build()).ToString()
		return got == "" && rueidis.IsRedisNil(err), err
	}), err)
	// Other keys go over other connections of the client, which may hear only now that they were lost.
	for _, words := range [][]string{{"SET", key + ":after", "there"}, {"GET", key + ":after"}} {
		var reply any
		tell(untilLost(func() (bool, error) {
			reply, err = one(client, words[0], words[1], words[2:]...)
			return err == nil, err
		}), nil)
		tell(reply, err)
	}
	return nil
}

func blocking(client rueidis.Client, key string, tell func(any, error)) error {
	pop := func(seconds float64) (any, error) {
		return client.Do(ctx, client.B().Blpop().Key(key).Timeout(seconds).Build()).ToAny()
	}
	tell(pop(1))
	tell(one(client, "RPUSH", key, "there"))
	tell(pop(patience.Seconds()))
	other := connect()
	defer other.Close()
	time.AfterFunc(100*time.Millisecond, func() { one(other, "RPUSH", key, "pushed") })
	tell(pop(patience.Seconds()))
	return nil
}

func subscribe(client rueidis.Client, key string, tell func(any, error)) error {
	made := subscription{make(chan rueidis.PubSubMessage, 1), make(chan error, 1)}
	subscriptions.Store(key, made)
	there := make(chan bool, 1)
	hooked := rueidis.WithOnSubscriptionHook(ctx, func(rueidis.PubSubSubscription) {
		select {
		case there <- true:
		default:
		}
	})
	go func() {
		made.ended <- client.Receive(hooked, client.B().Subscribe().Channel(key).Build(),
			func(message rueidis.PubSubMessage) { made.messages <- message })
	}()
	select {
	case <-there:
	case <-time.After(patience):
		return fmt.Errorf("no subscription")
	}
	tell(one(client, "PUBLISH", key, "hello"))
	select {
	case message := <-made.messages:
		tell(message, nil)
	case <-time.After(patience):
		return fmt.Errorf("no message")
	}
	return nil
}

func unsubscribe(client rueidis.Client, key string, tell func(any, error)) error {
	name := strings.Replace(key, "unsubscribe", "subscribe", 1)
	err := client.Do(ctx, client.B().Unsubscribe().Channel(name).Build()).Error()
	tell("asked", err)
	made, _ := subscriptions.Load(name)
	select {
	case err = <-made.(subscription).ended:
		tell("ended", err)
	case <-time.After(patience):
		return fmt.Errorf("the subscription has not ended")
	}
	return nil
}

// caching tells also whether the reply came out of the cache, which is that of a client of its own.
func caching(client rueidis.Client, key string, tell func(any, error)) error {
	cached := connect()
	defer cached.Close()
	get := func() (string, bool, error) {
		result := cached.DoCache(ctx, cached.B().Get().Key(key).Cache(), time.Minute)
		value, err := result.ToString()
		return value, result.IsCacheHit(), err
	}
	tell(one(client, "SET", key, "old"))
	for number := 0; number < 3; number++ {
		value, hit, err := get()
		tell([]any{value, hit}, err)
	}
	tell(one(client, "SET", key, "new"))
	tell(until(func() (string, error) {
		value, _, err := get()
		return value, err
	}, "new"))
	return nil
}

// clusterMode: what it is before a cluster, it finds out by itself when it connects.
func clusterMode(client rueidis.Client, key string, tell func(any, error)) error {
	tag := "{" + key + "}"
	var batch rueidis.Commands
	for number := 0; number < 20; number++ {
		name := fmt.Sprintf("%s:%d", key, number)
		tell(one(client, "SET", name, "there"))
		batch = append(batch, command(client, "APPEND", name, "!"))
	}
	replies, err := all(client.DoMulti(ctx, batch...))
	tell(replies, err)
	tell(client.Do(ctx, client.B().Mget().Key(tag+"a", tag+"none").Build()).ToAny())
	tell(add.Exec(ctx, client, []string{tag + "b"}, []string{"7"}).ToAny())
	value, err := client.DoCache(ctx, client.B().Get().Key(key+":1").Cache(), time.Minute).ToString()
	tell(value, err)
	return nil
}

func main() {
	serve(versionOf("github.com/redis/rueidis"), connect, map[string]feature[rueidis.Client]{
		"strings":      stringsFeature,
		"pipeline":     pipeline,
		"transaction":  transaction,
		"watch":        watch,
		"script":       script,
		"blocking":     blocking,
		"subscribe":    subscribe,
		"unsubscribe":  unsubscribe,
		"caching":      caching,
		"greeting":     greeting,
		"concurrent":   concurrent,
		"killed":       killed,
		"cluster_mode": clusterMode,
	}, func(client rueidis.Client) { client.Close() })
}
