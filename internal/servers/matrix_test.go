package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

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
