package redistest

import (
	"bufio"
	"bytes"
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"sync"

	luajson "github.com/alicebob/miniredis/v2/gopher-json"
	"github.com/alicebob/miniredis/v2/server"
	lua "github.com/yuin/gopher-lua"
	"github.com/yuin/gopher-lua/parse"
)

// The embedded server executes scripts itself. Miniredis makes a Lua state for each call, and parses a script for each
// server: that is half of what a test costs. Here servers share states, of which a script changes nothing that the next
// one sees, and scripts that are parsed.

// scriptCache is SCRIPT.
func (s *session) scriptCache(args []string) {
	e := s.server
	sub := ""
	if len(args) > 1 {
		sub = strings.ToUpper(args[1])
	}
	switch {
	case s.inMulti:
		e.srv.Dispatch(s.cmd, args)
	case sub == "LOAD" && len(args) == 3:
		code, err := compiled(args[2])
		if err != nil {
			s.cmd.WriteError(luaError(err))
			return
		}
		e.scripts[code.sha] = args[2]
		s.cmd.WriteBulk(code.sha)
	case sub == "EXISTS" && len(args) > 2:
		s.cmd.WriteLen(len(args) - 2)
		for _, sha := range args[2:] {
			n := 0
			if _, ok := e.scripts[sha]; ok {
				n = 1
			}
			s.cmd.WriteInt(n)
		}
	default:
		e.srv.Dispatch(s.cmd, args)
		if s.cmd.Flush(); sub == "FLUSH" && len(s.out) > 0 && s.out[0] == '+' {
			clear(e.scripts)
		}
	}
}

// eval is EVAL and EVALSHA. Miniredis has a transaction's, read-only ones, and calls that cannot be executed.
func (s *session) eval(name string, args []string) {
	e := s.server
	if rest, ok := strings.CutPrefix(name, "EVALSHA"); ok && len(args) > 1 {
		text, ok := e.scripts[strings.ToLower(args[1])]
		if !ok {
			s.cmd.WriteError("NOSCRIPT No matching script. Please use EVAL.")
			return
		}
		args = append([]string{"EVAL" + rest, text}, args[2:]...)
	}
	keys := -1
	if len(args) > 2 {
		if n, err := strconv.Atoi(args[2]); err == nil && n <= len(args)-3 {
			keys = n
		}
	}
	if keys < 0 || s.inMulti || strings.HasSuffix(name, "_RO") {
		e.srv.Dispatch(s.cmd, args)
		return
	}
	code, err := compiled(args[1])
	if err != nil {
		s.cmd.WriteError(luaError(err))
		return
	}
	if name == "EVAL" {
		e.scripts[code.sha] = args[1]
	}
	l := takeInterpreter()
	defer l.giveBack()
	l.peer.Ctx = s.cmd.Ctx
	v, err := l.run(code.proto, args[3:3+keys], args[3+keys:], func(args []string) any { return l.dispatch(e, args) })
	if err != nil {
		s.cmd.WriteError(luaError(err))
		return
	}
	writeLua(s.cmd, v)
}

// RunScript executes a script as a server does. call executes its commands, and returns an Error for one that fails. What the
// script returns comes back, or the Error that ended it.
func RunScript(text string, keys, args []string, call func(args []string) any) any {
	code, err := compiled(text)
	if err != nil {
		return Error(luaError(err))
	}
	l := takeInterpreter()
	defer l.giveBack()
	v, err := l.run(code.proto, keys, args, call)
	if l.raised != "" && err != nil {
		return l.raised
	} else if err != nil {
		return Error(luaError(err))
	}
	l.reply.Reset()
	writeLua(l.peer, v)
	l.peer.Flush()
	reply, err := parseReply(l.reply.Bytes())
	if err != nil {
		return Error("ERR " + err.Error())
	}
	return reply
}

func luaError(err error) string { return "ERR Error compiling script (new function): " + err.Error() }

// parsed has the scripts of this process, by text.
var parsed sync.Map

type code struct {
	sha   string
	proto *lua.FunctionProto
}

func compiled(text string) (*code, error) {
	if c, ok := parsed.Load(text); ok {
		return c.(*code), nil
	}
	chunk, err := parse.Parse(strings.NewReader(text), "<string>")
	if err != nil {
		return nil, err
	}
	proto, err := lua.Compile(chunk, "")
	if err != nil {
		return nil, err
	}
	sum := sha1.Sum([]byte(text))
	c := &code{hex.EncodeToString(sum[:]), proto}
	parsed.Store(text, c)
	return c, nil
}

