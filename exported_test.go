package redquorum_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/redistest/rt"
)

// exported is how many names these folders may export, fields and methods included. They may only become fewer. The
// compatibility promise covers package redlock alone.
var exported = map[string]int{"redlock": 300, "node quorum cluster clock slot member": 250}

func TestExportedNamesKeepToTheirBudget(t *testing.T) {
	for folders, budget := range exported {
		n := 0
		count := func(node ast.Node) bool {
			switch node := node.(type) {
			case *ast.FuncDecl:
				if node.Recv == nil || ast.IsExported(strings.TrimLeft(types.ExprString(node.Recv.List[0].Type), "*")) {
					n++
				}
			case *ast.TypeSpec:
				n++
			case *ast.ValueSpec:
				n += len(node.Names)
			case *ast.Field:
				n += len(node.Names)
			}
			_, method := node.(*ast.FuncDecl)
			_, signature := node.(*ast.FuncType)
			return !method && !signature
		}
		for folder := range strings.FieldsSeq(folders) {
			for _, name := range rt.Must(filepath.Glob(folder + "/*.go"))(t) {
				file := rt.Must(parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution))(t)
				if !strings.HasSuffix(name, "_test.go") && ast.FileExports(file) { // which leaves in it what is exported
					ast.Inspect(file, count)
				}
			}
		}
		require.LessOrEqual(t, n, budget, folders)
		require.Less(t, budget-n, 20, "%s: %d are left: make that the budget", folders, n)
	}
}
