package node

import (
	"crypto/sha1"
	"encoding/hex"
	"sync"

	"github.com/redquorum/redquorum/member"
	"github.com/redquorum/redquorum/node/internal/line"
)

// scripts are those that a node was given.
type scripts struct {
	sources map[string]string // by SHA-1 in hex
	preload []string          // of those, what each connection makes sure of
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