// interpreter is a Lua state with what scripts of Redis find there.
type interpreter struct {
	state *lua.LState
	redis []named // the functions and constants of the table redis

	call   func(args []string) any // of the script that runs
	raised Error                   // the last that one of its calls has raised
	peer   *server.Peer            // what miniredis answers that script's commands on
	reply  bytes.Buffer
}

type named struct {
	name  string
	value lua.LValue
}

// idle are the interpreters that execute nothing.
var idle struct {
	sync.Mutex
	list []*interpreter
}

func takeInterpreter() *interpreter {
	idle.Lock()
	defer idle.Unlock()
	last := len(idle.list) - 1
	if last < 0 {
		return newInterpreter()
	}
	l := idle.list[last]
	idle.list = idle.list[:last]
	return l
}

func (l *interpreter) giveBack() {
	l.call, l.raised = nil, ""
	idle.Lock()
	defer idle.Unlock()
	idle.list = append(idle.list, l)
}

func newInterpreter() *interpreter {
	l := &interpreter{state: lua.NewState(lua.Options{SkipOpenLibs: true})}
	l.peer = server.NewPeer(bufio.NewWriterSize(&l.reply, 256))
	for _, open := range []lua.LGFunction{
		lua.OpenPackage, lua.OpenBase, lua.OpenCoroutine, lua.OpenTable, lua.OpenString, lua.OpenMath,
	} {
		l.must(l.state.NewFunction(open))
	}
	luajson.Preload(l.state)
	l.must(l.state.GetGlobal("require"), lua.LString("json"))
	globals := l.state.G.Global
	globals.RawSetString("cjson", l.state.GetField(l.state.GetField(globals.RawGetString("package"), "loaded"), "json"))
	clock := l.state.NewFunction(func(l *lua.LState) int { l.Push(lua.LNumber(42)); return 1 })
	l.state.RegisterModule("os", nil).(*lua.LTable).RawSetString("clock", clock)
	for _, name := range []string{"package", "require", "module", "dofile", "loadfile", "print"} {
		globals.RawSetString(name, lua.LNil)
	}
	for name, f := range map[string]lua.LGFunction{
		"call":               l.caller(true),
		"pcall":              l.caller(false),
		"error_reply":        errorReply,
		"status_reply":       statusReply,
		"sha1hex":            sha1hex,
		"log":                func(*lua.LState) int { return 0 },
		"setresp":            func(*lua.LState) int { return 0 },
		"set_repl":           func(*lua.LState) int { return 0 },
		"replicate_commands": func(l *lua.LState) int { l.Push(lua.LTrue); return 1 },
	} {
		l.redis = append(l.redis, named{name, l.state.NewFunction(f)})
	}
	for level, name := range []string{"LOG_DEBUG", "LOG_VERBOSE", "LOG_NOTICE", "LOG_WARNING"} {
		l.redis = append(l.redis, named{name, lua.LNumber(level)})
	}
	protect(l.state, globals)
	return l
}

func (l *interpreter) must(f lua.LValue, args ...lua.LValue) {
	if err := l.state.CallByParam(lua.P{Fn: f, Protect: true}, args...); err != nil {
		panic(err)
	}
}

// protect refuses globals that a script makes, or asks for without that they are there.
func protect(l *lua.LState, globals *lua.LTable) {
	meta := l.NewTable()
	meta.RawSetString("__newindex", l.NewFunction(func(l *lua.LState) int {
		l.RaiseError("Script attempted to create global variable '%s'", l.Get(2).String())
		return 0
	}))
	meta.RawSetString("__index", l.NewFunction(func(l *lua.LState) int {
		l.RaiseError("Script attempted to access nonexistent global variable '%s'", l.Get(2).String())
		return 0
	}))
	globals.Metatable = meta
}

// run executes a script, and returns what it returns.
func (l *interpreter) run(proto *lua.FunctionProto, keys, args []string, call func(args []string) any) (v lua.LValue, err error) {
	l.call = call
	globals := l.state.G.Global
	globals.RawSetString("KEYS", stringsOf(l.state, keys))
	globals.RawSetString("ARGV", stringsOf(l.state, args))
	redis := l.state.CreateTable(0, len(l.redis)) // a script may change its own
	for _, e := range l.redis {
		redis.RawSetString(e.name, e.value)
	}
	globals.RawSetString("redis", redis)
	globals.RawSetString("server", redis)
	l.state.Push(l.state.NewFunctionFromProto(proto))
	if err = l.state.PCall(0, 1, nil); err == nil {
		v = l.state.Get(-1)
	}
	l.state.SetTop(0)
	return v, err
}

