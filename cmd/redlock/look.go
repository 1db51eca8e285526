package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/redquorum/redquorum/internal/printable"
	"github.com/redquorum/redquorum/member"
	"github.com/redquorum/redquorum/redlock"
)

// inspectionJSON is redlock.Inspection for scripts.
type inspectionJSON struct {
	Key        string           `json:"key"`
	KeyBytes   []byte           `json:"key_base64,omitempty"` // the name, if it is no UTF-8
	Kind       redlock.Kind     `json:"kind"`
	Holders    []holderJSON     `json:"holders"`         // none if nobody holds it at a majority
	Leads      *string          `json:"leads,omitempty"` // the value of the holder, if it leads an election
	LeadsBytes []byte           `json:"leads_base64,omitempty"`
	Members    []memberViewJSON `json:"members"`

	Semaphore *semaphoreJSON `json:"semaphore,omitempty"` // of the same name
	Latch     *latchJSON     `json:"latch,omitempty"`     // of the same name
}

type holderJSON struct {
	Owner string `json:"owner"` // hash
	Token uint64 `json:"token"`
	Votes int    `json:"votes"`
	Who   string `json:"who,omitempty"` // what its client tells of itself (--label)
}

type memberViewJSON struct {
	Member  string       `json:"member"`
	State   string       `json:"state"`
	Error   string       `json:"error,omitempty"`
	Votes   []voteJSON   `json:"votes"`
	Counter uint64       `json:"counter"`
	Waiting []waiterJSON `json:"waiting,omitempty"`
}

type voteJSON struct {
	Owner string `json:"owner"`
	TTLMS int64  `json:"ttl_ms"`
	Token uint64 `json:"token"`
	Reads bool   `json:"reads,omitempty"`
	Who   string `json:"who,omitempty"`
}

type waiterJSON struct {
	Owner string `json:"owner"`
	MS    int64  `json:"ms"`
	Live  bool   `json:"live"`
	Reads bool   `json:"reads,omitempty"`
	Who   string `json:"who,omitempty"`
}

func toJSON(in *redlock.Inspection, leads *string) inspectionJSON {
	out := inspectionJSON{Key: in.Key, KeyBytes: exact(in.Key), Kind: in.Kind, Holders: []holderJSON{}, Leads: leads}
	if leads != nil {
		out.LeadsBytes = exact(*leads)
	}
	for _, h := range in.Holders {
		out.Holders = append(out.Holders, holderJSON{h.Owner, h.Token, h.Votes, h.Who})
	}
	for _, v := range in.Members {
		m := memberViewJSON{Member: v.Member, State: v.State, Votes: []voteJSON{}, Counter: v.Counter}
		if v.Err != nil {
			m.Error = v.Err.Error()
		}
		for _, vote := range v.Votes {
			m.Votes = append(m.Votes, voteJSON{vote.Owner, vote.TTL.Milliseconds(), vote.Token, vote.Reads, vote.Who})
		}
		for _, q := range v.Queue {
			m.Waiting = append(m.Waiting, waiterJSON{q.Owner, q.Waiting.Milliseconds(), q.Live, q.Reads, q.Who})
		}
		out.Members = append(out.Members, m)
	}
	return out
}

func headline(in *redlock.Inspection) string {
	switch {
	case len(in.Holders) == 0 && answered(in) != nil && foreign(in) > 0:
		return fmt.Sprintf("%s: not a lock but another key, at %d of %d members", printable.Quote(in.Key), foreign(in), len(in.Members))
	case len(in.Holders) == 0 && answered(in) != nil:
		return fmt.Sprintf("%s: unknown, too few members answered", printable.Quote(in.Key))
	case len(in.Holders) == 0 && len(in.Members)-forgetful(in) < member.Majority(len(in.Members)):
		return fmt.Sprintf("%s: not held, but %d of %d members may have forgotten a holder", printable.Quote(in.Key), forgetful(in), len(in.Members))
	case len(in.Holders) == 0:
		return fmt.Sprintf("%s: not held", printable.Quote(in.Key))
	}
	if reads := readers(in); len(in.Holders) > 3 && len(reads) > 0 {
		return fmt.Sprintf("%s: held by %d readers, token %d", printable.Quote(in.Key), len(in.Holders), greatest(in.Holders))
	}
	var by []string
	for _, h := range in.Holders {
		by = append(by, fmt.Sprintf("by %s, token %d, at %d of %d members", told(named(h.Owner, readers(in)[h.Owner]), h.Who), h.Token, h.Votes, len(in.Members)))
	}
	return fmt.Sprintf("%s: held %s", printable.Quote(in.Key), strings.Join(by, "; "))
}

