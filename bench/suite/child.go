package suite

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redquorum/redquorum/bench/entry"
	"github.com/redquorum/redquorum/bench/work"
)

// child is a measuring process with one open entry.
type child struct {
	cmd     *exec.Cmd
	in      io.WriteCloser
	results chan work.Result
	done    chan struct{}
	errs    *capped
	version string
	bad     error // it must not be used again
}

// ChildrenDir returns the directory of the entries in other languages.
func ChildrenDir() string {
	_, file, _, _ := runtime.Caller(0)
	for _, dir := range []string{filepath.Join(filepath.Dir(file), "..", "children"), "children", "bench/children"} {
		if info, err := os.Stat(dir); err == nil && info.IsDir() {
			return dir
		}
	}
	return "children"
}

// startChild starts a child and opens its entry. The words of under come before its command, env are further variables.
func startChild(spec *entry.Spec, open work.Order, under, env []string) (*child, error) {
	var cmd *exec.Cmd
	if spec.Child != nil {
		dir := filepath.Join(ChildrenDir(), spec.Child.Dir)
		args := spec.Child.Command(dir)
		cmd = exec.Command(args[0], args[1:]...)
		cmd.Dir = dir
	} else {
		self, err := os.Executable()
		if err != nil {
			return nil, err
		}
		args := append(slices.Clone(under), self, "child")
		cmd = exec.Command(args[0], args[1:]...)
		cmd.Env = append(append(os.Environ(), "REDQUORUM_BENCH_CHILD=1"), env...)
	}
	c := &child{cmd: cmd, results: make(chan work.Result), done: make(chan struct{}), errs: &capped{}}
	cmd.Stderr = c.errs
	var err error
	if c.in, err = cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	go func() { // ends with the process
		defer close(c.done)
		d := json.NewDecoder(bufio.NewReaderSize(out, 1<<20))
		for {
			var r work.Result
			if err := d.Decode(&r); err != nil {
				break
			}
			c.results <- r
		}
		_, _ = io.Copy(io.Discard, out)
		_ = cmd.Wait()
	}()
	open.Op, open.Entry = "open", spec.Name
	limit := 40*time.Second + time.Duration(open.Clients)*time.Second/2
	if under != nil {
		limit = countedFor
	}
	r, err := c.order(open, limit)
	if err != nil {
		c.close()
		return nil, err
	}
	c.version = r.Version
	return c, nil
}

// order sends an order and waits for its result.
func (c *child) order(o work.Order, limit time.Duration) (work.Result, error) {
	if c.bad != nil {
		return work.Result{}, c.bad
	}
	line, err := json.Marshal(o)
	if err == nil {
		_, err = c.in.Write(append(line, '\n'))
	}
	if err != nil {
		c.bad = fmt.Errorf("child: %w: %s", err, c.errs)
		return work.Result{}, c.bad
	}
	t := time.NewTimer(limit)
	defer t.Stop()
	select {
	case r := <-c.results:
		if !r.OK {
			err = errors.New(r.Error)
		}
		if r.Stuck > 0 {
			c.bad = fmt.Errorf("%d callers are stuck", r.Stuck)
		}
		return r, err
	case <-c.done:
		c.bad = fmt.Errorf("child ended: %s", c.errs)
	case <-t.C:
		c.bad = fmt.Errorf("no result within %v", limit)
	}
	return work.Result{}, c.bad
}

// close ends the child, by force where it does not end by itself.
func (c *child) close() {
	if c.bad == nil {
		_, _ = c.order(work.Order{Op: "close"}, 5*time.Second)
	}
	_ = c.in.Close()
	end := time.After(2 * time.Second)
	for {
		select {
		case <-c.results: // too late
		case <-c.done:
			return
		case <-end:
			_ = c.cmd.Process.Kill()
			end = nil
		}
	}
}

// capped keeps the first bytes that a child writes to its standard error.
type capped struct {
	mu   sync.Mutex
	text strings.Builder
}

func (c *capped) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if room := 2000 - c.text.Len(); room > 0 {
		c.text.Write(p[:min(room, len(p))])
	}
	return len(p), nil
}

func (c *capped) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return strings.TrimSpace(c.text.String())
}
