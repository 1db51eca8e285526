package judge

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"slices"
	"time"

	"github.com/redquorum/redquorum/internal/timeline"
)

// Drawn is a hold as a timeline tells it that begins at an instant of the same clock. The lane is that of the client.
func (h *Hold) Drawn(began int64) timeline.Hold {
	who := fmt.Sprint("client ", h.Client)
	return timeline.Hold{
		Lock: h.Key, Who: who, Shared: h.Shared, Token: h.Token, Text: cmp.Or(h.Who, who),
		Asked: time.Duration(cmp.Or(h.Asked, h.From) - began), From: time.Duration(h.From - began), To: time.Duration(max(h.From, h.To) - began),
	}
}

// Timeline shows a history with what was found in it, and each overlap larger.
func Timeline(title string, all []Hold, v Verdict) *timeline.Log {
	began, end := int64(math.MaxInt64), int64(math.MinInt64)
	for _, h := range all {
		began, end = min(began, cmp.Or(h.Asked, h.From)), max(end, h.From, h.To)
	}
	log := &timeline.Log{Title: title, Length: time.Duration(max(0, end-began)), Objections: slices.Concat(v.Overlaps, v.Regressions)}
	for _, h := range slices.SortedFunc(slices.Values(all), func(x, y Hold) int { return cmp.Compare(x.Client, y.Client) }) {
		log.Hold(h.Drawn(began))
		if who := log.Holds[len(log.Holds)-1].Who; !slices.Contains(log.Clients, who) {
			log.Clients = append(log.Clients, who)
		}
	}
	log.EnlargeOverlaps()
	return log
}

// Draw tells a log what the judge keeps of a lock, or of all with "": holds that are over.
func (s *Stream) Draw(log *timeline.Log, key string, began int64) {
	for _, name := range slices.Sorted(maps.Keys(s.lines)) {
		if key != "" && name != key {
			continue
		}
		for _, x := range s.lines[name].past {
			h := x.Drawn(began)
			h.Forced = s.Excused != nil && s.Excused(x, x)
			log.Hold(h)
			log.Length = max(log.Length, h.To)
		}
	}
	log.EnlargeOverlaps()
}

// Leave leaves a timeline in the folder of REDQUORUM_APP_OUT, or among temporary files, and says where it is.
func Leave(log *timeline.Log) string {
	f, err := os.CreateTemp(os.Getenv("REDQUORUM_APP_OUT"), "redquorum-*.html")
	if err == nil {
		err = errors.Join(log.HTML(f), f.Close())
	}
	if err != nil {
		return fmt.Sprintf("the timeline cannot be left: %v", err)
	}
	return "look at file://" + f.Name()
}
