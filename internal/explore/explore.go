// Package explore searches all states that schedules of steps lead to, breadth first: the first schedule that breaks a
// promise has the fewest steps. Tests describe a world, and the search goes through it.
package explore

import (
	"fmt"
	"hash/maphash"
	"slices"
	"strings"
)

// Key names a state. States with one key are visited once.
type Key [2]uint64

var seeds = [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}

// Bytes is the key of a state in which b is all that can still matter.
func Bytes(b []byte) Key { return Key{maphash.Bytes(seeds[0], b), maphash.Bytes(seeds[1], b)} }

// Value is the key of a state in which everything can matter.
func Value[S comparable](s S) Key {
	return Key{maphash.Comparable(seeds[0], s), maphash.Comparable(seeds[1], s)}
}

// World is what is searched: states S, and steps A from one to the next.
type World[S, A any] struct {
	// Next calls yield with each step that is possible in s, the state behind it, and what the step breaks, "" nothing. If
	// yield returns true, the search has been in that state, and does not keep it.
	Next func(s S, yield func(a A, next S, wrong string) (known bool))
	Key  func(s S) Key
	// Wrong tells what a state breaks, "" nothing. Each state is asked once. May be nil.
	Wrong func(s S) string
	// Over reports whether everybody has come to the end. If it is not nil, such a state must be reachable from every state.
	Over func(s S) bool
	// Limit is how many states are visited at most, 0: all.
	Limit int
}

// Found is the end of a search.
type Found[A any] struct {
	States, Depth int
	All           bool   // no state is left to visit
	Wrong         string // "": nothing
	Schedule      []A    // to what is wrong
}

// Stuck is what is wrong where no schedule leads to the end.
const Stuck = "deadlock: from here, not all come to their end"

type node[A any] struct {
	parent int32
	step   A
}

// edge is that a state follows another. It is in a list of those with one end.
type edge struct{ from, before int32 }

type search[S, A any] struct {
	*World[S, A]
	seen  map[Key]int32
	nodes []node[A]
	ends  []int32
	edges []edge
	into  []int32 // of each state, the last edge that leads to it
}

type visit[S any] struct {
	s    S
	node int32
}

// Explore visits the states that follow first, until something is wrong.
func (w *World[S, A]) Explore(first S) Found[A] {
	x := &search[S, A]{World: w, seen: map[Key]int32{}}
	var none A
	x.add(w.Key(first), -1, none)
	f := Found[A]{Wrong: x.judge(first, 0)}
	level := []visit[S]{{first, 0}}
	full := false
	for ; len(level) > 0 && f.Wrong == ""; f.Depth++ {
		var next []visit[S]
		for k := range level {
			from := level[k]
			level[k] = visit[S]{} // its memory is needed
			w.Next(from.s, func(a A, s S, wrong string) bool {
				if f.Wrong != "" || full {
					return true
				}
				key := w.Key(s)
				to, was := x.seen[key]
				if !was || wrong != "" {
					to = x.add(key, from.node, a)
				}
				if w.Over != nil {
					x.edges = append(x.edges, edge{from.node, x.into[to]})
					x.into[to] = int32(len(x.edges) - 1)
				}
				if was && wrong == "" {
					return true
				}
				if f.Wrong = wrong; wrong == "" {
					f.Wrong = x.judge(s, to)
				}
				if f.Wrong != "" {
					f.Schedule = x.path(to)
				}
				full = w.Limit > 0 && len(x.nodes) >= w.Limit
				next = append(next, visit[S]{s, to})
				return false
			})
			if f.Wrong != "" || full {
				break
			}
		}
		if level = next; full {
			break // in the middle of it
		}
	}
	f.States = len(x.nodes)
	if f.All = f.Wrong == "" && !full; f.All && w.Over != nil {
		if at := x.stuck(); at >= 0 {
			f.Wrong, f.Schedule, f.All = Stuck, x.path(at), false
		}
	}
	return f
}

