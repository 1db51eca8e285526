package main

import (
	"context"
	"crypto/rand"
	"errors"
	"sync/atomic"
	"time"

	"github.com/redquorum/redquorum/cmd/redlock/internal/doctor"
	"github.com/redquorum/redquorum/cmd/redlock/internal/settings"
	"github.com/redquorum/redquorum/member"
	"github.com/redquorum/redquorum/redlock"
)

// A trial is over after trialLasts, and its lock, whatever happens, trialTTL after that.
var (
	trialLasts = 15 * time.Second
	trialTTL   = 10 * time.Second
)

// wakes has the redlock.Tracer of a trial: how often a member's push moved it. With min_replicas_ack a push is no vote yet,
// and moves the waiter to ask.
type wakes struct{ pushed atomic.Int32 }

func (w *wakes) woken(_ context.Context, _ redlock.LockName, by redlock.WakeReason) {
	if by == "notify" || by == "expiry" {
		w.pushed.Add(1)
	}
}

// try does at the members what doctor has found them fit for, with a lock whose name nobody else has.
func try(ctx context.Context, s *settings.Settings, key string) (t doctor.Trial) {
	if t.Name = key + ":" + rand.Text()[:8]; s.Interop {
		t.Name = key + ":trial" // Redisson's locks leave a counter for each name
	}
	ctx, cancel := context.WithTimeout(ctx, trialLasts)
	defer cancel()
	began := time.Now()
	cfg, err := s.Config()
	cfg.Label = "" // it would outlive the trial
	failed := func(step string, err error) doctor.Trial {
		if t.Step, t.Err = step, err; refusesUser(err) {
			t.Not = "the user may not use the name " + t.Name + ": permit it, or --key with the name of one of your locks"
		}
		return t
	}
	if err != nil {
		return failed("open", err)
	}
	var woken wakes
	cfg.Tracer.Woken = woken.woken
	client, err := redlock.Open(ctx, s.URLs(), cfg)
	if err != nil {
		return failed("open", err)
	}
	defer func() { _ = client.Close() }()
	ttl := min(trialTTL, s.MaxTTL)
	m := client.Mutex(t.Name, redlock.TTL(ttl))
	first, err := m.Lock(ctx)
	if err != nil {
		return failed("lock", err)
	}
	defer func() { _ = first.Unlock(context.WithoutCancel(ctx)) }() // where a step has failed
	if err := first.Extend(ctx, ttl); err != nil {
		return failed("renewal", err)
	}
	type outcome struct {
		lease *redlock.Lease
		err   error
	}
	second := make(chan outcome, 1)
	waiting, end := context.WithCancel(ctx)
	defer end()
	go func() { // ends with waiting, at the latest
		l, err := m.Lock(waiting)
		second <- outcome{l, err}
	}()
	give := func(step string, err error) doctor.Trial {
		end()
		if got := <-second; got.err == nil {
			_ = got.lease.Unlock(context.WithoutCancel(ctx))
		}
		return failed(step, err)
	}
	if err := inLineOf(ctx, client, t.Name, s.Interop); err != nil {
		return give("wait", err)
	}
	if err := first.Unlock(ctx); err != nil {
		return give("release", err)
	}
	got := <-second
	if got.err != nil {
		return failed("push", got.err)
	}
	t.Polled = woken.pushed.Load() == 0 && !s.Interop
	if err := got.lease.Unlock(ctx); err != nil {
		return failed("release", err)
	}
	t.Took = time.Since(began)
	return t
}

// inLineOf waits until a majority of the members has somebody in line for the lock. Redisson's locks have no line.
func inLineOf(ctx context.Context, client *redlock.Client, name string, interop bool) error {
	for pause := time.Millisecond; ; pause = min(2*pause, 100*time.Millisecond) {
		in, err := client.Inspect(ctx, name)
		if err != nil {
			return err
		}
		n := 0
		for _, v := range in.Members {
			if len(v.Queue) > 0 {
				n++
			}
		}
		if n >= member.Majority(len(in.Members)) || interop && client.Stats()[redlock.KindMutex].Waiting > 0 {
			return nil
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return errors.Join(errors.New("no majority of the members has it in line"), answered(in), ctx.Err())
		}
	}
}

// refusesUser reports whether a member refused the user.
func refusesUser(err error) bool {
	var q *redlock.QuorumError
	if !errors.As(err, &q) {
		return false
	}
	for _, v := range q.Votes {
		if refused := (*member.ReplyError)(nil); errors.As(v.Err, &refused) && refused.Kind == member.KindAuth {
			return true
		}
	}
	return false
}
