package redlock

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/redquorum/redquorum/internal/printable"
	"github.com/redquorum/redquorum/member"
	"github.com/redquorum/redquorum/redlock/internal/script"
)

// What a client with a Config.Label tells of itself is kept for tellFor, and told again every
// tellEvery. If a member missed it, all are told again after tellAgain, and then ever later.
const (
	tellEvery = 2 * time.Minute
	tellFor   = 5 * time.Minute
	tellAgain = 20 * time.Millisecond

	mostTold = 64 // clients that one look asks for
)

// who is what a client tells of itself.
func (c *Config) who() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown host"
	}
	return fmt.Sprintf("%s (%s, pid %d)", c.Label, host, os.Getpid())
}

// tellWho tells the members who this client is, until the client is closed. Then it has them forget
// it. It never holds up a lock.
func (c *Client) tellWho() {
	defer close(c.told)
	if c.cfg.Label == "" {
		return
	}
	key := script.WhoKey(c.cfg.Prefix, script.ClientHash([]byte(c.uuid+":")))
	tell := script.TellWho(key, c.cfg.who(), tellFor)
	open, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() { <-c.closed; cancel() }() // it ends with the client
	timer := time.NewTimer(0)
	defer timer.Stop()
	for again := tellAgain; ; again = min(2*again, tellEvery) {
		select {
		case <-timer.C:
			missed := false
			c.askAll(open, tell, func(_ int, _ member.Reply, err error) { missed = missed || err != nil })
			if !missed {
				again = tellEvery
			}
			timer.Reset(again)
		case <-c.closed:
			last, cancel := context.WithTimeout(context.Background(), callsWithin/2)
			defer cancel()
			c.askAll(last, script.ForgetWho(key), func(int, member.Reply, error) {})
			return
		}
	}
}

// withWho adds to the error of a try who has the lock.
func (c *Client) withWho(ctx context.Context, w *want, err error) error {
	if err == nil || !w.try || c.cfg.Label == "" || !errors.Is(err, ErrHeld) {
		return err
	}
	var e *QuorumError // not before: it is on the heap
	if !errors.As(err, &e) {
		return err
	}
	clients := c.holders(ctx, w)
	told, who := make([]string, len(clients)), []string(nil)
	c.identify(ctx, func(each func(client string, who *string)) {
		for i := range clients {
			each(clients[i], &told[i])
		}
	})
	for _, one := range told {
		if one != "" && !slices.Contains(who, one) {
			who = append(who, one)
		}
	}
	named := *e // a tracer has the one without
	named.Who = who
	return &named
}

// holders asks which clients have a lock, and returns when a majority of the members have said so. Who waits is not asked for: a line
// may be long.
func (c *Client) holders(ctx context.Context, w *want) (clients []string) {
	lock := w.terms.kind.of(w.name, &c.cfg, w.terms)
	answered, named := 0, make(map[string]int)
	c.askUntil(ctx, lock.PeekHolders(nil), func(_ int, r member.Reply, err error) (enough bool) {
		if err != nil {
			return false
		}
		answered++
		for _, h := range lock.ReadHolders(&r) {
			if named[h.Named()]++; named[h.Named()] == c.need {
				clients = append(clients, h.Client)
			}
		}
		return answered >= c.need && len(clients) > 0
	})
	return clients
}

// identify asks the members who the clients are that told names, until one of them knows or a majority do not. What no
// member knows stays "".
func (c *Client) identify(ctx context.Context, told func(each func(client string, who *string))) {
	known := make(map[string]string)
	var keys []string
	told(func(client string, _ *string) {
		if _, twice := known[client]; client != "" && !twice && len(keys) < mostTold {
			known[client] = ""
			keys = append(keys, client)
		}
	})
	var mu sync.Mutex
	var wg sync.WaitGroup
	for _, client := range keys {
		wg.Go(func() {
			ask := script.AskWho(script.WhoKey(c.cfg.Prefix, client))
			answered := 0
			c.askUntil(ctx, ask, func(_ int, r member.Reply, err error) (enough bool) {
				if err != nil {
					return false
				}
				if answered++; r.Kind != '$' {
					return answered >= c.need
				}
				mu.Lock()
				defer mu.Unlock()
				known[client] = printable.Text(string(r.Str), 2*longestLabel) // somebody else may have written it
				return true
			})
		})
	}
	wg.Wait()
	told(func(client string, who *string) { *who = known[client] })
}

// askAll puts one command to every member at once and reports each answer from one goroutine at a time.
func (c *Client) askAll(ctx context.Context, cmd member.Command, report func(i int, r member.Reply, err error)) {
	c.askUntil(ctx, cmd, func(i int, r member.Reply, err error) (enough bool) { report(i, r, err); return false })
}

// askUntil is askAll until report has enough. What members answer later is not reported.
func (c *Client) askUntil(ctx context.Context, cmd member.Command, report func(i int, r member.Reply, err error) (enough bool)) {
	ctx, cancel := c.within(ctx)
	defer cancel()
	var mu sync.Mutex
	var wg sync.WaitGroup
	enough := false
	for i, m := range c.members {
		wg.Go(func() {
			r, err := askOne(ctx, m, cmd)
			mu.Lock()
			defer mu.Unlock()
			if enough = enough || report(i, r, err); enough {
				cancel()
			}
		})
	}
	wg.Wait()
}

// within bounds a question to members that is not waited for longer than for a member.
func (c *Client) within(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, c.cfg.MemberTimeout, &silentError{within: c.cfg.MemberTimeout})
}

// askOne is member.Ask within such a bound: an answer that does not come by then is the member's fault. The end of the caller's own
// context is not.
func askOne(ctx context.Context, m member.Member, cmd member.Command) (member.Reply, error) {
	r, err := member.Ask(ctx, m, cmd)
	if late, ok := context.Cause(ctx).(*silentError); ok && errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("%s: %w", m.Name(), late)
	}
	return r, err
}
