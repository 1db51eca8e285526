package timeline

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/redquorum/redquorum/internal/printable"
)

// All lengths are in pixels. Text in the picture has a monospaced font of 11 pixels, so that its width is known here.
const (
	plotWidth   = 1120
	edge        = 20 // of the plot, left and right of the time that it shows
	letter      = 6.75
	axisHeight  = 24
	eventHeight = 18
	groupHeight = 24
	holdHeight  = 16 // of a lane with one row
	rowHeight   = 9  // of a lane with several
	waitHeight  = 5
	laneGap     = 6
	foot        = 6

	mostBars   = 6000 // of all pictures of a page
	mostLanes  = 24   // of a group
	mostRows   = 4    // of a lane
	mostEvents = 60
	leastBin   = 6 // what is narrower than half of a bin is drawn together with what else is in it
)

// picture is one view, laid out.
type picture struct {
	ID                 string
	Title, Caption     string
	Names, Plot        int // widths
	Left, Right, Axis  int
	Height             int
	Ticks              []tick
	Groups             []group
	Lanes              []lane
	Bars               []*bar
	Links              []link
	Bands              []band
	Events             []event
	EventsTop, HairEnd int
}

type tick struct {
	X, LabelX float64 // LabelX is the middle of the label
	Label     string
}

type group struct {
	Y          int
	Name, Line string
	Full       string // the name, uncut
	Bad        bool
}

type lane struct {
	Y, Height  int
	Name, Full string
}

// bar is what is drawn for one hold, wait or spell, or for several that lie close.
type bar struct {
	Class         string
	X, Y          float64
	Width, Height float64
	Label         string
	LabelX        float64
	LabelY        float64
	Renewals      []tickmark

	// The same facts in words, for the title and for the table.
	Lane, What, From, Long, Token, More string

	lane     int
	from, to time.Duration
	n        int // how many it stands for
}

// Row is the number of the bar's lane.
func (b *bar) Row() int { return b.lane }

// Title tells all of a bar.
func (b *bar) Title() string {
	s := b.Lane + ": " + b.What
	if b.Token != "" {
		s += ", token " + b.Token
	}
	s += ", from " + b.From
	if b.Long != "" {
		s += " for " + b.Long
	}
	if b.More != "" {
		s += ". " + b.More
	}
	return s
}

type tickmark struct {
	X float64
	Y float64
}

// link is a hand-over from one bar to another.
type link struct{ X1, Y1, X2, Y2 float64 }

// band is a time in which two believed at once.
type band struct {
	X, Y, Width, Height float64
	Title               string
}

// event is a mark with its number, or several that lie too close.
type event struct {
	X, Y    float64
	Label   string
	Half    float64 // of the width of its badge
	Bad     bool
	Entries []entry
	Cross   float64 // where on its lane a refused write is drawn; 0: it is none
}

// entry is an event in words.
type entry struct {
	Number   int
	At, Text string
	Bad      bool
}

// laneKey names a lane.
type laneKey struct {
	lock string // "" of members
	who  string
}

// drawing lays out the pictures of a log.
type drawing struct {
	l     *Log
	f     *figures
	c     clock
	lanes map[laneKey]int // index in places; several may share one
	place []placed
	rows  map[*Hold]int
	cut   uint64 // tokens are shown modulo this
}

// placed is a lane where it is drawn in each picture.
type placed struct {
	lane
	key  laneKey
	rows int
}

func (l *Log) draw(f *figures, bars int) []*picture {
	d := &drawing{l: l, f: f, c: clock{l.Start}, lanes: map[laneKey]int{}, rows: map[*Hold]int{}}
	d.shorten()
	groups, height, names := d.arrange()
	views := append([]View{{"The whole time", l.From, max(l.Length, l.From+time.Millisecond)}}, l.CloseUps...)
	var all []*picture
	for i, v := range views {
		if v.To <= v.From || i > 0 && v.To-v.From > (views[0].To-views[0].From)*2/3 {
			continue // it shows nothing larger
		}
		p := &picture{
			ID: fmt.Sprint("v", i+1), Title: printable.Text(v.Title, 200), Names: names, Plot: plotWidth, Left: edge, Right: plotWidth - edge,
			Ticks: d.ticks(v), HairEnd: height,
		}
		d.events(p, v)
		if most := bars / 2; i == 0 {
			d.bars(p, v, most)
		} else {
			d.bars(p, v, most/len(l.CloseUps))
		}
		// What was laid out from 0 on stands below the axis and the events.
		top := axisHeight + eventHeight*p.eventRows() + 4
		p.Axis, p.EventsTop = axisHeight, axisHeight+2
		p.shift(top, groups, d.place)
		p.Height = height + top + foot
		p.HairEnd = height + top
		p.Caption = fmt.Sprintf("From %s to %s, %s in all.", d.c.at(v.From), d.c.at(v.To), long(v.To-v.From))
		all = append(all, p)
	}
	return all
}

