// Package rt starts the servers of redistest for tests, and holds the suite that both kinds pass.
package rt

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/redistest"
)

// Embedded starts n embedded servers, which end with the test. In a synctest bubble pass the
// bubble's t.
func Embedded(t testing.TB, n int) *redistest.Cluster {
	t.Helper()
	c := redistest.NewEmbeddedCluster(n)
	closeAtEnd(t, c)
	return c
}

// Real starts n real servers, which end with the test; without redis-server it skips the test.
func Real(t testing.TB, n int) *redistest.Cluster {
	t.Helper()
	return RealWith(t, n, redistest.RealConfig{})
}

// RealWith is Real with a configuration.
func RealWith(t testing.TB, n int, config redistest.RealConfig) *redistest.Cluster {
	t.Helper()
	if config.Binary == "" {
		if err := redistest.Available(); err != nil {
			t.Skip(err)
		}
	}
	c, err := redistest.StartRealCluster(t.Context(), n, config)
	if err != nil {
		t.Fatal(err)
	}
	closeAtEnd(t, c)
	return c
}

// Needs skips the test, by the server's name, if the redis-server in PATH is missing or lacks a feature.
func Needs(t testing.TB, features ...redistest.Feature) {
	t.Helper()
	if err := redistest.Available(); err != nil {
		t.Skip(err)
	}
	build := Installed(t)
	for _, f := range features {
		if why := build.Why(f); why != "" {
			t.Skip(why + "; make servers lists others, and make test SERVER=NAME runs on one")
		}
	}
}

// Installed is the redis-server in PATH.
func Installed(t testing.TB) redistest.Build {
	t.Helper()
	build, err := redistest.Installed()
	if err != nil {
		t.Fatal(err)
	}
	return build
}

func closeAtEnd(t testing.TB, c *redistest.Cluster) {
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
}

// Must is what a call returns that is expected to succeed: rt.Must(m.Lock(ctx))(t).
func Must[T any](v T, err error) func(t tester) T {
	return func(t tester) T {
		t.Helper()
		require.NoError(t, err)
		return v
	}
}

// Err is the error of a call whose result does not matter.
func Err[T any](_ T, err error) error { return err }

// Says makes sure that an error is of a kind, and of what it says.
func Says(t tester, err, kind error, text string, about ...any) {
	t.Helper()
	require.ErrorIs(t, err, kind, about...)
	require.ErrorContains(t, err, text, about...)
}

// tester is a test, or what has one.
type tester interface {
	require.TestingT
	Helper()
}

// Go runs a call on a goroutine of its own, and tells its error.
func Go(call func() error) chan error {
	ended := make(chan error, 1)
	go func() { ended <- call() }()
	return ended
}

// Later is a call on a goroutine of its own.
type Later[T any] struct {
	Done  chan struct{}
	Value T
	Err   error
	At    time.Time // when it returned
}

// Begin makes a call on a goroutine of its own.
func Begin[T any](call func() (T, error)) *Later[T] {
	w := &Later[T]{Done: make(chan struct{})}
	go func() {
		defer close(w.Done)
		w.Value, w.Err = call()
		w.At = time.Now()
	}()
	return w
}

// End waits for the call, and returns its error.
func (w *Later[T]) End() error {
	<-w.Done
	return w.Err
}

// Get waits for a call that is expected to succeed, and to return within a day.
func (w *Later[T]) Get(t tester) T {
	t.Helper()
	select {
	case <-w.Done:
		require.NoError(t, w.Err)
	case <-time.After(24 * time.Hour):
		require.FailNow(t, "the call has not returned")
	}
	return w.Value
}

// Pending tells whether the call has not returned.
func (w *Later[T]) Pending() bool {
	select {
	case <-w.Done:
		return false
	default:
		return true
	}
}

// Waits makes sure, in fake time, that calls have not returned when all that is under way has arrived.
func Waits(t tester, calls ...interface{ Pending() bool }) {
	t.Helper()
	synctest.Wait()
	for _, c := range calls {
		require.True(t, c.Pending(), "the call has returned")
	}
}

// Within is the context of a call that ends after a while, or with the test.
func Within(t testing.TB, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// Long skips a test of the second ring in the first one.
func Long(t testing.TB, why string) {
	t.Helper()
	if os.Getenv("REDQUORUM_LONG") == "" {
		t.Skip("LONG: " + why + "; `make test-long` sets REDQUORUM_LONG=1 and runs it")
	}
}

// As is the error of a type that another one has in it.
func As[E error](t tester, err error) E {
	t.Helper()
	var as E
	require.ErrorAs(t, err, &as)
	return as
}

// Until waits for what happens at a server or on other goroutines, for as long as a busy machine may take for it.
func Until(t tester, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !is(); time.Sleep(time.Millisecond) {
		require.False(t, time.Now().After(end), "not within a minute: %s", what)
	}
}

// Listening serves connections with handle until the test ends, which closes them.
func Listening(t testing.TB, handle func(c net.Conn)) (addr string) {
	t.Helper()
	ln := Must(net.Listen("tcp", "127.0.0.1:0"))(t)
	var accepting, serving sync.WaitGroup
	var open []net.Conn
	accepting.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			open = append(open, c)
			serving.Go(func() {
				defer c.Close()
				handle(c)
			})
		}
	})
	t.Cleanup(func() {
		_ = ln.Close()
		accepting.Wait()
		for _, c := range open {
			_ = c.Close()
		}
		serving.Wait()
	})
	return ln.Addr().String()
}

// Command reads a command, as a server does.
func Command(in *bufio.Reader) (words []string, err error) {
	var n, size int
	if n, err = count(in, '*'); err != nil {
		return nil, err
	}
	for range n {
		if size, err = count(in, '$'); err != nil {
			return nil, err
		}
		b := make([]byte, size+2)
		if _, err = io.ReadFull(in, b); err != nil {
			return nil, err
		}
		words = append(words, string(b[:size]))
	}
	return words, nil
}

func count(in *bufio.Reader, mark byte) (n int, err error) {
	line, err := in.ReadString('\n')
	if err != nil {
		return 0, err
	}
	if n, err = strconv.Atoi(strings.TrimSpace(line[1:])); err != nil || line[0] != mark || n < 0 {
		return 0, fmt.Errorf("%q is no number behind %c", line, mark)
	}
	return n, nil
}

// Locked calls f under a mutex, and Under returns what f returns.
func Locked(mu sync.Locker, f func()) {
	mu.Lock()
	defer mu.Unlock()
	f()
}

func Under[T any](mu sync.Locker, f func() T) T {
	mu.Lock()
	defer mu.Unlock()
	return f()
}

// Text keeps what is written to it. Its zero value is empty, and safe for concurrent use.
type Text struct {
	mu  sync.Mutex
	all bytes.Buffer // guarded by mu
}

func (x *Text) Write(b []byte) (int, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.all.Write(b)
}

func (x *Text) String() string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.all.String()
}
