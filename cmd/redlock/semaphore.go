package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/redquorum/redquorum/internal/printable"
	"github.com/redquorum/redquorum/member"
	"github.com/redquorum/redquorum/redlock"
)

// mostSlots is the greatest limit of a semaphore, and mostPermits the most that one lease has.
const (
	mostSlots   = 4096
	mostPermits = 64
)

// within takes the value of a flag: a number from 1 to most.
func within(n *int, most int) func(string) error {
	return func(v string) (err error) {
		if *n, err = strconv.Atoi(v); err != nil || *n < 1 || *n > most {
			return fmt.Errorf("must be between 1 and %d", most)
		}
		return nil
	}
}

// semaphore returns an error unless the flags about a semaphore fit together.
func (w *waiting) semaphore() error {
	switch {
	case w.limit == 0 && w.seats == 0:
		return nil
	case w.limit == 0:
		return usage("--permits needs --limit: how many slots the semaphore has")
	case w.seats > w.limit:
		return usage("--permits is %d, more than the --limit of %d", w.seats, w.limit)
	case w.fair || w.shared || w.elect != nil:
		return usage("--limit excludes --fair, --shared and --elect: a semaphore is another kind of lock")
	}
	return nil
}

// permits is the semaphore that the flags name.
func (w *waiting) permits(c *connection, key string, more ...redlock.LockOption) locker {
	return permits{c.Semaphore(key, w.limit, append(more, redlock.Permits(max(1, w.seats)))...)}
}

// permits takes slots of a semaphore.
type permits struct{ s *redlock.Semaphore }

func (p permits) Lock(ctx context.Context) (*redlock.Lease, error)    { return p.s.Acquire(ctx) }
func (p permits) TryLock(ctx context.Context) (*redlock.Lease, error) { return p.s.TryAcquire(ctx) }

// slotJSON is one slot for scripts.
type slotJSON struct {
	Slot  int    `json:"slot"`
	Token uint64 `json:"token"`
}

func slotsToJSON(slots []redlock.Slot) (out []slotJSON) {
	for _, s := range slots {
		out = append(out, slotJSON{s.Number, s.Token})
	}
	return out
}

// tokenLines are the token as NAME=value, and the slot that it is of. Several slots have a token
// each.
func tokenLines(token uint64, slots []slotJSON) []string {
	switch len(slots) {
	case 0:
		return []string{fmt.Sprintf("REDLOCK_TOKEN=%d", token)}
	case 1:
		return []string{
			fmt.Sprintf("REDLOCK_TOKEN=%d", token), fmt.Sprintf("REDLOCK_SLOT=%d", slots[0].Slot),
		}
	}
	out := []string{fmt.Sprintf("REDLOCK_SLOTS=%d", len(slots))}
	for i, s := range slots {
		out = append(out,
			fmt.Sprintf("REDLOCK_SLOT_%d=%d", i+1, s.Slot), fmt.Sprintf("REDLOCK_TOKEN_%d=%d", i+1, s.Token))
	}
	return out
}

func newSemaphore() *cobra.Command {
	var c common
	set, unset := 0, false
	cmd := &cobra.Command{
		Use:   "semaphore KEY",
		Short: "Show who holds the slots of a semaphore, or change its limit",
		Long: `semaphore asks every member what it knows of the semaphore KEY, and changes nothing. It shows who holds
which slots, with their tokens, how many members say so, and who waits for how many slots. It shows
each owner as a hash, because an owner's name is the authority to release. Each member answers at a
moment of its own, so use the answer to look and never to decide.

With --set-limit K it stores a limit at the members, in place of the --limit of every user, until
another --set-limit or --clear-limit. What is held stays. 0 drains: nobody gets a slot any more. Both
print nothing, and exit with 0 once a majority of the members has the limit.

"redlock run KEY --limit K" takes a permit, and "redlock release KEY --force --slot N" takes it from a
holder that is gone.

The exit code is 0 whether a slot is held or not; 69 if no majority answers.

` + configHelp,
		Example: `  redlock semaphore downloads
  redlock semaphore downloads --json | jq '.holders[].slots[].slot'
  redlock semaphore downloads --set-limit 4`,
		Args: oneKey,
		RunE: func(cmd *cobra.Command, args []string) error {
			stores := cmd.Flags().Changed("set-limit")
			switch {
			case stores && unset:
				return usage("--set-limit and --clear-limit exclude each other")
			case c.json && (stores || unset):
				return usage("--json is for looking: --set-limit and --clear-limit print nothing")
			case set < 0 || set > mostSlots:
				return usage("--set-limit is %d, must be between 0 and %d", set, mostSlots)
			}
			conn, err := c.open(cmd.Context(), cmd)
			if err != nil {
				return err
			}
			defer conn.close()
			name := args[0]
			switch s := conn.Semaphore(name, mostSlots); {
			case stores:
				return s.SetLimit(cmd.Context(), set)
			case unset:
				return s.ClearLimit(cmd.Context())
			}
			in, err := conn.InspectSemaphore(cmd.Context(), name)
			if err != nil {
				return err
			}
			err = c.show(cmd, func() any { return semaphoreToJSON(in) }, func(w io.Writer) error { return printSemaphore(w, in) })
			if err != nil {
				return err
			}
			return tooFew(permitErrors(in))
		},
	}
	c.flags(cmd.Flags())
	cmd.Flags().BoolVar(&c.json, "json", false, "print JSON")
	cmd.Flags().IntVar(&set, "set-limit", 0, "store this limit, 0 to 4,096, in place of that of every user")
	cmd.Flags().BoolVar(&unset, "clear-limit", false, "remove the stored limit: that of each user is its own again")
	return cmd
}

