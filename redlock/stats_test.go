package redlock_test

import (
	"context"
	"testing"
	"time"

	"github.com/redquorum/redquorum/redlock"
)

func TestStatsCountWhatIsHeldAndWhoWaits(t *testing.T) {
	urls, stop := startMembers()
	defer stop()
	client, err := redlock.Open(t.Context(), urls, redlock.WithFreshMembers())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = client.Close() }()
	if s := client.Stats(); len(s) != 1 || s[redlock.KindMutex] != (redlock.Stats{}) {
		t.Errorf("of nothing: %+v", s)
	}
	before := time.Now()
	first, err := client.Mutex("a").Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	between := time.Now()
	second, err := client.Mutex("b").Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = client.Mutex("a").Lock(ctx)
	}()
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
		s := client.Stats()[redlock.KindMutex]
		if s.Held == 2 && s.Waiting == 1 && s.Oldest.After(before) && s.Oldest.Before(between) {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("two held, one waits: %+v", s)
		}
	}
	cancel()
	<-done
	for _, l := range []*redlock.Lease{first, second} {
		if err := l.Unlock(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if s := client.Stats(); len(s) != 1 || s[redlock.KindMutex] != (redlock.Stats{}) {
		t.Errorf("after all: %+v", s)
	}
}
