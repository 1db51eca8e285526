package node

import (
	"context"
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

// unhurried is how many times DialTimeout an attempt to connect takes at most.
const unhurried = 4

// patience is how long an attempt to connect may take, after slow ones before it that the server
// accepted and did not answer in time. dial is DialTimeout.
func patience(slow int, dial time.Duration) time.Duration { return ceiling(slow, dial, unhurried*dial) }

// slower counts the attempts in a row that a server accepted and did not answer in time: it may have
// many of them to answer, and the same patience again would have it begin anew each time. err is how
// the next one ended. A server that is not there does not count.
func slower(slow int, err error) int {
	var undialled *dialError
	switch {
	case !errors.Is(err, context.DeadlineExceeded):
		return 0
	case errors.As(err, &undialled) && undialled.step == "":
		return 0
	}
	return slow + 1
}

// proof is how many times backoffMin a connection must have served, so that the pauses begin again.
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
	var mu sync.Mutex          // the supervisor pauses, and so does who listens to a Sentinel
	random := rand.New(rand.NewChaCha8(seed))
	return func(limit time.Duration) time.Duration {
		mu.Lock()
		defer mu.Unlock()
		return time.Duration(random.Int64N(int64(limit) + 1))
	}
}

// authBackoff is the pause after a server refused the credentials: asking again soon would not
// help, and may lock the user out.
const authBackoff = 30 * time.Second

// wake puts a signal into a channel of capacity 1, unless there is one. It does not block.
func wake(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