// semaphoreJSON is redlock.Inspection for scripts.
type semaphoreJSON struct {
	Key      string              `json:"key"`
	KeyBytes []byte              `json:"key_base64,omitempty"` // the name, if it is no UTF-8
	Limit    *int                `json:"limit"`                // that is stored; null: none is
	Holders  []permitHolderJSON  `json:"holders"`
	Members  []permitsMemberJSON `json:"members"`
}

type permitHolderJSON struct {
	Owner string     `json:"owner"` // hash
	Votes int        `json:"votes"`
	TTLMS int64      `json:"ttl_ms"` // the longest of the votes
	Slots []slotJSON `json:"slots"`
	Who   string     `json:"who,omitempty"` // what its client tells of itself (--label)
}

type permitsMemberJSON struct {
	Member  string             `json:"member"`
	State   string             `json:"state"`
	Error   string             `json:"error,omitempty"`
	Limit   *int               `json:"limit"`
	Votes   []permitVoteJSON   `json:"votes"`
	Waiting []permitWaiterJSON `json:"waiting,omitempty"`
}

type permitVoteJSON struct {
	Owner string     `json:"owner"`
	TTLMS int64      `json:"ttl_ms"`
	Slots []slotJSON `json:"slots"`
	Who   string     `json:"who,omitempty"`
}

type permitWaiterJSON struct {
	Owner   string `json:"owner"`
	MS      int64  `json:"ms"`
	Live    bool   `json:"live"`
	Permits int    `json:"permits"`
	Who     string `json:"who,omitempty"`
}

func semaphoreToJSON(in *redlock.Inspection) semaphoreJSON {
	out := semaphoreJSON{
		Key: in.Key, KeyBytes: exact(in.Key), Limit: storedLimit(in.Limit),
		Holders: []permitHolderJSON{}, Members: []permitsMemberJSON{},
	}
	for _, h := range in.Holders {
		out.Holders = append(out.Holders, permitHolderJSON{
			Owner: h.Owner, Votes: h.Votes, TTLMS: h.TTL.Milliseconds(), Slots: slotsToJSON(h.Slots), Who: h.Who,
		})
	}
	for _, v := range in.Members {
		m := permitsMemberJSON{
			Member: v.Member, State: v.State, Limit: storedLimit(v.Limit), Votes: []permitVoteJSON{},
		}
		if v.Err != nil {
			m.Error = v.Err.Error()
		}
		for _, vote := range v.Votes {
			m.Votes = append(m.Votes, permitVoteJSON{vote.Owner, vote.TTL.Milliseconds(), slotsToJSON(vote.Slots), vote.Who})
		}
		for _, q := range v.Queue {
			m.Waiting = append(m.Waiting, permitWaiterJSON{q.Owner, q.Waiting.Milliseconds(), q.Live, q.Permits, q.Who})
		}
		out.Members = append(out.Members, m)
	}
	return out
}

// storedLimit is nil if none is stored.
func storedLimit(n int) *int {
	if n < 0 {
		return nil
	}
	return &n
}

// heldSlots counts the slots that are held at a majority.
func heldSlots(in *redlock.Inspection) (n int) {
	for _, h := range in.Holders {
		n += len(h.Slots)
	}
	return n
}

// permitHeadline says how many slots are held, and what limit is stored.
func permitHeadline(in *redlock.Inspection) string {
	line := printable.Quote(in.Key) + ": semaphore, "
	switch n := heldSlots(in); {
	case n == 0 && tooFew(permitErrors(in)) != nil:
		return line + "unknown, too few members answered"
	case n == 0:
		line += "no slot held"
	default:
		line += fmt.Sprintf("%s held by %s", counted(n, "slot"), counted(len(in.Holders), "holder"))
	}
	if in.Limit >= 0 {
		line += fmt.Sprintf(", stored limit %d", in.Limit)
	}
	return line
}