// shorten finds how many digits of the tokens differ. With less than three it shows three.
func (d *drawing) shorten() {
	least, most := uint64(math.MaxUint64), uint64(0)
	for _, h := range d.l.Holds {
		if h.Token > 0 {
			least, most = min(least, h.Token), max(most, h.Token)
		}
	}
	d.cut = 1000
	for d.cut < math.MaxUint64/10 && least/d.cut < most/d.cut {
		d.cut *= 10
	}
	if most < d.cut {
		d.cut = 0
	}
}

func (d *drawing) short(token uint64) string {
	switch {
	case token == 0:
		return ""
	case d.cut == 0:
		return strconv.FormatUint(token, 10)
	}
	return fmt.Sprintf("…%0*d", len(strconv.FormatUint(d.cut, 10))-1, token%d.cut)
}

// arrange gives each lane its place.
func (d *drawing) arrange() (groups []group, height, names int) {
	y, widest := 0, 12
	for _, lock := range d.f.locks {
		if len(lock.clients) == 0 {
			continue
		}
		g := group{Y: y, Name: fit(lock.Name, 26), Full: printable.Text(lock.Name, 500), Bad: lock.overlaps > 0}
		found := "never " + lock.forbidden()
		if d.l.Looks > 0 {
			found = "no look saw " + lock.forbidden()
		}
		if g.Bad {
			found = "✕ two at once, " + times(lock.overlaps)
		}
		g.Line = strings.Join(slices.DeleteFunc([]string{printable.Text(lock.Rule, 100), count(len(lock.holds), "lease"), found}, func(s string) bool { return s == "" }), " · ")
		groups = append(groups, g)
		widest = max(widest, utf8.RuneCountInString(g.Name)+1)
		y += groupHeight
		for i, c := range lock.clients {
			key := laneKey{lock.Name, c.Who}
			if i >= mostLanes { // in the last lane
				d.lanes[key] = len(d.place) - 1
				continue
			}
			if i == mostLanes-1 && len(lock.clients) > mostLanes {
				d.lanes[key] = len(d.place)
				key.who = fmt.Sprintf("%d more clients", len(lock.clients)-i)
			}
			d.lane(key, &y, &widest, d.l.rowsOf(lock, c.Who, d.rows))
		}
		y += laneGap
	}
	if members := d.members(); len(members) > 0 {
		groups = append(groups, group{Y: y, Name: "members", Full: "members", Line: d.membersLine(len(members))})
		y += groupHeight
		for _, m := range members {
			d.lane(laneKey{"", m}, &y, &widest, 1)
		}
	}
	return groups, y, int(float64(widest)*letter) + 22
}

// forbidden is what the lock must never let happen, by what was seen of it.
func (f *lockFigures) forbidden() string {
	switch {
	case slices.ContainsFunc(f.holds, func(h *Hold) bool { return h.Shared }):
		return "anybody beside a writer"
	case slices.ContainsFunc(f.holds, func(h *Hold) bool { return h.Slot > 0 }):
		return "two in one slot"
	}
	return "two at once"
}

func (d *drawing) lane(key laneKey, y, widest *int, rows int) {
	p := placed{key: key, rows: rows, lane: lane{Y: *y, Height: max(holdHeight, rows*rowHeight), Name: fit(key.who, 24), Full: printable.Text(key.who, 100)}}
	if _, shared := d.lanes[key]; !shared {
		d.lanes[key] = len(d.place)
	}
	d.place = append(d.place, p)
	*widest = max(*widest, utf8.RuneCountInString(p.Name))
	*y += p.Height + laneGap
	if key.lock != "" {
		*y += waitHeight
	}
}

