package guard

import (
	"context"
	"time"

	"github.com/redquorum/redquorum/member"
)

// Process is the server process behind a session.
type Process struct {
	RunID    string // "" if the server does not tell
	MasterID string // CLUSTER MYID of a master of a cluster
}

// Host publishes what a Seat finds, and tells it how its member is. Its methods may be called from
// any goroutine, and none but Ask waits. The guard calls Now, Closing and the functions of Shard under
// its mutex, so these must not call the guard.
type Host interface {
	// Name identifies the member in errors and logs.
	Name() string
	// Now is what the member is good for at this moment.
	Now() Present
	// Publish edits the standing and the generation. Then it asks Seat.Verdict anew. When the host
	// is closing, Publish does nothing. edit must not block.
	Publish(edit func(gen *uint64, s *Standing))
	// Ask puts one command to the member, on whichever session is up. No bound of callers bounds it.
	Ask(ctx context.Context, cmd []byte) (member.Reply, error)
	// Recheck compares the memory that the inbox stands at with the one that commands go to.
	Recheck()
	// Suspect has Watch.Suspected called: the member may not be what it was.
	Suspect()
	// Closing reports whether the host takes no more calls.
	Closing() bool
	// Context ends when the host gives up everything.
	Context() context.Context
}

// Session is one connection to a member.
type Session interface {
	// Ask puts commands to the member and waits. An error says that not all were answered or
	// refused.
	Ask(ctx context.Context, cmds [][]byte) ([]member.Call, error)
	// Queue puts a call behind those in line and does not wait. After an error the call is still
	// the caller's.
	Queue(c *member.Call) error
	// Pause waits for news, for d, or for the end of the session or of its host, which is an error.
	Pause(news <-chan struct{}, d time.Duration) error
}

// Present is what a member is good for at one moment.
type Present struct {
	State    member.State
	Standing Standing
	Session  Session // nil while the member is not up
}
