package main

import (
	"go/ast"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

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
