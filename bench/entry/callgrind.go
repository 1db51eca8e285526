package entry

import (
	"bufio"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// Callgrind is what a profile of valgrind's callgrind says.
type Callgrind struct {
	Events map[string]int // Ir are instructions, I1mr misses of the first cache for them, and so on
	Calls  map[string]int // of functions, by their full names
}

// ReadCallgrind reads a profile.
func ReadCallgrind(path string) (*Callgrind, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	p := &Callgrind{Events: map[string]int{}, Calls: map[string]int{}}
	names := map[string]string{} // a name stands behind its number once
	var events []string
	var called string
	in := bufio.NewScanner(f)
	for in.Buffer(nil, 1<<20); in.Scan(); {
		line := in.Text()
		if rest, ok := strings.CutPrefix(line, "events: "); ok {
			events = strings.Fields(rest)
		} else if rest, ok := strings.CutPrefix(line, "totals: "); ok {
			for i, n := range strings.Fields(rest) {
				p.Events[events[i]], _ = strconv.Atoi(n)
			}
		} else if rest, ok := strings.CutPrefix(strings.TrimPrefix(line, "c"), "fn="); ok {
			id, name, _ := strings.Cut(rest, " ")
			if name != "" {
				names[id] = name
			}
			called = names[id]
		} else if rest, ok := strings.CutPrefix(line, "calls="); ok {
			n, _, _ := strings.Cut(rest, " ")
			times, _ := strconv.Atoi(n)
			p.Calls[called] += times
		}
	}
	if len(p.Events) == 0 {
		return nil, fmt.Errorf("callgrind counted nothing: %w", in.Err())
	}
	return p, nil
}
