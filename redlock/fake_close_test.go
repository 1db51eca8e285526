package redlock_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/redistest"
	"github.com/redquorum/redquorum/redlock"
	"github.com/redquorum/redquorum/redlock/internal/script"
)

// keepsBusy asks a client for everything that it can be asked for, until it is closed. Every other caller wants a name that
// all of its kind want, so that most of them wait. Some leases are handed off, to the client itself or to another one: handed is
// told which names are with somebody else.
func keepsBusy(c, other *redlock.Client, g int, got func(*redlock.Lease), handed func(name string, now bool)) {
	ctx := context.Background()
	for i := 0; ; i++ {
		name, shared := fmt.Sprintf("own:%d:%d", g, i), g%2 == 0
		if shared {
			name = fmt.Sprint("all:", g/2%4)
		}
		get := []func(context.Context) (*redlock.Lease, error){
			c.Mutex(name).Lock, c.Mutex(name).TryLock, c.Mutex(name, redlock.As(fmt.Sprint("owner", g))).Lock,
			c.Mutex(name, redlock.AutoRenew(300*time.Millisecond)).Lock,
		}[g/4%4]
		lease, err := get(ctx)
		if errors.Is(err, redlock.ErrClosed) {
			return
		} else if err != nil {
			continue
		}
		got(lease)
		switch deed := (g/2 + i) % 6; {
		case deed == 1:
			_ = lease.Extend(ctx, 20*time.Second)
		case deed == 2:
			_ = c.Mutex(name+"'s").Do(ctx, func(_ context.Context, lease *redlock.Lease) error { got(lease); return nil })
		case deed == 3 && g/4%4 == 2: // once more, by the same owner
			if again, err := get(ctx); err == nil {
				got(again)
				_ = again.Unlock(ctx)
			}
		case deed == 4 && !shared:
			to := []*redlock.Client{c, other}[(g/4+i)%2]
			h, err := lease.Handoff()
			if err != nil {
				break
			}
			handed(name, true)
			adopted, err := to.Adopt(ctx, h)
			if err != nil {
				continue
			} else if to == c {
				handed(name, false)
				got(adopted)
			}
			_ = adopted.Unlock(ctx)
			continue
		case deed == 5 && !shared: // keeps it until Close ends it
			continue
		}
		_ = lease.Unlock(ctx)
	}
}

// What a client leaves at its members when Close has returned: nothing, whatever it was asked for meanwhile, but leases that were
// handed off. And every lease that it ever gave out is over.
func TestNothingOfAClientIsLeftAfterClose(t *testing.T) {
	for round := range 4 {
		redlock.Pair(t, 3, func(t *testing.T, cluster *redistest.Cluster, p, other *redlock.Peer) {
			p.Jitter(uint64(round), 2*time.Millisecond, 2*time.Millisecond, time.Millisecond)
			var mu sync.Mutex
			var leases []*redlock.Lease
			handed := map[string]bool{}
			var callers sync.WaitGroup
			for g := range 32 {
				callers.Go(func() {
					keepsBusy(p.Client, other.Client, g, func(l *redlock.Lease) {
						mu.Lock()
						defer mu.Unlock()
						leases = append(leases, l)
					}, func(name string, now bool) {
						mu.Lock()
						defer mu.Unlock()
						handed[name] = now
					})
				})
			}
			time.Sleep(time.Duration(20+7*round) * time.Millisecond)
			servers := cluster.Servers
			if round%2 == 1 { // one hangs from now on
				cluster.Pause(2)
				servers = servers[:2]
			}
			start := time.Now()
			require.NoError(t, p.Close())
			require.LessOrEqual(t, time.Since(start), redlock.CloseWithin+redlock.CutWithin)
			left := remains(t, servers, redlock.UUID(p.Client))
			mu.Lock()
			require.Empty(t, slices.DeleteFunc(left, func(key string) bool { return handed[key] }))
			require.NotEmpty(t, handed)
			require.Greater(t, len(leases), 20)
			for _, l := range leases {
				require.True(t, hasEnded(l.Done()))
			}
			mu.Unlock()
			callers.Wait()
			for _, l := range leases { // nobody adds any more
				require.Error(t, l.Err())
			}
			cluster.Resume()
		}, redlock.Quiet)
	}
}

