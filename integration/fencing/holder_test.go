//go:build linux || darwin

package fencing

import (
	"bufio"
	"context"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/fence"
	"github.com/redquorum/redquorum/fence/fencefile"
	"github.com/redquorum/redquorum/fence/fencesql"
	"github.com/redquorum/redquorum/fence/fencetest"
	"github.com/redquorum/redquorum/internal/redistest/rt"
	"github.com/redquorum/redquorum/redlock"
)

// A holder is a process that adds to a set under a lock: this test binary again, running TestHolder with its terms in
// the environment. It obeys lines of JSON, and reports in such lines.

const holderEnv = "REDQUORUM_HOLDER"

type terms struct {
	URLs []string // of the members
	TTL  time.Duration
	Kind string // a name in stores
	At   string // where that storage is
}

type order struct {
	Do  string        // see the constants
	N   int           // the number of the order
	Set string        `json:",omitempty"` // name of the lock, and of the set
	Use fencetest.Use `json:",omitempty"`
}

const (
	doRun  = "run"  // add to Set, as Use says, again and again
	doIdle = "idle" // end what has begun, and tell it
	doHold = "hold" // from now on, stay between reading and writing
	doGo   = "go"   // stay no longer, this time
	doFree = "free" // stay no longer, and never again
)

type report struct {
	What  string // see the constants
	N     int    `json:",omitempty"` // of isIdle: the order that it answers
	Token uint64 `json:",omitempty"`
	Error string `json:",omitempty"`
}

const (
	isIdle     = "idle"     // nothing of it is on the way
	isLocked   = "locked"   // it has the lock
	isUnlucky  = "unlucky"  // it has asked for the lock, and got an error
	isHeld     = "held"     // it has claimed and read, and stays
	isAccepted = "accepted" // its addition is acknowledged
	isRefused  = "refused"  // its claim or its write is stale
	isDoubtful = "doubtful" // a step of it has failed
	isBroken   = "broken"   // it has met what must not be
)

type holder struct {
	terms
	client  *redlock.Client
	fixture fencetest.Fixture
	rng     *rand.Rand
	out     *json.Encoder

	mu      sync.Mutex
	changed *sync.Cond // on mu
	task    order      // guarded by mu: to run, or to idle
	stay    bool       // guarded by mu: after doHold
	went    int        // guarded by mu: how often doGo or doFree came
}

// TestHolder is no test of its own: it is what the processes below run.
func TestHolder(t *testing.T) {
	text := os.Getenv(holderEnv)
	if text == "" {
		return
	}
	h := &holder{out: json.NewEncoder(os.Stdout), task: order{Do: doIdle}, rng: rand.New(rand.NewPCG(uint64(os.Getpid()), 5))}
	h.changed = sync.NewCond(&h.mu)
	require.NoError(t, json.Unmarshal([]byte(text), &h.terms))
	h.fixture = stores[h.Kind](t, h.At)
	var err error
	h.client, err = redlock.Open(t.Context(), h.URLs, quick(h.TTL))
	require.NoError(t, err)
	go h.obey()
	for {
		h.pass(context.Background())
	}
}

// quick makes clients notice within a second what they notice within two or three by default.
func quick(ttl time.Duration) redlock.Config {
	return redlock.Config{
		TTL: ttl, MaxTTL: time.Second, FreshMembers: true,
		Entry: 300 * time.Millisecond, PingInterval: 100 * time.Millisecond, StallTimeout: 700 * time.Millisecond, DialTimeout: 2 * time.Second,
	}
}

// obey reads orders. The process ends with its parent, which has the other end of the pipe.
func (h *holder) obey() {
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		var o order
		if err := json.Unmarshal(lines.Bytes(), &o); err != nil {
			break
		}
		h.mu.Lock()
		switch o.Do {
		case doRun, doIdle:
			h.task = o
		case doHold:
			h.stay = true
		case doGo:
			h.went++
		case doFree:
			h.stay = false
			h.went++
		}
		h.changed.Broadcast()
		h.mu.Unlock()
	}
	os.Exit(0)
}

func (h *holder) say(r report) { _ = h.out.Encode(r) }

func (h *holder) next() order {
	h.mu.Lock()
	defer h.mu.Unlock()
	for said := -1; h.task.Do == doIdle; h.changed.Wait() {
		if said != h.task.N {
			said = h.task.N
			h.say(report{What: isIdle, N: said})
		}
	}
	return h.task
}

func (h *holder) staying(token uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.stay {
		return
	}
	h.say(report{What: isHeld, Token: token})
	for went := h.went; h.went == went; {
		h.changed.Wait()
	}
}

