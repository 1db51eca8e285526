//go:build unix

package main

import (
	"errors"
	"log/slog"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/redquorum/redquorum/internal/faketime"
)

type section1 struct{ done chan struct{} }

func (s section1) ValidUntil() time.Time { return time.Now().Add(time.Minute) }
func (s section1) Done() <-chan struct{} { return s.done }
func (s section1) Err() error            { return errors.New("lost") }

func TestLockIsHeldForAtLeastSoLong(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name  string
		ran   time.Duration // the command
		told  bool          // a signal was passed on to it
		does  func(lost chan struct{}, signals chan os.Signal)
		after time.Duration // the lock is given back, since it was obtained
		leave bool
	}{
		{"a command that ends at once", 0, false, nil, time.Minute, false},
		{"one that takes a while", 20 * time.Second, false, nil, time.Minute, false},
		{"one that takes longer", 2 * time.Minute, false, nil, 2 * time.Minute, false},
		{"one that takes longer and was told to end", 2 * time.Minute, true, nil, 2 * time.Minute, false},
		{"one that was told to end", 20 * time.Second, true, nil, 20 * time.Second, true},
		{"a signal meanwhile", 20 * time.Second, false, func(_ chan struct{}, signals chan os.Signal) {
			time.Sleep(10 * time.Second)
			signals <- syscall.SIGTERM
		}, 30 * time.Second, true},
		{"a signal that ends no program", 0, false, func(_ chan struct{}, signals chan os.Signal) { signals <- syscall.SIGCONT }, time.Minute, false},
		{"the lock is lost meanwhile", 20 * time.Second, false, func(lost chan struct{}, _ chan os.Signal) {
			time.Sleep(10 * time.Second)
			close(lost)
		}, 30 * time.Second, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			faketime.Test(t, func(t *testing.T) {
				obtained := least{time.Minute, time.Now()}
				lost, signals := make(chan struct{}), make(chan os.Signal, 1)
				time.Sleep(tc.ran)
				if tc.does != nil {
					go tc.does(lost, signals)
				}
				leave := linger(obtained, section1{lost}, tc.told, signals, slog.New(slog.DiscardHandler))
				if after := time.Since(obtained.from); leave != tc.leave || after != tc.after {
					t.Errorf("after %v, left to end by itself: %v; want %v, %v", after, leave, tc.after, tc.leave)
				}
			})
		})
	}
}
