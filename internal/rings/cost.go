package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// cost runs tests one after the other, each in a process of its own on one processor, as their ring does. It lists those that
// take more of the processor than dear, with the servers that they start, and fails if a comment gives no reason: "Cost: ...".
// How busy the machine is changes little of that, unlike how long a test takes.
func cost(ctx context.Context, all []test, dear time.Duration, out io.Writer) error {
	dir, err := os.MkdirTemp("", "rings")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	bad := 0
	for _, r := range calls(all) {
		for _, pkg := range r.pkgs {
			binary := filepath.Join(dir, "tests")
			build := exec.CommandContext(ctx, "go", append(append([]string{"test", "-c", "-o", binary}, r.flags()...), pkg)...)
			if said, err := build.CombinedOutput(); err != nil {
				return fmt.Errorf("%s: %w\n%s", pkg, err, said)
			}
			took := func(name string) (time.Duration, error) {
				cmd := exec.CommandContext(ctx, binary, "-test.run=^"+name+"$", "-test.timeout=20m")
				cmd.Dir, cmd.Env = pkg, append(os.Environ(), "GOMAXPROCS=1", "GOGC=400", "GOMEMLIMIT=3GiB")
				err := cmd.Run()
				if cmd.ProcessState == nil { // it was not started
					return 0, err
				}
				return cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime(), err
			}
			idle, err := took("")
			if err != nil {
				return fmt.Errorf("%s: %w", pkg, err)
			}
			for _, t := range r.tests {
				if "./"+t.pkg != pkg {
					continue
				}
				d, err := took(t.name)
				if err != nil {
					fmt.Fprintf(out, "%s %s: %v\n", pkg, t.name, err)
					bad++
				}
				if d-idle > dear {
					fmt.Fprintf(out, "%5.1f s  %s %s%s\n", (d - idle).Seconds(), pkg, t.name, map[bool]string{false: ": no reason"}[t.reason])
				}
				if d-idle > dear && !t.reason {
					bad++
				}
			}
		}
	}
	if bad > 0 {
		return fmt.Errorf("%d tests fail alone, or cost more than %v of a processor and say no reason (Cost: ...)", bad, dear)
	}
	return nil
}
