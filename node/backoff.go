package node

import (
	crand "crypto/rand"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/redquorum/redquorum/member"
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

// proof is how many times BackoffMin a connection must have served, so that the pauses begin again.
const proof = 10

// proved reports whether a connection served for long enough that its end is a first failure, and not one
// more of a server that many clients connect to at once. It was up from up to end, heard is when its last
// answer arrived (zero: never), and cause is why it ended. A connection that stalled served until heard.
// One that was at rest needs no answer.
func proved(up, heard, end time.Time, cause error, low time.Duration) bool {
	if errors.Is(cause, member.ErrStalled) {
		end = heard
	}
	return end.Sub(up) >= proof*low
}

// fullJitter returns a function that draws a pause from 0 to limit. Spread evenly, the clients of a
// server that came back do not all connect in the same moment. Its seed comes from
// crypto/rand.Reader, which a test replaces to have the same pauses again.
func fullJitter() func(limit time.Duration) time.Duration {
	var seed [32]byte
	_, _ = crand.Read(seed[:]) // never fails
	var mu sync.Mutex          // the session and the inbox both pause
	random := rand.New(rand.NewChaCha8(seed))
	return func(limit time.Duration) time.Duration {
		mu.Lock()
		defer mu.Unlock()
		return time.Duration(random.Int64N(int64(limit) + 1))
	}
}

// AuthBackoff is the pause after a server refused the credentials: asking again soon would not
// help, and may lock the user out.
const AuthBackoff = 30 * time.Second
