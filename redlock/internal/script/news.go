package script

import (
	"strconv"
	"strings"
)

// News is a push to one that watches, in one of these forms:
//
//	o watch round     a latch of that round is open, or of a later round
//	b watch round d   a barrier of that round is open at the member, for the parties of digest d; or a later one has begun
//	e watch token s   the value of a leader: the term and the number within it
type News struct {
	Word   byte
	Watch  string   // whom the push is for: see OwnerOf
	N      uint64   // the number in Watch
	Values [2]int64 // what follows; 0 for what the form does not have
}

// newsValues is how many numbers follow each word.
var newsValues = map[string]int{"o": 1, "b": 2, "e": 2}

// ParseNews reads a message. ok is false if it has none of these forms.
func ParseNews(msg string) (n News, ok bool) {
	f := strings.Fields(msg)
	if len(f) < 3 || newsValues[f[0]] != len(f)-2 {
		return News{}, false
	}
	n = News{Word: f[0][0], Watch: f[1]}
	for i, word := range f[2:] {
		v, err := strconv.ParseInt(word, 10, 64)
		if err != nil || v < 0 {
			return News{}, false
		}
		n.Values[i] = v
	}
	_, number, found := strings.Cut(n.Watch, ":")
	var err error
	n.N, err = strconv.ParseUint(number, 10, 64)
	return n, found && err == nil
}
