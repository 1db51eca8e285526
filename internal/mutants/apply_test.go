//go:build !race

// One goroutine checks the types of several hundred files. The race detector would find nothing there, and
// takes five times as long.

package main

import (
	"path"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/redistest"
)

// A mutant that no longer applies, or does not compile, tests nothing: that is told here, and not an hour
// into a run.
func TestMutantsApply(t *testing.T) {
	list, err := mutants()
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(list), 380)
	var changes []change
	names := make(map[string]bool)
	for _, m := range list {
		assert.False(t, names[m.name], "listed twice: %s", m.name)
		names[m.name] = true
		if c, err := m.apply(root); assert.NoError(t, err) {
			changes = append(changes, c)
		}
	}
	pkgs := loadPackages(t, changes)
	redis := redistest.NewEmbedded()
	defer redis.Close()
	for _, c := range changes {
		if strings.HasSuffix(c.file, ".lua") {
			_, err := redis.Do(t.Context(), "SCRIPT", "LOAD", string(c.text))
			assert.NoError(t, err, c.name)
		} else {
			assert.NoError(t, pkgs[path.Dir(c.file)].check(c.file, c.text), c.name)
		}
	}
}
