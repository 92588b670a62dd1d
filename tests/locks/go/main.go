// Locks in Go: HOST PORT[,PORT...] LIBRARY. Several ports are those of the masters of a RedLock. The protocol is told in tests/locks/laboratory.py.
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	redsyncredis "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
)

// release gives the lock back and tells whether it was held.
type release func() (bool, error)

// extend makes the lock last so long from now on, where the library can do so.
var extend func(lease time.Duration) error

// acquire gives nil without an error when the lock is taken.
type acquire func(client *redis.Client, name string, lease time.Duration) (release, error)

func acquireRedsync(client *redis.Client, name string, lease time.Duration) (release, error) {
	mutex := redsync.New(goredis.NewPool(client)).NewMutex(name, redsync.WithExpiry(lease), redsync.WithTries(1))
	var taken *redsync.ErrTaken
	if err := mutex.Lock(); errors.As(err, &taken) || errors.Is(err, redsync.ErrFailed) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	return mutex.Unlock, nil
}

// redsyncOver gives the RedLock of all these, of which each may take a good part of the lease to answer.
func redsyncOver(clients []*redis.Client) acquire {
	pools := make([]redsyncredis.Pool, len(clients))
	for i, client := range clients {
		pools[i] = goredis.NewPool(client)
	}
	return func(_ *redis.Client, name string, lease time.Duration) (release, error) {
		mutex := redsync.New(pools...).NewMutex(name, redsync.WithExpiry(lease), redsync.WithTries(1),
			redsync.WithTimeoutFactor(0.4))
		var taken *redsync.ErrTaken
		if err := mutex.Lock(); errors.As(err, &taken) || errors.Is(err, redsync.ErrFailed) {
			return nil, nil
		} else if err != nil {
			return nil, err
		}
		return func() (bool, error) {
			// Of one that has died there is an error, though the lock was given back.
			freed, err := mutex.Unlock()
			if freed {
				err = nil
			}
			return freed, err
		}, nil
	}
}

func acquireRedislock(client *redis.Client, name string, lease time.Duration) (release, error) {
	ctx := context.Background()
	lock, err := redislock.Obtain(ctx, client, name, lease, nil)
	if errors.Is(err, redislock.ErrNotObtained) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	extend = func(lease time.Duration) error { return lock.Refresh(ctx, lease, nil) }
	return func() (bool, error) {
		err := lock.Release(ctx)
		return err == nil, err
	}, nil
}

// acquireByHand frees what it holds by a bare DEL, as many do.
func acquireByHand(client *redis.Client, name string, lease time.Duration) (release, error) {
	ctx := context.Background()
	acquired, err := client.SetNX(ctx, name, strconv.Itoa(os.Getpid()), lease).Result()
	if err != nil || !acquired {
		return nil, err
	}
	return func() (bool, error) {
		deleted, err := client.Del(ctx, name).Result()
		return deleted == 1, err
	}, nil
}

var libraries = map[string]acquire{
	"redsync":   acquireRedsync,
	"redislock": acquireRedislock,
	"go-redis":  acquireByHand,
}

func answer(yes bool, err error) {
	switch {
	case err != nil:
		fmt.Println("error", strings.ReplaceAll(err.Error(), "\n", " "))
	case yes:
		fmt.Println("yes")
	default:
		fmt.Println("no")
	}
}

func main() {
	var clients []*redis.Client
	for _, port := range strings.Split(os.Args[2], ",") {
		clients = append(clients, redis.NewClient(&redis.Options{Addr: os.Args[1] + ":" + port}))
	}
	client := clients[0]
	take := libraries[os.Args[3]]
	if len(clients) > 1 {
		take = redsyncOver(clients)
	}
	held := map[string]release{}
	if err := client.Ping(context.Background()).Err(); err != nil {
		answer(false, err)
		os.Exit(1)
	}
	fmt.Println("ready")
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		words := strings.Fields(lines.Text())
		name := words[1]
		var lease time.Duration
		if len(words) > 2 {
			milliseconds, _ := strconv.Atoi(words[2])
			lease = time.Duration(milliseconds) * time.Millisecond
		}
		switch words[0] {
		case "acquire":
			free, err := take(client, name, lease)
			if free != nil {
				held[name] = free
			}
			answer(free != nil, err)
		case "extend":
			answer(true, extend(lease))
		default:
			answer(held[name]())
			delete(held, name)
		}
	}
}