func printSemaphore(w io.Writer, in *redlock.Inspection) error {
	_, _ = fmt.Fprintln(w, permitHeadline(in))
	if len(in.Holders) > 0 {
		table := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
		_, _ = fmt.Fprintln(table, "  SLOT\tOWNER\tTTL\tTOKEN\tVOTES")
		for _, h := range in.Holders {
			for _, s := range h.Slots {
				_, _ = fmt.Fprintf(table, "  %d\t%s\t%v\t%d\t%d/%d\n",
					s.Number, told(h.Owner, h.Who), h.TTL, s.Token, h.Votes, len(in.Members))
			}
		}
		_ = table.Flush()
	}
	table := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	_, _ = fmt.Fprintln(table, "  MEMBER\tSTATE\tTAKEN\tLIMIT\tWAITING")
	for _, v := range in.Members {
		if v.Err != nil {
			_, _ = fmt.Fprintf(table, "  %s\t%s\t%v\n", v.Member, v.State, v.Err)
			continue
		}
		taken, limit := 0, "-"
		for _, vote := range v.Votes {
			taken += len(vote.Slots)
		}
		if v.Limit >= 0 {
			limit = strconv.Itoa(v.Limit)
		}
		_, _ = fmt.Fprintf(table, "  %s\t%s\t%d\t%s\t%s\n", v.Member, v.State, taken, limit, lineOf(v.Queue))
	}
	return table.Flush()
}

// lineOf says how many wait, and who waits for how many slots.
func lineOf(queue []redlock.Waiter) string {
	if len(queue) == 0 {
		return "0"
	}
	var each []string
	for i, q := range queue {
		if i == 3 {
			each = append(each, "...")
			break
		}
		each = append(each, fmt.Sprintf("%s for %d", told(q.Owner, q.Who), q.Permits))
	}
	return fmt.Sprintf("%d (%s)", len(queue), strings.Join(each, ", "))
}

func permitErrors(in *redlock.Inspection) (all []error) {
	for _, v := range in.Members {
		all = append(all, v.Err)
	}
	return all
}

// tooFew is why too few members answered, by the error of each; nil if enough did.
func tooFew(of []error) error {
	var failed []error
	for _, err := range of {
		if err != nil {
			failed = append(failed, err)
		}
	}
	answered, need := len(of)-len(failed), member.Majority(len(of))
	if answered >= need {
		return nil
	}
	return &exitError{codeOfMembers(failed, need), fmt.Errorf("%d of %d members answered: %w", answered, len(of), errors.Join(failed...))}
}

// forceSlot takes all slots from the holder of one of them; only, if not nil, is that slot's token.
func (c *common) forceSlot(cmd *cobra.Command, key string, n int, yes bool, only *uint64) error {
	ctx := cmd.Context()
	conn, err := c.open(ctx, cmd)
	if err != nil {
		return err
	}
	defer conn.close()
	seen, err := conn.InspectSemaphore(ctx, key)
	if err != nil {
		return err
	}
	if err := printSemaphore(cmd.ErrOrStderr(), seen); err != nil {
		return err
	}
	if err := tooFew(permitErrors(seen)); err != nil {
		return err
	}
	if only != nil {
		if err := holds(slotAlone(seen, n), *only); err != nil {
			return err
		}
	}
	from := holderOf(seen, n)
	if from != nil && !yes {
		if err := confirm(cmd, fmt.Sprintf("Take %s from holder %s?", counted(len(from.Slots), "slot"), from.Owner)); err != nil {
			return err
		}
	}
	taken, held := redlock.Holder{}, false
	if from != nil {
		taken = *from
		seen.Holders = []redlock.Holder{taken}
		freed := 0
		freed, err = conn.ForceUnlockSeen(ctx, seen)
		if held = err == nil && freed >= member.Majority(len(seen.Members)); err == nil && !held {
			return &exitError{exitNotObtained, errors.New("the holder has changed in the meantime: a majority of the members had nothing of it")}
		}
	}
	what, numbers, tokens := "audit: permit forced open", []int{}, []uint64{}
	if !held {
		what = "audit: permit not forced open"
	}
	for _, s := range taken.Slots {
		numbers, tokens = append(numbers, s.Number), append(tokens, s.Token)
	}
	who, host := operator()
	about := []any{"key", key, "holder", taken.Owner, "slots", numbers, "tokens", tokens, "was_held", from != nil,
		"by", who, "host", host}
	if err != nil {
		about = append(about, "error", err)
	}
	conn.log.Warn(what, about...)
	return err
}

// holderOf is who holds a slot at a majority, nil: nobody does.
func holderOf(in *redlock.Inspection, n int) *redlock.Holder {
	for i, h := range in.Holders {
		for _, s := range h.Slots {
			if s.Number == n {
				return &in.Holders[i]
			}
		}
	}
	return nil
}

// slotAlone is one slot as if it were a lock: each is decided as a mutex is.
func slotAlone(in *redlock.Inspection, n int) *redlock.Inspection {
	out := &redlock.Inspection{Key: in.Key, Kind: redlock.KindMutex}
	for _, v := range in.Members {
		m := redlock.MemberView{Member: v.Member, Err: v.Err, State: v.State}
		for _, vote := range v.Votes {
			for _, s := range vote.Slots {
				if s.Number == n {
					m.Votes = append(m.Votes, redlock.VoteView{Owner: vote.Owner, TTL: vote.TTL, Token: s.Token})
				}
			}
		}
		out.Members = append(out.Members, m)
	}
	return out
}
