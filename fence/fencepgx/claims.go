package fencepgx

import "sync"

// claims remembers what was claimed here, so that Tx claims before it begins and not after an entry in
// vain. It is a hint: the entry decides. It forgets any, if there are many.
type claims struct {
	mu sync.Mutex
	of map[string]uint64 // guarded by mu
}

const mostClaims = 1024

func (c *claims) has(resource string, token uint64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.of[resource] >= token
}

func (c *claims) add(resource string, token uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.of == nil {
		c.of = map[string]uint64{}
	}
	if _, known := c.of[resource]; !known && len(c.of) >= mostClaims {
		for any := range c.of {
			delete(c.of, any)
			break
		}
	}
	c.of[resource] = max(c.of[resource], token)
}