// forgetful counts the members that do not vote, because what they granted may still be held.
func forgetful(in *redlock.Inspection) (n int) {
	for _, v := range in.Members {
		if v.State == redlock.MemberQuarantined || v.State == redlock.MemberRestoring {
			n++
		}
	}
	return n
}

// readers are the owners that a member names as readers.
func readers(in *redlock.Inspection) map[string]bool {
	out := make(map[string]bool)
	for _, v := range in.Members {
		for _, vote := range v.Votes {
			if vote.Reads {
				out[vote.Owner] = true
			}
		}
	}
	return out
}

// named is an owner as people are shown it.
func named(owner string, reads bool) string {
	if reads {
		return "reader " + owner
	}
	return owner
}

// told is an owner with what its client tells of itself.
func told(owner, who string) string {
	if who == "" {
		return owner
	}
	return owner + " = " + who
}

// whoWaits are those of a line who tell of themselves, each once and as many as fit.
func whoWaits(in *redlock.Inspection) (lines []string) {
	seen := make(map[string]bool)
	for _, v := range in.Members {
		for _, q := range v.Queue {
			if q.Who != "" && q.Live && !seen[q.Owner] {
				seen[q.Owner] = true
				lines = append(lines, told(named(q.Owner, q.Reads), q.Who))
			}
		}
	}
	const most = 10
	if len(lines) > most {
		lines = append(lines[:most], fmt.Sprintf("and %d more", len(lines)-most))
	}
	return lines
}

// inLine says how many wait, and how many of them as readers.
func inLine(all, reads int) string {
	if reads == 0 {
		return strconv.Itoa(all)
	}
	return fmt.Sprintf("%d (%s)", all, counted(reads, "reader"))
}

func printInspection(w io.Writer, in *redlock.Inspection, leads *string) {
	_, _ = fmt.Fprintln(w, headline(in)+leading(leads))
	table := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	_, _ = fmt.Fprintln(table, "  MEMBER\tSTATE\tOWNER\tTTL\tTOKEN\tCOUNTER\tWAITING")
	for _, v := range in.Members {
		if v.Err != nil {
			_, _ = fmt.Fprintf(table, "  %s\t%s\t%v\n", v.Member, v.State, v.Err)
			continue
		}
		votes := "-\t-\t-"
		for i, vote := range v.Votes {
			if i > 0 { // in a row of its own
				_, _ = fmt.Fprintf(table, "  %s\t%s\t%s\t\t\n", v.Member, v.State, votes)
			}
			votes = fmt.Sprintf("%s\t%v\t%d", named(vote.Owner, vote.Reads), vote.TTL, vote.Token)
		}
		reads := 0
		for _, q := range v.Queue {
			if q.Reads {
				reads++
			}
		}
		_, _ = fmt.Fprintf(table, "  %s\t%s\t%s\t%d\t%s\n", v.Member, v.State, votes, v.Counter, inLine(len(v.Queue), reads))
	}
	_ = table.Flush()
	for _, line := range whoWaits(in) {
		_, _ = fmt.Fprintln(w, "  waits:", line)
	}
}

// answered returns an error unless a majority of the members could be asked.
func answered(in *redlock.Inspection) error {
	n := 0
	var causes []error
	for _, v := range in.Members {
		if v.Err == nil {
			n++
		}
		causes = append(causes, v.Err)
	}
	if n >= member.Majority(len(in.Members)) {
		return nil
	}
	if f := foreign(in); f > 0 {
		return &exitError{exitForeign, fmt.Errorf("the key is not a lock at %d of %d members: %w", f, len(in.Members), errors.Join(causes...))}
	}
	return &exitError{exitUnavailable, fmt.Errorf("%d of %d members answered, too few to tell: %w", n, len(in.Members), errors.Join(causes...))}
}

// foreign counts the members where the key is no lock.
func foreign(in *redlock.Inspection) (n int) {
	for _, v := range in.Members {
		if refused := (*member.ReplyError)(nil); errors.As(v.Err, &refused) && refused.Kind == member.KindForeign {
			n++
		}
	}
	return n
}

