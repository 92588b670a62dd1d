// bsm/redislock over go-redis.
package main

import (
	"context"
	"time"

	"github.com/bsm/redislock"
	"github.com/redis/go-redis/v9"
)

var ctx = context.Background()

func connect() *redis.Client {
	return redis.NewClient(&redis.Options{Addr: address})
}

func locks(client *redis.Client, key string, tell func(any, error)) error {
	library := redislock.New(client)
	lock, err := library.Obtain(ctx, key, 10*time.Second, nil)
	if err != nil {
		return err
	}
	_, err = library.Obtain(ctx, key, 10*time.Second, nil)
	tell(nil, err)
	left, err := lock.TTL(ctx)
	tell(left > 5*time.Second, err)
	tell(nil, lock.Refresh(ctx, 20*time.Second, nil))
	got := make(chan *redislock.Lock)
	go func() {
		options := redislock.Options{RetryStrategy: redislock.LinearBackoff(20 * time.Millisecond)}
		next, _ := library.Obtain(ctx, key, 20*time.Second, &options)
		got <- next
	}()
	tell(nil, lock.Release(ctx))
	next := <-got
	tell(next.Key(), next.Release(ctx))
	tell(nil, lock.Release(ctx))
	return nil
}

func main() {
	serve(versionOf("github.com/bsm/redislock"), connect, map[string]feature[*redis.Client]{"locks": locks},
		func(client *redis.Client) { client.Close() })
}
