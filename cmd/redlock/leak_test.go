package main

import (
	"flag"
	"fmt"
	"os"
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
	code := l.m.Run()
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	return code
}
