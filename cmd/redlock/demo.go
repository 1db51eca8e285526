package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/redquorum/redquorum/cmd/redlock/internal/demo"
	"github.com/redquorum/redquorum/cmd/redlock/internal/settings"
)

// demoFunc is demo.Run, or what stands for it in a test.
type demoFunc func(context.Context, demo.Options) (demo.Result, error)

func newDemo(run demoFunc) *cobra.Command {
	opts := demo.Options{}
	var members []string
	asJSON, html := false, ""
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Show locks at work: contention, a dead member, a late writer, readers, permits",
		Long: `demo lets several workers contend for one lock. Each has a client of its own, as separate services
would have. Beside that, every worker reads a page that one of them rewrites, under a lock with
readers, and takes a desk in a room that has one for every second worker: a permit of a semaphore.
The demo checks the promises of all three from the outside:

  - a member is killed during the run and comes back;
  - a worker stalls while it holds the lock, wakes up after its lease has ended, and tries to write:
    the store, which checks fencing tokens, must refuse it;
  - at no instant may two workers believe that they hold the lock;
  - in the order in which the lock was granted, tokens must rise strictly;
  - nobody may have the page beside a writer, and a reader's token must lie between those of the
    writers around it;
  - nobody may have a desk beside another, and the tokens of each desk must rise.

The members are Redis servers embedded in this program (miniredis, over real TCP on loopback),
unless --redis or --members says otherwise. With --members the demo kills none, and uses a lock name
of its own. It leaves the token counter that all locks of its hash slot share (redquorum:tokens),
and the marker of each member (redquorum:boot). Of a Redis Cluster it leaves the marker of each
master, with the stamps of its slots.

--html FILE writes a page with a timeline of the run: who held each lock and when, who waited and for
whom, the member that was dead, and the write that was refused. It is one file, for any browser.

The exit code is 0 only if every promise above held; 1 if not, 64 for wrong flags, 69 if the members
cannot be started or reached, 77 if they refuse the user, 78 if they are not what their URLs say or
list one Redis twice, 130 after Ctrl-C.`,
		Example: `  redlock demo
  redlock demo --duration 1m --workers 8
  redlock demo --redis
  redlock demo --members redis://10.0.0.1:6379,redis://10.0.0.2:6379,redis://10.0.0.3:6379
  redlock demo --members redis-cluster://10.0.1.1:7000,10.0.1.2:7000
  redlock demo --html demo.html
  redlock demo --json 2>/dev/null`,
		Annotations: map[string]string{rawOutput: "all"},
		Args:        cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			for _, list := range members {
				opts.Members = append(opts.Members, settings.SplitMembers(list)...)
			}
			if err := opts.Validate(); err != nil {
				return &exitError{exitUsage, err}
			}
			stdout := cmd.OutOrStdout()
			opts.Progress = demo.Progress{To: stdout}
			if asJSON {
				opts.Progress.To = cmd.ErrOrStderr()
			}
			if f, ok := opts.Progress.To.(*os.File); ok && term.IsTerminal(int(f.Fd())) && os.Getenv("TERM") != "dumb" {
				opts.Progress.Live = true
				opts.Progress.Color = os.Getenv("NO_COLOR") == ""
				opts.Progress.Size = func() (int, int) {
					width, height, err := term.GetSize(int(f.Fd()))
					if err != nil || width <= 0 || height <= 0 {
						return 80, 24
					}
					return width, height
				}
			}
			page, err := openHTML(html)
			if err != nil {
				return err
			}
			defer page.close()
			result, err := run(cmd.Context(), opts)
			if err != nil {
				code := codeOf(cmd.Context(), err)
				if code == exitInternal { // what could not be started
					code = exitUnavailable
				}
				return &exitError{code, err}
			}
			if err := printResult(stdout, result, asJSON, opts.Progress.Color); err != nil {
				return &exitError{exitFailed, err}
			}
			if page != nil {
				if err := page.write(result.Timeline); err != nil {
					return &exitError{exitFailed, err}
				}
				_, _ = fmt.Fprintln(opts.Progress.To, page.said())
			}
			return verdict(result)
		},
	}
	f := cmd.Flags()
	f.StringVar(&html, "html", "", "write a timeline of the run to this file: one page for a browser")
	f.DurationVar(&opts.Duration, "duration", 10*time.Second, "how long to run, 1s to 1h")
	f.IntVar(&opts.Workers, "workers", 3, "how many workers contend, 2 to 64")
	f.BoolVar(&opts.Redis, "redis", false, "start five redis-server processes instead of embedded members")
	f.StringArrayVar(&members, "members", nil, "use your own members, by URL, including clusters and Sentinel groups; the demo kills none of them")
	f.BoolVar(&opts.Fresh, "fresh", false, "with --members: nobody has ever held a lock there, so they need not wait for the longest lease")
	f.BoolVar(&asJSON, "json", false, "print only the result, as one line of JSON (progress goes to stderr)")
	return cmd
}

func printResult(w io.Writer, r demo.Result, asJSON, color bool) error {
	if !asJSON {
		_, err := io.WriteString(w, r.Text(color))
		return err
	}
	line, err := json.Marshal(r)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "%s\n", line)
	return err
}

// verdict turns what did not hold into the exit code. A violation outranks an interruption.
func verdict(r demo.Result) error {
	if broken := r.Broken(); broken != "" {
		return &exitError{exitFailed, errors.New(broken)}
	}
	if r.Interrupted {
		return &exitError{exitInterrupted, fmt.Errorf("interrupted after %.1f s", r.Elapsed.Seconds())}
	}
	if missing := r.Missing(); missing != "" {
		return &exitError{exitFailed, errors.New(missing)}
	}
	return nil
}