func newInspect() *cobra.Command {
	var c common
	cmd := &cobra.Command{
		Use:   "inspect KEY",
		Short: "Show what every member knows of a lock",
		Long: `inspect asks every member who has its vote, with which token and for how long, and who waits. It
shows each owner as a hash, because an owner's name is the authority to release. It changes nothing.
Each member answers at a moment of its own, so use the answer to look and never to decide.

A client with --label (Config.Label) is shown with its label, its host and its process id: the holder
in the first line, and up to ten of those that wait. If the holder leads an election, the first line has its value. Owners that share the lock are marked
as readers. WAITING counts all that wait, with the readers among them in parentheses.

A semaphore or a latch of the same name, which has nothing to do with the lock, is shown behind it as
"redlock semaphore" and "redlock latch remaining" do. If a member knows one of them and nobody holds the
lock or waits for it, inspect leaves the lock out.

The exit code is 0 whether the lock is held or not; 65 if the key is not a lock; 69 if no majority
answers.

` + configHelp,
		Example: `  redlock inspect nightly
  redlock inspect nightly --json | jq -r '.holders[].owner'`,
		Args: oneKey,
		RunE: c.connected(func(cmd *cobra.Command, conn *connection, args []string) error {
			s, err := conn.look(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if err := c.show(cmd, func() any { return s.json() }, s.print); err != nil {
				return err
			}
			return answered(s.lock)
		}),
	}
	c.flags(cmd.Flags())
	cmd.Flags().BoolVar(&c.json, "json", false, "print JSON")
	return cmd
}

func newWatch() *cobra.Command {
	var c common
	interval, untilFree, html := 500*time.Millisecond, false, ""
	cmd := &cobra.Command{
		Use:   "watch KEY",
		Short: "Print a line whenever a lock's holder or queue changes",
		Long: `watch asks the members again and again. It prints a line when the holder, its votes or the number of
waiters has changed, or the value of a leader. It marks readers as inspect does, and of more than
three it prints how many they are. It does not compete for the lock. It ends with Ctrl-C, or with
--until-free.

A semaphore or a latch of the same name has lines of its own. --until-free waits until no slot of the
semaphore is held either.

--html FILE writes a page with a timeline when it ends, and every ten seconds before: who held the lock
and when, who waited, and what became of the members. It is one file, for any browser.

` + configHelp,
		Example: `  redlock watch nightly
  redlock watch nightly --html nightly.html
  redlock watch nightly --until-free && echo free`,
		Args: oneKey,
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if interval < 10*time.Millisecond {
				return usage("--interval is %v, must be at least 10ms", interval)
			}
			page, err := openHTML(html)
			if err != nil {
				return err
			}
			defer page.close()
			conn, err := c.open(cmd.Context(), cmd)
			if err != nil {
				return err
			}
			defer conn.close()
			tick := time.NewTicker(interval)
			defer tick.Stop()
			var last sightLines
			log, written := newSeen(args[0], interval, time.Now()), time.Now()
			defer func() {
				if failed := page.write(log.timeline()); failed != nil && err == nil {
					err = &exitError{exitInternal, failed}
				}
			}()
			for {
				s, err := conn.look(cmd.Context(), args[0])
				if err == nil {
					err = cmd.Context().Err()
				}
				if err != nil {
					return endedOr(cmd.Context(), err)
				}
				if page != nil {
					if log.look(time.Now(), s); time.Since(written) > 10*time.Second {
						if err := page.write(log.timeline()); err != nil {
							return &exitError{exitInternal, err}
						}
						written = time.Now()
					}
				}
				if changed := last.changed(s); len(changed) > 0 {
					if err := printWatch(cmd.OutOrStdout(), s, changed, c.json); err != nil {
						return err
					}
				}
				if untilFree && s.free() {
					return nil
				}
				select {
				case <-tick.C:
				case <-cmd.Context().Done():
					return context.Cause(cmd.Context())
				}
			}
		},
	}
	c.flags(cmd.Flags())
	cmd.Flags().BoolVar(&c.json, "json", false, "print one JSON object per line")
	cmd.Flags().StringVar(&html, "html", "", "write a timeline to this file: one page for a browser")
	cmd.Flags().DurationVar(&interval, "interval", interval, "time between two looks, at least 10ms")
	cmd.Flags().BoolVar(&untilFree, "until-free", false, "exit with 0 when nobody holds the lock at a majority")
	return cmd
}

