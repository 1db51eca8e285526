package resp

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// Unanswered says what was asked, unless its context says that, and for how long an answer was waited for. It wraps context.DeadlineExceeded, so that
// whoever set the bound knows it again; the text of that would say neither.
type Unanswered struct {
	What   string
	Within time.Duration
}

func (e *Unanswered) Error() string {
	if e.What == "" {
		return fmt.Sprintf("no answer within %v", e.Within)
	}
	return fmt.Sprintf("no answer to %s within %v", e.What, e.Within)
}

// Unwrap returns context.DeadlineExceeded.
func (e *Unanswered) Unwrap() error { return context.DeadlineExceeded }

// Within bounds a question. The cause of its end is an Unanswered.
func Within(ctx context.Context, d time.Duration, what string) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, d, &Unanswered{what, d})
}

// Silence says that a command which was sent at began had no answer when ctx ended. It wraps ctx's error.
func Silence(ctx context.Context, cmd []byte, began time.Time) error {
	if ctx.Err() == context.DeadlineExceeded {
		return &Unanswered{Name(cmd), time.Since(began).Round(time.Millisecond)}
	}
	return fmt.Errorf("%s was not waited for: %w", Name(cmd), ctx.Err())
}

// Name is the command that is encoded in cmd, and what it is about where that is a word of Redis and not of the caller.
func Name(cmd []byte) string {
	words := strings.SplitN(string(cmd[:min(len(cmd), 64)]), "\r\n", 6)
	switch {
	case len(words) < 3:
		return "a command"
	case len(words) == 6 && strings.Contains(" CLIENT CLUSTER SCRIPT SENTINEL ", " "+words[2]+" "):
		return words[2] + " " + words[4]
	}
	return words[2]
}
