package blocks

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/redquorum/redquorum/internal/redistest/rt"
)

// runners are the packages whose tests run the blocks of a kind.
var runners = map[string]string{
	"sh": "cmd/redlock", "crontab": "cmd/redlock", "systemd": "cmd/redlock",
	"go": "integration/fencing", "sql": "integration/fencing", "json": "internal/blocks",
}

// Each block of each document is run by a test, or says why not.
func TestEachBlockIsRunOrSaysWhyNot(t *testing.T) {
	t.Parallel()
	seen := map[string]int{}
	for _, b := range rt.Must(All("../.."))(t) {
		if b.How != "not run" {
			assert.Contains(t, runners, b.Kind, "%s:%d: a block that no test runs says why: <!-- not run: REASON -->", b.Document, b.Line)
			seen[b.Kind]++
		}
		if how := map[string]string{"go": "|compiled only|not run", "sql": "run|not run"}[b.Kind]; how != "" {
			assert.Regexp(t, "^("+how+")$", b.How, "%s:%d", b.Document, b.Line)
		}
		if b.How != "" {
			assert.GreaterOrEqual(t, len(b.Why), 6, "%s:%d: a reason has words", b.Document, b.Line)
		}
		if b.Kind == "json" {
			assert.True(t, json.Valid([]byte(b.Text)), "%s:%d", b.Document, b.Line)
		}
	}
	for kind, pkg := range runners {
		assert.Positive(t, seen[kind], "blocks of %s", kind)
		files := rt.Must(filepath.Glob("../../" + pkg + "/*_test.go"))(t)
		var all strings.Builder
		for _, file := range files {
			all.Write(rt.Must(os.ReadFile(file))(t))
		}
		runs := regexp.MustCompile(`blocks\.Of\(.*"` + kind + `"|b\.Kind == "` + kind + `"`).MatchString(all.String())
		assert.True(t, runs, "%s runs blocks of %s", pkg, kind)
	}
}

func TestCommentBeforeABlockIsItsOwn(t *testing.T) {
	t.Parallel()
	got := in("x.md", "a <!-- not run: a drawing -->\n\n```text\n1\n```\n\n```\n2\n```\nb\n<!-- run: SQLite -->\n```sql\n3\n```\n")
	assert.Equal(t, []Block{
		{"x.md", 4, "text", "1\n", "not run", "a drawing"}, {"x.md", 8, "sh", "2\n", "", ""}, {"x.md", 13, "sql", "3\n", "run", "SQLite"},
	}, got)
}
