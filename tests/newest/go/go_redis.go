// go-redis with its default settings.
package main

import (
	"context"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

var ctx = context.Background()

var add = redis.NewScript("local sum = redis.call('INCRBY', KEYS[1], ARGV[1]) return {sum, ARGV[1]}")

var subscribers sync.Map

func connect() *redis.Client {
	return connectWith(redis.Options{})
}

func connectWith(options redis.Options) *redis.Client {
	options.Addr, options.TLSConfig = address, tlsConfig()
	return redis.NewClient(&options)
}

func stringsFeature(client *redis.Client, key string, tell func(any, error)) error {
	tell(client.Set(ctx, key, "first", 0).Result())
	tell(client.Get(ctx, key).Result())
	tell(client.Get(ctx, key+":none").Result())
	for number := 0; number < 3; number++ {
		tell(client.Incr(ctx, key+":count").Result())
	}
	tell(client.Set(ctx, key+":timed", "second", 1000*time.Second).Result())
	tell(client.MGet(ctx, key, key+":timed", key+":none").Result())
	return nil
}

// replies of a batch, as text.
func replies(commands []redis.Cmder, err error) ([]string, error) {
	var texts []string
	for _, command := range commands {
		texts = append(texts, command.String())
	}
	return texts, err
}

func pipeline(client *redis.Client, key string, tell func(any, error)) error {
	texts, err := replies(client.Pipelined(ctx, func(batch redis.Pipeliner) error {
		for number := 0; number < 50; number++ {
			batch.RPush(ctx, key, number)
		}
		batch.LRange(ctx, key, 0, -1)
		return nil
	}))
	tell(texts, err)
	return err
}

func transaction(client *redis.Client, key string, tell func(any, error)) error {
	texts, err := replies(client.TxPipelined(ctx, func(batch redis.Pipeliner) error {
		batch.Set(ctx, key, 1, 0)
		batch.Incr(ctx, key)
		batch.Get(ctx, key)
		return nil
	}))
	tell(texts, err)
	return err
}

func watch(client *redis.Client, key string, tell func(any, error)) error {
	if err := client.Set(ctx, key, 5, 0).Err(); err != nil {
		return err
	}
	return client.Watch(ctx, func(watched *redis.Tx) error {
		value, err := watched.Get(ctx, key).Int()
		if err != nil {
			return err
		}
		tell(replies(watched.TxPipelined(ctx, func(batch redis.Pipeliner) error {
			batch.Set(ctx, key, value*2, 0)
			batch.Get(ctx, key)
			return nil
		})))
		return nil
	}, key)
}

func script(client *redis.Client, key string, tell func(any, error)) error {
	for number := 7; number <= 8; number++ {
		tell(add.Run(ctx, client, []string{key}, number).Result())
	}
	return nil
}

// greeting tries every way to begin a connection: RESP, names, users, databases, wrong passwords.
func greeting(client *redis.Client, key string, tell func(any, error)) error {
	ways := []redis.Options{{DB: 3}, {Username: "tested", Password: "secret"}, {Username: "tested", Password: "wrong"}, {}}
	for _, protocol := range []int64{2, 3} {
		options := redis.Options{}
		// Older versions have no such field.
		if field := reflect.ValueOf(&options).Elem().FieldByName("Protocol"); field.IsValid() {
			field.SetInt(protocol)
		}
		ways = append(ways, options)
	}
	for _, options := range ways {
		own := connectWith(options)
		tell(own.Set(ctx, key, "user "+options.Username, 0).Result())
		tell(own.Get(ctx, key).Result())
		tell(client.Get(ctx, key).Result())
		tell(own.Do(ctx, "acl", "whoami").Result())
		own.Close()
	}
	return nil
}

// concurrent uses one client from many goroutines: a pool of connections.
func concurrent(_ *redis.Client, key string, tell func(any, error)) error {
	own := connectWith(redis.Options{PoolSize: 10})
	defer own.Close()
	var all sync.WaitGroup
	texts := make([]string, 100)
	for number := range texts {
		all.Add(1)
		go func() {
			defer all.Done()
			name := fmt.Sprintf("%s:%d", key, number)
			texts[number] = own.Set(ctx, name, number, 0).String() + own.Get(ctx, name).String()
		}()
	}
	all.Wait()
	tell(texts, nil)
	return nil
}

func blocking(client *redis.Client, key string, tell func(any, error)) error {
	tell(client.BLPop(ctx, time.Second, key).Result())
	if err := client.RPush(ctx, key, "there").Err(); err != nil {
		return err
	}
	tell(client.BLPop(ctx, patience, key).Result())
	other := connect()
	defer other.Close()
	time.AfterFunc(100*time.Millisecond, func() { other.RPush(ctx, key, "pushed") })
	tell(client.BLPop(ctx, patience, key).Result())
	return nil
}

func subscribe(client *redis.Client, key string, tell func(any, error)) error {
	subscriber := client.Subscribe(ctx, key)
	subscribers.Store(key, subscriber)
	came, err := subscriber.ReceiveTimeout(ctx, patience)
	tell(fmt.Sprint(came), err)
	tell(client.Publish(ctx, key, "hello").Result())
	came, err = subscriber.ReceiveTimeout(ctx, patience)
	tell(fmt.Sprint(came), err)
	return nil
}

// killed: until the server has been killed and is there again, without its data.
func killed(client *redis.Client, key string, tell func(any, error)) error {
	err := client.Set(ctx, key, "before", 0).Err()
	tell(untilLost(func() (bool, error) {
		got, err := client.Get(ctx, key).Result()
		return got == "" && err == redis.Nil, err
	}), err)
	tell(client.Set(ctx, key+":after", "there", 0).Result())
	tell(client.Get(ctx, key+":after").Result())
	return nil
}

// clusterMode: it learns where the slots are, and goes to the node of each key.
func clusterMode(_ *redis.Client, key string, tell func(any, error)) error {
	cluster := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{address}})
	defer cluster.Close()
	tag := "{" + key + "}"
	var names []string
	for number := 0; number < 20; number++ {
		name := fmt.Sprintf("%s:%d", key, number)
		names = append(names, name)
		tell(cluster.Set(ctx, name, number, 0).Result())
		tell(cluster.Get(ctx, name).Result())
	}
	tell(replies(cluster.Pipelined(ctx, func(batch redis.Pipeliner) error {
		for _, name := range names {
			batch.Append(ctx, name, "!")
		}
		return nil
	})))
	tell(replies(cluster.TxPipelined(ctx, func(batch redis.Pipeliner) error {
		batch.Set(ctx, tag+"a", 1, 0)
		batch.Incr(ctx, tag+"a")
		return nil
	})))
	tell(nil, cluster.Watch(ctx, func(watched *redis.Tx) error {
		tell(watched.Get(ctx, tag+"a").Result())
		_, err := watched.TxPipelined(ctx, func(batch redis.Pipeliner) error { return batch.Incr(ctx, tag+"a").Err() })
		return err
	}, tag+"a"))
	tell(cluster.MGet(ctx, tag+"a", tag+"none").Result())
	tell(add.Run(ctx, cluster, []string{tag + "b"}, 7).Result())
	tell(cluster.BLPop(ctx, time.Second, tag+"c").Result())
	var scanned sync.Map
	tell(nil, cluster.ForEachMaster(ctx, func(ctx context.Context, master *redis.Client) error {
		for each := master.Scan(ctx, 0, key+":*", 0).Iterator(); each.Next(ctx); {
			scanned.Store(each.Val(), true)
		}
		return nil
	}))
	found := 0
	scanned.Range(func(any, any) bool { found++; return true })
	tell(found, nil)
	subscriber := cluster.Subscribe(ctx, key)
	defer subscriber.Close()
	came, err := subscriber.ReceiveTimeout(ctx, patience)
	tell(fmt.Sprint(came), err)
	// How many have heard it, a node knows of itself only.
	tell(nil, cluster.Publish(ctx, key, "hello").Err())
	came, err = subscriber.ReceiveTimeout(ctx, patience)
	tell(fmt.Sprint(came), err)
	return nil
}

func unsubscribe(_ *redis.Client, key string, tell func(any, error)) error {
	subscriber, _ := subscribers.Load(strings.Replace(key, "unsubscribe", "subscribe", 1))
	tell("asked", subscriber.(*redis.PubSub).Unsubscribe(ctx))
	came, err := subscriber.(*redis.PubSub).ReceiveTimeout(ctx, patience)
	tell(fmt.Sprint(came), err)
	return subscriber.(*redis.PubSub).Close()
}

func main() {
	serve(versionOf("github.com/redis/go-redis/v9"), connect, map[string]feature[*redis.Client]{
		"strings":      stringsFeature,
		"pipeline":     pipeline,
		"transaction":  transaction,
		"watch":        watch,
		"script":       script,
		"greeting":     greeting,
		"concurrent":   concurrent,
		"killed":       killed,
		"cluster_mode": clusterMode,
		"blocking":     blocking,
		"subscribe":    subscribe,
		"unsubscribe":  unsubscribe,
	}, func(client *redis.Client) { client.Close() })
}