// rowsOf gives holds that one lane has at the same time rows of their own.
func (l *Log) rowsOf(lock *lockFigures, who string, rows map[*Hold]int) int {
	var taken []time.Duration
	for _, h := range lock.holds {
		if h.Who != who {
			continue
		}
		row := slices.IndexFunc(taken, func(until time.Duration) bool { return until <= h.From })
		switch {
		case row >= 0:
		case len(taken) < mostRows:
			taken, row = append(taken, 0), len(taken)
		default:
			row = mostRows - 1
		}
		taken[row] = max(h.To, h.Past)
		rows[h] = row
	}
	return max(1, len(taken))
}

// members are those that are told of.
func (d *drawing) members() []string {
	all := slices.Clone(d.l.Members)
	for _, s := range d.l.Spells {
		if s.Lock == "" && !slices.Contains(all, s.Who) {
			all = append(all, s.Who)
		}
	}
	return all
}

func (d *drawing) membersLine(n int) string { return fmt.Sprintf("%d of %d decide", n/2+1, n) }

// fit cuts a name to so many letters. Letters that are drawn in twice the width count twice.
func fit(s string, most int) string {
	s = printable.Text(s, 4*most)
	width := 0
	for i, r := range s {
		if width++; r >= 0x1100 {
			width++
		}
		if width > most {
			cut := s[:i]
			_, n := utf8.DecodeLastRuneInString(cut)
			return cut[:len(cut)-n] + "…"
		}
	}
	return s
}

// x is where an instant is drawn.
func (v View) x(at time.Duration) float64 {
	return edge + float64(at-v.From)/float64(v.To-v.From)*(plotWidth-2*edge)
}

func tenth(x float64) float64 { return math.Round(x*10) / 10 }

// steps between ticks.
var steps = func() (all []time.Duration) {
	for unit := 10 * time.Microsecond; unit < 10*time.Second; unit *= 10 {
		all = append(all, unit, 2*unit, 5*unit)
	}
	const day = 24 * time.Hour
	return append(all, 10*time.Second, 30*time.Second, time.Minute, 2*time.Minute, 5*time.Minute, 10*time.Minute, 30*time.Minute,
		time.Hour, 2*time.Hour, 6*time.Hour, 12*time.Hour, day, 2*day, 7*day, 30*day)
}()

func (d *drawing) ticks(v View) (all []tick) {
	step := steps[len(steps)-1]
	for _, s := range steps {
		room := float64(len([]rune(d.c.to(v.To, s)))+5) * letter
		if v.x(v.From+s)-edge >= max(room, 80) {
			step = s
			break
		}
	}
	first := (v.From + step - 1) / step * step
	if !d.c.start.IsZero() { // ticks stand at round times of day
		_, zone := d.c.start.Zone()
		local := d.c.start.Add(time.Duration(zone) * time.Second).UTC()
		into := local.Add(v.From).Sub(local.Truncate(24 * time.Hour))
		first = v.From + (into+step-1)/step*step - into
	}
	for at := first; at <= v.To; at += step {
		t := tick{X: tenth(v.x(at)), Label: d.c.to(at, step)}
		half := float64(utf8.RuneCountInString(t.Label)) * letter / 2
		t.LabelX = min(max(t.X, half), plotWidth-half)
		all = append(all, t)
	}
	return all
}

// bars draws all that a view shows with at most so many bars.
func (d *drawing) bars(p *picture, v View, most int) {
	bin := float64(leastBin)
	for d.pieces(p, v, bin); len(p.Bars) > most && bin < plotWidth; d.pieces(p, v, bin) {
		p.Bars, bin = p.Bars[:0], 1.4*bin
	}
	slices.SortStableFunc(p.Bars, func(x, y *bar) int { return cmp.Or(cmp.Compare(x.lane, y.lane), cmp.Compare(x.from, y.from)) })
	for i, b := range p.Bars { // a label has its bar for itself
		if end := b.LabelX + float64(utf8.RuneCountInString(b.Label))*letter; b.Label != "" && slices.ContainsFunc(p.Bars[i+1:min(i+8, len(p.Bars))],
			func(x *bar) bool { return x.lane == b.lane && x.X < end && x.Y < b.Y+b.Height && b.Y < x.Y+x.Height }) {
			b.Label = ""
		}
	}
	d.links(p, v, bin/2)
	d.bands(p, v)
}

// piece is a hold, a wait for one, or a spell, on its way to a bar.
type piece struct {
	h        *Hold
	wait     bool
	s        *Spell
	from, to time.Duration
}

// bin is in what widths such pieces are drawn together: waits are the background.
func (x piece) bin(bin float64) float64 {
	if x.wait {
		return 3 * bin
	}
	return bin
}

