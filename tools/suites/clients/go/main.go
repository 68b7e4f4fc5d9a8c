// First use of Palimpsest with go-redis.
//
// Usage: example HOST:PORT HOST:PORT HOST:PORT
package main

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/redis/go-redis/v9"
)

var ctx = context.Background()

// connect returns a client whose connections go to the first address that answers.
// Any node serves any key.
func connect(addresses []string) *redis.Client {
	dialer := net.Dialer{Timeout: 2 * time.Second}
	dial := func(ctx context.Context, network, _ string) (net.Conn, error) {
		failure := errors.New("no address")
		for _, address := range addresses {
			connection, err := dialer.DialContext(ctx, network, address)
			if err == nil {
				return connection, nil
			}
			failure = err
		}
		return nil, failure
	}
	// A retried command may run twice, as with any server. once makes a retry safe.
	return redis.NewClient(&redis.Options{Addr: addresses[0], Dialer: dial, MaxRetries: 10})
}

// once sends commands that run at most once, however often the library sends them.
type once struct {
	client   *redis.Client
	session  string
	sequence int
}

func newOnce(client *redis.Client) *once {
	name := make([]byte, 16)
	if _, err := rand.Read(name); err != nil {
		panic(err)
	}
	return &once{client: client, session: hex.EncodeToString(name)}
}

func (o *once) run(command ...interface{}) (interface{}, error) {
	o.sequence++
	line := append([]interface{}{"ONCE", o.session, o.sequence}, command...)
	return o.client.Do(ctx, line...).Result()
}

// check compares a reply, or its error, with the expected reply.
func check(found interface{}, err error, expected interface{}) error {
	if err != nil {
		return err
	}
	if found != expected {
		return fmt.Errorf("%v instead of %v", found, expected)
	}
	return nil
}

func first(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func strings(client *redis.Client) error {
	set, err := client.Set(ctx, "greeting", "hello", 0).Result()
	if err = check(set, err, "OK"); err != nil {
		return err
	}
	if _, err = client.Get(ctx, "absent").Result(); err != redis.Nil {
		return fmt.Errorf("%v instead of no value", err)
	}
	value, err := client.Get(ctx, "greeting").Result()
	return check(value, err, "hello")
}

func counters(client *redis.Client) error {
	client.Del(ctx, "visits")
	one, err := client.Incr(ctx, "visits").Result()
	if err = check(one, err, int64(1)); err != nil {
		return err
	}
	eleven, err := client.IncrBy(ctx, "visits", 10).Result()
	return check(eleven, err, int64(11))
}

func expiry(client *redis.Client) error {
	set, err := client.Set(ctx, "session", "alice", time.Minute).Result()
	if err = check(set, err, "OK"); err != nil {
		return err
	}
	left, err := client.TTL(ctx, "session").Result()
	if err = check(left > 0 && left <= time.Minute, err, true); err != nil {
		return err
	}
	longer, err := client.Expire(ctx, "session", 2*time.Minute).Result()
	if err = check(longer, err, true); err != nil {
		return err
	}
	persisted, err := client.Persist(ctx, "session").Result()
	return check(persisted, err, true)
}

func pipeline(client *redis.Client) error {
	pipe := client.Pipeline()
	for number := 0; number < 100; number++ {
		pipe.Set(ctx, fmt.Sprintf("item:%d", number), number, 0)
	}
	last := pipe.Get(ctx, "item:99")
	replies, err := pipe.Exec(ctx)
	return first(check(len(replies), err, 101), check(last.Val(), last.Err(), "99"))
}

func lock(client *redis.Client) error {
	take := func(owner string, expected bool) error {
		taken, err := client.SetNX(ctx, "lock", owner, 30*time.Second).Result()
		return check(taken, err, expected)
	}
	// Deletes the lock only if owner still has it.
	release := func(owner string, expected int64) error {
		deleted, err := client.Do(ctx, "DELEX", "lock", "IFEQ", owner).Int64()
		return check(deleted, err, expected)
	}
	client.Del(ctx, "lock")
	return first(take("me", true), take("you", false), release("you", 0), release("me", 1))
}

func repeats(client *redis.Client) error {
	client.Del(ctx, "orders")
	session := newOnce(client).session
	for repeat := 0; repeat < 3; repeat++ {
		reply, err := client.Do(ctx, "ONCE", session, 1, "INCR", "orders").Result()
		if err = check(reply, err, int64(1)); err != nil {
			return err
		}
	}
	value, err := client.Get(ctx, "orders").Result()
	return check(value, err, "1")
}

func failover(client *redis.Client) error {
	client.Del(ctx, "counted")
	counter, expected := newOnce(client), int64(0)
	fmt.Println("ready to count")
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() && lines.Text() != "end" {
		for step := 0; step < 300; step++ {
			expected++
			reply, err := counter.run("INCR", "counted")
			if err = check(reply, err, expected); err != nil {
				return err
			}
			if expected%50 == 0 {
				fmt.Println("50")
			}
		}
		fmt.Println("counted")
	}
	value, err := client.Get(ctx, "counted").Int64()
	return check(value, err, expected)
}

func main() {
	client := connect(os.Args[1:])
	subjects := []struct {
		name string
		run  func(*redis.Client) error
	}{
		{"strings", strings}, {"counters", counters}, {"expiry", expiry}, {"pipeline", pipeline},
		{"lock", lock}, {"once", repeats}, {"failover", failover},
	}
	for _, subject := range subjects {
		if err := subject.run(client); err != nil {
			fmt.Printf("FAILED %s: %v\n", subject.name, err)
		} else {
			fmt.Printf("ok %s\n", subject.name)
		}
	}
}
