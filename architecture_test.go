package redquorum_test

import (
	"bytes"
	"go/ast"
	"go/build"
	"go/parser"
	"go/token"
	"go/types"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/redistest/rt"
)

const module = "github.com/redquorum/redquorum/"

// walls is the picture of ARCHITECTURE.md: each package, lowest first, and all that it imports of this module. A package
// may import only what the list names before it.
var walls = []struct {
	pkg     string
	imports []string
	pure    bool // does no I/O: see still
}{
	{"internal/resp", nil, true},
	{"internal/duration", nil, true},
	{"internal/explore", nil, true},
	{"internal/memberset", nil, true},
	{"internal/topology", nil, true},
	{"internal/printable", nil, true},
	{"internal/timeline", []string{"internal/printable"}, true},
	{"clock", nil, true},
	{"slot", nil, true},
	{"member", []string{"internal/resp"}, true},
	{"internal/ability", []string{"member"}, true},
	{"quorum", []string{"internal/ability", "internal/memberset", "internal/printable", "member"}, true},
	{"fence", nil, true},
	{"fence/internal/claims", nil, true},
	{"fence/fencefile", []string{"fence", "fence/internal/claims"}, false},
	{"fence/fenceobj", []string{"fence", "fence/internal/claims"}, true},
	{"fence/fencesql", []string{"fence", "fence/internal/claims"}, false},
	{"fence/fenceredis", []string{"fence", "slot"}, true},
	{"node/internal/guard", []string{"clock", "internal/duration", "internal/resp", "member", "slot"}, true},
	{"node/internal/line", []string{"internal/ability", "internal/resp", "member", "node/internal/guard"}, true},
	{"node", []string{"internal/ability", "internal/duration", "internal/printable", "internal/resp", "member", "node/internal/guard", "node/internal/line", "slot"}, false},
	{"cluster", []string{"internal/ability", "internal/resp", "internal/topology", "member", "node", "slot"}, false},
	{"redlock/internal/permit", nil, true},
	{"redlock/internal/core", []string{"clock", "internal/memberset", "member", "quorum", "redlock/internal/permit"}, true},
	{"redlock/internal/wait", []string{"clock", "internal/duration", "internal/memberset", "member", "quorum", "redlock/internal/core", "redlock/internal/permit"}, true},
	{"redlock/internal/script", []string{"internal/duration", "internal/resp", "member", "redlock/internal/permit", "slot"}, true},
	{"redlock/internal/kinds/election", []string{"clock", "redlock/internal/script"}, true},
	{"redlock/internal/kinds/latch", []string{"clock", "internal/memberset", "member"}, true},
	{"redlock/internal/watch", []string{"clock", "internal/memberset", "member"}, true},
	{"redlock", []string{"clock", "cluster", "internal/ability", "internal/duration", "internal/memberset", "internal/printable", "member", "node", "quorum", "redlock/internal/core", "redlock/internal/kinds/election", "redlock/internal/kinds/latch", "redlock/internal/permit", "redlock/internal/script", "redlock/internal/wait", "redlock/internal/watch", "slot"}, false},
	{"redlock/internal/outcome", []string{"redlock"}, true},
	{"redlock/redlockhttp", []string{"redlock"}, false},
	{"fence/fencehttp", []string{"fence", "redlock"}, false},
	{"internal/redistest", []string{"internal/resp"}, false},
	{"redlock/redlocktest", []string{"internal/redistest", "redlock", "redlock/internal/script", "slot"}, false},
}

// still are the packages that a pure package may import: none of them opens a file, a connection or a process, and what
// log/slog writes goes where its caller says.
var still = []string{
	"bytes", "cmp", "context", "crypto/rand", "crypto/sha1", "crypto/sha256", "embed", "encoding/base64", "encoding/binary", "encoding/hex", "encoding/json", "errors", "fmt", "hash/fnv", "hash/maphash", "html/template", "io", "log/slog", "maps", "math", "math/bits", "math/rand/v2", "slices", "sort", "strconv", "strings", "sync", "sync/atomic", "time", "unicode", "unicode/utf16", "unicode/utf8", "unsafe",
	"github.com/hashicorp/go-multierror", "github.com/sigurn/crc16",
}

// onlyIn names the files that alone may import a package.
var onlyIn = map[string]string{"redlock -> node": "open.go", "redlock -> cluster": "open.go"}