// pass takes the lock, adds its token to the set, and gives the lock back. It looks at its lease no more, as a program
// does that was stopped after it had looked.
func (h *holder) pass(ctx context.Context) {
	o := h.next()
	lease, err := h.client.Mutex(o.Set, redlock.TTL(h.TTL)).Lock(ctx)
	if err != nil {
		h.say(report{What: isUnlucky, Error: err.Error()})
		return
	}
	h.say(report{What: isLocked, Token: lease.Token()})
	r := report{What: isAccepted, Token: lease.Token()}
	if err := h.add(o, lease); err != nil {
		var step *fence.StepError
		r.Error = err.Error()
		switch {
		case errors.As(err, &step):
			r.What = isDoubtful
		case errors.Is(err, fence.ErrStale) && o.Use != fencetest.Unguarded:
			r.What = isRefused
		default:
			r.What = isBroken
		}
	}
	h.say(r)
	_ = lease.Unlock(ctx) // it may have ended long ago
}

func (h *holder) add(o order, lease *redlock.Lease) error {
	ctx := context.WithoutCancel(lease.Context())
	if o.Use == fencetest.Guarded {
		if err := fence.Claim(ctx, h.fixture.Guard, lease); err != nil {
			return err
		}
	}
	value, err := h.fixture.Storage.Get(ctx, o.Set)
	if err != nil {
		return fmt.Errorf("reading: %w", err)
	}
	h.staying(lease.Token())
	think := time.NewTimer(time.Duration(h.rng.Int64N(int64(5 * time.Millisecond))))
	<-think.C
	value = strings.TrimPrefix(value+" "+element(lease.Token()), " ")
	if o.Use == fencetest.Unguarded {
		return h.fixture.Storage.Overwrite(ctx, o.Set, value)
	}
	return h.fixture.Storage.Put(ctx, o.Set, lease.Token(), value, nil)
}

func element(token uint64) string { return strconv.FormatUint(token, 36) }

// stores are storages that several processes share, by kind: each opens one where the parent has put it.
var stores = map[string]func(t testing.TB, at string) fencetest.Fixture{
	"file": openFiles, "SQLite": openSQL("sqlite", fencesql.SQLite),
	"PostgreSQL": openSQL("pgx", fencesql.PostgreSQL), "MariaDB": openSQL("mysql", fencesql.MySQL),
}

// places make these storages, and say where they are. They end with the test.
var places = map[string]func(t testing.TB) string{
	"file":       func(t testing.TB) string { return t.TempDir() },
	"SQLite":     func(t testing.TB) string { return placeSQL(t, sqlite(t)) },
	"PostgreSQL": func(t testing.TB) string { return placeSQL(t, postgres(t)) },
	"MariaDB":    func(t testing.TB) string { return placeSQL(t, mariadb(t)) },
}

func placeSQL(t testing.TB, d *database) string {
	d.guard(t, d.connect(t))
	return d.source
}

func openSQL(driver string, dialect fencesql.Dialect) func(t testing.TB, at string) fencetest.Fixture {
	return func(t testing.TB, at string) fencetest.Fixture {
		d := &database{dialect: dialect, open: func() (*sql.DB, error) { return sql.Open(driver, at) }}
		db := d.connect(t)
		g := rt.Must(fencesql.New(db, dialect))(t)
		require.NoError(t, g.Verify(t.Context()))
		return fencetest.Fixture{Guard: g, Storage: rows{d, db, g}}
	}
}

type files struct {
	guard *fencefile.Guard
	dir   string
}

func openFiles(t testing.TB, at string) fencetest.Fixture {
	g := rt.Must(fencefile.Open(filepath.Join(at, "guard")))(t)
	return fencetest.Fixture{Guard: g, Storage: files{g, at}}
}

func (f files) name(resource string) string {
	return filepath.Join(f.dir, hex.EncodeToString([]byte(resource)))
}

func (f files) Get(_ context.Context, resource string) (string, error) {
	content, err := os.ReadFile(f.name(resource))
	if errors.Is(err, os.ErrNotExist) {
		err = nil
	}
	return string(content), err
}

func (f files) Put(ctx context.Context, resource string, token uint64, value string, _ func()) error {
	return f.guard.WriteFile(ctx, resource, token, f.name(resource), []byte(value), 0o600)
}

func (f files) Overwrite(_ context.Context, resource, value string) error {
	tmp, err := os.CreateTemp(f.dir, "new-*")
	if err != nil {
		return err
	}
	_, err = tmp.WriteString(value)
	if err = errors.Join(err, tmp.Close()); err != nil {
		return err
	}
	return os.Rename(tmp.Name(), f.name(resource))
}
