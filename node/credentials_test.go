package node

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// authed is a server that takes one user's password, which the test changes.
func authed(password *atomic.Value) *fake {
	return newFake(func(_ int64, args []string) string {
		if args[0] == "AUTH" && args[len(args)-1] != password.Load() {
			return "-WRONGPASS invalid username-password pair or user is disabled.\r\n"
		}
		return "default"
	})
}

func TestCredentialsAreAskedForAtEveryDial(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var current atomic.Value
		current.Store("one")
		f := authed(&current)
		var asked atomic.Int64
		n := start(t, Config{Dialer: f, jitter: longest, Credentials: func(context.Context) (string, string, error) {
			asked.Add(1)
			return "u", current.Load().(string), nil
		}})
		synctest.Wait()
		if !n.State().Up || asked.Load() != 1 {
			t.Fatalf("%+v after %d calls", n.State(), asked.Load())
		}
		current.Store("two")
		f.cut()
		time.Sleep(time.Second)
		if !n.State().Up || asked.Load() != 2 {
			t.Errorf("%+v after %d calls", n.State(), asked.Load())
		}
	})
}

func TestPasswordFileIsReadAtEveryDial(t *testing.T) {
	file := filepath.Join(t.TempDir(), "password")
	write := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("one\n")
	synctest.Test(t, func(t *testing.T) {
		var current atomic.Value
		current.Store("one")
		f := authed(&current)
		c, err := ParseURL("redis://h:1?password_file=" + file)
		if err != nil {
			t.Fatal(err)
		}
		c.Dialer, c.jitter = f, longest
		n := start(t, c)
		synctest.Wait()
		if !n.State().Up {
			t.Fatalf("%+v", n.State())
		}
		current.Store("two")
		write("two\n")
		f.cut()
		time.Sleep(time.Second)
		if !n.State().Up {
			t.Errorf("%+v", n.State())
		}
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
		f.cut()
		time.Sleep(time.Second)
		var missing *CredentialsError
		if err := n.State().Err; !errors.As(err, &missing) || !errors.Is(err, fs.ErrNotExist) || strings.Contains(err.Error(), file) || missing.Member != n.Name() {
			t.Errorf("%v", err)
		}
		write("two\n")
		time.Sleep(time.Minute)
		if !n.State().Up {
			t.Errorf("%+v", n.State())
		}
	})
}

// A provider that fails or hangs, or a password that is not the server's yet: asked again soon, and then ever less often.
func TestCredentialsThatFailAreNoStorm(t *testing.T) {
	down := errors.New("the vault is sealed")
	for name, provider := range map[string]func(ctx context.Context) (string, string, error){
		"fails":           func(context.Context) (string, string, error) { return "", "", down },
		"is late":         func(ctx context.Context) (string, string, error) { <-ctx.Done(); return "u", "pw", nil },
		"has no password": func(context.Context) (string, string, error) { return "u", "", nil },
		"is refused":      func(context.Context) (string, string, error) { return "u", "old", nil },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var current atomic.Value
				current.Store("pw")
				var asked atomic.Int64
				var mended atomic.Bool
				n := start(t, Config{Dialer: authed(&current), jitter: longest, DialTimeout: 100 * time.Millisecond, Credentials: func(ctx context.Context) (string, string, error) {
					asked.Add(1)
					if mended.Load() {
						return "u", "pw", nil
					}
					return provider(ctx)
				}})
				time.Sleep(2 * time.Second)
				if n := asked.Load(); n < 3 {
					t.Errorf("asked %d times in 2 s", n)
				}
				time.Sleep(118 * time.Second)
				if n := asked.Load(); n > 14 {
					t.Errorf("asked %d times in two minutes", n)
				}
				var missing *CredentialsError
				if err := n.State().Err; errors.As(err, &missing) != (name != "is refused") || (name == "fails") != errors.Is(err, down) || strings.Contains(err.Error(), "old") {
					t.Errorf("%v", err)
				}
				mended.Store(true)
				time.Sleep(AuthBackoff + time.Second)
				if !n.State().Up {
					t.Errorf("%+v", n.State())
				}
			})
		})
	}
}