func TestPackagesImportWhatArchitectureSays(t *testing.T) {
	var below []string
	for _, w := range walls {
		p := rt.Must(build.ImportDir(filepath.FromSlash(w.pkg), 0))(t)
		var ours []string
		for _, path := range p.Imports {
			name, inside := strings.CutPrefix(path, module)
			if !inside {
				if w.pure {
					require.Contains(t, still, path, "%s does no I/O", w.pkg)
				}
				continue
			}
			ours = append(ours, name)
			require.Contains(t, below, name, "%s may import only what stands below it", w.pkg)
			if file := onlyIn[w.pkg+" -> "+name]; file != "" {
				for _, at := range p.ImportPos[path] {
					require.Equal(t, file, filepath.Base(at.Filename), "%s imports %s in one file", w.pkg, name)
				}
			}
		}
		slices.Sort(ours)
		require.Equal(t, w.imports, ours, w.pkg)
		below = append(below, w.pkg)
	}
}

// trusted is what one has to read to believe that two clients never hold one mutex, at members that are plain masters: the
// files by folder. What is not here decides when to ask, and hands on what these decide.
var trusted = map[string]string{
	"clock":                   "anchor elapsed validity",
	"quorum":                  "round",
	"member":                  "call majority member",
	"internal/ability":        "call",
	"internal/memberset":      "set",
	"internal/duration":       "millis",
	"internal/resp":           "append info",
	"redlock/internal/core":   "confirm giveup range renewal term validity votes",
	"redlock":                 "hold lease naming renewal states",
	"redlock/internal/script": "catalog frame lock push reply",
	"redlock/internal/script/lua": "acquire adopt base batch draw extend give grant hand lengthen mine own pass push raise rejoin release reserve " +
		"stand time vote wait yield",
	// submit: calls go in line with the tag and the state of one moment, behind the look that they need. join: what may be one
	// command. send: every byte once, in order, and one write at a time. parse: what a reply says. read: the answer goes to the
	// first call, and an error is no vote. published: state, generation and tag change together. hear: a message is of the
	// memory that it came from. handshake: the former connection is dead, and the marker known, before a connection carries
	// calls. host: what the guard asks goes in line, too. line: the order, whose answer it is, and what goes in line again.
	// encode: the bytes.
	"node":                       "handshake hear host join parse published read send submit",
	"node/internal/line":         "encode line",
	"node/internal/guard":        "admit guard host look marker restore rules script",
	"node/internal/guard/script": "lift look mark raise rename restore waits",
}

// trustedLines is how many lines of Go and Lua that may be. They may only become fewer: the goal is 4,500.
const trustedLines = 5593

// A file that is in the way of the budget leaves the list when exclusion does not rest on it any more, and not before.
func TestWhatExclusionRestsOnFitsItsBudget(t *testing.T) {
	sum, perFolder := 0, map[string]int{}
	for folder, names := range trusted {
		for name := range strings.FieldsSeq(names) {
			ext := ".go"
			if path.Base(folder) == "lua" || path.Base(folder) == "script" && folder != "redlock/internal/script" {
				ext = ".lua"
			}
			text := rt.Must(os.ReadFile(filepath.Join(filepath.FromSlash(folder), name+ext)))(t)
			perFolder[folder] += bytes.Count(text, []byte("\n"))
		}
		sum += perFolder[folder]
	}
	require.LessOrEqual(t, sum, trustedLines, "lines by folder: %v", perFolder)
	require.Less(t, trustedLines-sum, 300, "%d lines are left: make that the budget", sum)
	require.LessOrEqual(t, perFolder["redlock/internal/core"], 900)
}

