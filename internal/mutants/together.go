package main

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

const modulePath = "github.com/redquorum/redquorum"

// chooser is a package that exists in the overlay alone. It is of its own so that it is initialised before all that
// ask it. The variable of the environment has the number of a mutant in Go, or the name of a script and of the file
// with its text.
const chooser = `package chosen

import (
	"embed"
	"os"
	"strconv"
	"strings"
)

var (
	choice       = os.Getenv("` + choice + `")
	Mutant, _    = strconv.Atoi(choice)
	script, file, _ = strings.Cut(choice, "=")
)

func Text(name, text string) string {
	if name != script {
		return text
	}
	changed, err := os.ReadFile(file)
	if err != nil {
		panic(err)
	}
	return string(changed)
}

type Folder struct {
	embed.FS
	Dir string
}

func (f Folder) ReadFile(name string) ([]byte, error) {
	text, err := f.FS.ReadFile(name)
	return []byte(Text(f.Dir+name, string(text))), err
}
`

const (
	choice     = "REDQUORUM_MUTANT"
	chooserDir = "internal/mutants/chosen"
)

// together returns files in which all changes are that fit, and the environment chooses one. A change in Go fits
// inside the body of a function: both bodies stand there, the changed one in an if. A change of a script fits if Go embeds
// it: the program reads the changed text when it starts. The keys of fit are places in all, its values what chooses.
func together(root string, all []change, without map[int]bool) (texts map[string]string, fit map[int]string, _ error) {
	edits := make(map[string][]edit) // by file
	fit = make(map[int]string)
	for i, c := range all {
		if without[i] {
			continue
		}
		if strings.HasSuffix(c.file, ".lua") {
			file, es, err := embeds(root, c.file)
			if err != nil {
				return nil, nil, err
			}
			if len(es) > 0 {
				fit[i], edits[file] = c.file, append(edits[file], es...)
			}
			continue
		}
		e, ok, err := beside(root, c, i+1)
		if err != nil {
			return nil, nil, err
		}
		if ok {
			fit[i], edits[c.file] = strconv.Itoa(i+1), append(edits[c.file], e)
		}
	}
	texts = map[string]string{chooserDir + "/chosen.go": chooser}
	for file, es := range edits {
		text, err := os.ReadFile(filepath.Join(root, file))
		if err != nil {
			return nil, nil, err
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, text, parser.PackageClauseOnly)
		if err != nil {
			return nil, nil, err
		}
		es = append(es, edit{int(parsed.Name.End() - parsed.FileStart), fmt.Sprintf("; import mutants_ %q", modulePath+"/"+chooserDir)})
		texts[file] = insert(string(text), es)
	}
	return texts, fit, nil
}

// edit is text that is put into a file.
type edit struct {
	at   int
	text string
}

// insert makes each edit once. Those of one place keep their order.
func insert(text string, edits []edit) string {
	slices.SortStableFunc(edits, func(a, b edit) int { return a.at - b.at })
	var out strings.Builder
	from := 0
	for i, e := range edits {
		if !slices.Contains(edits[:i], e) {
			out.WriteString(text[from:e.at] + e.text)
			from = e.at
		}
	}
	return out.String() + text[from:]
}

// beside puts the changed body of a function before the body that is there. A compiler's message about it names the
// mutant, and one about the other its own line.
func beside(root string, c change, number int) (e edit, ok bool, _ error) {
	text, err := os.ReadFile(filepath.Join(root, c.file))
	if err != nil {
		return e, false, err
	}
	at, old, changed := c.at, c.old, c.new
	for old != "" && strings.HasSuffix(changed, old[len(old)-1:]) { // it may go on to the end of the function
		old, changed = old[:len(old)-1], changed[:len(changed)-1]
	}
	for old != "" && strings.HasPrefix(changed, old[:1]) { // and begin with its name
		at, old, changed = at+1, old[1:], changed[1:]
	}
	fset := token.NewFileSet()
	parsed, err := parser.ParseFile(fset, c.file, text, parser.SkipObjectResolution)
	if err != nil {
		return e, false, err
	}
	for _, d := range parsed.Decls {
		f, isFunc := d.(*ast.FuncDecl)
		if !isFunc || f.Body == nil {
			continue
		}
		from, to := int(f.Body.Lbrace-parsed.FileStart)+1, int(f.Body.Rbrace-parsed.FileStart)
		if at < from || at+len(old) > to {
			continue
		}
		body := string(text[from:at]) + changed + string(text[at+len(old):to])
		if f.Type.Results == nil {
			body += "\nreturn"
		}
		alone, err := parser.ParseFile(token.NewFileSet(), "", "package p; func _() {"+body+"\n}", parser.SkipObjectResolution)
		if err != nil || len(alone.Decls) != 1 || labelled(alone) {
			return e, false, nil // it does not compile, or ends the function: a build of its own says so
		}
		begins := fset.Position(f.Body.Lbrace)
		return edit{from, fmt.Sprintf(" if mutants_.Mutant == %d {\n//line mutant%d.go:1\n%s\n}\n/*line %s:%d:%d*/",
			number, number, body, path.Base(c.file), begins.Line, begins.Column+1)}, true, nil
	}
	return e, false, nil
}

// labelled tells whether there are labels: a function has each once.
func labelled(f *ast.File) (found bool) {
	ast.Inspect(f, func(n ast.Node) bool {
		_, label := n.(*ast.LabeledStmt)
		found = found || label
		return !found
	})
	return found
}

// embeds makes the variables for scripts in a file in Go depend on the choice. The file is in the nearest folder above the script
// that embeds scripts.
func embeds(root, script string) (file string, edits []edit, _ error) {
	for dir := path.Dir(script); ; dir = path.Dir(dir) {
		files, err := filepath.Glob(filepath.Join(root, dir, "*.go"))
		for _, full := range files {
			text, readErr := os.ReadFile(full)
			parsed, parseErr := parser.ParseFile(token.NewFileSet(), full, text, parser.ParseComments|parser.SkipObjectResolution)
			if err := errors.Join(readErr, parseErr); err != nil {
				return "", nil, err
			}
			for _, d := range parsed.Decls {
				if g, ok := d.(*ast.GenDecl); ok && g.Tok == token.VAR {
					edits = append(edits, variables(g, dir, parsed)...)
				}
			}
			if len(edits) > 0 {
				return path.Join(dir, filepath.Base(full)), edits, nil
			}
		}
		if err != nil || dir == "." {
			return "", nil, err
		}
	}
}

// variables renames those of one declaration that embed scripts, and puts others in their place at the end of the file.
func variables(g *ast.GenDecl, dir string, f *ast.File) (edits []edit) {
	for _, s := range g.Specs {
		v := s.(*ast.ValueSpec)
		doc := v.Doc
		if doc == nil {
			doc = g.Doc
		}
		if doc == nil {
			continue
		}
		for _, c := range doc.List {
			pattern, ok := strings.CutPrefix(c.Text, "//go:embed ")
			if !ok || !strings.HasSuffix(pattern, ".lua") {
				continue
			}
			name := v.Names[0].Name
			value := fmt.Sprintf("mutants_.Text(%q, embedded_%s)", path.Join(dir, pattern), name)
			if types.ExprString(v.Type) == "embed.FS" {
				value = fmt.Sprintf("mutants_.Folder{FS: embedded_%s, Dir: %q}", name, dir+"/")
			}
			edits = append(edits, edit{int(v.Pos() - f.FileStart), "embedded_"},
				edit{int(f.FileEnd - f.FileStart), fmt.Sprintf("\nvar %s = %s\n", name, value)})
		}
	}
	return edits
}
