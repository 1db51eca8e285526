// Package redlockhttp tells over HTTP who leads: to a load balancer that sends requests to the
// leader, to a probe, and to people.
//
//	election := client.Election("scheduler")
//	health := redlockhttp.New(election, "scheduler")
//	http.Handle("GET /leader", health)
//	err := election.Run(ctx, []byte(address), health.Leading(schedule))
//
// The handler answers 200 in the process that leads and 503 in every other one. With SomebodyLeads
// it answers 200 in every process while somebody leads. The body is the same: see Status.
package redlockhttp

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/redquorum/redquorum/redlock"
)

// Status is the body of an answer, as JSON. It names no member, and has no secret but what the
// leader proclaims.
type Status struct {
	Key   string `json:"key"`             // the name of the election
	Here  bool   `json:"here"`            // this process leads
	Leads bool   `json:"leads"`           // somebody leads
	Value string `json:"value"`           // what the leader has proclaimed; "" if that is not known
	Token uint64 `json:"token,omitempty"` // its term
	Error string `json:"error,omitempty"` // why the leader is not known: no_quorum, closed or failed
}

// fresh is how long the answer of the members serves further requests.
const fresh = time.Second

// Health is an http.Handler. It asks the members at most once a second, however many requests come.
// It is safe for concurrent use.
type Health struct {
	election interface { // a *redlock.Election
		Leader(ctx context.Context) (redlock.Leader, error)
	}
	key      string
	somebody bool

	mu    sync.Mutex // guards the fields below; never held around a call to a member
	lease *redlock.Lease
	last  *look
}

// look is one question to the members, and its answer.
type look struct {
	began  time.Time
	done   chan struct{} // closed when the fields below are valid
	leader redlock.Leader
	err    error
}

// Option changes what New makes.
type Option func(*Health)

// SomebodyLeads has the handler answer 200 if somebody leads, whoever it is, and 503 if nobody does
// or the members cannot tell. It suits an alert. Without it, a handler answers 200 only in the
// process that leads.
func SomebodyLeads() Option { return func(h *Health) { h.somebody = true } }

// New makes the handler of an election. key is the name that it shows. A nil Option changes nothing.
// New panics if e is nil.
func New(e *redlock.Election, key string, opts ...Option) *Health {
	if e == nil {
		panic("redlockhttp: nil election")
	}
	h := &Health{election: e, key: key}
	for _, o := range opts {
		if o != nil {
			o(h)
		}
	}
	return h
}

// Leading returns a function for redlock.Election.Run that does what fn does. Until fn returns, the
// handler says that this process leads, while its lease is valid. It is nil if fn is, and Run refuses it.
func (h *Health) Leading(fn func(ctx context.Context, lease *redlock.Lease) error) func(ctx context.Context, lease *redlock.Lease) error {
	if fn == nil {
		return nil
	}
	return func(ctx context.Context, lease *redlock.Lease) error {
		h.Hold(lease)
		defer h.Hold(nil)
		return fn(ctx, lease)
	}
}

// Hold has the handler say that this process leads, until lease ends: for callers of
// redlock.Election.Campaign. The lease replaces the one before, and nil replaces it with none.
func (h *Health) Hold(lease *redlock.Lease) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lease, h.last = lease, nil // what the members said is out of date
}

// held returns the lease with which this process leads, or nil. It looks at the clock, so the answer
// is no before another can lead.
func (h *Health) held() *redlock.Lease {
	h.mu.Lock()
	lease := h.lease
	h.mu.Unlock()
	if lease == nil || lease.Err() != nil {
		return nil
	}
	return lease
}

// Status returns who leads. ctx bounds the wait for the members.
func (h *Health) Status(ctx context.Context) Status {
	s := Status{Key: h.key}
	leader, err := h.leader(ctx)
	switch {
	case err == nil:
		s.Leads, s.Value, s.Token = !leader.None, string(leader.Value), leader.Token
	case errors.Is(err, redlock.ErrNoQuorum):
		s.Error = "no_quorum"
	case errors.Is(err, redlock.ErrClosed):
		s.Error = "closed"
	default:
		s.Error = "failed"
	}
	if lease := h.held(); lease != nil { // which knows better than what the members said a moment ago
		if s.Token != lease.Token() {
			s.Value, s.Token = "", lease.Token()
		}
		s.Here, s.Leads = true, true
	}
	return s
}

// leader asks the members, or waits for the answer to another caller's question that is fresh. The
// question is on a goroutine of its own, so that ctx ends the wait of whoever began it, and of nobody
// else. The goroutine ends with the answer, which comes when the client is closed at the latest.
func (h *Health) leader(ctx context.Context) (redlock.Leader, error) {
	h.mu.Lock()
	l := h.last
	mine := l == nil || time.Since(l.began) >= fresh
	if mine {
		l = &look{began: time.Now(), done: make(chan struct{})}
		h.last = l
	}
	h.mu.Unlock()
	if mine {
		go func() {
			defer close(l.done)
			l.leader, l.err = h.election.Leader(context.WithoutCancel(ctx))
		}()
	}
	select {
	case <-l.done:
		return l.leader, l.err
	case <-ctx.Done():
		return redlock.Leader{}, ctx.Err()
	}
}

// ServeHTTP implements http.Handler.
func (h *Health) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "GET or HEAD", http.StatusMethodNotAllowed)
		return
	}
	s := h.Status(r.Context())
	code := http.StatusServiceUnavailable
	if s.Here || h.somebody && s.Leads {
		code = http.StatusOK
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(s) // a client that has gone
}
