package suite

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redquorum/redquorum/redlock"
)

const buckets = 16384

// level brings all counters to one value that none of them is above.
var level = redis.NewScript(`
for at = 0, ARGV[1] - 1, 512 do
  local all = {}
  for i = at, at + 511 do
    all[#all + 1], all[#all + 2] = i, ARGV[2]
  end
  redis.call('HSET', KEYS[1], unpack(all))
end
return 1`)

// prime brings redquorum's token counters into step, as the first use of each slot does.
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
	greatest := time.Now().UnixMicro()
	for _, c := range servers {
		have, err := c.HVals(ctx, "redquorum:tokens").Result()
		if err != nil {
			return err
		}
		for _, v := range have {
			n, err := strconv.ParseInt(v, 10, 64)
			if err != nil {
				return fmt.Errorf("a token counter of %q", v)
			}
			greatest = max(greatest, n)
		}
	}
	set := make(chan error, len(servers))
	for _, c := range servers {
		go func() { set <- level.Run(ctx, c, []string{"redquorum:tokens"}, buckets, greatest).Err() }()
	}
	for range servers {
		err = errors.Join(err, <-set)
	}
	if err != nil {
		return fmt.Errorf("setting the counters: %w", err)
	}
	const look = 200
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
