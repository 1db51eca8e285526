package node

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// users is a Dialer as a user writes one.
type users func(ctx context.Context, network, addr string) (net.Conn, error)

func (u users) DialContext(ctx context.Context, network, addr string) (net.Conn, error) {
	return u(ctx, network, addr)
}

// Whatever of the user's hangs and ignores its context is named when the time of a dial has passed. Close does not wait
// for it.
func TestFunctionThatIgnoresItsContextIsNamed(t *testing.T) {
	for name, config := range map[string]func(f *fake, hang func()) Config{
		"Config.Credentials": func(f *fake, hang func()) Config {
			return Config{Dialer: f, Credentials: func(context.Context) (string, string, error) { hang(); return "u", "pw", nil }}
		},
		"Config.Dialer": func(f *fake, hang func()) Config {
			return Config{Dialer: users(func(ctx context.Context, network, addr string) (net.Conn, error) {
				hang()
				return f.DialContext(ctx, network, addr)
			})}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var hangs atomic.Bool
				hangs.Store(true)
				end := make(chan struct{})
				defer close(end)
				f := newFake(nil)
				c := config(f, func() {
					if hangs.Load() {
						<-end
					}
				})
				c.jitter = longest
				n := start(t, c)
				time.Sleep(1100 * time.Millisecond) // a DialTimeout, and a tenth of it
				synctest.Wait()
				err := n.State().Err
				var missing *CredentialsError
				var broken *DialerError
				if err == nil || !errors.As(err, &missing) && !errors.As(err, &broken) || !errors.Is(err, context.DeadlineExceeded) ||
					!strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), n.Name()) || !strings.Contains(err.Error(), "did not return") {
					t.Fatalf("%v", err)
				}
				hangs.Store(false)
				time.Sleep(AuthBackoff)
				if !n.State().Up {
					t.Fatalf("%+v", n.State())
				}
				hangs.Store(true)
				f.cut()
				time.Sleep(2 * time.Second)
				began := time.Now()
				if err := n.Close(t.Context()); err != nil || time.Since(began) > 100*time.Millisecond {
					t.Errorf("%v after %v", err, time.Since(began))
				}
			})
		})
	}
}

// A connection that comes when nobody waits for it any more is closed.
func TestConnectionThatCameTooLateIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, server := net.Pipe()
		dials := 0
		n := start(t, Config{BackoffMin: time.Hour, BackoffMax: time.Hour, jitter: longest, Dialer: users(func(context.Context, string, string) (net.Conn, error) {
			dials++
			time.Sleep(2 * time.Second)
			return f, nil
		})})
		time.Sleep(3 * time.Second)
		synctest.Wait()
		_ = server.SetReadDeadline(time.Now())
		if got, err := server.Read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) && err.Error() != "EOF" || dials != 1 {
			t.Errorf("%d, %v after %d dials", got, err, dials)
		}
		if n.State().Up {
			t.Errorf("%+v", n.State())
		}
	})
}

func TestDialerThatReturnsNothingIsNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nothing := users(func(context.Context, string, string) (net.Conn, error) { return nil, nil })
		for _, secure := range []string{"redis", "rediss"} {
			c, err := ParseURL(secure + "://h:1")
			if err != nil {
				t.Fatal(err)
			}
			c.Dialer = nothing
			n := start(t, c)
			synctest.Wait()
			var broken *DialerError
			if err := n.State().Err; !errors.As(err, &broken) || broken.Addr != "h:1" || !strings.Contains(err.Error(), "Config.Dialer, of h:1: it returned neither") {
				t.Errorf("%s: %v", secure, err)
			}
			if _, err := Query(t.Context(), c, ping); !errors.As(err, &broken) {
				t.Errorf("%s: %v", secure, err)
			}
		}
	})
}

// An error that a Dialer returns is its own, also when it returns it because its context ended.
func TestErrorOfADialerIsPassedOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		down := errors.New("the mesh is down")
		for _, d := range []users{
			func(context.Context, string, string) (net.Conn, error) { return nil, down },
			func(ctx context.Context, _, _ string) (net.Conn, error) { <-ctx.Done(); return nil, down },
			func(ctx context.Context, _, _ string) (net.Conn, error) {
				<-ctx.Done()
				time.Sleep(90 * time.Millisecond)
				return nil, down
			},
		} {
			n := start(t, Config{Dialer: d, BackoffMin: time.Hour, BackoffMax: time.Hour, jitter: longest})
			time.Sleep(2 * time.Second)
			var broken *DialerError
			if err := n.State().Err; !errors.Is(err, down) || errors.As(err, &broken) {
				t.Errorf("%v", err)
			}
		}
	})
}
