// Package permit has what a member gives to an owner of a semaphore: numbered slots, each with a
// token. It is pure.
package permit

import (
	"slices"
	"strconv"
	"strings"
)

// Permit is one slot of a semaphore that a member has given to an owner. Tokens rise per member and
// slot. Those of different slots have nothing to do with each other.
type Permit struct {
	Slot  int
	Token int64
}

// List is what one owner has at one member, or what its lease has: sorted by slot, each slot once.
type List []Permit

// Parse reads the text of a List: "3:17 5:20". If it is none, or is empty, ok is false.
func Parse(text string) (l List, ok bool) {
	l = make(List, 0, 1+strings.Count(text, " "))
	for one := range strings.SplitSeq(text, " ") {
		number, token, _ := strings.Cut(one, ":")
		slot, err1 := strconv.ParseUint(number, 10, 31)
		n, err2 := strconv.ParseInt(token, 10, 64)
		if err1 != nil || err2 != nil || n <= 0 {
			return nil, false
		}
		l = append(l, Permit{int(slot), n})
	}
	slices.SortFunc(l, func(x, y Permit) int { return x.Slot - y.Slot })
	for i := 1; i < len(l); i++ {
		if l[i].Slot == l[i-1].Slot {
			return nil, false
		}
	}
	return l, len(l) > 0
}

// Append writes the list as Parse reads it.
func (l List) Append(b []byte) []byte {
	for i, p := range l {
		if i > 0 {
			b = append(b, ' ')
		}
		b = strconv.AppendInt(b, int64(p.Slot), 10)
		b = append(b, ':')
		b = strconv.AppendInt(b, p.Token, 10)
	}
	return b
}

// AppendSlots writes the slots alone: "3 5".
func (l List) AppendSlots(b []byte) []byte {
	for i, p := range l {
		if i > 0 {
			b = append(b, ' ')
		}
		b = strconv.AppendInt(b, int64(p.Slot), 10)
	}
	return b
}

// String is the text of the list.
func (l List) String() string { return string(l.Append(nil)) }

// Token returns the token of a slot, 0 if the list does not have it.
func (l List) Token(slot int) int64 {
	for _, p := range l {
		if p.Slot == slot {
			return p.Token
		}
	}
	return 0
}

// Slots returns the slots of the list.
func (l List) Slots() []int {
	out := make([]int, len(l))
	for i, p := range l {
		out[i] = p.Slot
	}
	return out
}

// Has reports whether the list has all of these slots.
func (l List) Has(slots []int) bool {
	return !slices.ContainsFunc(slots, func(s int) bool { return l.Token(s) == 0 })
}