// What the scripts of a mutex include besides decides who waits, who is next and what is told, how an error is worded, and what a
// person took by force. It writes to the queue and to the waiters alone, so a mistake there costs order or time, and gives nobody a vote.
func TestScriptsThatAreNotTrustedWriteNoVote(t *testing.T) {
	text := map[string]string{}
	var read func(name string)
	read = func(name string) {
		if text[name] == "" {
			text[name] = string(rt.Must(os.ReadFile("redlock/internal/script/lua/" + name + ".lua"))(t))
			for _, m := range regexp.MustCompile(`--include (\w+)`).FindAllStringSubmatch(text[name], -1) {
				read(m[1])
			}
		}
	}
	for name := range strings.FieldsSeq("acquire wait release yield raise reserve extend rejoin batch adopt") {
		read(name)
	}
	for name := range strings.FieldsSeq(trusted["redlock/internal/script/lua"]) {
		require.Contains(t, text, name, "no script of a mutex includes it")
		delete(text, name)
	}
	// Of the scripts that restore a member, claim.lua notes who does, and count.lua raises counters where restore.lua has it do so.
	claim := string(rt.Must(os.ReadFile("node/internal/guard/script/claim.lua"))(t))
	for _, write := range regexp.MustCompile(`call\('(?:HSET|HDEL|SET|DEL).*`).FindAllString(claim, -1) {
		require.Regexp(t, `^call\('H(SET|DEL)', KEYS\[1\], '(by|till|few)'`, write)
	}
	count := string(rt.Must(os.ReadFile("node/internal/guard/script/count.lua"))(t))
	require.Equal(t, []string{"call('HMGET', key", "call('HSET', key"}, regexp.MustCompile(`call\([^,]*, \w+`).FindAllString(count, -1))
	for name, lua := range text {
		lua = regexp.MustCompile(`(?m)--.*`).ReplaceAllString(lua, "")
		require.NotRegexp(t, `(call|ask)\([^']|\b(own|count|keep|give|hand|mine)\(`, lua, name)
		for _, m := range regexp.MustCompile(`(?:call|ask)\('(\w+)', ([^,)]+)`).FindAllStringSubmatch(lua, -1) {
			if m[2] != "KEYS[4]" && m[2] != "KEYS[5]" {
				require.Contains(t, []string{"HGET", "HGETALL", "HKEYS", "HLEN"}, m[1], "%s: %s", name, m[0])
			}
		}
	}
}

// What of a node is not trusted decides when to connect, to write and to look, and what to say. It makes no answer of anything,
// hands on no message, and changes neither what a vote is judged by nor the order of calls.
func TestFilesThatAreNotTrustedMakeNoVote(t *testing.T) {
	for _, file := range rt.Must(filepath.Glob("node/*.go"))(t) {
		name := strings.TrimSuffix(filepath.Base(file), ".go")
		if !strings.HasSuffix(name, "_test") && !slices.Contains(strings.Fields(trusted["node"]), name) {
			text := string(rt.Must(os.ReadFile(file))(t))
			require.NotRegexp(t, `Outcome = member\.Answered|finish\(.*member\.Answered|\.(complete|Push)\(|Gen(\+\+| = )|\.(tag|standing) = `, text, file)
			require.NotRegexp(t, `\bsubmit\(0|\.line\.(Again|AddGroup|Take|Give|Pop)\(|\blineUpLocked\(|s\.link\.(write|wire)\b`, text, file)
		}
	}
}

// barred is what stands in no file of a folder besides those that are trusted, or named: so a mistake there decides no vote.
var barred = []struct{ folder, but, says, pattern string }{
	{"redlock/internal/wait", "probe", "opens votes, as the search of all schedules may", `core\.Probe`},
	{"redlock/internal/wait", "probe", "makes what trusted files make of what members say", `core\.\w+\{|\ba\.(Outcome|N|Server|Permits|Sent|TTL|Raise|At|From|Now) = `},
	{"redlock/internal/wait", "probe permits", "tells the core a time, a state or terms of its own", `\b(now|states) :?= |core\.(Decide|Confirm|Raise|Reserved|Registers|Begin)\(`},
	{"redlock", "", "opens votes, or makes what trusted files make of what members say", `(core|wait)\.Probe|core\.\w+\{`},
	{"redlock", "", "books votes", `\.b\.(Answered|YieldAnswered|ClaimAnswered|RaiseAnswered|ReserveAnswered|Pushed|Next|Begin)\(|\.Book\(`},
	{"redlock", "", "asks for a vote, or gives one up", `\.(Acquire|Wait|WaitFreed|Yield|Raise|Reserve|Rejoin|Renew|Adopt|Release)\((cmd|b|&\w+\.Buf), `},
	{"redlock", "tenure downgrade", "begins a term", `term\.(Part|Succeed)\(`},
	{"node/internal/guard", "", "gives a member a standing", `Standing\{[^}]|\.(standing|votesFrom|epoch) = `},
	{"redlock", "", "names an owner", `\.(uuid|number)\b[^(\n]*[^=!<>:]=[^=]`},
	// look.go changes no vote, and slots.go sees none.
	{"redlock/internal/core", "readers slots probe", "changes a vote", `\w\.?\w* = |\.(take|drop|Drop|Enter)\(`},
	{"redlock/internal/core", "readers look probe", "sees a vote", `func \(`},
}

