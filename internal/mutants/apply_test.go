//go:build !race

// One goroutine checks the types of several hundred files. The race detector would find nothing there, and
// takes five times as long.

package main

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/redistest"
	"github.com/redquorum/redquorum/internal/redistest/rt"
)

// A mutant that no longer applies, or does not compile, tests nothing: that is told here, and not an hour
// into a run. Packages whose mutants the second ring catches are compiled there.
func TestMutantsApply(t *testing.T) { mutantsApply(t, firstRing) }

func TestLongMutantsOfTheSecondRingApply(t *testing.T) {
	rt.Long(t, "compiles clients of databases and storages")
	mutantsApply(t, secondRing)
}

func mutantsApply(t *testing.T, ring string) {
	list := rt.Must(mutants())(t)
	require.GreaterOrEqual(t, len(list), 380)
	var changes []change
	first := make(map[string]bool) // the folders that have a mutant of the first ring
	names := make(map[string]bool)
	for _, m := range list {
		assert.False(t, names[m.name], "listed twice: %s", m.name)
		names[m.name] = true
		if c, err := m.apply(root); assert.NoError(t, err) {
			changes = append(changes, c)
			first[path.Dir(c.file)] = first[path.Dir(c.file)] || m.tests.ring() == firstRing
		}
	}
	changes = slices.DeleteFunc(changes, func(c change) bool { return first[path.Dir(c.file)] != (ring == firstRing) })
	require.NotEmpty(t, changes)
	pkgs := loadPackages(t, changes)
	redis := redistest.NewEmbedded()
	defer redis.Close()
	var inGo []change
	for _, c := range changes {
		if strings.HasSuffix(c.file, ".lua") {
			_, err := redis.Do(t.Context(), "SCRIPT", "LOAD", string(c.text))
			assert.NoError(t, err, c.name)
		} else {
			inGo = append(inGo, c)
		}
	}
	for _, together := range rounds(inGo) {
		files := make(map[string]string)
		for _, c := range together { // the last first, so that places before it stay where they are
			if files[c.file] == "" {
				files[c.file] = string(rt.Must(os.ReadFile(filepath.Join(root, c.file)))(t))
			}
			files[c.file] = files[c.file][:c.at] + c.new + files[c.file][c.at+len(c.old):]
		}
		pkg := pkgs[path.Dir(together[0].file)]
		if pkg.check(files) == nil {
			continue
		}
		for _, c := range together { // one is a mistake, or they need each other's text
			assert.NoError(t, pkg.check(map[string]string{c.file: string(c.text)}), c.name)
		}
	}
}

// rounds are changes that can be compiled together: of one package, and of different functions.
func rounds(all []change) (out [][]change) {
	slices.SortStableFunc(all, func(a, b change) int { return b.at - a.at })
	taken := make(map[string]int) // by function, the round after its last
	at := make(map[string]int)    // by package and round, its place in out
	for _, c := range all {
		round := taken[c.in]
		taken[c.in]++
		key := fmt.Sprint(path.Dir(c.file), " ", round)
		if _, ok := at[key]; !ok {
			at[key] = len(out)
			out = append(out, nil)
		}
		out[at[key]] = append(out[at[key]], c)
	}
	return out
}
