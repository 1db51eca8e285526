package entry

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
)

func init() {
	shapes, kinds := []string{Uncontended, Shared, Separate}, []string{InOrder, ReadWrite, Together, Sets, Room, Permits, Arrivals}
	register(Spec{
		Name: "node-redlock", Kind: Redis, Shapes: shapes, Note: "node-redlock 5 beta over ioredis, retry defaults, tries without end",
		Inner: []string{"exists", "set", "get", "del", "pexpire"},
		Child: &Child{
			Dir:     "node",
			Command: func(string) []string { return []string{"node", "child.js"} },
			Ready: func(dir string) error {
				if _, err := exec.LookPath("node"); err != nil {
					return errors.New("no node (Debian: apt-get install nodejs npm)")
				}
				if _, err := os.Stat(filepath.Join(dir, "node_modules", "redlock")); err != nil {
					return errors.New("its packages are not installed")
				}
				return nil
			},
		},
	})
	inner := []string{"exists", "hexists", "hincrby", "pexpire", "pttl", "hdel", "del", "publish", "get", "set", "hget", "hset", "hkeys", "hlen", "incrby",
		"lindex", "lpop", "llen", "lrem", "rpush", "zadd", "zrem", "zscore", "zrange", "zincrby", "zrangebyscore", "zcount", "decr", "decrby", "spublish"}
	child := &Child{
		Dir: "redisson",
		Command: func(string) []string {
			return []string{"java", "-cp", filepath.Join("target", "classes") + ":" + filepath.Join("target", "lib", "*"), "Child"}
		},
		Ready: func(dir string) error {
			if _, err := exec.LookPath("java"); err != nil {
				return errors.New("no java (Debian: apt-get install openjdk-17-jdk-headless maven)")
			}
			for _, need := range []string{"classes/Child.class", "lib"} {
				if _, err := os.Stat(filepath.Join(dir, "target", need)); err != nil {
					return errors.New("it is not built")
				}
			}
			return nil
		},
	}
	register(Spec{
		Name: "redisson", Kind: Redis, Shapes: append(shapes, kinds...), Alone: kinds,
		Note:  "Redisson's RedissonRedLock, with one member its RLock; W3f its RFairLock, W9 its RReadWriteLock, W10 its RMultiLock, W11 and W12 its RPermitExpirableSemaphore, W13 its RCountDownLatch, with threads that its clients share",
		Inner: inner, Child: child,
	})
	register(Spec{
		Name: "redisson-semaphore", Kind: Redis, Shapes: []string{Room, Permits}, Members: []int{1},
		Note:  "Redisson's RSemaphore: a counter, without owners and leases; permits of a client that crashes are lost",
		Inner: inner, Child: child,
	})
}
