package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var (
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#+ (.+)$`)
	unnamed = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
)

// anchors are those that a viewer of Markdown gives the headings of a text.
func anchors(text string) (names []string) {
	for _, m := range heading.FindAllStringSubmatch(fenced.ReplaceAllString(text, ""), -1) {
		name := unnamed.ReplaceAllString(strings.ToLower(m[1]), "")
		names = append(names, strings.ReplaceAll(name, " ", "-"))
	}
	return names
}

func TestLinksOfDocumentsResolve(t *testing.T) {
	t.Parallel()
	all, headings := documents(t), map[string][]string{}
	for name, text := range all {
		headings[name] = anchors(text)
	}
	seen := 0
	for name, text := range all {
		for _, m := range link.FindAllStringSubmatch(fenced.ReplaceAllString(text, ""), -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			seen++
			path, anchor, _ := strings.Cut(m[1], "#")
			target := name
			if path != "" {
				target = filepath.Join(filepath.Dir(name), path)
			}
			if _, err := os.Stat(filepath.Join(repository, target)); err != nil {
				t.Errorf("%s links to %s, which does not exist", name, m[1])
				continue
			}
			assert.False(t, anchor != "" && !slices.Contains(headings[target], anchor), "%s links to %s, which has no such heading", name, m[1])
		}
	}
	assert.Greater(t, seen, 60, "links were found")
}

// The README has a length that can be read in one sitting, and text has a width that can be read at all: tables and
// blocks aside.
func TestDocumentsAreReadable(t *testing.T) {
	t.Parallel()
	for name, text := range documents(t) {
		if name == "README.md" {
			assert.LessOrEqual(t, strings.Count(text, "\n"), 200, "lines of README.md")
		}
		if strings.HasPrefix(name, "docs/protocol/") {
			first, _, _ := strings.Cut(text, "\n##")
			assert.True(t, strings.Count(text, "\n") <= 350 && strings.Contains(first, "```mermaid"), "%s: a picture first, and 350 lines", name)
		}
		if name != "README.md" && !strings.HasPrefix(name, "docs/") {
			continue
		}
		for _, line := range strings.Split(fenced.ReplaceAllString(text, ""), "\n") {
			assert.False(t, utf8.RuneCountInString(line) > 120 && !strings.HasPrefix(line, "|"),
				"%s has a line of more than 120 characters: %.60s…", name, line)
		}
	}
}

func TestIndexHasEveryDocument(t *testing.T) {
	t.Parallel()
	all := documents(t)
	for name := range all {
		if folder, file := filepath.Split(name); folder == "docs/" && file != "README.md" {
			assert.Contains(t, all["docs/README.md"], "]("+file+")")
		} else if folder == "docs/protocol/" {
			assert.Contains(t, all[protocol], "](protocol/"+file+")")
		}
	}
}

// The first program of the README compiles, and every name of the library in a block of a document exists.
func TestGoOfDocumentsIsGo(t *testing.T) {
	t.Parallel()
	names := declared(t, "redlock")
	used := regexp.MustCompile(`\bredlock\.([A-Z]\w*)`)
	programs := 0
	for name, text := range documents(t) {
		for _, block := range regexp.MustCompile("(?ms)^```go\n(.*?)^```").FindAllStringSubmatch(text, -1) {
			for _, found := range used.FindAllStringSubmatch(block[1], -1) {
				assert.Contains(t, names, found[1], "a name of redlock, in %s", name)
			}
			if !strings.HasPrefix(block[1], "package main\n") {
				continue
			}
			programs++
			program := filepath.Join(t.TempDir(), "main.go")
			require.NoError(t, os.WriteFile(program, []byte(block[1]), 0o600))
			build := exec.CommandContext(t.Context(), "go", "build", "-o", os.DevNull, program)
			build.Dir = repository
			out, err := build.CombinedOutput()
			assert.NoError(t, err, "%s: %s", name, out)
		}
	}
	assert.Positive(t, programs)
}

func TestImporterGetsFiveModules(t *testing.T) {
	t.Parallel()
	list := exec.CommandContext(t.Context(), "go", "list", "-deps", "-f", "{{with .Module}}{{if not .Main}}{{.Path}}{{end}}{{end}}", "./redlock", "./fence/...")
	list.Dir = repository
	list.Env = append(os.Environ(), "GOWORK=off")
	out, err := list.Output()
	require.NoError(t, err)
	modules := strings.Fields(string(out))
	slices.Sort(modules)
	modules = slices.Compact(modules)
	_, said, ok := strings.Cut(documents(t)["README.md"], "gets five modules: ")
	require.True(t, ok)
	said, _, _ = strings.Cut(said, ". ")
	assert.Len(t, modules, 5)
	for _, module := range modules {
		parts := strings.Split(strings.TrimSuffix(module, "/v4"), "/")
		assert.Contains(t, said, parts[len(parts)-1])
	}
}
