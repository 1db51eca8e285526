package node

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redquorum/redquorum/member"
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
		"has nothing":     func(context.Context) (string, string, error) { return "", "", nil },
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

// A connection is authenticated anew before its credentials end, among its commands, and is never replaced for that.
func TestConnectionIsAuthenticatedAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var current, given atomic.Value
		current.Store("pw-0")
		given.Store("pw-0")
		var asked atomic.Int64
		f := authed(&current)
		n := start(t, Config{Dialer: f, jitter: longest, CredentialsEvery: 10 * time.Second, Credentials: func(context.Context) (string, string, error) {
			asked.Add(1)
			return "u", given.Load().(string), nil
		}})
		synctest.Wait()
		up := n.State()
		for i := 1; i <= 5; i++ {
			current.Store(fmt.Sprint("pw-", i)) // the server keeps the connection, as Redis does
			given.Store(fmt.Sprint("pw-", i))
			time.Sleep(8900 * time.Millisecond)
			if got := asked.Load(); got != int64(i) {
				t.Fatalf("asked %d times before %v", got, 9*time.Second)
			}
			time.Sleep(100 * time.Millisecond) // a tenth sooner, by the jitter
			synctest.Wait()
			if got := asked.Load(); got != int64(i+1) {
				t.Fatalf("asked %d times after %v", got, 9*time.Second)
			}
		}
		if st := n.State(); st.Epoch != up.Epoch || st.Gen != up.Gen || !st.Up {
			t.Errorf("%+v, which was %+v", st, up)
		}
		f.set(func() {
			if len(f.dials) != 1 {
				t.Errorf("%d dials", len(f.dials))
			}
		})
	})
}

// AUTH that is refused, or credentials that do not come, leave the connection as it is. They are tried again, and no storm.
func TestConnectionStaysIfItCannotBeAuthenticatedAnew(t *testing.T) {
	for name, provider := range map[string]func(ctx context.Context) (string, string, error){
		"fails":      func(context.Context) (string, string, error) { return "", "", errors.New("the vault is sealed") },
		"is late":    func(ctx context.Context) (string, string, error) { <-ctx.Done(); return "u", "pw", nil },
		"is empty":   func(context.Context) (string, string, error) { return "", "", nil },
		"is refused": func(context.Context) (string, string, error) { return "u", "old", nil },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var current atomic.Value
				current.Store("pw")
				var asked, authenticated atomic.Int64
				var bad atomic.Bool
				f := newFake(func(_ int64, args []string) string {
					switch {
					case args[0] == "AUTH" && args[len(args)-1] != current.Load():
						return "-WRONGPASS invalid username-password pair or user is disabled.\r\n"
					case args[0] == "AUTH":
						authenticated.Add(1)
					}
					return "default"
				})
				var log logBuffer
				n := start(t, Config{Dialer: f, jitter: longest, Logger: log.logger(), DialTimeout: 100 * time.Millisecond, CredentialsEvery: time.Minute,
					Credentials: func(ctx context.Context) (string, string, error) {
						asked.Add(1)
						if bad.Load() {
							return provider(ctx)
						}
						return "u", "pw", nil
					}})
				synctest.Wait()
				bad.Store(true)
				time.Sleep(54*time.Second + 2*time.Second)
				if n := asked.Load(); n < 3 {
					t.Errorf("asked %d times", n)
				}
				for range 118 {
					time.Sleep(time.Second)
					do(t, n, "ECHO", "x")
				}
				if n := asked.Load(); n > 15 {
					t.Errorf("asked %d times in two minutes", n)
				}
				if text := log.String(); !strings.Contains(text, "not authenticated anew") || !strings.Contains(text, "no credentials for "+n.Name()) || strings.Contains(text, "old") {
					t.Error(text)
				}
				bad.Store(false)
				before := authenticated.Load()
				time.Sleep(AuthBackoff + time.Second)
				if st := n.State(); !st.Up || st.Epoch != 1 || authenticated.Load() != before+1 {
					t.Errorf("%+v, authenticated %d times", st, authenticated.Load()-before)
				}
			})
		})
	}
}

