package doctor

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redquorum/redquorum/member"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/slot"
)

// cluster judges a Redis Cluster as a whole.
func (j *judge) cluster(f *Facts) {
	if f.Kind != node.RedisCluster {
		return
	}
	answered := 0
	var first View
	agreed := true
	for _, v := range f.Views {
		switch {
		case v.Err != nil:
		case answered == 0:
			first = v
			answered++
		default:
			agreed = agreed && slices.Equal(first.Slots, v.Slots)
			answered++
		}
	}
	for _, v := range f.Views {
		if v.Err != nil && answered > 0 {
			j.unheard("server", f.Member, v.Server, v.Err, "clients find the cluster through the others; if none of them answers, it does not vote")
		}
	}
	if !agreed {
		j.say(Warning, "slots", f.Member, "its servers do not agree on which master serves which slots", "calls are redirected or wait until they do",
			"wait for the failover or the resharding to end; then look for a server that is cut off (redis-cli --cluster check)")
	}
	if f.Err != nil {
		return
	}
	served, without, replicas := 0, 0, 0
	full := false
	for _, p := range f.Parts {
		served += p.Slots
		full = full || p.Config["cluster-require-full-coverage"] == "yes"
		if p.Err == nil && p.Info != nil {
			if replicas += len(p.Replicas); len(p.Replicas) == 0 {
				without++
			}
		}
	}
	if served < slot.Count {
		risk := "locks in them lack this vote"
		if full {
			risk = "with cluster-require-full-coverage yes, every server refuses every command"
		}
		j.say(Critical, "slots", f.Member, fmt.Sprintf("no master serves %d of %d slots", slot.Count-served, slot.Count), risk+j.alone("; no lock can be taken there"),
			"redis-cli --cluster fix, or bring back the master that served them")
	}
	j.silent(f)
	if full {
		j.say(OK, "coverage", f.Member, "cluster-require-full-coverage is yes", "if one master without a replica is lost, this member votes for no lock at all, in any slot"+
			j.alone("; nobody can lock"), "cluster-require-full-coverage no")
	}
	if without > 0 {
		j.say(OK, "replicas", f.Member, fmt.Sprintf("%d of %d masters have no replica", without, len(f.Parts)), "while one of them is away, locks in its slots lack this vote"+j.alone(": nobody can take them"), "")
	}
	if replicas > 0 {
		j.failover(f, "one of its masters", "locks in its slots lack this vote")
	}
}

// silent says for how many slots the cluster does not vote, and until when: for the library it votes while any
// of its masters does. Why each of them does not, and what cures it, is said of it.
func (j *judge) silent(f *Facts) {
	var who []string
	slots := 0
	for i := range f.Parts {
		m := j.summary(&f.Parts[i])
		if m.SilentSlots == 0 {
			continue
		}
		slots += m.SilentSlots
		text := m.Member + " is " + m.State
		if m.SilentUntil != nil {
			text += " until " + m.SilentUntil.Format(time.TimeOnly)
		}
		who = append(who, text)
	}
	if len(who) == 0 {
		return
	}
	more, count := "", len(who)
	if n := count - 8; n > 0 {
		who, more = who[:8], fmt.Sprintf(", and %d more", n)
	}
	j.say(Warning, "part", f.Member, fmt.Sprintf("%d of its %d masters do not vote, for %d of %d slots: %s%s", count, len(f.Parts), slots, slot.Count, strings.Join(who, ", "), more),
		"locks in these slots lack this vote; locks in other slots have it"+j.alone("; nobody can take locks without it"), "see these masters; restart no other member until all of them vote")
}

// alone is added to what is worse where no other member votes.
func (j *judge) alone(text string) string {
	if len(j.all) == 1 {
		return text
	}
	return ""
}

// failover says what happens when a replica takes over, which is safe.
func (j *judge) failover(f *Facts, who, what string) {
	j.say(OK, "failover", f.Member, "a replica may take over from "+who,
		fmt.Sprintf("it may lack the last locks, so it does not vote for %v (--max-ttl and failover_lag), and until its counters are restored: %s%s",
			j.terms.MaxTTL+f.Lag, what, j.alone("; nobody can take them meanwhile, and the order of tokens rests on the servers' clocks then")), "")
}