// pieces draws what is wide enough alone, and the rest together with its neighbours.
func (d *drawing) pieces(p *picture, v View, bin float64) {
	type place struct {
		lane, bin int
		class     string
	}
	bins := map[place][]piece{}
	var order []place
	put := func(key laneKey, class string, x piece) {
		lane, there := d.lanes[key]
		if !there || x.to < v.From || x.from > v.To {
			return
		}
		x.from, x.to = max(x.from, v.From), min(x.to, v.To)
		if v.x(x.to)-v.x(x.from) >= bin/2 {
			d.single(p, v, lane, x)
			return
		}
		at := place{lane, int((v.x(x.from+(x.to-x.from)/2) - edge) / x.bin(bin)), class}
		if bins[at] == nil {
			order = append(order, at)
		}
		bins[at] = append(bins[at], x)
	}
	for _, lock := range d.f.locks {
		for _, h := range lock.holds {
			key := laneKey{h.Lock, h.Who}
			if h.Asked < h.From {
				put(key, "w", piece{h: h, wait: true, from: h.Asked, to: h.From})
			}
			put(key, "h", piece{h: h, from: h.From, to: max(h.From, h.To)})
		}
	}
	for i := range d.l.Spells {
		s := &d.l.Spells[i]
		put(laneKey{s.Lock, s.Who}, kinds[s.Kind].class, piece{s: s, wait: s.Kind == Waits, from: s.From, to: s.To})
	}
	for _, at := range order {
		if some := bins[at]; len(some) == 1 {
			d.single(p, v, at.lane, some[0])
		} else {
			d.several(p, v, at.lane, at.bin, some[0].bin(bin), some)
		}
	}
}

// kinds are how spells look and what they are called.
var kinds = [...]struct{ class, what, label string }{
	Waits: {"w", "waits, and does not get it", ""}, Dead: {"d", "is dead", "dead"}, Rests: {"q", "is in quarantine, and does not vote", "quarantine"},
	Silent: {"s", "does not answer", "silent"}, Faulty: {"q", "is disturbed", "disturbed"}, Votes: {"v", "has voted", ""},
}

// single draws one hold or wait.
func (d *drawing) single(p *picture, v View, lane int, x piece) {
	b := d.bar(v, lane, x.from, x.to)
	switch {
	case x.s != nil:
		kind := kinds[x.s.Kind]
		b.From, b.Long, b.More = d.c.at(x.s.From), long(x.s.To-x.s.From), printable.Text(x.s.Text, 200)
		if b.Class, b.What, b.Label = kind.class, kind.what, kind.label; x.s.Kind == Votes {
			b.Label = fit(x.s.Text, 24)
		}
	case x.wait:
		b.From, b.Long = d.c.at(x.h.Asked), long(x.h.From-x.h.Asked)
		b.Class, b.What, b.More = "w", "waits", upper(d.lock(x.h.Lock).why(x.h, tokenText))+"."
	default:
		d.hold(v, b, x.h)
	}
	if x.wait {
		b.Y, b.Height = d.waits(lane)
	}
	d.label(b)
	p.Bars = append(p.Bars, b)
	if h := x.h; h != nil && !x.wait && h.Past > h.To && h.Past >= v.From && h.To <= v.To { // it goes on without a lease
		past := d.bar(v, lane, max(h.To, v.From), min(h.Past, v.To))
		past.From, past.Long = d.c.at(h.To), long(h.Past-h.To)
		past.Class, past.What, past.Token, past.Label = "o", "goes on, though its lease has ended", tokenText(h.Token), "lease over"
		past.Y, past.Height, past.n = b.Y, b.Height, 0
		d.label(past)
		p.Bars = append(p.Bars, past)
	}
}

