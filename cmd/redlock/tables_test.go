package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/cmd/redlock/internal/demo"
	"github.com/redquorum/redquorum/cmd/redlock/internal/settings"
	"github.com/redquorum/redquorum/internal/redistest/rt"
	"github.com/redquorum/redquorum/node"
)

// table returns the rows of the table below a heading of a document whose first column has the title, without `.
func table(t *testing.T, document, heading, title string) (rows [][]string) {
	t.Helper()
	_, section, ok := strings.Cut(documents(t)[document], "\n## "+heading+"\n")
	require.True(t, ok, "%s has no heading %q", document, heading)
	section, _, _ = strings.Cut(section, "\n## ")
	_, lines, ok := strings.Cut(section, "| "+title+" |")
	require.True(t, ok, "%s has no table with a column %q", document, title)
	for i, line := range strings.Split(lines, "\n") {
		switch {
		case i < 2: // the rest of the titles, and the rule below them
		case !strings.HasPrefix(line, "|"):
			require.NotEmpty(t, rows, title)
			return rows
		default:
			var cells []string
			const bar = "\x00" // one that belongs to a cell
			for _, cell := range strings.Split(strings.Trim(strings.ReplaceAll(line, `\|`, bar), "|"), "|") {
				cells = append(cells, strings.TrimSpace(strings.NewReplacer("`", "", bar, "|").Replace(cell)))
			}
			rows = append(rows, cells)
		}
	}
	return rows
}

func column(rows [][]string, i int) (cells []string) {
	for _, row := range rows {
		cells = append(cells, row[i])
	}
	return cells
}

func parsed(t *testing.T, folder string) (files []*ast.File) {
	t.Helper()
	for _, path := range rt.Must(filepath.Glob(filepath.Join(repository, folder, "*.go")))(t) {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		file := rt.Must(parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments|parser.SkipObjectResolution))(t)
		files = append(files, file)
	}
	require.NotEmpty(t, files)
	return files
}

// declared are the types, variables, constants and functions of a package, by their names.
func declared(t *testing.T, folder string) map[string]ast.Node {
	t.Helper()
	all := map[string]ast.Node{}
	for _, file := range parsed(t, folder) {
		for _, d := range file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil {
				all[f.Name.Name] = f
			}
			group, ok := d.(*ast.GenDecl)
			if !ok {
				continue
			}
			for _, spec := range group.Specs {
				switch spec := spec.(type) {
				case *ast.TypeSpec:
					all[spec.Name.Name] = spec
				case *ast.ValueSpec:
					for _, name := range spec.Names {
						all[name.Name] = spec
					}
				}
			}
		}
	}
	return all
}

// configFields are the names of the fields of a package's Config, in order, and what their comments say.
func configFields(t *testing.T, folder string) (names []string, comments map[string]string) {
	t.Helper()
	spec, ok := declared(t, folder)["Config"].(*ast.TypeSpec)
	require.True(t, ok, folder)
	comments = map[string]string{}
	for _, field := range spec.Type.(*ast.StructType).Fields.List {
		for _, name := range field.Names {
			if name.IsExported() {
				names = append(names, name.Name)
			}
			comments[name.Name] = strings.Join(strings.Fields(field.Doc.Text()), " ")
		}
	}
	return names, comments
}

// The table of redlock.Config has every field, in the order of the code, with the default that its comment states.
func TestTableOfConfigIsTheCode(t *testing.T) {
	t.Parallel()
	names, comments := configFields(t, "redlock")
	rows := table(t, "docs/configuration.md", "Config", "field")
	assert.Equal(t, names, column(rows, 0))
	for _, row := range rows {
		comment := comments[row[0]]
		_, said, stated := strings.Cut(comment, "Default")
		switch value := row[1]; {
		case value == "false": // of a bool
			assert.NotContains(t, comment, "Default")
		case value == "none":
			assert.Regexp(t, `Default: (none|no log)|nil costs nothing`, comment, row[0])
		default:
			assert.True(t, stated && strings.Contains(said, value), "%s: the table has %q, the comment %q", row[0], value, comment)
		}
	}
}

