package suite

import (
	"context"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redquorum/redquorum/redlock"
)

const buckets = 16384

// raise brings counters up to the given ones, and never down: what happens meanwhile counts.
var raise = redis.NewScript(`
for i = 1, #ARGV, 2 do
  if tonumber(redis.call('HGET', KEYS[1], ARGV[i]) or '0') < tonumber(ARGV[i + 1]) then
    redis.call('HSET', KEYS[1], ARGV[i], ARGV[i + 1])
  end
end
return 1`)

// prime brings redquorum's token counters into step, as the first use of each slot does: each to its greatest value
// on all members.
func prime(ctx context.Context, members []string) error {
	var rounds secondRounds
	var urls []string
	var servers []*redis.Client
	for _, m := range members {
		urls = append(urls, "redis://"+m)
		c := redis.NewClient(&redis.Options{Addr: m})
		defer func() { _ = c.Close() }()
		servers = append(servers, c)
	}
	// It marks the members as new, which deletes counters: so it comes first.
	client, err := redlock.Open(ctx, urls, redlock.Config{FreshMembers: true, Tracer: redlock.Tracer{CallEnd: rounds.count}})
	if err != nil {
		return err
	}
	defer func() { _ = client.Close() }()
	greatest := make([]int64, buckets)
	for i := range greatest {
		greatest[i] = time.Now().UnixMicro()
	}
	for _, c := range servers {
		have, err := c.HGetAll(ctx, "redquorum:tokens").Result()
		if err != nil {
			return err
		}
		for k, v := range have {
			b, err := strconv.Atoi(k)
			n, err2 := strconv.ParseInt(v, 10, 64)
			if err != nil || err2 != nil || b < 0 || b >= buckets {
				return fmt.Errorf("a token counter %q of %q", k, v)
			}
			greatest[b] = max(greatest[b], n)
		}
	}
	const piece = 1024
	for _, c := range servers {
		for at := 0; at < buckets; at += piece {
			args := make([]any, 0, 2*piece)
			for b := at; b < at+piece; b++ {
				args = append(args, b, greatest[b])
			}
			if err := raise.Run(ctx, c, []string{"redquorum:tokens"}, args...).Err(); err != nil {
				return fmt.Errorf("setting the counters: %w", err)
			}
		}
	}
	const look = 500
	for i := range look {
		lease, err := client.Mutex("prime:" + strconv.Itoa(i)).Lock(ctx)
		if err == nil {
			err = lease.Unlock(ctx)
		}
		if err != nil {
			return fmt.Errorf("after the counters were set: %w", err)
		}
	}
	if n := rounds.n.Load(); n > look/100 {
		return fmt.Errorf("%d of %d acquisitions took a second round with counters in step", n, look)
	}
	return nil
}

type secondRounds struct{ n atomic.Int64 }

func (s *secondRounds) count(_ context.Context, e redlock.CallEnd) {
	if e.SecondRound {
		s.n.Add(1)
	}
}