// hold says what a hold is.
func (d *drawing) hold(v View, b *bar, h *Hold) {
	b.From, b.Long, b.Token, b.n = d.c.at(h.From), long(max(0, h.To-h.From)), tokenText(h.Token), 1
	b.Class, b.What = "h", "holds"
	if h.Shared {
		b.Class, b.What = "r", "reads"
	}
	b.Label = d.short(h.Token)
	var more []string
	if h.Asked < h.From {
		more = append(more, "It waited "+long(h.From-h.Asked))
	}
	if n := len(h.Renewed); n > 0 {
		more = append(more, "It was renewed "+times(n))
		for _, at := range h.Renewed {
			if x := v.x(at); at >= v.From && at <= v.To && (len(b.Renewals) == 0 || x-b.Renewals[len(b.Renewals)-1].X >= 4) {
				b.Renewals = append(b.Renewals, tickmark{tenth(x), 0})
			}
		}
	}
	if h.Open {
		more = append(more, "It goes on at the end")
	}
	if h.Text != "" {
		more = append(more, printable.Text(h.Text, 200))
	}
	if len(more) > 0 {
		b.More = strings.Join(more, ". ") + "."
	}
	row, rows := d.rows[h], d.place[b.lane].rows
	if rows > 1 {
		b.Height = rowHeight - 1
		b.Y += float64(row * rowHeight)
		b.Label = ""
	} else if h.Shared {
		b.Y, b.Height = b.Y+2, b.Height-4
	}
	for i := range b.Renewals {
		b.Renewals[i].Y = b.Y
	}
}

func tokenText(token uint64) string {
	if token == 0 {
		return ""
	}
	return strconv.FormatUint(token, 10)
}

// several draws holds or waits that lie so close that they would be one blot. Their share of the time is the height.
func (d *drawing) several(p *picture, v View, lane, n int, bin float64, some []piece) {
	span := v.To - v.From
	perPixel := float64(span) / (plotWidth - 2*edge)
	from := v.From + time.Duration(float64(n)*bin*perPixel)
	b := d.bar(v, lane, from, min(v.To, from+time.Duration(bin*perPixel)))
	sum, most := time.Duration(0), time.Duration(0)
	shared := 0
	first, last := uint64(0), uint64(0)
	for _, x := range some {
		sum, most = sum+x.to-x.from, max(most, x.to-x.from)
		if x.h != nil {
			if x.h.Shared {
				shared++
			}
			if first == 0 || x.h.Token < first {
				first = x.h.Token
			}
			last = max(last, x.h.Token)
		}
	}
	b.From, b.Long = d.c.at(from), long(b.to-b.from)
	b.More = fmt.Sprintf("%s in sum, %s at most.", upper(long(sum)), long(most))
	switch x := some[0]; {
	case x.wait:
		b.Class, b.What = "w", count(len(some), "wait")
		b.Y, b.Height = d.waits(lane)
	case x.s != nil:
		kind := kinds[x.s.Kind]
		b.Class, b.What = kind.class, kind.what+" "+times(len(some))
	default:
		b.Class, b.What, b.n = "h", count(len(some), "lease"), len(some)
		if shared == len(some) {
			b.Class, b.What = "r", count(len(some), "read")
		}
		b.Token = fmt.Sprintf("%d to %d", first, last)
	}
	high := max(2, b.Height*min(1, float64(sum)/float64(max(b.to-b.from, 1))/float64(d.place[lane].rows)))
	b.Y, b.Height = tenth(b.Y+b.Height-high), tenth(high)
	p.Bars = append(p.Bars, b)
}

// bar is one at its place.
func (d *drawing) bar(v View, lane int, from, to time.Duration) *bar {
	x := v.x(from)
	width := max(v.x(to)-x, 1.5)
	at := d.place[lane]
	return &bar{
		X: tenth(x), Width: tenth(width), Y: float64(at.Y), Height: float64(at.Height), Lane: at.Full, lane: lane, from: from, to: to,
	}
}

// waits is where a lane has its waits.
func (d *drawing) waits(lane int) (y, height float64) {
	at := d.place[lane]
	return float64(at.Y + at.Height), waitHeight
}

// label keeps a label that has room, and places it.
func (d *drawing) label(b *bar) {
	n := float64(utf8.RuneCountInString(b.Label))
	if b.Height < 12 || n*letter+8 > b.Width {
		b.Label = ""
	}
	b.LabelX, b.LabelY = tenth(b.X+4), tenth(b.Y+b.Height/2+4)
}

// lock is that of a name.
func (d *drawing) lock(name string) *lockFigures {
	return d.f.locks[slices.IndexFunc(d.f.locks, func(x *lockFigures) bool { return x.Name == name })]
}

// links draws how a lock went from hand to hand, where both holds are wide enough to be seen.
func (d *drawing) links(p *picture, v View, least float64) {
	for _, lock := range d.f.locks {
		var before *Hold
		for _, h := range lock.holds {
			x := before
			before = h
			if !h.handedBy(x) || h.From < v.From || x.To > v.To || x.To < v.From || h.From > v.To {
				continue
			}
			from, to := d.lanes[laneKey{x.Lock, x.Who}], d.lanes[laneKey{h.Lock, h.Who}]
			if from == to || v.x(x.To)-v.x(x.From) < least || v.x(h.To)-v.x(h.From) < least {
				continue
			}
			middle := func(lane int) float64 { return float64(d.place[lane].Y) + holdHeight/2 }
			p.Links = append(p.Links, link{tenth(v.x(x.To)), middle(from), tenth(v.x(h.From)), middle(to)})
		}
	}
}

