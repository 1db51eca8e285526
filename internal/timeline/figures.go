package timeline

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redquorum/redquorum/internal/printable"
)

// figures are what the page says in numbers.
type figures struct {
	locks    []*lockFigures
	overlaps []overlap
}

// lockFigures are those of one lock.
type lockFigures struct {
	Lock
	holds    []*Hold // by From
	clients  []*clientFigures
	overlaps int
	waits    []time.Duration // of those who got it, in order of length; nobody's who did not wait
	longest  *Hold           // that was waited for
	handed   []time.Duration // from an unlock to the next grant, if somebody waited then; in order of length
}

// clientFigures are those of one lane.
type clientFigures struct {
	Who         string
	Leases      int
	held        time.Duration
	waits       []time.Duration // in order of length
	first, last uint64          // tokens
	gaveUp      int             // waits that ended without the lock
}

// overlap is a time in which two believed that they held one slot.
type overlap struct {
	x, y     *Hold
	from, to time.Duration
}

// count counts.
func (l *Log) count() *figures {
	f := &figures{}
	byName := map[string]*lockFigures{}
	of := func(name string) *lockFigures {
		if byName[name] == nil {
			byName[name] = &lockFigures{Lock: Lock{Name: name}}
			f.locks = append(f.locks, byName[name])
		}
		return byName[name]
	}
	for _, lock := range l.Locks {
		of(lock.Name).Rule = lock.Rule
	}
	for i := range l.Holds {
		lock := of(l.Holds[i].Lock)
		lock.holds = append(lock.holds, &l.Holds[i])
	}
	for _, s := range l.Spells {
		if s.Lock != "" {
			c := of(s.Lock).client(s.Who)
			if s.Kind == Waits {
				c.gaveUp++
			}
		}
	}
	for _, lock := range f.locks {
		slices.SortStableFunc(lock.holds, func(x, y *Hold) int { return cmp.Compare(x.From, y.From) })
		lock.count()
		some := lock.overlapping()
		lock.overlaps = len(some)
		f.overlaps = append(f.overlaps, some...)
		slices.SortStableFunc(lock.clients, func(x, y *clientFigures) int {
			return cmp.Compare(placeOf(l.Clients, x.Who), placeOf(l.Clients, y.Who))
		})
	}
	return f
}

func placeOf(list []string, name string) int {
	if i := slices.Index(list, name); i >= 0 {
		return i
	}
	return len(list)
}

func (f *lockFigures) client(who string) *clientFigures {
	for _, c := range f.clients {
		if c.Who == who {
			return c
		}
	}
	f.clients = append(f.clients, &clientFigures{Who: who})
	return f.clients[len(f.clients)-1]
}

// count counts the holds, which are in order.
func (f *lockFigures) count() {
	var before *Hold
	for _, h := range f.holds {
		c := f.client(h.Who)
		if c.Leases++; c.Leases == 1 {
			c.first = h.Token
		}
		c.last = h.Token
		c.held += max(0, h.To-h.From)
		if wait := h.From - h.Asked; wait > 0 {
			c.waits, f.waits = append(c.waits, wait), append(f.waits, wait)
			if f.longest == nil || wait > f.longest.From-f.longest.Asked {
				f.longest = h
			}
		}
		if h.handedBy(before) {
			f.handed = append(f.handed, h.From-before.To)
		}
		before = h
	}
	slices.Sort(f.waits)
	slices.Sort(f.handed)
	for _, c := range f.clients {
		slices.Sort(c.waits)
	}
}

// handedBy says that h was waiting when the one before it was unlocked. A lease that ended by itself was handed to nobody.
func (h *Hold) handedBy(before *Hold) bool {
	return before != nil && !before.Shared && !h.Shared && before.Slot == h.Slot && before.Past == 0 && !before.Open &&
		h.Asked < h.From && h.Asked <= before.To && before.To <= h.From
}

// overlapping finds what must not be: it looks at each two holds of a slot that lie beside each other.
func (f *lockFigures) overlapping() (found []overlap) {
	open := map[int][]*Hold{} // by slot
	for _, h := range f.holds {
		if h.To <= h.From { // its holder never believed in it
			continue
		}
		still := open[h.Slot][:0]
		for _, x := range open[h.Slot] {
			if x.To <= h.From {
				continue
			}
			still = append(still, x)
			if (!x.Shared || !h.Shared) && !x.Forced && !h.Forced {
				found = append(found, overlap{x, h, h.From, min(x.To, h.To)})
			}
		}
		open[h.Slot] = append(still, h)
	}
	return found
}

