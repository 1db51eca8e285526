package main

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// mutant is one guard taken out of the product.
type mutant struct {
	name     string // what is taken out: what would follow
	in       string // the place: a function "dir.Func" or "dir.(*Type).Method", a package "dir", or a script "vote.lua"
	old, new string // old occurs once in the place
	tests    tests  // that should notice
}

// tests are tests of one package, as `go test -run` takes them.
type tests struct{ pkg, run string }

//go:embed list/*.txt
var lists embed.FS

// mutants returns all mutants of list.
func mutants() (all []mutant, _ error) {
	names, _ := fs.Glob(lists, "list/*.txt")
	for _, name := range names {
		text, err := lists.ReadFile(name)
		if err != nil {
			return nil, err
		}
		some, err := parse(string(text))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		all = append(all, some...)
	}
	return all, nil
}

// parse reads mutants in the form that list/README.md describes.
func parse(text string) (all []mutant, _ error) {
	for block := range strings.SplitSeq(text, "\n\n") {
		var m mutant
		var old, changed []string
		for line := range strings.SplitSeq(strings.Trim(block, "\n"), "\n") {
			word, rest, _ := strings.Cut(line, " ")
			switch {
			case strings.HasPrefix(line, "#"):
			case m.name == "":
				m.name = line
			case word == "in" && m.in == "":
				m.in = rest
			case word == "-":
				old = append(old, rest)
			case word == "+":
				changed = append(changed, rest)
			case word == "run" && m.tests.pkg == "":
				pkg, run, _ := strings.Cut(rest, " ")
				m.tests = tests{"./" + pkg, run}
			default:
				return nil, fmt.Errorf("mutant %q: a line that does not belong there: %q", m.name, line)
			}
		}
		m.old, m.new = strings.Join(old, "\n"), strings.Join(changed, "\n")
		switch {
		case m == mutant{}: // comments
		case m.in == "" || m.old == m.new || m.old == "" || m.tests.run == "":
			return nil, fmt.Errorf("mutant %q lacks a place, a change or tests", m.name)
		default:
			all = append(all, m)
		}
	}
	return all, nil
}

// change is a mutant, and what one file becomes by it.
type change struct {
	mutant
	file string // from the root of the module
	text []byte
	at   int // where old stood
}

// apply makes the mutant's change, wherever its place is by now. It leaves the file as it is.
func (m mutant) apply(root string) (change, error) {
	find := functions
	if strings.HasSuffix(m.in, ".lua") {
		find = scripts
	}
	places, err := find(root, m.in)
	if err != nil {
		return change{}, fmt.Errorf("mutant %q: %w", m.name, err)
	}
	var found []change
	for _, p := range places {
		for at := p.from; ; at++ {
			i := strings.Index(p.text[at:p.to], m.old)
			if i < 0 {
				break
			}
			at += i
			found = append(found, change{m, p.file, []byte(p.text[:at] + m.new + p.text[at+len(m.old):]), at})
		}
	}
	if len(found) != 1 {
		return change{}, fmt.Errorf("mutant %q: its text occurs %d times in %s, and not once: adapt it", m.name, len(found), m.in)
	}
	return found[0], nil
}

// place is a part of a file.
type place struct {
	file, text string
	from, to   int
}

// functions finds the functions or methods of a name in the sources of a package, without its tests, or all the sources
// if there is no name. There are several functions if each operating system has its own.
func functions(root, in string) (all []place, _ error) {
	dir, last := path.Split(in)
	pkg, name, _ := strings.Cut(last, ".")
	files, err := filepath.Glob(filepath.Join(root, dir, pkg, "*.go"))
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		if strings.HasSuffix(file, "_test.go") || !bytes.Contains(text, []byte(name[strings.LastIndex(name, ".")+1:])) {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, text, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		found := func(from, to token.Pos) {
			all = append(all, place{path.Join(dir, pkg, filepath.Base(file)), string(text), int(from - parsed.FileStart), int(to - parsed.FileStart)})
		}
		if name == "" {
			found(parsed.FileStart, parsed.FileEnd)
		}
		for _, d := range parsed.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && receiver(f)+f.Name.Name == name {
				found(f.Pos(), f.End())
			}
		}
	}
	return all, err
}

// receiver returns what stands before the name of a method: "(*Type)." or "Type.".
func receiver(f *ast.FuncDecl) string {
	if f.Recv == nil {
		return ""
	}
	of, _, _ := strings.Cut(types.ExprString(f.Recv.List[0].Type), "[")
	if strings.HasPrefix(of, "*") {
		of = "(" + of + ")"
	}
	return of + "."
}

// scripts finds the scripts of a name, in whatever folder. Two of the same name are told apart by their folders.
func scripts(root, in string) (all []place, _ error) {
	err := filepath.WalkDir(root, func(file string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (file != root && entry.Name()[0] == '.' || entry.Name() == "node_modules"):
			return fs.SkipDir
		case !strings.HasSuffix(filepath.ToSlash(file), "/"+in):
			return nil
		}
		text, err := os.ReadFile(file)
		rel, relErr := filepath.Rel(root, file)
		all = append(all, place{filepath.ToSlash(rel), string(text), 0, len(text)})
		return errors.Join(err, relErr)
	})
	return all, err
}
