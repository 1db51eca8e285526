package node

import (
	"bytes"
	"crypto/sha1"
	"encoding/hex"
	"strconv"
	"sync"

	"github.com/redquorum/redquorum/member"
	"github.com/redquorum/redquorum/node/internal/line"
)

// scripts are those that a node was given.
type scripts struct {
	sources map[string]string // by SHA-1 in hex
	preload []string          // of those, what each connection makes sure of
}

// scriptSHAs are those of all sources that nodes of this process were given: each has the same ones.
var scriptSHAs sync.Map

func scriptSHA(source string) string {
	if sha, ok := scriptSHAs.Load(source); ok {
		return sha.(string)
	}
	sum := sha1.Sum([]byte(source))
	sha, _ := scriptSHAs.LoadOrStore(source, hex.EncodeToString(sum[:]))
	return sha.(string)
}

// newScripts are those of a Config.
func newScripts(c *Config) scripts {
	s := scripts{sources: make(map[string]string, len(c.Scripts))}
	loads := len(c.preloaded())
	for i, source := range c.Scripts {
		sha := scriptSHA(source)
		s.sources[sha] = source
		if i < loads {
			s.preload = append(s.preload, sha)
		}
	}
	return s
}

// of finds the source of the script that c calls by its SHA-1. ok is false if that is none of ours.
func (s *scripts) of(c *member.Call) (source string, ok bool) {
	sha, ok := line.Script(c)
	if ok {
		source, ok = s.sources[string(sha)]
	}
	return source, ok
}

// in is the script that c executes: one of ours, or one that it has in full; "" if it is no
// script.
func (s *scripts) in(c *member.Call) string {
	if source, ok := s.of(c); ok {
		return source
	}
	_, rest, ok := bytes.Cut(c.Cmd, []byte("\r\n$4\r\nEVAL\r\n$"))
	if !ok {
		return ""
	}
	size, source, _ := bytes.Cut(rest, []byte("\r\n"))
	if n, err := strconv.Atoi(string(size)); err == nil && n >= 0 && n <= len(source) {
		return string(source[:n])
	}
	return ""
}
