package redlockhttp

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/faketime"
	"github.com/redquorum/redquorum/internal/redistest/rt"
	"github.com/redquorum/redquorum/redlock"
	"github.com/redquorum/redquorum/redlock/redlocktest"
)

func ask(t *testing.T, h http.Handler, method string) (int, Status) {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), method, "/leader", nil))
	require.Equal(t, "no-store", w.Header().Get("Cache-Control"))
	require.Equal(t, "application/json", w.Header().Get("Content-Type"))
	var s Status
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &s))
	return w.Code, s
}

func TestHealthSaysWhoLeads(t *testing.T) { faketime.Test(t, healthSaysWhoLeads) }

func healthSaysWhoLeads(t *testing.T) {
	d := redlocktest.New(t, 3)
	ours, theirs := d.Client, d.Open()
	here, there := New(ours.Election("boss"), "boss"), New(theirs.Election("boss"), "boss")
	anybody := New(theirs.Election("boss"), "boss", SomebodyLeads())
	for _, h := range []*Health{here, there, anybody} {
		code, s := ask(t, h, http.MethodGet)
		require.Equal(t, http.StatusServiceUnavailable, code)
		require.Equal(t, Status{Key: "boss"}, s)
		h.Hold(nil) // the answer of before serves nobody
	}

	require.ErrorIs(t, ours.Election("boss").Run(t.Context(), []byte("10.0.0.7"), here.Leading(func(ctx context.Context, lease *redlock.Lease) error {
		code, s := ask(t, here, http.MethodGet)
		require.Equal(t, http.StatusOK, code)
		require.Equal(t, Status{Key: "boss", Here: true, Leads: true, Value: "10.0.0.7", Token: s.Token}, s)
		code, s = ask(t, there, http.MethodHead)
		require.Equal(t, http.StatusServiceUnavailable, code)
		require.Equal(t, Status{Key: "boss", Leads: true, Value: "10.0.0.7", Token: lease.Token()}, s)
		code, _ = ask(t, anybody, http.MethodGet)
		require.Equal(t, http.StatusOK, code)

		require.NoError(t, rt.Err(theirs.ForceUnlock(ctx, "boss")))
		require.ErrorIs(t, lease.Extend(ctx, 30*time.Second), redlock.ErrLost)
		code, s = ask(t, here, http.MethodGet)
		require.Equal(t, http.StatusServiceUnavailable, code, "its lease is lost")
		require.False(t, s.Here)
		require.NoError(t, theirs.Close())
		there.Hold(nil)
		code, s = ask(t, there, http.MethodGet)
		require.Equal(t, http.StatusServiceUnavailable, code)
		require.Equal(t, Status{Key: "boss", Error: "closed"}, s)
		return ours.Close()
	})), redlock.ErrClosed)

	w := httptest.NewRecorder()
	here.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/leader", nil))
	require.Equal(t, http.StatusMethodNotAllowed, w.Code)
	require.Equal(t, "GET, HEAD", w.Header().Get("Allow"))
}

func TestWhatCannotWorkIsRefused(t *testing.T) {
	t.Parallel()
	faketime.Test(t, func(t *testing.T) {
		e := redlocktest.New(t, 1).Client.Election("boss")
		require.PanicsWithValue(t, "redlockhttp: nil election", func() { New(nil, "boss") })
		h := New(e, "boss", nil)
		rt.Says(t, e.Run(t.Context(), nil, h.Leading(nil)), redlock.ErrInput, "nil function")
	})
}

type slow struct{ asked atomic.Int32 }

func (s *slow) Leader(ctx context.Context) (redlock.Leader, error) {
	s.asked.Add(1)
	select {
	case <-time.After(200 * time.Millisecond):
		return redlock.Leader{}, fmt.Errorf("leader: %w", redlock.ErrNoQuorum)
	case <-ctx.Done():
		return redlock.Leader{}, ctx.Err()
	}
}

func TestHealthAsksTheMembersOnceASecond(t *testing.T) {
	t.Parallel()
	faketime.Test(t, func(t *testing.T) {
		e := &slow{}
		h := &Health{election: e, key: "boss"}
		var wg sync.WaitGroup
		for range 100 {
			wg.Go(func() { require.Equal(t, Status{Key: "boss", Error: "no_quorum"}, h.Status(t.Context())) })
		}
		wg.Wait()
		require.EqualValues(t, 1, e.asked.Load())
		time.Sleep(700 * time.Millisecond)
		h.Status(t.Context())
		require.EqualValues(t, 1, e.asked.Load(), "0.9 s later")
		time.Sleep(100 * time.Millisecond)
		h.Status(t.Context())
		require.EqualValues(t, 2, e.asked.Load())
	})
}

func TestARequestThatIsGivenUpEndsNoOther(t *testing.T) {
	t.Parallel()
	faketime.Test(t, func(t *testing.T) {
		h := &Health{election: &slow{}, key: "boss"}
		start := time.Now()
		given, giveUp := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		up := func() {
			require.Equal(t, "failed", h.Status(given).Error)
			require.Equal(t, 100*time.Millisecond, time.Since(start))
		}
		wg.Go(up)
		synctest.Wait() // it asks
		wg.Go(up)
		wg.Go(func() { require.Equal(t, "no_quorum", h.Status(t.Context()).Error) })
		time.Sleep(100 * time.Millisecond)
		giveUp()
		wg.Wait()
		require.Equal(t, 200*time.Millisecond, time.Since(start))
	})
}
