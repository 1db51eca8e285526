package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/redistest/rt"
)

const repository = "../.."

// protocol is the index of the pages whose headings comments cite, as in protocol, "Heading".
const protocol = "docs/protocol.md"

// What README.md, ARCHITECTURE.md, CONTRIBUTING.md and docs/ name must exist: cases of tests by the lines of testdata,
// files by their paths, and functions in the file that is named behind them. Package rings looks for the tests.
func TestDocumentsNameWhatExists(t *testing.T) {
	t.Parallel()
	sources := textsOf(t)
	files := func(name string) (found []string) {
		for path := range sources {
			if path == name || strings.HasSuffix(path, "/"+name) {
				found = append(found, path)
			}
		}
		return found
	}
	var cases strings.Builder
	for path, text := range sources {
		if filepath.Base(filepath.Dir(path)) == "testdata" && filepath.Ext(path) == ".txt" {
			cases.WriteString("\n" + text)
		}
	}
	var (
		caseName = regexp.MustCompile("`Test[A-Z]\\w+/([^`]+)`")
		fileName = regexp.MustCompile(`\b[a-zA-Z][\w/]*\.(?:go|lua|md)\b`)
		funcIn   = regexp.MustCompile("`(?:([A-Za-z]+)\\.)?([A-Za-z]+)`(?:, `(?:[A-Za-z]+\\.)?[A-Za-z]+`)* \\(([\\w/]+\\.go)\\b")
	)
	for document, text := range documents(t) {
		if document == "CHANGELOG.md" || !strings.HasPrefix(document, "docs/") && strings.Contains(document, "/") {
			continue
		}
		for _, m := range caseName.FindAllStringSubmatch(text, -1) {
			assert.Contains(t, cases.String(), "\ncase "+m[1]+"\n", "%s names the case %q, which does not exist", document, m[1])
		}
		for _, name := range fileName.FindAllString(text, -1) {
			assert.NotEmpty(t, files(name), "%s names the file %s, which does not exist", document, name)
		}
		for _, m := range funcIn.FindAllStringSubmatch(text, -1) {
			receiver, name, file := m[1], m[2], m[3]
			declared := regexp.MustCompile(`(?m)^(?:func(?: \(\w* ?\*?` + receiver + `\))? |type )` + name + `\b`)
			ok := false
			for _, path := range files(file) {
				ok = ok || declared.MatchString(sources[path])
			}
			assert.True(t, ok, "%s names %s.%s in %s, which is not there", document, receiver, name, file)
		}
	}
}

func textsOf(t *testing.T) map[string]string {
	t.Helper()
	sources := map[string]string{}
	err := filepath.WalkDir(repository, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		if ext := filepath.Ext(path); ext != ".go" && ext != ".lua" && ext != ".md" && ext != ".txt" {
			return nil
		}
		text, err := os.ReadFile(path)
		rel, _ := filepath.Rel(repository, path)
		sources[filepath.ToSlash(rel)] = string(text)
		return err
	})
	require.NoError(t, err)
	return sources
}

// A citation names a heading of the protocol. No text cites a numbered
// section: such a citation is of a document that the repository does not have.
func TestCitationsNameHeadingsOfTheProtocol(t *testing.T) {
	t.Parallel()
	sources := textsOf(t)
	headings := map[string]bool{}
	for path, text := range sources {
		if strings.HasPrefix(path, "docs/protocol") {
			for _, m := range heading.FindAllStringSubmatch(text, -1) {
				assert.False(t, headings[m[1]], "the protocol has two headings %q", m[1])
				headings[m[1]] = true
				assert.Contains(t, sources[protocol], m[1], "the index")
			}
		}
	}
	cites := regexp.MustCompile(regexp.QuoteMeta(protocol) + `,[\s/-]*"([^"]+)"`) // a comment may break the line in it
	seen := 0
	for path, text := range sources {
		for _, m := range cites.FindAllStringSubmatch(text, -1) {
			seen++
			cited := regexp.MustCompile(`\s+(?:(?://|--)\s*)?`).ReplaceAllString(m[1], " ")
			assert.True(t, headings[cited], "%s cites the heading %q, which %s does not have", path, cited, protocol)
		}
		assert.NotContains(t, text, "\u00a7", "%s cites a numbered section: name a heading of %s", path, protocol)
	}
	assert.True(t, seen >= 12, "only %d citations were found", seen)
}

// documents are all of them that people read, by their paths.
func documents(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, pattern := range []string{"*.md", "*/*.md", "docs/protocol/*.md", "docs/spec/*.pml"} {
		for _, path := range rt.Must(filepath.Glob(filepath.Join(repository, pattern)))(t) {
			text := rt.Must(os.ReadFile(path))(t)
			rel, _ := filepath.Rel(repository, path)
			all[rel] = string(text)
		}
	}
	require.False(t, all["README.md"] == "" || all["ARCHITECTURE.md"] == "" || all[protocol] == "", "a document is missing")
	return all
}

// What the documents say to make can be made.
func TestDocumentsNameTargetsThatExist(t *testing.T) {
	t.Parallel()
	makefile := rt.Must(os.ReadFile(filepath.Join(repository, "Makefile")))(t)
	named := regexp.MustCompile("(?m)(?:`|^ *)make ([a-z][a-z-]*)[^\\n`]*(?:`|$)")
	seen := 0
	for name, text := range documents(t) {
		for _, part := range append(fenced.FindAllString(text, -1), regexp.MustCompile("`make [^`\n]*`").FindAllString(text, -1)...) {
			for _, m := range named.FindAllStringSubmatch(part, -1) {
				seen++
				assert.True(t, regexp.MustCompile(`(?m)^`+m[1]+`:`).Match(makefile), "%s says make %s", name, m[1])
			}
		}
	}
	assert.True(t, seen >= 15, "only %d targets were found", seen)
}

// The lines of a Logger are listed where its user reads of it, and no others.
func TestLogLinesAreThoseThatAreListed(t *testing.T) {
	t.Parallel()
	sources := textsOf(t)
	_, listed, _ := strings.Cut(sources["docs/configuration.md"], "## Log lines\n")
	rows := regexp.MustCompile(`(?m)^\| [A-Z][^|]* \| ([^|]+) \|`).FindAllStringSubmatch(listed, -1)[1:]
	written := regexp.MustCompile(`(?:[lL]og(?:ger)?\.(?:Debug|Info|Warn|Error)|\.Log|logFailure)\((?:context\.Background\(\), level, )?"([^"]+)"`)
	found := map[string]bool{}
	for path, text := range sources {
		if dir := filepath.Dir(path); strings.Contains(" redlock node node/internal/guard cluster ", " "+dir+" ") && !strings.HasSuffix(path, "_test.go") {
			for _, m := range written.FindAllStringSubmatch(text, -1) {
				found[strings.TrimSpace(m[1])] = true
			}
		}
	}
	for _, row := range rows {
		assert.True(t, found[row[1]], "nobody writes %q", row[1])
		delete(found, row[1])
	}
	assert.Empty(t, found, "they are not listed")
}
