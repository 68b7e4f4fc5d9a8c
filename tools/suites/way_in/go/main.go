// go-redis in cluster and sentinel mode.
//
// Usage: example LIBRARY MODE HOST:PORT...
package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

const patience = 60 * time.Second

var ctx = context.Background()

func connect(mode string, addresses []string) redis.UniversalClient {
	if mode == "cluster" {
		return redis.NewClusterClient(&redis.ClusterOptions{
			Addrs: addresses,
			// A lost node is found by this only: no node sends MOVED.
			ClusterStateReloadInterval: time.Second,
		})
	}
	return redis.NewFailoverClient(&redis.FailoverOptions{MasterName: "mymaster", SentinelAddrs: addresses})
}

// persist repeats what fails, as an application does. A repeated SET changes nothing.
func persist(action func() error) {
	end := time.Now().Add(patience)
	for {
		err := action()
		if err == nil {
			return
		}
		if time.Now().After(end) {
			fmt.Println("FAILED", err)
			os.Exit(1)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

func main() {
	client := connect(os.Args[2], os.Args[3:])
	persist(func() error { return client.Ping(ctx).Err() })
	written := 0
	fmt.Println("ready")
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		words := strings.Fields(lines.Text())
		if words[0] == "check" {
			check(client, written)
			continue
		}
		count, _ := strconv.Atoi(words[1])
		for number := 0; number < count; number++ {
			persist(func() error { return client.Set(ctx, fmt.Sprintf("w:%d", written), written, 0).Err() })
			written++
			if number == count/2 {
				fmt.Println("half")
			}
		}
		fmt.Println("written")
	}
}

func check(client redis.UniversalClient, written int) {
	for number := 0; number < written; number++ {
		found := ""
		persist(func() (err error) {
			found, err = client.Get(ctx, fmt.Sprintf("w:%d", number)).Result()
			if err == redis.Nil {
				return nil
			}
			return err
		})
		if found != strconv.Itoa(number) {
			fmt.Printf("FAILED w:%d is %q\n", number, found)
			return
		}
	}
	fmt.Println("ok")
}
