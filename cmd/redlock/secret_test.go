package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/redistest"
	"github.com/redquorum/redquorum/internal/redistest/rt"
)

// A password, and the owner under which a lock is held, appear neither in what a command prints and logs
// at its most talkative, nor in what the child of run gets; not when all goes well, not when members refuse,
// are gone, or the lock is lost. REDLOCK_LEASE of acquire is the one exception, and its purpose.
func TestNothingSecretLeaves(t *testing.T) {
	t.Parallel()
	if err := redistest.Available(); err != nil {
		t.Skip(err)
	}
	const canary = "c4n4ry"
	server, err := redistest.StartReal(t.Context(), redistest.RealConfig{})
	require.NoError(t, err)
	defer func() { _ = server.Close() }()
	markFresh(t, []string{"redis://" + server.Addr()}, 0)
	if _, err := server.Do(context.Background(), "CONFIG", "SET", "requirepass", canary); err != nil {
		t.Fatal(err)
	}
	in := "redis://:" + canary + "@"
	for name, tc := range map[string]struct {
		members string
		args    string
		code    int
	}{
		"run":         {in + server.Addr(), "run k -vv --json -- sh -c env;redlock_owner", 127},
		"environment": {in + server.Addr(), "run k -vv -- env", 0},
		"refused":     {"redis://:" + canary + "x@" + server.Addr(), "run k -vv -n -- env", exitAuth},
		"gone":        {in + "127.0.0.1:1", "inspect k -vv", exitUnavailable},
		"malformed":   {"redis://" + canary + "@@:x", "run k -- env", exitConfig},
		"inspect":     {in + server.Addr(), "inspect k -vv --json", 0},
		"doctor":      {in + server.Addr(), "doctor --json --sample 10ms -vv", 0},
		"config":      {in + server.Addr(), "doctor --show-config --json", 0},
		"ls":          {in + server.Addr(), "ls -vv --json --all", 0},
		"force":       {in + server.Addr(), "release k --force --yes -vv", 0},
		"token":       {in + server.Addr(), "token k --verify 1 -vv", 1},
	} {
		args := strings.Fields(tc.args)
		if i := strings.Index(tc.args, "sh -c "); i >= 0 {
			args = append(strings.Fields(tc.args[:i]), "sh", "-c", tc.args[i+len("sh -c "):])
		}
		cmd, output := process(t, []string{tc.members}, args...)
		cmd.Env = append(cmd.Env, "REDLOCK_LEASE="+canary)
		_ = cmd.Run()
		if code := cmd.ProcessState.ExitCode(); code != tc.code {
			t.Errorf("%s: exit code %d, want %d\n%s", name, code, tc.code, output)
		}
		assert.NotContains(t, output.String(), canary, "%s tells a secret:\n%s", name, output)
	}

	// The owner, while the lock is held by somebody else.
	members := []string{in + server.Addr()}
	holder, output := started(t, members, "run", "held", "-vv", "--", "sh", "-c", "env; exec sleep 600")
	owner := ""
	eventually(t, "the lock is held", func() bool {
		fields, err := redisAs(server, canary, "HKEYS", "held")
		owner, _, _ = strings.Cut(fields, ":")
		return err == nil && len(owner) > 10
	})
	for _, args := range [][]string{{"inspect", "held", "-vv"}, {"inspect", "held", "--json"}, {"ls", "--json", "--all"}, {"run", "held", "-n", "-vv", "--", "true"}, {"release", "held", "--force", "--yes", "-vv"}} {
		cmd, output := process(t, members, args...)
		_ = cmd.Run()
		if said := output.String(); said == "" || strings.Contains(said, owner) {
			t.Errorf("%v tells the owner, or nothing:\n%s", args, said)
		}
	}
	_ = holder.Process.Signal(os.Interrupt)
	_ = holder.Wait()
	if text := output.String(); strings.Contains(text, owner) || strings.Contains(text, canary) || !strings.Contains(text, "REDLOCK_TOKEN=") {
		t.Errorf("the holder tells a secret, or nothing:\n%s", text)
	}
}

// redisAs asks the server with a password, for the first string of an array.
func redisAs(server *redistest.Real, password string, args ...string) (string, error) {
	ctx := context.Background()
	c, err := redistest.DialClient(ctx, &net.Dialer{}, server.Addr())
	if err != nil {
		return "", err
	}
	defer func() { _ = c.Close() }()
	if _, err := c.Do(ctx, "AUTH", password); err != nil {
		return "", err
	}
	v, err := c.Do(ctx, args...)
	if all, _ := v.([]any); len(all) > 0 {
		text, _ := all[0].(string)
		return text, err
	}
	return "", err
}

// hostile is a server whose every text has what controls a terminal.
func hostile(t *testing.T) (url string) {
	t.Helper()
	const evil = "\x1b]0;owned\x07\x1b[31m\xff\u009b\u202e"
	info := "redis_version:7.0.15" + evil + "\r\nrun_id:" + strings.Repeat("a", 40) + "\r\nrole:slave\r\nmaster_host:" + evil + "\r\nmaster_port:1\r\nmaxmemory_policy:" + evil + "\r\n"
	addr := rt.Listening(t, func(c net.Conn) {
		for in := bufio.NewReader(c); ; {
			words, err := rt.Command(in)
			if err != nil {
				return
			}
			reply := "-ERR " + evil + "no " + words[0] + "\r\n"
			switch strings.ToUpper(words[0]) {
			case "PING":
				reply = "+PONG\r\n"
			case "HELLO":
				reply = "%1\r\n+proto\r\n:3\r\n"
			case "INFO":
				reply = fmt.Sprintf("$%d\r\n%s\r\n", len(info), info)
			}
			if _, err := c.Write([]byte(reply)); err != nil {
				return
			}
		}
	})
	return "redis://" + addr + "?dial_timeout=20s"
}

func TestTextOfAMemberCannotControlTheTerminal(t *testing.T) {
	t.Parallel()
	member := hostile(t)
	for _, args := range []string{"doctor --sample 10ms", "doctor --sample 10ms --json", "ls", "inspect x", "run x -n -- true", "acquire x --wait 0", "init --fresh --yes"} {
		var out bytes.Buffer
		run(t.Context(), append(strings.Fields(args)[:1:1], append([]string{"--members", member}, strings.Fields(args)[1:]...)...), &out, &out)
		assert.Contains(t, out.String(), `owned`, args)
		for line := range strings.Lines(out.String()) {
			odd := strings.IndexFunc(strings.TrimSuffix(line, "\n"), func(r rune) bool {
				return !unicode.IsPrint(r) && r != '\t' || r == unicode.ReplacementChar && !strings.Contains(args, "json")
			})
			assert.Negative(t, odd, "%s: %q", args, line)
		}
	}
}

// What is no UTF-8 stands beside the text as bytes, and what is has no such field.
func TestNamesInJSONCanBeGivenBack(t *testing.T) {
	t.Parallel()
	for want, v := range map[string]any{
		`"key_base64":"a/8="`:                             event{Key: "k\xff"},
		`"key_base64":"bP8="`:                             runStatus{Key: "l\xff"},
		`"keys_base64":["YQ==","/w=="]`:                   runStatus{Keys: []string{"a", "\xff"}},
		`"key":"\u009b","outcome":"","exit_code":0,"comm`: runStatus{Key: "\u009b"},
	} {
		text, err := json.Marshal(v)
		assert.NoError(t, err)
		assert.Contains(t, string(text), want)
		assert.Equal(t, strings.Contains(want, "base64"), strings.Contains(string(text), "base64"), "%s", text)
	}
}