func TestTablesOfOptionsAreTheCode(t *testing.T) {
	t.Parallel()
	made := map[string][]string{} // type of an option to the functions that make one
	for name, d := range declared(t, "redlock") {
		f, ok := d.(*ast.FuncDecl)
		if !ok || !f.Name.IsExported() || f.Type.Results == nil {
			continue
		}
		if kind, ok := f.Type.Results.List[0].Type.(*ast.Ident); ok && strings.HasSuffix(kind.Name, "Option") {
			made[kind.Name] = append(made[kind.Name], name)
		}
	}
	require.Len(t, made, 2, "options of a lock, and of a latch")
	for kind, names := range made {
		heading := "Options of a lock"
		if kind == "LatchOption" {
			heading = "Options of a latch"
		}
		listed := column(table(t, "docs/configuration.md", heading, "option"), 0)
		for i, call := range listed {
			listed[i], _, _ = strings.Cut(call, "(")
		}
		assert.ElementsMatch(t, names, listed, kind)
	}
}

// The tables of URLs have every scheme, and every option with its default.
func TestTablesOfURLsAreTheCode(t *testing.T) {
	t.Parallel()
	const page = "docs/configuration.md"
	var schemes []string
	for _, row := range table(t, page, "URLs", "URL") {
		for _, form := range strings.Split(row[0], ", ") {
			scheme, rest, _ := strings.Cut(form, "://")
			schemes = append(schemes, scheme)
			if rest == "" { // the same over TLS
				continue
			}
			url := scheme + "://" + strings.NewReplacer("[", "", "]", "", "port", "7001", "/db", "/2", "...", "").Replace(rest)
			url = strings.Replace(url, ",host", ",other", 1) // no host twice
			assert.NoError(t, rt.Err(node.ParseTarget(url)), url)
		}
	}
	_, err := node.ParseTarget("http://host")
	require.Error(t, err)
	_, known, _ := strings.Cut(err.Error(), "there are ")
	assert.ElementsMatch(t, strings.Split(strings.Replace(known, " and ", ", ", 1), ", "), schemes)

	rows := table(t, page, "URLs", "option")
	var options []string
	list, ok := declared(t, "node")["allOptions"].(*ast.ValueSpec)
	require.True(t, ok)
	for _, element := range list.Values[0].(*ast.CompositeLit).Elts {
		options = append(options, strings.Trim(element.(*ast.BasicLit).Value, `"`))
	}
	assert.ElementsMatch(t, options, column(rows, 0))
	seconds := func(url string) string {
		return fmt.Sprint(rt.Must(node.ParseTarget(url))(t).Config.FailoverLag.Seconds(), " s")
	}
	defaults := map[string]string{"failover_lag": seconds("redis-cluster://a") + ", " + seconds("redis-sentinel://a/name")}
	_, comments := configFields(t, "node")
	for name, comment := range comments {
		if kind, ok := strings.CutSuffix(name, "Timeout"); ok {
			defaults[strings.ToLower(kind)+"_timeout"] = regexp.MustCompile(`Default (.*?)\.`).FindStringSubmatch(comment)[1]
		}
	}
	for _, row := range rows {
		if strings.HasSuffix(row[0], "_timeout") || row[0] == "failover_lag" {
			assert.Equal(t, defaults[row[0]], row[1], row[0])
		}
	}
}

func TestTableOfSettingsIsTheProgram(t *testing.T) {
	t.Parallel()
	var want [][]string
	for _, o := range settings.Options {
		flag, value := "--"+o.Name, o.Default
		if o.NoFlag {
			flag = "no flag"
		}
		if value == "" {
			value = "none"
		}
		want = append(want, []string{flag, o.Env(), value})
	}
	var got [][]string
	for _, row := range table(t, "docs/cli.md", "Settings", "flag") {
		got = append(got, row[:3])
	}
	assert.Equal(t, want, got)
}