// watchLine is what watch compares.
func watchLine(in *redlock.Inspection, leads *string) string {
	waiters, reading := make(map[string]bool), make(map[string]bool)
	silent := 0
	for _, v := range in.Members {
		if v.Err != nil {
			silent++
		}
		for _, q := range v.Queue {
			if q.Live {
				waiters[q.Owner] = true
				if q.Reads {
					reading[q.Owner] = true
				}
			}
		}
	}
	line := fmt.Sprintf("%s%s, %d waiting", headline(in), leading(leads), len(waiters))
	if len(reading) > 0 {
		line += fmt.Sprintf(" (%s)", counted(len(reading), "reader"))
	}
	if silent > 0 {
		line += fmt.Sprintf(", %d members silent", silent)
	}
	return line
}

func printWatch(w io.Writer, s *sight, lines []string, asJSON bool) error {
	if !asJSON {
		for _, line := range lines {
			if _, err := fmt.Fprintln(w, time.Now().Format("15:04:05.000"), line); err != nil {
				return err
			}
		}
		return nil
	}
	return json.NewEncoder(w).Encode(struct {
		At time.Time `json:"at"`
		inspectionJSON
	}{time.Now(), s.json()})
}

func newToken() *cobra.Command {
	var c common
	var verify uint64
	cmd := &cobra.Command{
		Use:   "token KEY",
		Short: "Print or check the fencing token of a lock's holder",
		Long: `token prints the fencing token under which KEY is held. The exit code is 1 if nobody holds it.

With --verify N it prints nothing, and its exit code says whether N is the token of the holder: 0
yes; 1 no, because somebody else has held the lock since, or nobody does; 65 the key is not a lock;
69 too few members answered to tell. It is for scripts that guard a storage that cannot compare
tokens itself. It is weaker than a storage that can, because the lock can change hands between the
check and the write.

token prints one line. If members granted with different tokens, or to several readers, it prints
the greatest token. The holder's own may be smaller, because a member that grants after the others
may draw a greater one. Both pass --verify.

` + configHelp,
		Example: `  redlock token nightly
  redlock token nightly --verify "$REDLOCK_TOKEN" && cp report.csv /srv/reports/`,
		Args: oneKey,
		RunE: c.connected(func(cmd *cobra.Command, conn *connection, args []string) error {
			in, err := conn.Inspect(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if cmd.Flags().Changed("verify") {
				switch verified(in, verify) {
				case yes:
					return nil
				case no:
					return &exitError{exitFailed, nil}
				}
				if err := answered(in); err != nil {
					return err
				}
				return &exitError{exitUnavailable, fmt.Errorf("too few members answered to tell: %w", errorsOf(in))}
			}
			if err := answered(in); err != nil {
				return err
			}
			if len(in.Holders) == 0 {
				return &exitError{exitFailed, fmt.Errorf("%s is not held", printable.Quote(in.Key))}
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), greatest(in.Holders))
			return err
		}),
	}
	c.flags(cmd.Flags())
	cmd.Flags().Uint64Var(&verify, "verify", 0, "check that this is the token of the holder")
	return cmd
}

// greatest is the greatest token of the holders.
func greatest(holders []redlock.Holder) (token uint64) {
	for _, h := range holders {
		token = max(token, h.Token)
	}
	return token
}

func errorsOf(in *redlock.Inspection) error {
	var all []error
	for _, v := range in.Members {
		all = append(all, v.Err)
	}
	return errors.Join(all...)
}

type verdict3 uint8

const (
	unknown verdict3 = iota
	yes
	no
)

// verified judges a token by the votes of the holder. When a lease was granted with token N, a majority
// of the members voted with at most N, and the counters of a majority were at N or above. So a later holder has votes
// above N at a majority: of its votes fewer than a majority are at most N. And no holder's token is above all of its votes.
// A reader that comes later may lift the token of the phase: of readers' votes the one with
// which it began counts.
func verified(in *redlock.Inspection, n uint64) verdict3 {
	need := member.Majority(len(in.Members))
	votes := make(map[string]int) // by owner: members that name it
	below := make(map[string]int) // by owner: votes of at most n
	top := make(map[string]uint64)
	silent := 0
	for _, v := range in.Members {
		if v.Err != nil {
			silent++
		}
		for _, vote := range v.Votes {
			votes[vote.Owner]++
			top[vote.Owner] = max(top[vote.Owner], vote.Token)
			least := vote.Token
			if vote.Reads {
				least = vote.Drawn
			}
			if least <= n {
				below[vote.Owner]++
			}
		}
	}
	possible := false
	for owner := range votes {
		switch {
		case below[owner] >= need && n <= top[owner]:
			return yes
		case below[owner]+silent >= need && (n <= top[owner] || silent > 0):
			possible = true
		}
	}
	if possible || silent >= need {
		return unknown
	}
	return no
}
