package main

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"slices"
	"sync"
	"syscall"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"go.uber.org/goleak"
)

// programs are what scripts find by these names: this program, and helpers.
var programs = map[string]func(){"redlock": main}

func TestMain(m *testing.M) { testscript.Main(leakless{m}, programs) }

// leakless fails when something of a run goes on after it: a client, a member, a display.
type leakless struct{ m *testing.M }

func (l leakless) Run() int {
	// Scripts wait for other processes most of the time: more of them at once than there are processors.
	// A -parallel on the command line comes after this, and wins.
	if err := flag.Set("test.parallel", "12"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	// Whoever starts the tests may ignore some signals, as nohup does, or a script for what it starts with &. What is tested
	// starts without that: a signal that is caught here is not ignored there.
	for _, s := range []os.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT} {
		if signal.Ignored(s) {
			signal.Notify(make(chan os.Signal, 1), s)
		}
	}
	code := l.m.Run()
	if fast != "" {
		_ = os.RemoveAll(fast)
	}
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	return code
}

var (
	fast     string // the folder of the program without the race detector
	building sync.Once
)

// unraced has tests run a program without the race detector, if they have it themselves: scripts start the program 500
// times, which takes a quarter of the processor then. TestLongScripts runs them with it.
func unraced(t *testing.T) {
	t.Helper()
	info, ok := debug.ReadBuildInfo()
	if !ok || !slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"}) || os.Getenv("REDQUORUM_LONG") != "" {
		return
	}
	building.Do(func() {
		var err error
		if fast, err = os.MkdirTemp("", "redlock"); err != nil {
			return
		}
		if out, err := exec.Command("go", "build", "-o", filepath.Join(fast, "redlock"), ".").CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
		_ = os.Setenv("PATH", fast+string(filepath.ListSeparator)+os.Getenv("PATH"))
	})
}
