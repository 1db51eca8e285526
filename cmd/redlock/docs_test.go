package main

import (
	"go/ast"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/cmd/redlock/internal/demo"
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
		if err == nil && d.Name() == "node_modules" {
			return filepath.SkipDir
		}
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
	out := rt.Must(list.Output())(t)
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

// former are private words that gave way to plain ones.
var former = strings.Fields(`able agree aligning askPast beat census compete correct crowded crowdedOut deaf Deed disowned doubt enters every
	fellows follows futile hurried lame learn makeRoom mayBeOffered misplaced never notYet offerAgain offered paced placed
	reconsider repace resting seated stale standing staying stillKept strays sure tardy underWay undone vain welcome`)

// A reader of an attempt learns at most thirty words that this project alone has. Each is the name of something.
func TestPrivateWordsAreThoseOfTheTable(t *testing.T) {
	t.Parallel()
	words := column(table(t, "CONTRIBUTING.md", "Private words", "word"), 0)
	assert.LessOrEqual(t, len(words), 30)
	assert.Len(t, slices.Compact(slices.Sorted(slices.Values(words))), len(words), "a word has one meaning")
	var names []string
	for _, folder := range []string{"redlock", "redlock/internal/core", "redlock/internal/wait", "redlock/internal/script"} {
		for _, file := range parsed(t, folder) {
			ast.Inspect(file, func(n ast.Node) bool {
				var declared []*ast.Ident
				switch n := n.(type) {
				case *ast.FuncDecl:
					declared = append(declared, n.Name)
				case *ast.TypeSpec:
					declared = append(declared, n.Name)
				case *ast.ValueSpec:
					declared = n.Names
				case *ast.Field:
					declared = n.Names
				}
				for _, id := range declared {
					names = append(names, id.Name)
				}
				return true
			})
		}
	}
	all := strings.Join(names, " ")
	for _, word := range words {
		hump := strings.ToUpper(word[:1]) + word[1:]
		assert.Regexp(t, `\b(`+word+`|`+hump+`)|[a-z]`+hump, all)
	}
	assert.NotRegexp(t, `(?i)\b(`+strings.Join(former, "|")+`)\b`, all)
}

// The words of the protocol's keys are those of the code, and each name has the form that the page gives: two words of one
// name, or a word with a colon, could make one key of two.
func TestNamesOfDerivedKeysAreThoseOfTheProtocol(t *testing.T) {
	t.Parallel()
	var listed []string
	for _, words := range column(table(t, "docs/protocol/keys.md", "Keys", "word"), 0) {
		listed = append(listed, strings.Split(words, ", ")...)
	}
	code := regexp.MustCompile(`^(redlock|member|node|cluster)/.*\.(go|lua)$`)
	quoted := regexp.MustCompile(`["'](redquorum:[^"' ]*)["']`)
	form := regexp.MustCompile(`^redquorum:(([a-z0-9]+)(\.[0-9]+)?(:(\{.*)?)?)?$`)
	used := map[string]bool{}
	for path, text := range textsOf(t) {
		if !code.MatchString(path) || strings.HasSuffix(path, "_test.go") {
			continue
		}
		for _, name := range quoted.FindAllStringSubmatch(text, -1) {
			if parts := form.FindStringSubmatch(name[1]); assert.NotNil(t, parts, "%s: %q", path, name[1]) && parts[2] != "" {
				used[parts[2]] = true
			}
		}
	}
	assert.ElementsMatch(t, listed, slices.Collect(maps.Keys(used)))
}

// Every command says what it does, and every command line in its help and in the documents is one that the
// parser takes.
func TestHelpIsTrue(t *testing.T) {
	t.Parallel()
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		if strings.HasPrefix(cmd.CommandPath(), "redlock completion") || cmd.Name() == "help" {
			return // cobra's own
		}
		assert.False(t, cmd.Short == "" || cmd.Example == "" && cmd.Name() != "version",
			"%s: no description or no example", cmd.CommandPath())
		for _, text := range []string{cmd.Example, cmd.Long} {
			checkLines(t, cmd.CommandPath(), text)
		}
		for _, sub := range cmd.Commands() {
			walk(sub)
		}
	}
	walk(newRoot(demo.Run))
	seen := 0
	for name, text := range documents(t) {
		seen += checkLines(t, name, text)
		for _, block := range fenced.FindAllString(text, -1) {
			seen += checkLines(t, name, oneEachLine(block))
		}
	}
	assert.True(t, seen >= 25, "only %d command lines were found in the documents", seen)
}

var (
	fenced = regexp.MustCompile("(?ms)^```\\w*\n.*?^```")
	start  = regexp.MustCompile(`(?m)^(?:\$ )?|(?:;|&&|\|\|?|&|\() `)
)

// oneEachLine makes of shell text what checkLines knows: each command at the beginning of an indented line.
func oneEachLine(shell string) string { return start.ReplaceAllString(shell, "\n    ") }

func TestCommandLinesOfDocumentsAreFound(t *testing.T) {
	t.Parallel()
	const shell = "```\n$ redlock ls; redlock watch k | tail -1\nredlock inspect k   # comment\neval \"$(redlock nodes up)\" && redlock run k -- redlock\n```"
	assert.Equal(t, 5, checkLines(t, "test", oneEachLine(fenced.FindString(shell))))
}

var (
	called  = regexp.MustCompile(`(?m)(?:^  +|^    |["(` + "`" + `])redlock ([a-z]+(?: [^\n"` + "`" + `)#&|;>]*)?)`)
	comment = regexp.MustCompile(`   +.*$`)
	flagged = regexp.MustCompile(`--?[a-zA-Z][a-z-]*`)
)

// checkLines looks at everything in text that reads like a call of this program with a command of its, and
// counts it.
func checkLines(t *testing.T, where, text string) (n int) {
	t.Helper()
	for _, m := range called.FindAllStringSubmatch(text, -1) {
		n++
		line := comment.ReplaceAllString(m[1], "")
		ours, _, _ := strings.Cut(line, " -- ")
		words := strings.Fields(ours)
		root := newRoot(demo.Run)
		root.InitDefaultHelpCmd()
		cmd, rest, err := root.Find(words)
		unknown := err == nil && cmd.HasSubCommands() && len(rest) > 0 && !strings.HasPrefix(rest[0], "-")
		if err != nil || cmd == root || unknown {
			t.Errorf("%s: %q is no command", where, m[0])
			continue
		}
		for _, flag := range flagged.FindAllString(strings.Join(words, " "), -1) {
			name := strings.TrimLeft(flag, "-")
			known := cmd.Flags().Lookup(name) != nil || cmd.InheritedFlags().Lookup(name) != nil || name == "help"
			if strings.Count(flag, "-") == 1 || len(name) == 1 {
				known = known || cmd.Flags().ShorthandLookup(name[:1]) != nil
			}
			assert.False(t, !known && strings.Contains(" "+ours+" ", " "+flag),
				"%s: %q: %s has no flag %s", where, ours, cmd.CommandPath(), flag)
		}
	}
	return n
}