// passedOn is what is no finding: a comment, and what a ballot was given itself.
var passedOn = regexp.MustCompile(`//.*|core\.(Decide|Confirm)\(now, states\)|core\.Raise\(now\)|core\.Reserved\(r, i, &a\.Answer, now, states\)|core\.Registers\(i, at\)|core\.Begin\(room\.Votes, t\.Terms\)`)

func TestWhatIsNotTrustedDecidesNoVote(t *testing.T) {
	for _, b := range barred {
		for _, file := range rt.Must(filepath.Glob(b.folder + "/*.go"))(t) {
			name := strings.TrimSuffix(filepath.Base(file), ".go")
			if !strings.HasSuffix(name, "_test") && !slices.Contains(strings.Fields(trusted[b.folder]+" doc "+b.but), name) {
				text := passedOn.ReplaceAllString(string(rt.Must(os.ReadFile(file))(t)), "")
				require.Empty(t, regexp.MustCompile(b.pattern).FindAllString(text, -1), "%s %s", file, b.says)
			}
		}
	}
}

// layers are the files of a package, lowest first, in named groups. An arrow is a file that uses what another one declares. up is
// how many arrows may run to a file that stands higher; they may only become fewer. None runs to a higher group: so the words
// of redlock, and the engine that gets, keeps and ends locks, name nothing that the file of a kind declares. They meet the kinds
// through what kind.go declares.
var layers = map[string]struct {
	groups []group
	up     int
}{
	"node": {[]group{{"", "doc peek_linux feed gather vigil user backoff guard config scripts classify credentials scheme url " +
		"target parse link dialer tls dial query sentinel owed node session published ack pulse send hear write join submit repair " +
		"inbox read down shared pay host renewal failover introduce handshake supervise"}}, 6},
	"redlock": {[]group{
		{"words", "doc name errors concurrent tracer callbacks config"},
		{"engine", "naming client traced states reasons reserve hold lease kind leaseplan options leasehandle kept site holding tenure " +
			"teller unlock passing owners leaseheap keeper rejoin renewaltrace renewal renewed extend bond share keeping link interop attempt " +
			"nested who watch obtain leases handoff"},
		{"kinds", "mutex multi downgrade reads rwmutex limit permits semaphore latchround latch barrier election " +
			"observe"},
		{"facade", "members admin stats lifetime open"},
	}, 9},
}

type group struct{ name, files string }

func TestFilesUseWhatStandsBelowThem(t *testing.T) {
	for folder, layer := range layers {
		set, names, in := token.NewFileSet(), []string(nil), map[string]string{}
		for _, g := range layer.groups {
			for name := range strings.FieldsSeq(g.files) {
				names, in[name] = append(names, name), g.name
			}
		}
		var files []*ast.File
		for _, name := range names {
			files = append(files, rt.Must(parser.ParseFile(set, folder+"/"+name+".go", nil, 0))(t))
		}
		info := &types.Info{Uses: map[*ast.Ident]types.Object{}}
		// No other package is imported: the errors are of what these declare.
		pkg, _ := (&types.Config{Error: func(error) {}}).Check(folder, set, files, info)
		at := func(p token.Pos) string { return strings.TrimSuffix(filepath.Base(set.Position(p).Filename), ".go") }
		up := map[string]bool{}
		for id, used := range info.Uses {
			from, to := at(id.Pos()), at(used.Pos())
			if used.Pkg() == pkg && slices.Index(names, to) > slices.Index(names, from) {
				up[from+" -> "+to] = true
				require.Equal(t, in[from], in[to], "%s: %s names %s, which stands in %s", folder, from, used.Name(), to)
			}
			if kind := used.Name(); in[from] == "engine" && to == "name" && strings.HasPrefix(kind, "Kind") && kind != "Kind" {
				require.Equal(t, "handoff KindMutex", from+" "+kind, "the first format of a hand-off does not say that it is a mutex's")
			}
		}
		require.Len(t, up, layer.up, "%s: %v", folder, slices.Sorted(maps.Keys(up)))
		for _, file := range rt.Must(filepath.Glob(folder + "/*.go"))(t) {
			name := strings.TrimSuffix(filepath.Base(file), ".go")
			require.True(t, strings.HasSuffix(name, "_test") || strings.HasSuffix(name, "_other") || slices.Contains(names, name), file)
		}
	}
}

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
