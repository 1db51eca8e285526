package redquorum_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The words of docs/protocol/keys.md are those of the code, and each name has the form that the page gives: two words of one
// name, or a word with a colon, could make one key of two.
func TestNamesOfDerivedKeysAreThoseOfTheProtocol(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("docs", "protocol", "keys.md"))
	require.NoError(t, err)
	_, table, _ := strings.Cut(string(text), "| word | what it names |\n|---|---|\n")
	table, _, found := strings.Cut(table, "\n\n")
	require.True(t, found)
	listed := map[string]bool{}
	for _, row := range strings.Split(table, "\n") {
		words, _, _ := strings.Cut(strings.TrimPrefix(row, "|"), "|")
		for _, word := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(words, -1) {
			require.False(t, listed[word[1]], "%s has two meanings", word[1])
			listed[word[1]] = true
		}
	}
	form := regexp.MustCompile(`^redquorum:(([a-z0-9]+)(\.[0-9]+)?(:(\{.*)?)?)?$`)
	used := map[string]bool{}
	for _, folder := range []string{"redlock", "member", "node", "cluster"} {
		require.NoError(t, filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
			if ext := filepath.Ext(path); err != nil || d.IsDir() || ext != ".go" && ext != ".lua" || strings.HasSuffix(path, "_test.go") {
				return err
			}
			code, err := os.ReadFile(path)
			for _, name := range regexp.MustCompile(`["'](redquorum:[^"' ]*)["']`).FindAllStringSubmatch(string(code), -1) {
				parts := form.FindStringSubmatch(name[1])
				require.NotNil(t, parts, "%s: %q has not the form of a derived key", path, name[1])
				if parts[2] != "" {
					used[parts[2]] = true
				}
			}
			return err
		}))
	}
	require.Equal(t, listed, used, "words of docs/protocol/keys.md, and of the code")
}