// A provider that hangs, whatever its context says, holds up neither calls nor Close.
func TestProviderThatHangsHoldsUpNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var hangs atomic.Bool
		end := make(chan struct{})
		var log logBuffer
		n := start(t, Config{Dialer: newFake(nil), jitter: longest, Logger: log.logger(), CredentialsEvery: time.Second, Credentials: func(context.Context) (string, string, error) {
			if hangs.Load() {
				<-end
			}
			return "u", "pw", nil
		}})
		synctest.Wait()
		hangs.Store(true)
		time.Sleep(5 * time.Second)
		do(t, n, "ECHO", "x")
		if text := log.String(); !strings.Contains(text, "not authenticated anew") || !strings.Contains(text, "Config.Credentials: it did not return") {
			t.Error(text)
		}
		began := time.Now()
		if err := n.Close(t.Context()); err != nil || time.Since(began) > 0 {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		close(end)
	})
}

// An AUTH that is not answered ends the connection like any other call.
func TestServerThatDoesNotAnswerToAuthIsFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var silent atomic.Bool
		n := start(t, Config{Dialer: newFake(mute(&silent)), jitter: longest, CredentialsEvery: 10 * time.Second, PingInterval: time.Hour, StallTimeout: 2 * time.Second,
			Credentials: func(context.Context) (string, string, error) { return "u", "pw", nil }})
		synctest.Wait()
		silent.Store(true)
		time.Sleep(11100 * time.Millisecond)
		if st := n.State(); st.Up || !errors.Is(st.Err, member.ErrStalled) {
			t.Errorf("%+v", st)
		}
	})
}

// RESP2 has no AUTH on a connection with subscriptions: an inbox of its own is opened anew, with the new credentials.
func TestInboxIsOpenedAnewBeforeItsCredentialsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var current atomic.Value
		current.Store("one")
		var asked atomic.Int64
		f := authed(&current)
		n := start(t, Config{Dialer: f, jitter: longest, CredentialsEvery: 10 * time.Second, Credentials: func(context.Context) (string, string, error) {
			asked.Add(1)
			return "u", current.Load().(string), nil
		}})
		n.Listen("ch", &pushLog{})
		synctest.Wait()
		was := n.State()
		if was.Ear == 0 {
			t.Fatalf("%+v", was)
		}
		current.Store("two")
		time.Sleep(9*time.Second + time.Millisecond)
		synctest.Wait()
		if st := n.State(); st.Ear == was.Ear || st.Ear == 0 || st.Epoch != was.Epoch || asked.Load() != 4 {
			t.Errorf("%+v, which was %+v, after %d questions", st, was, asked.Load())
		}
		f.set(func() {
			if len(f.subscribed) != 2 || len(f.dials) != 3 {
				t.Errorf("%d subscriptions, %d dials", len(f.subscribed), len(f.dials))
			}
		})
	})
}

// Redis 7.2 and 7.4 do not answer an AUTH that they refuse while other answers wait. No call gets the answer to another one.
func TestAuthThatIsNotAnsweredEndsTheConnection(t *testing.T) {
	for _, noPing := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			var begun atomic.Bool
			f := newFake(func(_ int64, args []string) string {
				switch {
				case begun.Load() && args[0] == "AUTH":
					return ""
				case begun.Load() && noPing && args[0] == "PING":
					return "-NOPERM this user has no permissions to run the 'ping' command\r\n"
				}
				return "default"
			})
			n := start(t, Config{Dialer: f, jitter: longest, PingInterval: time.Hour, CredentialsEvery: 10 * time.Second,
				Credentials: func(context.Context) (string, string, error) { return "u", "pw", nil }})
			synctest.Wait()
			was := n.State()
			begun.Store(true)
			time.Sleep(9*time.Second - time.Nanosecond)
			synctest.Wait()
			var calls []*result
			time.Sleep(time.Nanosecond)
			synctest.Wait()
			ours := submit(n, "PING")
			for i := range 20 {
				calls = append(calls, submit(n, "ECHO", fmt.Sprint(i)))
			}
			synctest.Wait()
			begun.Store(false)
			time.Sleep(time.Second)
			if ours.wait(t); ours.Outcome == member.Answered && string(ours.Reply.Str) != "PONG" {
				t.Errorf("PING was answered %q", ours.Reply.Str)
			}
			for i, c := range calls {
				if c.wait(t); c.Outcome == member.Answered && string(c.Reply.Str) != fmt.Sprint(i) {
					t.Errorf("call %d was answered %q", i, c.Reply.Str)
				}
			}
			if st := n.State(); !st.Up || st.Epoch == was.Epoch {
				t.Errorf("%+v", st)
			}
		})
	}
}
