package node

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"
)

// DialerError says that Config.Dialer broke its contract: it returned neither a connection nor an
// error, or it did not return when its context ended. An error that the Dialer returned is passed on
// as it is.
type DialerError struct {
	Addr string // that was to be dialled
	Err  error
}

func (e *DialerError) Error() string { return fmt.Sprintf("Config.Dialer, of %s: %v", e.Addr, e.Err) }

func (e *DialerError) Unwrap() error { return e.Err }

// grace is how long a function of the user has to return after its context ended. One that looks at
// its context returns by then, and its own error says more than ours.
func (c *Config) grace() time.Duration { return min(c.DialTimeout/10, 100*time.Millisecond) }

// within calls f, a function of the user that may ignore ctx, on a goroutine of its own. It returns
// what f returned, or false when ctx ended grace ago. Then nobody waits for the goroutine any more,
// and late gets what f returns at last.
func within[T any](ctx context.Context, grace time.Duration, f func() T, late func(T)) (T, bool) {
	done, left := make(chan T), make(chan struct{})
	go func() {
		result := f()
		select {
		case done <- result:
		case <-left:
			late(result)
		}
	}()
	select {
	case result := <-done:
		return result, true
	case <-ctx.Done():
	}
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case result := <-done:
		return result, true
	case <-timer.C:
		close(left)
		var none T
		return none, false
	}
}

// stuck is the error of a function of the user that did not return.
func stuck(ctx context.Context) error {
	return fmt.Errorf("it did not return when its context ended: %w", ctx.Err())
}

// socket opens a connection to addr with the Dialer.
func (n *Node) socket(ctx context.Context, addr string) (net.Conn, error) {
	d := n.cfg.Dialer
	if _, ours := d.(*net.Dialer); ours {
		return d.DialContext(ctx, n.cfg.Network, addr)
	}
	type dialled struct {
		conn net.Conn
		err  error
	}
	got, returned := within(ctx, n.cfg.grace(), func() (r dialled) {
		r.conn, r.err = d.DialContext(ctx, n.cfg.Network, addr)
		return r
	}, func(late dialled) {
		if late.conn != nil {
			_ = late.conn.Close()
		}
	})
	switch {
	case !returned:
		return nil, &DialerError{addr, stuck(ctx)}
	case got.err != nil:
		return nil, got.err
	case got.conn == nil:
		return nil, &DialerError{addr, errors.New("it returned neither a connection nor an error")}
	}
	return got.conn, nil
}

// provided asks Config.Credentials.
func (c *Config) provided(ctx context.Context) (user, password string, err error) {
	got, returned := within(ctx, c.grace(), func() (r credentials) {
		r.user, r.password, r.err = c.Credentials(ctx)
		return r
	}, func(credentials) {})
	switch {
	case !returned:
		err = stuck(ctx)
	case got.err != nil:
		err = got.err
	case ctx.Err() != nil:
		err = fmt.Errorf("they came too late: %w", ctx.Err())
	case got.password == "": // the default user might do without one, with other permissions
		err = errors.New("it returned no password")
	default:
		return got.user, got.password, nil
	}
	return "", "", fmt.Errorf("Config.Credentials: %w", err)
}
