package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strings"
)

// starts are the functions of the packages rt and redistest that start a server, or ask for the one in PATH.
var starts = map[string]bool{
	"rt.Real": true, "rt.RealWith": true, "rt.Needs": true,
	"redistest.Available": true, "redistest.StartReal": true, "redistest.StartRealCluster": true,
	"redistest.StartSharded": true, "redistest.StartGroup": true,
}

// needing returns the tests of one package that need a server. Such a test mentions what starts one, or mentions a
// function, method or variable of its package that needs a server itself. Names alone decide: two methods with one name
// count as one. So needing may find a test too many. It misses none that reaches a server through its own package.
func needing(files ...string) ([]string, error) {
	mentions := map[string]map[string]bool{} // by a declaration's name
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		for _, decl := range file.Decls {
			switch d := decl.(type) {
			case *ast.FuncDecl:
				mention(mentions, d.Name.Name, d)
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					if v, ok := spec.(*ast.ValueSpec); ok {
						for _, n := range v.Names {
							mention(mentions, n.Name, v)
						}
					}
				}
			}
		}
	}
	needs := map[string]bool{}
	for found := true; found; {
		found = false
		for name, all := range mentions {
			for other := range all {
				if !needs[name] && (starts[other] || other != name && needs[other]) {
					needs[name], found = true, true
				}
			}
		}
	}
	var tests []string
	for name := range needs {
		if strings.HasPrefix(name, "Test") && name != "TestMain" {
			tests = append(tests, name)
		}
	}
	slices.Sort(tests)
	return tests, nil
}

// mention books the names in a piece of source: x, p.x and the x of p.x.
func mention(mentions map[string]map[string]bool, name string, in ast.Node) {
	all := mentions[name]
	if all == nil {
		all = map[string]bool{}
		mentions[name] = all
	}
	ast.Inspect(in, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.SelectorExpr:
			if p, ok := n.X.(*ast.Ident); ok {
				all[p.Name+"."+n.Sel.Name] = true
			}
		case *ast.Ident:
			all[n.Name] = true
		}
		return true
	})
}
