package main

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redquorum/redquorum/cmd/redlock/internal/settings"
	"github.com/redquorum/redquorum/member"
	"github.com/redquorum/redquorum/redlock"
)

// These variables tell a redlock that a command starts about those around it.
const (
	holdingEnv = "REDLOCK_HOLDING" // the locks that they hold, with the tokens: name:token,name:token; name/slot:token of a permit
	removedEnv = "REDLOCK_REMOVED" // the variables that they removed from the environment
)

// leaseEnv are the variables with which run and acquire tell about leases.
var leaseEnv = regexp.MustCompile(`^REDLOCK_((KEY|TOKEN|SLOT)(S|_\d+)?|VALID_UNTIL|VOTES|HELD|HOLDING|REMOVED)$`)

// environment is ours, with what the command may know. The settings in it that are no secret stay, so that the command can use
// redlock itself. The other variables of redlock go, because they may be secret.
func (c *connection) environment(ours []string, held section, leases []*redlock.Lease) []string {
	out := make([]string, 0, len(ours)+6+2*len(leases))
	removed := strings.FieldsFunc(os.Getenv(removedEnv), func(r rune) bool { return r == ',' })
	for _, v := range ours {
		name, value, _ := strings.Cut(v, "=")
		switch {
		case !strings.HasPrefix(strings.ToUpper(name), "REDLOCK_"), settings.Public(name, value):
			out = append(out, v)
		case value != "" && !leaseEnv.MatchString(name) && !slices.Contains(removed, name):
			removed = append(removed, name)
		}
	}
	if len(removed) > 0 {
		c.log.Info("removed from the environment of the command, because it may be secret", "variables", removed)
		out = append(out, removedEnv+"="+strings.Join(removed, ","))
	}
	if holding := append(holdingFrom(os.Getenv(holdingEnv)), c.holding(leases)...); len(holding) > 0 {
		out = append(out, holdingEnv+"="+strings.Join(holding, ","))
	}
	if len(leases) == 1 {
		return append(out, lines(leases[0], len(c.set.Members))...)
	}
	out = append(out, fmt.Sprintf("REDLOCK_KEYS=%d", len(leases)))
	for i, l := range leases {
		out = append(out, fmt.Sprintf("REDLOCK_KEY_%d=%s", i+1, l.Key()), fmt.Sprintf("REDLOCK_TOKEN_%d=%d", i+1, l.Token()))
	}
	return append(out, validity(held, len(c.set.Members))...)
}

// holding are the locks of leases for holdingEnv.
func (c *connection) holding(leases []*redlock.Lease) (all []string) {
	for _, l := range leases {
		name := url.QueryEscape(c.set.Prefix + l.Key())
		for _, s := range l.Slots() {
			all = append(all, fmt.Sprintf("%s/%d:%d", name, s.Number, s.Token))
		}
		if len(l.Slots()) == 0 {
			all = append(all, fmt.Sprintf("%s:%d", name, l.Token()))
		}
	}
	return all
}

func holdingFrom(text string) []string {
	return strings.FieldsFunc(text, func(r rune) bool { return r == ',' })
}

// around is what a redlock around this process holds until this process has ended.
type around struct {
	name  string
	slot  int // -1: it is no permit
	token uint64
}

func allAround() (all []around) {
	for _, one := range holdingFrom(os.Getenv(holdingEnv)) {
		escaped, number, _ := strings.Cut(one, ":")
		escaped, slot, permit := strings.Cut(escaped, "/")
		name, _ := url.QueryUnescape(escaped)
		a := around{name: name, slot: -1}
		var errs [2]error
		if a.token, errs[0] = strconv.ParseUint(number, 10, 64); permit {
			a.slot, errs[1] = strconv.Atoi(slot)
		}
		if errs == [2]error{} {
			all = append(all, a)
		}
	}
	return all
}