func (x *search[S, A]) add(key Key, parent int32, step A) int32 {
	n := int32(len(x.nodes))
	x.seen[key] = n
	x.nodes = append(x.nodes, node[A]{parent, step})
	if x.Over != nil {
		x.into = append(x.into, -1)
	}
	return n
}

func (x *search[S, A]) judge(s S, n int32) string {
	if x.Over != nil && x.Over(s) {
		x.ends = append(x.ends, n)
	}
	if x.Wrong == nil {
		return ""
	}
	return x.Wrong(s)
}

// stuck returns the first state from which no end can be reached, or -1.
func (x *search[S, A]) stuck() int32 {
	can := make([]bool, len(x.nodes))
	for todo := x.ends; len(todo) > 0; {
		n := todo[len(todo)-1]
		if todo = todo[:len(todo)-1]; can[n] {
			continue
		}
		can[n] = true
		for e := x.into[n]; e >= 0; e = x.edges[e].before {
			todo = append(todo, x.edges[e].from)
		}
	}
	return int32(slices.Index(can, false))
}

func (x *search[S, A]) path(n int32) (out []A) {
	for ; n > 0; n = x.nodes[n].parent {
		out = append(out, x.nodes[n].step)
	}
	slices.Reverse(out)
	return out
}

// String is the schedule in words, one line for each step.
func (f Found[A]) String() string {
	lines := []string{fmt.Sprintf("%d states, all: %v; %d steps: %s", f.States, f.All, len(f.Schedule), f.Wrong)}
	for n, a := range f.Schedule {
		lines = append(lines, fmt.Sprintf("%2d. %v", n+1, a))
	}
	return strings.Join(lines, "\n")
}

// Step is a step in words: a format for its numbers.
type Step struct {
	Format  string
	Numbers [3]int8
}

// Say is the step of which format tells, with up to three numbers.
func Say(format string, numbers ...int) Step {
	s := Step{Format: format}
	for i, n := range numbers {
		s.Numbers[i] = int8(n)
	}
	return s
}

func (s Step) String() string {
	args := []any{s.Numbers[0], s.Numbers[1], s.Numbers[2]}
	return fmt.Sprintf(s.Format, args[:strings.Count(s.Format, "%")]...)
}

// Spell is a schedule in one line, as Parse reads it: its steps are written as words without spaces.
func Spell[A fmt.Stringer](schedule []A) string {
	words := make([]string, len(schedule))
	for i, a := range schedule {
		words[i] = a.String()
	}
	return strings.Join(words, " ")
}

// Parse is the schedule of words that read reads one by one.
func Parse[A any](words []string, read func(word string) A) []A {
	out := make([]A, len(words))
	for i, word := range words {
		out[i] = read(word)
	}
	return out
}

// Steps are a world whose steps can be named.
type Steps[S any, A comparable] interface {
	Enabled(s S) []A
	Do(s S, a A) S
}

// Play takes the steps of a schedule that are possible, and leaves the others out.
func Play[S any, A comparable](w Steps[S, A], s S, schedule []A) S {
	s, _ = Tell(w, s, schedule, nil)
	return s
}

// Tell plays a schedule, and returns what is said meanwhile, which told takes away. Lines that begin with a space belong
// to the line before.
func Tell[S any, A comparable](w Steps[S, A], s S, schedule []A, told func() []string) (S, string) {
	var lines []string
	for n, a := range schedule {
		if !slices.Contains(w.Enabled(s), a) {
			lines = append(lines, fmt.Sprintf("%2d. (%v is not possible)", n+1, a))
			continue
		}
		s = w.Do(s, a)
		if told == nil {
			continue
		}
		for _, line := range told() {
			if strings.HasPrefix(line, " ") {
				lines = append(lines, "  "+line)
			} else {
				lines = append(lines, fmt.Sprintf("%2d. %s", n+1, line))
			}
		}
	}
	return s, strings.Join(lines, "\n")
}
