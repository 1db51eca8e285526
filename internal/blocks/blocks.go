// Package blocks finds the blocks of code in the documents of the repository, so that tests run them exactly as
// written. A comment before a block says what is special about it:
//
//	<!-- not run: REASON -->        a drawing, an output, or what a test cannot do
//	<!-- compiled only: REASON -->  Go that needs what a test has not
//	<!-- run: PostgreSQL, SQLite -->  SQL, and the databases that it is for
package blocks

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// Block is a fenced block of code.
type Block struct {
	Document string // its path from the root of the repository
	Line     int    // of its first line
	Kind     string // the word behind the fence; none: a shell
	Text     string
	How, Why string // of the comment before it: "not run" and the reason
}

var (
	fenced  = regexp.MustCompile("(?ms)^```(\\w*)\n(.*?)^```$")
	comment = regexp.MustCompile(`<!-- ([a-z ]+): ([^>]+) -->\s*$`)
)

// All returns the blocks of all documents below root, in the order of their paths.
func All(root string) (all []Block, err error) {
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Name() == "node_modules" { // documents of others
			return filepath.SkipDir
		}
		if err != nil || d.IsDir() || filepath.Ext(path) != ".md" {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, path)
		all = append(all, in(filepath.ToSlash(rel), string(text))...)
		return err
	})
	return all, err
}

// Of returns those of some kinds that are to be run, or at least compiled.
func Of(root string, kinds ...string) (some []Block, err error) {
	all, err := All(root)
	for _, b := range all {
		for _, kind := range kinds {
			if b.Kind == kind && b.How != "not run" {
				some = append(some, b)
			}
		}
	}
	return some, err
}

func in(document, text string) (blocks []Block) {
	end := 0
	for _, m := range fenced.FindAllStringSubmatchIndex(text, -1) {
		b := Block{Document: document, Line: strings.Count(text[:m[4]], "\n") + 1, Kind: text[m[2]:m[3]], Text: text[m[4]:m[5]]}
		if said := comment.FindStringSubmatch(text[end:m[0]]); said != nil {
			b.How, b.Why = said[1], said[2]
		}
		if end = m[1]; b.Kind == "" {
			b.Kind = "sh"
		}
		blocks = append(blocks, b)
	}
	return blocks
}