// nested returns an error if one of the keys is that of a lock which a redlock around this process holds until this process has
// ended. A wait for it would be for itself. The members are asked whether it is that lock indeed: they may be others, and it
// may have been lost. Who does not wait is told what they say.
func (c *connection) nested(ctx context.Context, keys []string, w *waiting, patience time.Duration) error {
	if patience == 0 {
		return nil
	}
	if w.limit != 0 {
		return c.nestedPermits(ctx, keys[0], w)
	}
	for _, a := range allAround() {
		i := slices.IndexFunc(keys, func(key string) bool { return c.set.Prefix+key == a.name })
		if a.slot >= 0 || i < 0 {
			continue
		}
		seen, err := c.Inspect(ctx, keys[i])
		if err != nil || verified(seen, a.token) != yes || w.shared && seen.Kind == redlock.KindRead && !writerWaits(seen) {
			continue
		}
		return &exitError{w.code, fmt.Errorf("%w: the redlock that runs this command holds %q (token %d), so this one would wait for itself",
			redlock.ErrHeld, keys[i], a.token)}
	}
	return nil
}

// nestedPermits is nested for a semaphore: the permits around this process leave fewer slots than it wants.
func (c *connection) nestedPermits(ctx context.Context, key string, w *waiting) error {
	all := slices.DeleteFunc(allAround(), func(a around) bool { return a.slot < 0 || a.name != c.set.Prefix+key })
	if len(all) == 0 {
		return nil
	}
	in, err := c.InspectSemaphore(ctx, key)
	if err != nil {
		return nil
	}
	limit, held := w.limit, 0
	if in.Limit >= 0 {
		limit = in.Limit
	}
	for _, a := range all {
		if a.slot < limit && permitVerified(in, a) {
			held++
		}
	}
	if want := max(1, w.seats); held > 0 && held+want > limit {
		return &exitError{w.code, fmt.Errorf("%w: the redlock that runs this command holds %d of the %d slots of %q, and this one wants %d, so it would wait for itself",
			redlock.ErrHeld, held, limit, key, want)}
	}
	return nil
}

// permitVerified reports whether the permit is held under its token, as verified does for a lock.
func permitVerified(in *redlock.Inspection, a around) bool {
	below, top := make(map[string]int), make(map[string]uint64) // by owner
	for _, m := range in.Members {
		for _, v := range m.Votes {
			for _, s := range v.Slots {
				if s.Number != a.slot {
					continue
				}
				if top[v.Owner] = max(top[v.Owner], s.Token); s.Token <= a.token {
					below[v.Owner]++
				}
			}
		}
	}
	for owner, n := range below {
		if n >= member.Majority(len(in.Members)) && a.token <= top[owner] {
			return true
		}
	}
	return false
}

// writerWaits reports whether somebody waits to be alone. A new reader waits for that one, which waits for those that read.
func writerWaits(seen *redlock.Inspection) bool {
	return slices.ContainsFunc(seen.Members, func(m redlock.MemberView) bool {
		return slices.ContainsFunc(m.Queue, func(q redlock.Waiter) bool { return q.Live && !q.Reads })
	})
}

// withheld says, of an error that it may explain, which variables are missing because a redlock around this process removed them.
func withheld(code int) string {
	removed := os.Getenv(removedEnv)
	if removed == "" || code != exitAuth && code != exitConfig {
		return ""
	}
	return "; the redlock that runs this command has removed " + removed + " from its environment, because it may be secret:" +
		" use --config, or a password file"
}

// lines describe a lease as NAME=value.
func lines(lease *redlock.Lease, members int) []string {
	out := append([]string{"REDLOCK_KEY=" + lease.Key()}, tokenLines(lease.Token(), slotsToJSON(lease.Slots()))...)
	return append(out, validity(lease, members)...)
}

// validity describes for how long a section may be relied on.
func validity(held section, members int) []string {
	return []string{
		"REDLOCK_VALID_UNTIL=" + held.ValidUntil().Format(time.RFC3339Nano),
		fmt.Sprintf("REDLOCK_VOTES=%d/%d", held.Votes(), members),
		"REDLOCK_HELD=1",
	}
}
