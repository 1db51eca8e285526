package node

import (
	"errors"
	"math/rand/v2"
	"time"

	"github.com/redquorum/redquorum/quorum"
)

// ceiling is the longest pause before attempt number k (from 0) to connect: low*2^k, at most high.
func ceiling(k int, low, high time.Duration) time.Duration {
	d := low
	for ; k > 0 && d < high; k-- {
		d *= 2
		if d <= 0 { // overflow
			return high
		}
	}
	return min(d, high)
}

// fullJitter draws a pause from 0 to limit. Spread evenly, the clients of a server that came back do
// not all connect in the same moment.
func fullJitter(limit time.Duration) time.Duration {
	return time.Duration(rand.Int64N(int64(limit) + 1))
}

// pause is the time to wait after the k-th failure in a row, which was cause.
func (n *Node) pause(k int, cause error) time.Duration {
	var refused *quorum.ReplyError
	if errors.As(cause, &refused) && refused.Kind == quorum.KindAuth {
		return AuthBackoff
	}
	return n.cfg.jitter(ceiling(k, n.cfg.BackoffMin, n.cfg.BackoffMax))
}
