//go:build linux || darwin

package fencefile_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/redquorum/redquorum/fence/fencefile"
)

// A holder claims before it reads, and writes under its token.
func Example() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "fencefile")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	report := filepath.Join(dir, "report.txt")
	guard, err := fencefile.Open(filepath.Join(dir, "tokens"))
	if err != nil {
		panic(err)
	}

	// With a lease: fence.Claim(ctx, guard, lease), and lease.Token() below.
	fmt.Println(guard.Check(ctx, "report", 34))
	fmt.Println(guard.WriteFile(ctx, "report", 34, report, []byte("by 34"), 0o644))
	fmt.Println(guard.WriteFile(ctx, "report", 33, report, []byte("by 33"), 0o644))
	content, _ := os.ReadFile(report)
	fmt.Println(string(content))
	// Output:
	// <nil>
	// <nil>
	// fence: stale token 33 for "report": 34 has been accepted
	// by 34
}