func TestTableOfFlagsIsTheProgram(t *testing.T) {
	t.Parallel()
	own := func(cmd *cobra.Command) bool { return cmd.Flags().Lookup("prefix") == nil } // it reaches no members by settings
	isSetting := func(f *pflag.Flag) bool {
		return slices.ContainsFunc(settings.Options, func(o settings.Option) bool { return o.Name == f.Name })
	}
	var members []string
	want := map[string]string{} // command and flag to default
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		path, _ := strings.CutPrefix(cmd.CommandPath(), "redlock ")
		if path == "redlock" || path == "help" || strings.HasPrefix(path, "completion") {
			path = ""
		}
		if !own(cmd) {
			members = append(members, path)
		}
		cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if path == "" || f.Hidden || f.Name == "help" || isSetting(f) && !own(cmd) {
				return
			}
			name := "--" + f.Name
			if f.Shorthand != "" {
				name = "-" + f.Shorthand + ", " + name
			}
			want[path+" "+name] = strings.Trim(f.DefValue, "[]")
			if want[path+" "+name] == "" {
				want[path+" "+name] = "none"
			}
		})
		for _, sub := range cmd.Commands() {
			walk(sub)
		}
	}
	walk(newRoot(demo.Run))
	got := map[string]string{}
	for _, row := range table(t, "docs/cli.md", "Flags", "flag") {
		commands := strings.Split(row[1], ", ")
		if row[1] == "members" {
			commands = members
		}
		for _, command := range commands {
			assert.NotContains(t, got, command+" "+row[0], "listed twice")
			got[command+" "+row[0]] = row[2]
		}
	}
	assert.Equal(t, want, got)
	_, list, _ := strings.Cut(documents(t)["docs/cli.md"], "every command that reaches members: ")
	list, _, _ = strings.Cut(list, ".")
	var listed []string
	for _, m := range regexp.MustCompile("`([a-z ]+)`").FindAllStringSubmatch(strings.ReplaceAll(list, "\n", " "), -1) {
		listed = append(listed, m[1])
	}
	assert.ElementsMatch(t, members, listed)
}

func TestTableOfCommandsIsTheProgram(t *testing.T) {
	t.Parallel()
	var want []string
	for _, cmd := range newRoot(demo.Run).Commands() {
		if name := cmd.Name(); name != "help" && name != "completion" && !cmd.Hidden {
			want = append(want, name)
		}
	}
	var got []string
	for _, row := range table(t, "docs/cli.md", "Commands", "command") {
		got = append(got, strings.Fields(row[0])[0])
	}
	assert.ElementsMatch(t, want, got)
}

func TestTableOfErrorsIsTheCode(t *testing.T) {
	t.Parallel()
	var want []string
	for name, d := range declared(t, "redlock") {
		if _, ok := d.(*ast.ValueSpec); ok && strings.HasPrefix(name, "Err") {
			want = append(want, name)
		}
	}
	var got []string
	for _, line := range strings.Split(documents(t)["docs/errors.md"], "\n") {
		if strings.HasPrefix(line, "| `") {
			got = append(got, regexp.MustCompile(`Err\w+`).FindAllString(strings.Split(line, "|")[1], -1)...)
		}
	}
	assert.ElementsMatch(t, want, got)
}

func TestListedPermissionsAreThoseOfTheShippedRules(t *testing.T) {
	t.Parallel()
	const page = "docs/servers.md"
	shipped := rt.Must(os.ReadFile(filepath.Join(repository, "acl", "members.acl")))(t)
	rule := regexp.MustCompile(`[-+~&][^\s]+|reset\w+`)
	_, section, _ := strings.Cut(documents(t)[page], "\n## Permissions\n")
	listed := rule.FindAllString(strings.ReplaceAll(fenced.FindString(section), ">a-long-secret", ""), -1)
	for _, row := range table(t, page, "Permissions", "needed besides") {
		if strings.Contains(row[0], "cluster") {
			listed = append(listed, strings.Fields(row[1])...)
		}
	}
	_, rules, _ := strings.Cut(string(shipped), ">CHANGE-ME")
	assert.ElementsMatch(t, slices.DeleteFunc(rule.FindAllString(rules, -1), func(r string) bool { return r == "-@all" }), listed)
}