// unheard is a server, or a Sentinel, that a URL names and that does not answer.
func (j *judge) unheard(check, name, who string, err error, risk string) {
	cure := "start it, check the network, or remove it from the URL"
	if other := (*node.SchemeError)(nil); errors.As(err, &other) {
		cure = "remove it from the URL; " + other.Scheme + " is the scheme for what it is"
	} else if refused := (*member.ReplyError)(nil); errors.As(err, &refused) && refused.Kind == member.KindAuth {
		cure = "check user, password and permissions there (acl/ in the source tree; sentinel_password_file for Sentinels)"
	}
	text := strings.TrimPrefix(err.Error(), who[strings.LastIndexByte(who, ' ')+1:]+": ") // "its replica h:p"
	j.say(Warning, check, name, who+" does not answer: "+text, risk, cure)
}

// sentinels judges those who watch a master.
func (j *judge) sentinels(f *Facts) {
	all := f.Sightings
	if f.Kind != node.BySentinel || len(all) == 0 {
		return
	}
	heard, quorate, known := 0, 0, 0
	names := make(map[string][]string)
	for _, s := range all {
		if s.Err != nil {
			j.unheard("sentinel", f.Member, s.Sentinel, s.Err, "fewer are left to say who the master is")
			continue
		}
		heard++
		quorate, known = max(quorate, s.Quorum), max(known, s.Others+1)
		names[s.Master] = append(names[s.Master], s.Sentinel)
		if strings.Contains(s.Flags, "_down") {
			j.say(Warning, "sentinel", f.Member, s.Sentinel+" takes the master for dead: "+s.Flags, "a failover is about to begin", "check the master, and the network between them")
		}
	}
	if heard == 0 {
		return // which is said of the member
	}
	if heard <= len(all)/2 {
		j.say(Critical, "sentinel", f.Member, fmt.Sprintf("%d of %d Sentinels answer, which is no majority", heard, len(all)),
			"they may name a master that was replaced, whose grants the new one does not know: two holders", "bring the others back")
	}
	switch {
	case 2*len(all) <= known:
		j.say(Warning, "sentinel", f.Member, fmt.Sprintf("the URL names %d of %d Sentinels, which is no majority", len(all), known),
			"those may name a master that was replaced", "name all of them")
	case heard < quorate || 2*heard <= known:
		j.say(Warning, "sentinel", f.Member, fmt.Sprintf("%d Sentinels answer; %d must find the master dead, and a majority of %d must agree to replace it", heard, quorate, known),
			"if the master dies now, this member no longer votes"+j.alone(": nobody can lock"), "bring the others back")
	}
	if len(names) > 1 {
		var parts []string
		for master, who := range names {
			slices.Sort(who)
			parts = append(parts, strings.Join(who, " and ")+": "+master)
		}
		slices.Sort(parts)
		j.say(Critical, "sentinel", f.Member, "the Sentinels name different masters: "+strings.Join(parts, "; "),
			"clients believe the newest configuration of a majority; clients that hear only of the other go on with the former master",
			"wait for the failover to end; then use SENTINEL RESET on Sentinels that missed it, or check the network")
	}
	switch {
	case f.Err != nil || f.Info == nil:
	case !f.replaceable():
		j.say(OK, "replicas", f.Member, "the master has no replica", "while it is away, this member does not vote"+j.alone(": nobody can lock"), "")
	default:
		j.failover(f, "the master", "locks lack this vote")
	}
}

// replicas judges a server that a replica may replace: by its own settings, and by those that its replicas would
// go on with.
func (j *judge) replicas(f *Facts) {
	if n, _ := strconv.Atoi(f.Info["connected_slaves"]); f.Ack > n && f.Info != nil {
		j.say(Critical, "replicas", f.Member, fmt.Sprintf("min_replicas_ack is %d, and it has %d replicas", f.Ack, n), "no vote of it ever counts", "more replicas, or a smaller min_replicas_ack")
	}
	if f.lonely() {
		j.say(Critical, "replicas", f.Member, fmt.Sprintf("it refuses writes (NOREPLICAS): min-replicas-to-write is %s, and %s of its replicas keep up",
			cmp.Or(f.Config["min-replicas-to-write"], "not 0"), f.Info["min_slaves_good_slaves"]), "it does not vote", "bring its replicas back; wait until they have caught up")
	}
	if f.Kind == node.OneServer || f.Kind == node.BySentinel && !f.replaceable() {
		return
	}
	j.lag(f, f.Member, f.Config, f.Info != nil)
	for _, r := range f.Replicas {
		if r.Err != nil {
			j.unheard("replicas", f.Member, "its replica "+r.Addr, r.Err, "it cannot take over, or it would take over with unknown settings")
			continue
		}
		j.lag(f, "its replica "+r.Addr, r.Config, true)
		if p := r.Config["maxmemory-policy"]; p != "" && p != "noeviction" {
			j.say(Warning, "eviction", f.Member, "maxmemory-policy of its replica "+r.Addr+" is "+p, "after a failover, Redis can evict a held lock: two clients may hold it", "CONFIG SET maxmemory-policy noeviction there")
		}
		if f.Kind == node.RedisCluster && r.Config["cluster-replica-validity-factor"] == "0" && r.Config["cluster-replica-no-failover"] != "yes" {
			j.say(Warning, "failover", f.Member, "cluster-replica-validity-factor of its replica "+r.Addr+" is 0: it takes over however long it was cut off",
				"if it lacks the restart guard's marker, and no client looks for repl-backlog-ttl (1 h), it counts as a server that always was a master",
				"cluster-replica-validity-factor 10, the default, or cluster-replica-no-failover yes")
		}
	}
}

