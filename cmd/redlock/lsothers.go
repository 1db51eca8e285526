package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/redquorum/redquorum/internal/printable"
	"github.com/redquorum/redquorum/member"
	"github.com/redquorum/redquorum/redlock"
)

// heldSlotsJSON is one semaphore that ls found.
type heldSlotsJSON struct {
	Key      string       `json:"key"`
	KeyBytes []byte       `json:"key_base64,omitempty"` // the name, if it is no UTF-8
	Votes    int          `json:"votes"`                // the fewest that a holder has
	TTLMS    int64        `json:"ttl_ms"`               // the longest of the votes
	Kind     redlock.Kind `json:"kind"`
	Slots    int          `json:"slots"` // that are held
	Holders  int          `json:"holders"`
	Waiting  int          `json:"waiting"` // the longest line of a member
	Limit    *int         `json:"limit"`   // that is stored; null: none is

	HoldersWho []string `json:"holders_who,omitempty"` // what those tell of themselves that do (--label), each once
}

func (l *heldSlotsJSON) line(members int) string {
	line := fmt.Sprintf("%s\tsemaphore\t%d/%d\t%v\t%s by %s", printable.Quote(l.Key), l.Votes, members,
		time.Duration(l.TTLMS)*time.Millisecond, counted(l.Slots, "slot"), counted(l.Holders, "holder"))
	if l.Limit != nil {
		line += fmt.Sprintf(", stored limit %d", *l.Limit)
	}
	if l.Waiting > 0 {
		line += fmt.Sprintf(", %d waiting", l.Waiting)
	}
	if len(l.HoldersWho) > 0 {
		line += "\t" + several(l.HoldersWho)
	}
	return line
}

// foundLatchJSON is one latch that ls found.
type foundLatchJSON struct {
	Key       string       `json:"key"`
	KeyBytes  []byte       `json:"key_base64,omitempty"` // the name, if it is no UTF-8
	Votes     int          `json:"votes"`                // members that have it
	TTLMS     int64        `json:"ttl_ms"`               // the longest of its lives
	Kind      redlock.Kind `json:"kind"`
	Round     uint64       `json:"round"`
	Count     int          `json:"count"`
	Remaining int          `json:"remaining"`
	Open      bool         `json:"open"`

	state string
}

func (l *foundLatchJSON) line(members int) string {
	return fmt.Sprintf("%s\tlatch\t%d/%d\t%v\t%s", printable.Quote(l.Key), l.Votes, members,
		time.Duration(l.TTLMS)*time.Millisecond, l.state)
}

func encodeEach[T any](e *json.Encoder, all []T) error {
	for _, one := range all {
		if err := e.Encode(one); err != nil {
			return err
		}
	}
	return nil
}

// atOnce is how many names lookAt asks about at the same time.
const atOnce = 16

// lookAt asks about the semaphores and the latches that others has found. It leaves out those that
// end meanwhile, and without all those that less than a majority knows. Without any it makes no
// client.
func (c *common) lookAt(cmd *cobra.Command, names map[string][]string, all bool) (slots []*heldSlotsJSON, latches []*foundLatchJSON, _ error) {
	ofSlots, ofLatches := names[semaphoreKeys], names[latchKeys]
	if len(ofSlots)+len(ofLatches) == 0 {
		return nil, nil, nil
	}
	conn, err := c.open(cmd.Context(), cmd)
	if err != nil {
		return nil, nil, err
	}
	defer conn.close()
	slots, err = askEach(ofSlots, func(name string) (*heldSlotsJSON, error) {
		in, err := conn.InspectSemaphore(cmd.Context(), name)
		if err != nil {
			return nil, err
		}
		return slotsFound(in, all), tooFew(permitErrors(in))
	})
	if err != nil {
		return nil, nil, err
	}
	latches, err = askEach(ofLatches, func(name string) (*foundLatchJSON, error) {
		in, err := conn.InspectLatch(cmd.Context(), name)
		if err != nil {
			return nil, err
		}
		return latchFound(in, all), latchUnanswered(in)
	})
	return slots, latches, cmp.Or(err, cmd.Context().Err())
}

// askEach asks about each name, in their order, and leaves out what is nil.
func askEach[T any](names []string, one func(name string) (*T, error)) (out []*T, _ error) {
	found, failed := make([]*T, len(names)), make([]error, len(names))
	room := make(chan struct{}, atOnce)
	var wg sync.WaitGroup
	for i, name := range names {
		room <- struct{}{}
		wg.Go(func() {
			found[i], failed[i] = one(name)
			<-room
		})
	}
	wg.Wait()
	for i := range names {
		if failed[i] != nil {
			return nil, failed[i]
		}
		if found[i] != nil {
			out = append(out, found[i])
		}
	}
	return out, nil
}

// slotsFound is what ls says of a semaphore, nil: nothing.
func slotsFound(in *redlock.Inspection, all bool) *heldSlotsJSON {
	if len(in.Holders) == 0 && (!all || !permitsKnown(in)) {
		return nil
	}
	out := &heldSlotsJSON{
		Key: in.Key, KeyBytes: exact(in.Key), Kind: redlock.KindSemaphore, Limit: storedLimit(in.Limit),
		Slots: heldSlots(in), Holders: len(in.Holders),
	}
	for i, h := range in.Holders {
		if i == 0 || h.Votes < out.Votes {
			out.Votes = h.Votes
		}
		out.TTLMS = max(out.TTLMS, h.TTL.Milliseconds())
		out.HoldersWho = append(out.HoldersWho, h.Who)
	}
	out.HoldersWho = eachOnce(out.HoldersWho)
	for _, v := range in.Members {
		out.Waiting = max(out.Waiting, len(v.Queue))
	}
	return out
}

// latchFound is what ls says of a latch, nil: nothing.
func latchFound(in *redlock.Inspection, all bool) *foundLatchJSON {
	if in.Latch == nil {
		return nil
	}
	out := &foundLatchJSON{
		Key: in.Key, KeyBytes: exact(in.Key), Kind: redlock.KindLatch, Round: in.Latch.Round, Count: in.Latch.Count, Remaining: in.Latch.Remaining,
		Open: in.Latch.Open, state: latchState(in),
	}
	for _, v := range in.Members {
		if v.Latch != nil {
			out.Votes++
			out.TTLMS = max(out.TTLMS, v.Latch.Life.Milliseconds())
		}
	}
	if !all && out.Votes < member.Majority(len(in.Members)) {
		return nil
	}
	return out
}