// remains are the votes, the places and the subscriptions of a client. Entries and votes tell whose they are.
func remains(t *testing.T, servers []redistest.Server, uuid string) (out []string) {
	t.Helper()
	for _, s := range servers {
		for _, key := range redlock.Admin(t, s, "KEYS", "*").([]any) {
			read := []string{"HKEYS", key.(string)}
			if strings.HasPrefix(key.(string), "redquorum:q:") {
				read = []string{"ZRANGE", key.(string), "0", "-1"}
			}
			for _, field := range redlock.Admin(t, s, read...).([]any) {
				if strings.HasPrefix(field.(string), uuid+":") {
					out = append(out, key.(string))
				}
			}
		}
		for _, channel := range redlock.Admin(t, s, "PUBSUB", "CHANNELS", script.Inbox(uuid)+"*").([]any) {
			out = append(out, channel.(string))
		}
	}
	return out
}

// closer closes its client at the first event of one kind.
type closer struct {
	at    string
	begun atomic.Bool
	mu    sync.Mutex
	c     *redlock.Client
	took  chan time.Duration
}

func (x *closer) event(kind string) {
	x.mu.Lock()
	c := x.c
	x.mu.Unlock()
	if kind == x.at && c != nil && x.begun.CompareAndSwap(false, true) {
		start := time.Now()
		_ = c.Close()
		x.took <- time.Since(start)
	}
}

func (x *closer) CallEnd(context.Context, redlock.CallEnd)  { x.event("CallEnd") }
func (x *closer) Lost(*redlock.LostError)                   { x.event("Lost") }
func (x *closer) Renewed(redlock.LockName, bool)            { x.event("Renewed") }
func (x *closer) Request(context.Context, redlock.Request)  { x.event("Request") }
func (x *closer) Member(string, bool, error)                { x.event("Member") }
func (x *closer) Enabled(context.Context, slog.Level) bool  { return true }
func (x *closer) Handle(context.Context, slog.Record) error { x.event("slog"); return nil }
func (x *closer) WithAttrs([]slog.Attr) slog.Handler        { return x }
func (x *closer) WithGroup(string) slog.Handler             { return x }

// A callback runs on a goroutine that Close may wait for. Close gives it up in time, and leaves nothing behind at members
// that are connected.
func TestCloseFromACallbackReturnsInTimeAndCompletes(t *testing.T) {
	for _, at := range []string{"CallEnd", "Lost", "Renewed", "Request", "Member", "slog", "Do"} {
		t.Run(at, inBubble(3, func(t *testing.T, cluster *redistest.Cluster) {
			x := &closer{at: at, took: make(chan time.Duration, 1)}
			p := redlock.JoinAll(t, cluster, redlock.WithTracer(x), redlock.WithLogger(slog.New(x)))
			lease := p.Hold(t, "held", redlock.AutoRenew(300*time.Millisecond))
			x.mu.Lock()
			x.c = p.Client
			x.mu.Unlock()
			_ = p.Try(t, "next")
			switch at {
			case "Do":
				err := p.Mutex("done").Do(t.Context(), func(ctx context.Context, l *redlock.Lease) error {
					x.event(at)
					require.ErrorIs(t, context.Cause(ctx), redlock.ErrClosed)
					return l.Err()
				})
				require.ErrorIs(t, err, redlock.ErrClosed)
				took := <-x.took
				require.Zero(t, took, "Close does not wait for the function")
				x.took <- took
			case "Lost":
				_, err := p.ForceUnlock(t.Context(), "held")
				require.NoError(t, err)
			case "Member", "slog":
				p.EveryLink(func(l *redistest.Link) { l.Cut() }, 0)
			}
			require.LessOrEqual(t, <-x.took, redlock.CloseWithin+redlock.CutWithin+redlock.HushWithin)
			require.NoError(t, p.Close()) // this one waits until all is done
			<-lease.Done()
			require.Error(t, lease.Err())
			servers := cluster.Servers
			if at == "Member" || at == "slog" { // the first is not dialled again while the callback blocks
				servers = servers[1:]
			}
			require.Empty(t, remains(t, servers, redlock.UUID(p.Client)))
		}))
	}
}