// lonely reports whether a master refuses writes, because too few of its replicas are there. Redis tells how many are
// only where it wants any.
func (f *Facts) lonely() bool {
	there, err := strconv.Atoi(f.Info["min_slaves_good_slaves"])
	if err != nil || f.Info["role"] != "master" {
		return false
	}
	need, err := strconv.Atoi(f.Config["min-replicas-to-write"])
	return there < need || err != nil && there == 0
}

// replaceable reports whether there is a replica, connected now or not.
func (f *Facts) replaceable() bool {
	return len(f.Replicas) > 0 || slices.ContainsFunc(f.Sightings, func(s Sighting) bool { return s.Replicas > 0 })
}

// lag compares how long a master that was replaced may go on granting with what its successor waits for.
func (j *judge) lag(f *Facts, who string, c map[string]string, asked bool) {
	const risk = "a former master that is cut off goes on granting while its successor votes: two holders"
	number := func(name string, unit time.Duration) (time.Duration, bool) {
		n, err := strconv.Atoi(c[name])
		return time.Duration(n) * unit, err == nil
	}
	whose := ""
	if who != f.Member {
		whose = " of " + who
	}
	switch f.Kind {
	case node.RedisCluster:
		timeout, ok := number("cluster-node-timeout", time.Millisecond)
		switch {
		case !ok && asked:
			j.say(OK, "failover lag", f.Member, "cluster-node-timeout"+whose+" is not known: CONFIG GET is not permitted", fmt.Sprintf("it must not be above failover_lag, %v", f.Lag), "+config|get, for this check alone")
		case timeout > f.Lag:
			s := Critical
			if len(f.Replicas) == 0 { // until it has one
				s = Warning
			}
			j.say(s, "failover lag", f.Member, fmt.Sprintf("cluster-node-timeout%s is %v, failover_lag %v", whose, timeout, f.Lag), risk,
				fmt.Sprintf("failover_lag=%v or more in the URL of all clients, or a smaller cluster-node-timeout", timeout))
		}
	case node.BySentinel:
		write, ok1 := number("min-replicas-to-write", 1)
		lag, ok2 := number("min-replicas-max-lag", time.Second)
		switch {
		case !(ok1 && ok2) && asked:
			j.say(OK, "failover lag", f.Member, "min-replicas-to-write and min-replicas-max-lag"+whose+" are not known: CONFIG GET is not permitted",
				fmt.Sprintf("they must be at least 1, and not above failover_lag, %v", f.Lag), "+config|get, for this check alone")
		case ok1 && (write < 1 || lag <= 0):
			what := "min-replicas-max-lag" + whose + " is 0"
			switch {
			case write < 1 && ok2 && lag <= 0:
				what = "min-replicas-to-write and min-replicas-max-lag" + whose + " are 0"
			case write < 1:
				what = "min-replicas-to-write" + whose + " is 0"
			}
			j.say(Critical, "failover lag", f.Member, what, risk,
				fmt.Sprintf("min-replicas-to-write 1 and min-replicas-max-lag %d, on the master and all its replicas", max(1, int(f.Lag/time.Second))))
		case lag > f.Lag:
			j.say(Critical, "failover lag", f.Member, fmt.Sprintf("min-replicas-max-lag%s is %v, failover_lag %v", whose, lag, f.Lag), risk,
				fmt.Sprintf("failover_lag=%v or more in the URL of all clients, or a smaller min-replicas-max-lag", lag))
		}
	}
}