func stringsOf(l *lua.LState, list []string) *lua.LTable {
	t := l.CreateTable(len(list), 0)
	for _, s := range list {
		t.Append(lua.LString(s))
	}
	return t
}

// caller is redis.call, or redis.pcall, which returns an error instead of raising it.
func (l *interpreter) caller(raise bool) lua.LGFunction {
	return func(state *lua.LState) int {
		args := make([]string, state.GetTop())
		for i := range args {
			switch a := state.Get(i + 1).(type) {
			case lua.LNumber:
				args[i] = a.String()
			case lua.LString:
				args[i] = string(a)
			default:
				state.RaiseError("Lua redis lib command arguments must be strings or integers")
			}
		}
		if len(args) == 0 {
			state.RaiseError("Please specify at least one argument for this redis lib call")
		}
		v := l.call(args)
		if failed, ok := v.(Error); ok {
			text := string(failed)
			if strings.HasPrefix(text, "ERR unknown command") {
				text = "ERR Unknown Redis command called from script"
			}
			if raise {
				l.raised = Error(text)
				state.RaiseError("%s", text)
			}
			v = Error(text)
		}
		state.Push(luaOf(state, v))
		return 1
	}
}

// dispatch has miniredis execute a command of the script that runs.
func (l *interpreter) dispatch(e *Embedded, args []string) any {
	switch name := strings.ToUpper(args[0]); name {
	case "EVAL", "EVALSHA", "EVAL_RO", "EVALSHA_RO", "SCRIPT", "MULTI", "EXEC", "DISCARD", "WATCH", "AUTH", "HELLO":
		return Error("ERR This Redis command is not allowed from script")
	case "INFO":
		return e.info(args[1:])
	default:
		if _, _, subscribes := subscribing(name); subscribes || blocks(name, args) {
			return Error("ERR This Redis command is not allowed from script")
		}
	}
	l.reply.Reset()
	e.srv.Dispatch(l.peer, args)
	l.peer.Flush()
	b := l.reply.Bytes()
	if len(b) > 3 && b[0] == '+' {
		return status(b[1 : len(b)-2])
	}
	v, err := parseReply(b)
	if err != nil {
		return Error("ERR " + err.Error())
	}
	return v
}

// status is a reply like OK.
type status string

// luaOf is a reply as a script sees it.
func luaOf(l *lua.LState, v any) lua.LValue {
	switch v := v.(type) {
	case int64:
		return lua.LNumber(v)
	case string:
		return lua.LString(v)
	case status:
		return fieldOf(l, "ok", string(v))
	case Error:
		return fieldOf(l, "err", string(v))
	case []any:
		t := l.CreateTable(len(v), 0)
		for _, e := range v {
			t.Append(luaOf(l, e))
		}
		return t
	case nil:
		return lua.LFalse
	default:
		panic(fmt.Sprintf("redistest: a %T in a script", v))
	}
}

func fieldOf(l *lua.LState, field, text string) *lua.LTable {
	t := l.CreateTable(0, 1)
	t.RawSetString(field, lua.LString(text))
	return t
}

// writeLua writes what a script returned.
func writeLua(c *server.Peer, v lua.LValue) {
	switch v := v.(type) {
	case lua.LNumber:
		c.WriteInt(int(v))
	case lua.LString:
		c.WriteBulk(string(v))
	case *lua.LTable:
		if s := v.RawGetString("err"); s != lua.LNil {
			c.WriteError(s.String())
			return
		}
		if s := v.RawGetString("ok"); s != lua.LNil {
			c.WriteInline(s.String())
			return
		}
		n := 0
		for v.RawGetInt(n+1) != lua.LNil {
			n++
		}
		c.WriteLen(n)
		for i := range n {
			writeLua(c, v.RawGetInt(i+1))
		}
	default:
		if v == lua.LTrue {
			c.WriteInt(1)
			return
		}
		c.WriteNull()
	}
}

func errorReply(l *lua.LState) int {
	text := strings.TrimPrefix(l.CheckString(1), "-")
	if !strings.Contains(text, " ") {
		text = "ERR " + text
	}
	l.Push(fieldOf(l, "err", text))
	return 1
}

func statusReply(l *lua.LState) int {
	l.Push(fieldOf(l, "ok", l.CheckString(1)))
	return 1
}

func sha1hex(l *lua.LState) int {
	sum := sha1.Sum([]byte(l.CheckString(1)))
	l.Push(lua.LString(hex.EncodeToString(sum[:])))
	return 1
}
