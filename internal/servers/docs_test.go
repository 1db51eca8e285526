package main

import (
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
