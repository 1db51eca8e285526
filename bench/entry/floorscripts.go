package entry

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/redquorum/redquorum/redlock"
	"github.com/redquorum/redquorum/slot"
)

func init() {
	register(Spec{
		Name: "floor-scripts", Kind: Redis, Floor: true,
		Note:   "raw sockets as in floor, with the scripts of redquorum: what is left between it and redquorum is the library's own cost",
		Shapes: []string{Uncontended},
		Inner:  ourInner,
		Open: func(ctx context.Context, env Env) (Locker, error) {
			r, err := scriptRequests()
			if err != nil {
				return nil, err
			}
			return openFloor(ctx, env, r)
		},
	})
}

// ourInner are the commands of our scripts.
var ourInner = []string{"pttl", "hincrby", "hset", "hget", "hdel", "hexists", "hkeys", "hlen", "hgetall", "hmget", "pexpire", "time",
	"exists", "zadd", "zrem", "zrange", "zscore", "publish", "del", "hscan", "pubsub"}

// scriptRequests finds the scripts by what their first lines say they do. The floor does not batch them.
func scriptRequests() (requests, error) {
	find := func(first string) (string, error) {
		for _, s := range redlock.Scripts() {
			if strings.Contains(s, first) {
				return s, nil
			}
		}
		return "", fmt.Errorf("redlock.Scripts has none that says %q", first)
	}
	acquire, err := find("-- Asks for the lock once.")
	if err != nil {
		return requests{}, err
	}
	release, err := find("-- Gives up the vote and the place in the queue")
	if err != nil {
		return requests{}, err
	}
	batch, err := find("-- Carries several acquires and releases")
	if err != nil {
		return requests{}, err
	}
	wait, err := find("-- Asks for the lock and stays registered")
	if err != nil {
		return requests{}, err
	}
	acquireSHA, releaseSHA := sha1hex(acquire), sha1hex(release)
	const tokens, marker = "redquorum:tokens", "redquorum:boot"
	bucket := func(name string) string { return strconv.Itoa(int(slot.Of(name))) }
	return requests{
		scripts: []string{acquire, release, batch, wait},
		acquire: func(b []byte, name, owner, ms string) []byte {
			return appendCommand(b, "EVALSHA", acquireSHA, "3", name, tokens, marker, bucket(name), owner, ms, "")
		},
		release: func(b []byte, name, owner string) []byte {
			return appendCommand(b, "EVALSHA", releaseSHA, "5", name, tokens, marker,
				slot.Sibling("redquorum:q", name), slot.Sibling("redquorum:w", name), bucket(name), owner, "", "")
		},
		granted: func(r reply) bool { return r.n > 0 },
	}, nil
}