// bands shows where two believed at once.
func (d *drawing) bands(p *picture, v View) {
	for _, o := range d.f.overlaps {
		if o.to < v.From || o.from > v.To || len(p.Bands) == 50 {
			continue
		}
		x, y := d.place[d.lanes[laneKey{o.x.Lock, o.x.Who}]], d.place[d.lanes[laneKey{o.y.Lock, o.y.Who}]]
		from, to := max(o.from, v.From), min(o.to, v.To)
		top, bottom := min(x.Y, y.Y), max(x.Y+x.Height, y.Y+y.Height)
		p.Bands = append(p.Bands, band{
			tenth(v.x(from) - 1.5), float64(top - 2), tenth(v.x(to) - v.x(from) + 3), float64(bottom - top + 4),
			fmt.Sprintf("Two at once: %s (token %d) and %s (token %d), from %s for %s",
				printable.Text(o.x.Who, 100), o.x.Token, printable.Text(o.y.Who, 100), o.y.Token, d.c.at(o.from), long(o.to-o.from)),
		})
	}
}

// events numbers the marks of a view. Badges that would lie upon another one stand in the next row, or share one.
func (d *drawing) events(p *picture, v View) {
	const rows = 3
	var ends [rows]float64 // by row, where the last badge ends
	marks := slices.SortedStableFunc(slices.Values(d.l.Marks), func(x, y Mark) int { return cmp.Compare(x.At, y.At) })
	number := 0
	for _, m := range marks {
		number++
		if m.At < v.From || m.At > v.To {
			continue
		}
		e := entry{number, d.c.at(m.At), printable.Text(m.Text, 300), m.Bad}
		x := tenth(v.x(m.At))
		half := float64(len(strconv.Itoa(number))+1)*letter/2 + 3 // with room for a plus
		at := slices.IndexFunc(ends[:], func(end float64) bool { return x-half >= end+2 })
		if n := len(p.Events); n > 0 && (at < 0 || n >= mostEvents) {
			last := &p.Events[n-1]
			last.Entries, last.Bad = append(last.Entries, e), last.Bad || e.Bad
			last.Label = fmt.Sprint(last.Entries[0].Number, "+")
			continue
		}
		ev := event{X: x, Y: float64(axisHeight + 2 + at*eventHeight), Half: half, Label: strconv.Itoa(number), Bad: m.Bad, Entries: []entry{e}}
		if lane, there := d.lanes[laneKey{m.Lock, m.Who}]; there && m.Refused {
			ev.Cross = float64(d.place[lane].Y) + holdHeight/2
		}
		ends[at] = x + half
		p.Events = append(p.Events, ev)
	}
}

func (p *picture) eventRows() int {
	rows := 0
	for _, e := range p.Events {
		rows = max(rows, 1+int(e.Y-axisHeight-2)/eventHeight)
	}
	return rows
}

// shift moves what was laid out from 0 on below the axis.
func (p *picture) shift(top int, groups []group, lanes []placed) {
	for _, g := range groups {
		g.Y += top
		p.Groups = append(p.Groups, g)
	}
	for _, l := range lanes {
		l.Y += top
		p.Lanes = append(p.Lanes, l.lane)
	}
	down := float64(top)
	for _, b := range p.Bars {
		b.Y, b.LabelY = tenth(b.Y+down), tenth(b.LabelY+down)
		for i := range b.Renewals {
			b.Renewals[i].Y = tenth(b.Renewals[i].Y + down)
		}
	}
	for i := range p.Links {
		p.Links[i].Y1, p.Links[i].Y2 = p.Links[i].Y1+down, p.Links[i].Y2+down
	}
	for i := range p.Bands {
		p.Bands[i].Y += down
	}
	for i := range p.Events {
		if p.Events[i].Cross > 0 {
			p.Events[i].Cross += down
		}
	}
}

// upper makes the beginning of a sentence.
func upper(s string) string {
	if s == "" {
		return s
	}
	return strings.ToUpper(s[:1]) + s[1:]
}
