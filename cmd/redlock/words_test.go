package main

import (
	"go/ast"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

// former are private words that gave way to plain ones.
var former = strings.Fields("agree fellows stale strays underWay")

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