// beside are the holds of others, or of other slots, in a stretch of time, and how much of it nobody held.
func (f *lockFigures) beside(h *Hold, from, to time.Duration) (some []*Hold, free time.Duration) {
	at := from
	for _, x := range f.holds {
		if x.From >= to {
			break
		}
		if x == h || x.To <= from {
			continue
		}
		some = append(some, x)
		free += max(0, x.From-at)
		at = max(at, x.To)
	}
	return some, free + max(0, to-at)
}

// idle is the longest time for which somebody waited while nobody held, of those who got the lock in a stretch.
func (f *lockFigures) idle(from, to time.Duration) (most time.Duration) {
	held := time.Duration(0)
	for _, h := range f.holds {
		if h.From >= from && h.From < to && h.Asked < h.From {
			most = max(most, h.From-max(held, h.Asked))
		}
		held = max(held, h.To)
	}
	return most
}

// Quantile is by nearest rank: the least value that a share q of the sorted values does not exceed.
func Quantile(sorted []time.Duration, q float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	rank := int(q * float64(len(sorted)))
	if float64(rank) < q*float64(len(sorted)) {
		rank++
	}
	return sorted[min(max(rank, 1), len(sorted))-1]
}

// headline says how it went, and whether that is good.
func (l *Log) headline(f *figures) (text string, good bool) {
	good = len(f.overlaps) == 0 && len(l.Objections) == 0
	var parts, leases []string
	clients := map[string]bool{}
	for _, lock := range f.locks {
		for _, c := range lock.clients {
			clients[c.Who] = true
		}
		if len(lock.holds) > 0 || len(f.locks) == 1 {
			leases = append(leases, grouped(len(lock.holds))+" of "+lock.Name)
		}
	}
	if len(leases) == 1 {
		leases = []string{count(len(f.locks[0].holds), "lease")}
	} else if len(leases) > 1 {
		leases[0] = strings.Replace(leases[0], " of", " leases of", 1)
	}
	parts = append(parts, count(len(clients), "client"))
	parts = append(parts, leases...)
	switch n := len(f.overlaps); {
	case n > 0:
		parts = append(parts, "TWO AT ONCE, "+times(n))
	case l.Looks > 0:
		parts = append(parts, "no look saw two at once")
	default:
		parts = append(parts, "no two at once")
	}
	text = strings.Join(parts, ", ")
	if n := len(l.Objections); n > 0 {
		text += fmt.Sprintf("; the judge objects %s", times(n))
	}
	var dead []string
	for _, s := range l.Spells {
		if s.away() {
			dead = append(dead, fmt.Sprintf("%s was %s from %s to %s", short(s.Who), kinds[s.Kind].label, clock{l.Start}.at(s.From), l.until(s.To)))
		}
	}
	if len(dead) > 3 {
		dead = append(dead[:2], fmt.Sprintf("members were away %d times more", len(dead)-2))
	}
	refused := 0
	for _, m := range l.Marks {
		if m.Refused {
			refused++
		}
	}
	if refused > 0 {
		dead = append(dead, fmt.Sprintf("%s refused", count(refused, "stale write")))
	}
	if len(dead) > 0 {
		text += "; " + strings.Join(dead, "; ")
	}
	return text + ".", good
}

// short is a name in a sentence.
func short(name string) string { return printable.Text(name, 60) }

func times(n int) string {
	switch n {
	case 1:
		return "once"
	case 2:
		return "twice"
	}
	return grouped(n) + " times"
}

// away says that a member could not be asked.
func (s Spell) away() bool { return s.Kind == Dead || s.Kind == Silent }

func (l *Log) until(to time.Duration) string {
	if to >= l.Length {
		return "the end"
	}
	return clock{l.Start}.at(to)
}

// answer is a question of whoever looks, and what the log knows.
type answer struct{ Question, Text string }

