package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"unicode"

	"github.com/stretchr/testify/assert"

	"github.com/redquorum/redquorum/internal/redistest/rt"
)

// hostile is a server whose every text has what controls a terminal.
func hostile(t *testing.T) (url string) {
	t.Helper()
	const evil = "\x1b]0;owned\x07\x1b[31m\xff\u009b\u202e"
	ln := rt.Must(net.Listen("tcp", "127.0.0.1:0"))(t)
	info := "redis_version:7.0.15" + evil + "\r\nrun_id:" + strings.Repeat("a", 40) + "\r\nrole:slave\r\nmaster_host:" + evil + "\r\nmaster_port:1\r\nmaxmemory_policy:" + evil + "\r\n"
	var serving sync.WaitGroup
	answer := func(c net.Conn) {
		defer c.Close()
		for in := bufio.NewReader(c); ; {
			var n int
			if _, err := fmt.Fscanf(in, "*%d\r\n", &n); err != nil {
				return
			}
			words := make([]string, max(1, n))
			for i := range n {
				var size int
				_, _ = fmt.Fscanf(in, "$%d\r\n", &size)
				b := make([]byte, size+2)
				for k := range b {
					b[k], _ = in.ReadByte()
				}
				words[i] = strings.ToUpper(string(b[:size]))
			}
			reply := "-ERR " + evil + "no " + words[0] + "\r\n"
			switch words[0] {
			case "PING":
				reply = "+PONG\r\n"
			case "INFO":
				reply = fmt.Sprintf("$%d\r\n%s\r\n", len(info), info)
			}
			if _, err := c.Write([]byte(reply)); err != nil {
				return
			}
		}
	}
	serving.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			serving.Go(func() { answer(c) })
		}
	})
	t.Cleanup(func() { _ = ln.Close(); serving.Wait() })
	return "redis://" + ln.Addr().String() + "?dial_timeout=20s"
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
