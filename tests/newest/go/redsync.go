// redsync over go-redis.
package main

import (
	"context"
	"errors"
	"time"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
)

var ctx = context.Background()

func connect() *redis.Client {
	return redis.NewClient(&redis.Options{Addr: address})
}

func locks(client *redis.Client, key string, tell func(any, error)) error {
	library := redsync.New(goredis.NewPool(client))
	mutex := library.NewMutex(key, redsync.WithExpiry(10*time.Second), redsync.WithTries(1))
	tell(nil, mutex.Lock())
	tell(client.Exists(ctx, key).Result())
	var taken *redsync.ErrTaken
	tell(errors.As(library.NewMutex(key, redsync.WithTries(1)).Lock(), &taken), nil)
	tell(mutex.Extend())
	patient := library.NewMutex(key, redsync.WithTries(200), redsync.WithRetryDelay(20*time.Millisecond))
	got := make(chan error)
	go func() { got <- patient.Lock() }()
	tell(mutex.Unlock())
	tell(nil, <-got)
	tell(patient.Unlock())
	tell(client.Exists(ctx, key).Result())
	return nil
}

func main() {
	serve(versionOf("github.com/go-redsync/redsync/v4"), connect, map[string]feature[*redis.Client]{"locks": locks},
		func(client *redis.Client) { client.Close() })
}
