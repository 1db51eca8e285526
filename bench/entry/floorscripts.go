package entry

import (
	"context"
	"fmt"
	"strings"

	"github.com/redquorum/redquorum/redlock/redlocktest"
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
		for _, s := range redlocktest.Scripts() {
			if strings.Contains(s, first) {
				return s, nil
			}
		}
		return "", fmt.Errorf("redlocktest.Scripts has none that says %q", first)
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
	bucket := func(b []byte, name string) []byte { return appendIntBulk(b, int64(slot.Of(name))) }
	sibling := func(b []byte, prefix, name string) []byte {
		var room [128]byte
		return appendBulk(b, slot.AppendSibling(room[:0], prefix, name))
	}
	return requests{
		scripts: []string{acquire, release, batch, wait},
		acquire: func(b []byte, name string, owner []byte, ms string) []byte {
			b = appendBulk(appendBulk(appendBulk(appendCall(b, acquireSHA, 3, 4), name), tokens), marker)
			return appendBulk(appendBulk(appendBulk(bucket(b, name), owner), ms), "")
		},
		release: func(b []byte, name string, owner []byte) []byte {
			b = appendBulk(appendBulk(appendBulk(appendCall(b, releaseSHA, 5, 4), name), tokens), marker)
			b = sibling(sibling(b, "redquorum:q", name), "redquorum:w", name)
			return appendBulk(appendBulk(appendBulk(bucket(b, name), owner), ""), "")
		},
		granted: func(r reply) bool { return r.n > 0 },
	}, nil
}