func (l *Log) answers(f *figures) (all []answer) {
	add := func(question, format string, args ...any) {
		all = append(all, answer{printable.Text(question, 200), printable.Text(fmt.Sprintf(format, args...), 2000)})
	}
	c := clock{l.Start}
	if n := len(f.overlaps); n > 0 {
		for _, o := range f.overlaps[:min(n, mostOverlaps)] {
			add("Two at once: "+o.x.Lock, "%s (token %d) and %s (token %d), for %s from %s on",
				short(o.x.Who), o.x.Token, short(o.y.Who), o.y.Token, long(o.to-o.from), c.at(o.from))
		}
	}
	d := drawing{l: l}
	d.shorten()
	for i, lock := range f.locks {
		if len(lock.holds) == 0 {
			continue
		}
		var who []string
		held := time.Duration(0)
		for _, x := range lock.clients {
			who = append(who, fmt.Sprintf("%s (%s)", short(x.Who), grouped(x.Leases)))
			held += x.held
		}
		if n := len(who); n > 6 {
			who = append(who[:5], fmt.Sprintf("%d others", n-5))
		}
		by := fmt.Sprintf("%s, for %s in sum, of %s.", count(len(lock.holds), "lease"), long(held), list(who))
		waits := fmt.Sprintf("%s waited, %s in the median and %s at most.", count(len(lock.waits), "lease"), long(Quantile(lock.waits, 0.5)), long(Quantile(lock.waits, 1)))
		if i > 0 { // of the others the tables have more
			add("And "+lock.Name+"?", "%s %s", by, waits)
			continue
		}
		add("Who held "+lock.Name+"?", "%s", by)
		if h := lock.longest; h != nil {
			add("Why did anybody wait for it?", "%s The longest wait was that of %s, until %s: %s.", waits, short(h.Who), c.at(h.From), lock.why(h, d.short))
		}
		if n := len(lock.handed); n > 0 {
			add("How soon did the next one have it?", "%s after the unlock in the median, and %s in 99 %% of all cases. Somebody waited at %s.",
				upper(long(Quantile(lock.handed, 0.5))), long(Quantile(lock.handed, 0.99)), count(n, "unlock"))
		}
		for _, s := range l.Spells {
			if s.away() && s.To > s.From && len(all) < 12 {
				add("What did it cost that "+short(s.Who)+" was "+kinds[s.Kind].label+"?", "%s", l.cost(lock, s))
			}
		}
	}
	return all
}

// cost compares the time in which a member was dead with the rest. How long holders held has nothing to do with it.
func (l *Log) cost(lock *lockFigures, s Spell) string {
	var in, out []time.Duration
	leases := 0
	for i, h := range lock.holds {
		inside := h.From >= s.From && h.From < s.To
		if inside {
			leases++
		}
		if i > 0 && h.handedBy(lock.holds[i-1]) {
			if took := h.From - lock.holds[i-1].To; inside {
				in = append(in, took)
			} else {
				out = append(out, took)
			}
		}
	}
	slices.Sort(in)
	slices.Sort(out)
	text := fmt.Sprintf("Meanwhile %s in %s.", count(leases, "lease"), long(s.To-s.From))
	if len(in) > 0 && len(out) > 0 {
		text += fmt.Sprintf(" From an unlock to the next grant it took %s in the median, against %s in the rest of the time.",
			long(Quantile(in, 0.5)), long(Quantile(out, 0.5)))
	}
	return text + fmt.Sprintf(" A client waited for %s at most while nobody held it, against %s.",
		long(lock.idle(s.From, s.To)), long(max(lock.idle(l.From, s.From), lock.idle(s.To, l.Length+1))))
}

// why says who held what somebody waited for.
func (f *lockFigures) why(h *Hold, token func(uint64) string) string {
	some, free := f.beside(h, h.Asked, h.From)
	var who []string
	for _, x := range some[:min(len(some), 3)] {
		who = append(who, fmt.Sprintf("%s with token %s", short(x.Who), token(x.Token)))
	}
	if n := len(some) - 3; n > 0 {
		who = append(who, fmt.Sprintf("%d more", n))
	}
	switch {
	case len(who) == 0:
		return "nobody held it meanwhile"
	case free > 0:
		return fmt.Sprintf("%s held it meanwhile, and nobody for %s", list(who), long(free))
	}
	return list(who) + " held it meanwhile"
}
