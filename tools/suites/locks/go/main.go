// Lock libraries for Go. Usage: example LIBRARY SENTINEL-HOST:PORT...
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"
)

const patience = 30 * time.Second

var ctx = context.Background()

type held struct {
	extend  func() error
	release func() error
}

// acquirer returns nil without an error where another holds the lock.
type acquirer func(name string, validity time.Duration) (*held, error)

func redsyncLocks(client *redis.Client) acquirer {
	locks := redsync.New(goredis.NewPool(client))
	return func(name string, validity time.Duration) (*held, error) {
		lock := locks.NewMutex(name, redsync.WithExpiry(validity), redsync.WithTries(1))
		err := lock.Lock()
		var taken *redsync.ErrTaken
		if errors.As(err, &taken) || errors.Is(err, redsync.ErrFailed) {
			return nil, nil
		}
		done := func(action func() (bool, error)) func() error {
			return func() error {
				good, err := action()
				if err == nil && !good {
					err = errors.New("not held")
				}
				return err
			}
		}
		return &held{done(lock.Extend), done(lock.Unlock)}, err
	}
}

func redislockLocks(client *redis.Client) acquirer {
	locks := redislock.New(client)
	return func(name string, validity time.Duration) (*held, error) {
		lock, err := locks.Obtain(ctx, name, validity, nil)
		if errors.Is(err, redislock.ErrNotObtained) {
			return nil, nil
		}
		extend := func() error { return lock.Refresh(ctx, validity, nil) }
		return &held{extend, func() error { return lock.Release(ctx) }}, err
	}
}

// It extends a lock by itself, and loses one only with its server. Without its cache it needs no CLIENT TRACKING.
func rueidisLocks(addresses []string) (acquirer, error) {
	locks, err := rueidislock.NewLocker(rueidislock.LockerOption{
		ClientOption: rueidis.ClientOption{
			InitAddress:  addresses,
			Sentinel:     rueidis.SentinelOption{MasterSet: "mymaster"},
			DisableCache: true,
		},
		KeyValidity: 3 * time.Second,
		KeyMajority: 1,
	})
	return func(name string, _ time.Duration) (*held, error) {
		holding, cancel, err := locks.TryWithContext(ctx, name)
		if errors.Is(err, rueidislock.ErrNotLocked) {
			return nil, nil
		}
		return &held{func() error { return holding.Err() }, func() error { cancel(); return nil }}, err
	}, err
}

func connect(library string, addresses []string) (acquirer, *redis.Client, error) {
	client := redis.NewFailoverClient(&redis.FailoverOptions{MasterName: "mymaster", SentinelAddrs: addresses})
	switch library {
	case "redsync":
		return redsyncLocks(client), client, nil
	case "redislock":
		return redislockLocks(client), client, nil
	default:
		locks, err := rueidisLocks(addresses)
		return locks, client, err
	}
}

func waitFor(why string, condition func() bool) error {
	for end := time.Now().Add(patience); !condition(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			return errors.New(why)
		}
	}
	return nil
}

func left(client *redis.Client, name string) time.Duration {
	longest := time.Duration(-2)
	for _, key := range client.Keys(ctx, "*"+name).Val() {
		longest = max(longest, client.PTTL(ctx, key).Val())
	}
	return longest
}

func isTaken(locks acquirer, name string) error {
	found, err := locks(name, time.Minute)
	if err == nil && found != nil {
		err = errors.New("two hold one lock")
	}
	return err
}

func isFree(locks acquirer, name string) error {
	return waitFor("it was not released", func() bool {
		found, err := locks(name, time.Minute)
		return err == nil && found != nil
	})
}

func acquired(locks acquirer, name string, validity time.Duration) (*held, error) {
	lock, err := locks(name, validity)
	if err == nil && lock == nil {
		err = errors.New("a free lock was refused")
	}
	return lock, err
}

func exclusion(first, second acquirer, _ *redis.Client) error {
	lock, err := acquired(first, "exclusion", time.Minute)
	if err != nil {
		return err
	}
	if err := isTaken(second, "exclusion"); err != nil {
		return err
	}
	if err := lock.release(); err != nil {
		return err
	}
	return isFree(second, "exclusion")
}

func extension(first, _ acquirer, client *redis.Client) error {
	lock, err := acquired(first, "extension", 3*time.Second)
	if err != nil {
		return err
	}
	short := func() bool { return left(client, "extension") < 2500*time.Millisecond }
	if err := waitFor("its time stands still", short); err != nil {
		return err
	}
	if err := lock.extend(); err != nil {
		return err
	}
	return waitFor("it was not extended", func() bool { return !short() })
}

func expiry(first, second acquirer, _ *redis.Client) error {
	begun := time.Now()
	lock, err := acquired(first, "expiry", time.Second)
	if err != nil {
		return err
	}
	if err := isFree(second, "expiry"); err != nil {
		return err
	}
	if time.Since(begun) < time.Second {
		return errors.New("it expired early")
	}
	if lock.release() == nil {
		return errors.New("the release of a lost lock passed")
	}
	return isTaken(first, "expiry")
}

func failover(first, second acquirer, client *redis.Client) error {
	lock, err := acquired(first, "failover", time.Minute)
	if err != nil {
		return err
	}
	fmt.Println("held")
	bufio.NewScanner(os.Stdin).Scan()
	if err := waitFor("no other node answered", func() bool { return client.Ping(ctx).Err() == nil }); err != nil {
		return err
	}
	// Its client may have been at the same node.
	answered := func() bool { _, err := second("other", time.Second); return err == nil }
	if err := waitFor("no other node answered", answered); err != nil {
		return err
	}
	if err := isTaken(second, "failover"); err != nil {
		return err
	}
	if err := lock.extend(); err != nil {
		return err
	}
	if err := lock.release(); err != nil {
		return err
	}
	return isFree(second, "failover")
}

func main() {
	library, addresses := os.Args[1], os.Args[2:]
	first, client, err := connect(library, addresses)
	if err != nil {
		fmt.Println("FAILED", err)
		return
	}
	second, _, err := connect(library, append(append([]string{}, addresses[1:]...), addresses[0]))
	if err != nil {
		fmt.Println("FAILED", err)
		return
	}
	subjects := map[string]func(first, second acquirer, client *redis.Client) error{"exclusion": exclusion, "extension": extension, "failover": failover}
	if library != "rueidislock" {
		subjects["expiry"] = expiry
	}
	for _, name := range []string{"exclusion", "extension", "expiry", "failover"} {
		if subject := subjects[name]; subject != nil {
			if err := subject(first, second, client); err != nil {
				fmt.Println("FAILED", name, err)
				return
			}
		}
	}
	fmt.Println("done")
}
