package doctor

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redquorum/redquorum/internal/printable"
	"github.com/redquorum/redquorum/member"
	"github.com/redquorum/redquorum/node"
)

// Severity orders findings. As an exit code, it is that of a monitoring plugin.
type Severity uint8

// These are the severities.
const (
	OK       Severity = iota // good to know
	Warning                  // works, and something will go wrong
	Critical                 // unsafe, or does not work
)

func (s Severity) String() string { return [...]string{"ok", "warning", "critical"}[s] }

// MarshalText implements encoding.TextMarshaler.
func (s Severity) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// Finding is one thing that doctor noticed.
type Finding struct {
	Severity Severity `json:"severity"`
	Check    string   `json:"check"`
	Member   string   `json:"member,omitempty"`
	What     string   `json:"what"`
	Risk     string   `json:"risk,omitempty"`
	Cure     string   `json:"cure,omitempty"`
}

// Report is the whole judgement.
type Report struct {
	Severity Severity  `json:"severity"`
	Members  []Summary `json:"members"`
	Findings []Finding `json:"findings"`
	// Restart says whether a member may be restarted now without the set losing its majority.
	Restart   bool   `json:"may_restart_one"`
	RestartNo string `json:"may_not_because,omitempty"`
}

// Summary is one member in a line.
type Summary struct {
	Member  string  `json:"member"`
	Up      bool    `json:"up"`
	Version string  `json:"version,omitempty"`
	RTTUS   int64   `json:"rtt_us,omitempty"`
	Uptime  int64   `json:"uptime_s,omitempty"`
	State   string  `json:"state"`
	Offset  float64 `json:"clock_offset_ms"`
	// nil: unknown, because the readings took too long beside --sample
	Rate *float64 `json:"clock_rate_ppm"`

	Master  string    `json:"master,omitempty"`  // that the Sentinels name
	Masters []Summary `json:"masters,omitempty"` // of a Redis Cluster, which has nothing else but its state then

	// SilentSlots is the number of slots for which a Redis Cluster, or one of its masters, does not
	// vote. SilentUntil is the end of the last quarantine among them, by the clock of this machine.
	SilentSlots int        `json:"silent_slots,omitempty"`
	SilentUntil *time.Time `json:"silent_until,omitempty"`
}

// judge collects.
type judge struct {
	terms Terms
	now   time.Time
	all   []Facts
	out   Report
}

func (j *judge) say(s Severity, check, member, what, risk, cure string) {
	j.out.say(s, check, member, what, risk, cure)
}

func (r *Report) say(s Severity, check, member, what, risk, cure string) {
	const most = 4096 // of what servers say, and of names
	r.Findings = append(r.Findings, Finding{s, check, printable.Text(member, most), printable.Text(what, most), printable.Text(risk, most), printable.Text(cure, most)})
	r.Severity = max(r.Severity, s)
}

// sort puts the worst first.
func (r *Report) sort() {
	slices.SortStableFunc(r.Findings, func(a, b Finding) int { return int(b.Severity) - int(a.Severity) })
}

// Judge says what is wrong with the members of these facts, ordered by severity.
func Judge(all []Facts, terms Terms, now time.Time) Report {
	j := &judge{terms: terms, now: now, all: all}
	j.number()
	j.identities()
	for i := range all {
		f := &all[i]
		j.out.Members = append(j.out.Members, j.summary(f))
		j.sentinels(f)
		j.cluster(f)
		j.faults(f)
		if f.Err != nil {
			j.down(f, f)
			continue
		}
		for _, s := range f.servers() {
			if s.Err != nil {
				j.down(s, f)
				continue
			}
			j.server(s)
			j.writes(s)
			j.memory(s)
			j.persistence(s)
			j.clocks(s)
			j.guard(s)
			j.permitted(s)
			j.buffers(s)
			j.certificate(s.Member, "the member's certificate", s.Expires, now)
			j.replicas(s)
		}
	}
	j.certificate("", "our own certificate", terms.Own, now)
	j.spread()
	j.restart()
	j.out.sort()
	return j.out
}

func (j *judge) number() {
	n := len(j.all)
	up, partly := 0, 0
	for i := range j.all {
		switch f := &j.all[i]; {
		case f.up():
			up++
		case f.Err == nil && slices.ContainsFunc(f.Parts, func(p Facts) bool { return p.Err == nil && p.MarkerErr == nil }):
			partly++
		}
	}
	need := member.Majority(n)
	switch {
	case up < need && up+partly >= need:
		j.say(Critical, "quorum", "", fmt.Sprintf("%d of %d members can be reached, and %d in part, %d are needed", up, n, partly, need),
			"no lock can be taken in the slots of the masters that are away, only in the others", "see the members below")
	case up < need:
		j.say(Critical, "quorum", "", fmt.Sprintf("%d of %d members can be reached, %d are needed", up, n, need),
			"no lock can be taken", "see the members below")
	case up == need && n > 1:
		j.say(Warning, "quorum", "", fmt.Sprintf("%d of %d members can be reached, which is the bare majority", up, n),
			"with the next one that fails, no lock can be taken", "see the members below")
	}
	if voting := j.voting(); up >= need && voting < need {
		j.say(Critical, "quorum", "", fmt.Sprintf("%d of %d members vote, %d are needed", voting, n, need), "no lock can be taken", "see the members below")
	}
	switch {
	case n == 1:
		j.say(OK, "number", "", "one member", "its restart or loss stops all locks", "use 3 or 5 independent masters")
	case n%2 == 0:
		j.say(Warning, "number", "", fmt.Sprintf("%d members: an even number", n),
			fmt.Sprintf("as few failures as with %d stop all locks, and one more server can fail", n-1), "use 3 or 5")
	}
	hosts := make(map[string]int)
	for i := range j.all {
		seen := make(map[string]bool)
		for _, s := range j.all[i].servers() {
			if host, _, err := net.SplitHostPort(s.addr()); err == nil && !seen[host] {
				seen[host] = true
				hosts[host]++
			}
		}
	}
	for host, n := range hosts {
		if n < 2 {
			continue
		}
		s := Warning
		if ip := net.ParseIP(host); host == "localhost" || ip != nil && ip.IsLoopback() {
			s = OK // for development
		}
		j.say(s, "hosts", "", fmt.Sprintf("%d members are on the host %s", n, host), "they fail together", "one machine, and one power supply, for each")
	}
}

// votes reports whether the member votes for locks of some name, as far as can be seen.
func (f *Facts) votes() bool {
	return slices.ContainsFunc(f.servers(), func(s *Facts) bool { return s.state() == "voting" })
}

// voting counts them.
func (j *judge) voting() (n int) {
	for i := range j.all {
		if j.all[i].Err == nil && j.all[i].votes() {
			n++
		}
	}
	return n
}

// identities looks for members that are one Redis, or replicate one another.
func (j *judge) identities() {
	type place struct {
		member int
		server *Facts
	}
	var all []place
	seen := make(map[string]place)
	told := make(map[[2]int]bool) // two clusters have many masters in common
	for i := range j.all {
		for _, f := range j.all[i].servers() {
			if f.Err != nil {
				continue
			}
			at := place{i, f}
			all = append(all, at)
			id := f.Info["run_id"]
			if id == "" && f.Marker != "" { // of servers that tell nothing of themselves
				id = "marker " + f.Marker
			}
			first, dup := seen[id]
			switch {
			case id == "":
			case !dup:
				seen[id] = at
			case first.member == i:
				j.say(Critical, "identity", f.Member, "it is the same Redis as "+first.server.Member+", which the cluster has as another master",
					"calls for its slots are refused", "look at the addresses that the servers announce, and at addr_map")
			case told[[2]int{first.member, i}]:
			case f.Kind == node.RedisCluster && first.server.Kind == node.RedisCluster:
				told[[2]int{first.member, i}] = true
				j.say(Critical, "identity", j.all[i].Member, "it is the same Redis Cluster as "+j.all[first.member].Member,
					"it would vote twice; the library refuses such a set", "list each cluster once, with all its addresses in one URL")
			default:
				j.say(Critical, "identity", f.Member, fmt.Sprintf("it is the same Redis as %s: members %d and %d of the list", first.server.Member, first.member+1, i+1),
					"it would vote twice; the library refuses such a set", "list each master once: another address or database of it is no other member")
			}
		}
	}
	for _, at := range all {
		f := at.server
		if f.Info["role"] != "slave" {
			continue
		}
		master := net.JoinHostPort(f.Info["master_host"], f.Info["master_port"])
		what := "it is a replica of " + master
		for _, other := range all {
			if other.member != at.member && (other.server.addr() == master || other.server.Info["master_replid"] == f.Info["master_replid"]) {
				what = "it replicates another member, " + j.all[other.member].Member
			}
		}
		switch f.Kind {
		case node.RedisCluster:
			j.say(Critical, "role", f.Member, what+", and the cluster names it as a master", "its slots give no vote", "look again when the failover is over; then CLUSTER NODES")
		case node.BySentinel:
			j.say(Critical, "role", f.Member, what+" ("+f.addr()+"), and the Sentinels name it as the master", "it does not vote", "look again when the failover is over; then SENTINEL MASTER")
		default:
			j.say(Critical, "replication", f.Member, what, "it cannot vote, and would not be independent if it could", "use independent masters: REPLICAOF NO ONE")
		}
	}
}

// up reports whether everything of the member can be reached that its vote for any lock needs.
func (f *Facts) up() bool {
	if f.Err != nil {
		return false
	}
	for _, s := range f.servers() {
		if s.Err != nil {
			return false
		}
	}
	return true
}

func (f *Facts) addr() string {
	if f.Addr != "" {
		return f.Addr
	}
	return f.Member
}

// bare is the text of an error without the names of the server in front of it, or of a cause: every finding has one.
func (f *Facts) bare(err error) string {
	text := ": " + err.Error()
	for _, name := range []string{f.Member, f.Addr} {
		for name != "" && strings.Contains(text, ": "+name+": ") {
			text = strings.Replace(text, ": "+name+": ", ": ", 1)
		}
	}
	return strings.TrimPrefix(text, ": ")
}

// down says why a member, or a part of it, does not answer.
func (j *judge) down(f, of *Facts) {
	refused, other := (*member.ReplyError)(nil), (*node.SchemeError)(nil)
	what := f.bare(f.Err)
	if f.Slots > 0 {
		what = fmt.Sprintf("a master, of %d slots: %s", f.Slots, what)
	}
	switch {
	case errors.As(f.Err, &refused) && refused.Kind == member.KindAuth && !errors.As(f.Err, &other):
		j.say(Critical, "auth", f.Member, what, "it does not vote", "check user, password (REDLOCK_PASSWORD_FILE) and permissions")
	case errors.As(f.Err, &other):
		j.say(Critical, "scheme", f.Member, what, "it does not vote", "write "+other.Scheme+" in its URL, or another address: docs/configuration.md has the form of each")
	case f.TLSErr && (strings.Contains(what, "asks for a client certificate") || strings.Contains(what, "certificate required")): // TLS 1.2, 1.3
		j.say(Critical, "tls", f.Member, what, "it does not vote", "use a certificate that its authority has signed: tls_cert and tls_key in the URL, or --tls-cert and --tls-key if the URL has no tls_ option")
	case f.TLSErr:
		j.say(Critical, "tls", f.Member, what, "it does not vote", "check the certificates on both sides (--tls-ca, --tls-cert, --tls-key), and that both speak TLS")
	case refused != nil && !f.TLSErr:
		j.say(Critical, "reachable", f.Member, what, "it does not vote", "run doctor again when it takes commands; its log says why it does not")
	case f.toldBy(of):
		j.say(Critical, "reachable", f.Member, what, "it does not vote", "start it, or check the network; if the servers announce addresses that cannot be dialled from here, map them with addr_map")
	case errors.Is(f.Err, context.DeadlineExceeded):
		j.say(Critical, "reachable", f.Member, what, "it does not vote", "see why it does not answer: a process that is stopped, a slow command or disk; or check the network")
	default:
		j.say(Critical, "reachable", f.Member, what, "it does not vote", "start it, or check the network")
	}
}

// toldBy reports whether the address of a server is one that others announce: none that is in the URL or in addr_map.
func (f *Facts) toldBy(of *Facts) bool {
	if f.Slots > 0 {
		return f.Addr == f.Member && !slices.ContainsFunc(of.Views, func(v View) bool { return v.Server == f.Addr })
	}
	return f.Addr != "" && slices.ContainsFunc(f.Sightings, func(s Sighting) bool { return s.Master == f.Addr })
}

func (j *judge) server(f *Facts) {
	if f.Info == nil {
		j.say(Critical, "info", f.Member, "INFO is not permitted", "to clients it is no member, and doctor can check little of this list", "+info")
		return
	}
	j.version(f)
	if f.Kind == node.RedisCluster {
		switch {
		case f.Missing:
			j.say(Critical, "mode", f.Member, "another server answers than the one that the cluster names", "calls for its slots are refused", "look at the addresses that the servers announce, and at addr_map")
		case f.Health != "" && f.Health != "ok":
			j.say(Critical, "cluster", f.Member, "cluster_state is "+f.Health+" there", "it refuses every command", "CLUSTER INFO and CLUSTER NODES say why")
		}
	} else if f.Info["redis_mode"] == "cluster" || f.Info["server_mode"] == "cluster" || f.Info["cluster_enabled"] == "1" {
		j.say(Critical, "mode", f.Member, "it belongs to a Redis Cluster", "as a plain member, it refuses keys of other slots", "list the whole cluster as one member")
	}
	if f.Info["loading"] == "1" {
		j.say(Warning, "loading", f.Member, "it is loading its data", "it does not vote yet", "wait")
	}
	clients, _ := strconv.Atoi(f.Info["connected_clients"])
	limit, _ := strconv.Atoi(f.Info["maxclients"])
	if limit > 0 && clients*5 > limit*4 {
		j.say(Warning, "clients", f.Member, fmt.Sprintf("%d of %d client connections are in use", clients, limit), "new holders and waiters are refused", "raise maxclients, or look for a leak of connections")
	}
	if p := j.terms.Patience; p > 0 && f.RTT > p {
		j.say(Critical, "rtt", f.Member, fmt.Sprintf("round trip %v, and clients wait %v for a member's vote (--member-timeout)", f.RTT.Round(time.Millisecond), p),
			"its votes come too late", "nearer members, or a greater --member-timeout for all clients")
	} else if f.RTT > 50*time.Millisecond {
		j.say(Warning, "rtt", f.Member, fmt.Sprintf("round trip %v", f.RTT.Round(time.Millisecond)), "every acquisition takes that long, and loses as much validity", "nearer members")
	}
}

func older(version string, major, minor int) bool {
	parts := strings.Split(version, ".")
	if len(parts) < 2 {
		return false
	}
	a, err1 := strconv.Atoi(parts[0])
	b, err2 := strconv.Atoi(parts[1])
	return err1 == nil && err2 == nil && (a < major || a == major && b < minor)
}

// writes says why a server takes no writes, unless that is said of its role or its replicas.
func (j *judge) writes(f *Facts) {
	var refused *member.ReplyError
	switch {
	case f.WriteErr == nil || f.lonely() || f.Info["role"] == "slave":
	case !errors.As(f.WriteErr, &refused):
		j.say(Critical, "writes", f.Member, "it answers PING, and no write", "it does not vote", "CLIENT UNPAUSE, if somebody paused it (CLIENT PAUSE); otherwise its log says why")
	case refused.Kind == member.KindOverloaded:
		j.say(Critical, "writes", f.Member, "it refuses writes: "+refused.Text, "it does not vote", "raise maxmemory, or delete what else is there; keep maxmemory-policy noeviction")
	case refused.Kind == member.KindCluster && f.Health != "" && f.Health != "ok":
	default:
		j.say(Critical, "writes", f.Member, "it refuses writes: "+refused.Text, "it does not vote", "run doctor again when it takes writes; its log says why it does not")
	}
}

func (j *judge) memory(f *Facts) {
	policy := f.Info["maxmemory_policy"]
	if policy == "" {
		policy = f.Config["maxmemory-policy"]
	}
	if policy == "" || policy == "noeviction" {
		return
	}
	s := Warning
	if f.Info["maxmemory"] != "0" {
		s = Critical
	}
	j.say(s, "eviction", f.Member, "maxmemory-policy is "+policy, "Redis can evict a held lock: the member forgets its vote, and two clients may hold the lock",
		"CONFIG SET maxmemory-policy noeviction, and the same in its configuration file")
}

func (j *judge) persistence(f *Facts) {
	if f.Info == nil {
		return
	}
	aof, fsync := f.Info["aof_enabled"] == "1", f.Config["appendfsync"]
	switch {
	case j.terms.GuardOff && (!aof || fsync != "always"):
		what := "the restart guard is off, and it does not write each command to disk"
		if aof && f.Config == nil {
			what = "the restart guard is off, and CONFIG GET is not permitted: appendfsync is not known"
		}
		j.say(Critical, "persistence", f.Member, what, "after a restart it votes with old locks and old counters: two holders, tokens twice",
			"appendonly yes and appendfsync always, or the restart guard")
	case !aof:
		j.say(OK, "persistence", f.Member, "no append-only file", fmt.Sprintf("after a restart it does not vote for %v (that is the restart guard, and safe)", j.terms.MaxTTL), "")
	}
	if f.Info["aof_last_write_status"] == "err" || f.Info["rdb_last_bgsave_status"] == "err" && f.Config["stop-writes-on-bgsave-error"] != "no" {
		j.say(Critical, "persistence", f.Member, "its last write to disk failed", "it refuses writes, so it does not vote", "make room on its disk, look into its log")
	}
}

// offset is how far the member's clock is ahead of ours, and how sure that is.
func offset(r Reading) (d, within time.Duration) {
	half := r.Arrived.Sub(r.Sent) / 2
	return r.Server.Sub(r.Sent.Add(half).Round(0)), half
}

// rate is by how much the member's clock is fast, as a share, and how sure that is.
func rate(c [2]Reading) (share, within float64) {
	ours := c[1].Sent.Sub(c[0].Sent)
	if c[0].Sent.IsZero() || c[1].Sent.IsZero() || ours <= 0 {
		return 0, math.Inf(1)
	}
	theirs := c[1].Server.Sub(c[0].Server)
	// Each reading belongs to some moment between its request and its answer.
	unsure := c[0].Arrived.Sub(c[0].Sent) + c[1].Arrived.Sub(c[1].Sent) + 2*time.Microsecond
	return float64(theirs-ours) / float64(ours), float64(unsure) / float64(ours)
}

// rated is the rate, if it is known well enough to be judged: what the readings took is short beside the time between
// them. Half of the default of --drift is as good as it must be.
func (j *judge) rated(f *Facts) (share, within float64, ok bool) {
	share, within = rate(f.Clock)
	return share, within, within <= max(j.terms.Drift, 0.01)/2
}

func (j *judge) clocks(f *Facts) {
	if share, within, ok := j.rated(f); ok && math.Abs(share)-within > j.terms.Drift/2 {
		j.say(Critical, "clock rate", f.Member, fmt.Sprintf("its clock and ours differ by %+.0f ppm (within %.0f)", share*1e6, within*1e6),
			fmt.Sprintf("locks are safe while each clock is within %.0f ppm (half of --drift)", j.terms.Drift/2*1e6), "mend the clock, or raise --drift for all clients")
	}
	if f.Clock[0].Sent.IsZero() {
		return
	}
	if d, within := offset(f.Clock[0]); d.Abs()-within > time.Second {
		j.say(Warning, "clock offset", f.Member, fmt.Sprintf("its clock is %v off ours", d.Round(time.Millisecond)),
			"locks do not depend on it; but after the loss of all counters, the order of tokens does", "NTP")
	}
}

// state of a member, as redlock.Client.Members tells it, or "refusing": it would vote, and takes no writes.
func (f *Facts) state() string {
	run := f.Info["run_id"]
	if parts := f.Parts; len(parts) > 0 { // that of the worst master
		states := []string{"voting", "refusing", "restoring", "quarantined", "new", "joined", "replaced", "restarted", "unknown", "down"}
		worst := 0
		for i := range parts {
			worst = max(worst, slices.Index(states, parts[i].state()))
		}
		return states[worst]
	}
	switch {
	case f.Err != nil:
		return "down"
	case f.MarkerErr != nil:
		return "unknown"
	case f.Marker == "" && f.Kind != node.OneServer && f.promoted():
		return "replaced"
	case f.Marker == "" && f.Stamped:
		return "joined"
	case f.Marker == "":
		return "new"
	case (f.Kind != node.OneServer || f.Repl != "") && f.Repl != f.Info["master_replid"] && f.promoted():
		return "replaced"
	case run != "" && !strings.HasPrefix(f.Marker, run+" "):
		return "restarted"
	case f.Left > 0:
		return "quarantined"
	case f.State == "g":
		return "restoring"
	case f.WriteErr != nil || f.lonely():
		return "refusing"
	}
	return "voting"
}

// promoted reports whether the process was a replica before.
func (f *Facts) promoted() bool { return strings.Trim(f.Info["master_replid2"], "0") != "" }

// notice is the cure where no client has looked yet: the time that a member rests begins when one does.
const notice = "have one notice now: redlock run awake -n -- true; then wait; restart no other member"

func (j *judge) guard(f *Facts) {
	until := "for " + f.Left.Round(time.Second).String() + " more"
	switch f.state() {
	case "unknown":
		j.say(Critical, "restart guard", f.Member, f.bare(f.MarkerErr), "it does not vote", unreadable(f.MarkerErr))
	case "new":
		cure := notice
		if !slices.ContainsFunc(j.all, func(other Facts) bool { return other.Marker != "" }) { // else it is new beside others
			cure = "for a deployment that never held a lock: redlock init --fresh; otherwise " + cure
		}
		j.say(Warning, "restart guard", f.Member, "no client has used it yet",
			fmt.Sprintf("it does not vote for %v from when one does", j.terms.MaxTTL), cure)
	case "restarted":
		j.say(Warning, "restart guard", f.Member, "it has restarted, and no client has noticed yet", fmt.Sprintf("it does not vote for %v from when one does", j.terms.MaxTTL),
			notice)
	case "joined":
		j.say(Warning, "restart guard", f.Member, "it has no marker, and slots that were used: they came from other masters, or it forgot, and no client has noticed yet",
			fmt.Sprintf("it votes once a client has, or %v later, unless all of them came from masters that remember", j.terms.MaxTTL+f.Lag), notice)
	case "replaced":
		what := "a replica has taken over"
		if f.Kind == node.OneServer {
			what = "it was a replica"
		}
		j.say(Warning, "restart guard", f.Member, what+", or it has restarted, and no client has noticed yet",
			fmt.Sprintf("it may lack what its former master granted, and does not vote for %v from when one does", j.terms.MaxTTL+f.Lag), notice)
	case "quarantined":
		j.say(Warning, "restart guard", f.Member, "it may have forgotten what it granted, and does not vote "+until, "fewer members bear the locks meanwhile", "wait; restart no other member")
	case "restoring":
		j.say(Warning, "restart guard", f.Member, "its quarantine is over, its counters are not restored yet", "it does not vote", "wait for a client to restore it; restart no other member")
	}
}

// unreadable is the cure for a marker that a server does not show.
func unreadable(err error) string {
	var refused *member.ReplyError
	switch {
	case !errors.As(err, &refused):
		return "run doctor again; then check its log and the network"
	case refused.Kind == member.KindCluster:
		return "CLUSTER INFO and CLUSTER NODES say why"
	case refused.Kind != member.KindAuth:
		return "run doctor again when it takes commands; its log says why it does not"
	}
	if command := forbidden.FindStringSubmatch(refused.Text); command != nil {
		return "+" + strings.ToLower(command[1])
	}
	return "permit ~redquorum:*"
}

// forbidden finds the command in "NOPERM this user has no permissions to run the 'hmget' command".
var forbidden = regexp.MustCompile(`run the '([^']+)' command`)

// What the library can do without, and at what price: see understand in node/introduce.go.
var dispensable = map[string][2]string{
	"PING": {"+ping", "the client reopens the connection for hand-overs after each silence, and sees a hand-over in between late; " +
		"a server that loads or is busy counts as up until it refuses a lock"},
	"CLIENT SETNAME": {"+client|setname", "CLIENT LIST does not show which connections belong to the library"},
	"CLIENT LIST": {"+client|list", "behind each connection that broke, a server looks through all it has for it, also if it has closed it: with " +
		"thousands of clients, half of what their return costs it"},
	"CLUSTER SLOTS": {"+cluster|slots", "Redis 6.2 names no master to clients, and 7.2 and 7.4 name none for the slots of a failed one: CLUSTER SHARDS " +
		"is not enough there"},
	"ZSCORE":        {"+zscore", "semaphores and locks in strict order fail when somebody waits"},
	"SCRIPT EXISTS": {"+script|exists", "each connection sends all scripts, also to a server that has them"},
	"SCRIPT LOAD":   {"+script|load", "if a server lacks a script, the client sends it in full, which costs another round trip each time"},
}

// name splits off what the user may not do to the key of the terms, if that is everything.
func (j *judge) name(f *Facts) (rest []string, all bool) {
	of := func(c string) bool { return strings.Contains(c+" ", " "+j.terms.Key+" ") }
	if !slices.ContainsFunc(f.Denied, of) {
		return f.Denied, false
	}
	if f.ACLErr != nil && !slices.ContainsFunc(f.Denied, func(c string) bool { return strings.HasPrefix(c, "EVAL ") }) {
		return slices.DeleteFunc(slices.Clone(f.Denied), of), true // Redis 6.2: of commands with the key EVALSHA alone was tried
	}
	for _, c := range Commands(Target{Kind: f.Kind}, j.terms.Key, false) {
		if n := strings.Join(name(c), " "); len(c) > 1 && c[1] == j.terms.Key && !slices.Contains(f.Denied, n) {
			return f.Denied, false
		}
	}
	return slices.DeleteFunc(slices.Clone(f.Denied), of), true
}

func (j *judge) permitted(f *Facts) {
	var denied, sharded []string
	rest, name := j.name(f)
	switch {
	case name && j.terms.KeyChosen:
		j.say(Critical, "permissions", f.Member, "the user may not use the name "+strconv.Quote(j.terms.Key), "locks of that name fail", "permit ~"+j.terms.Key+", or a pattern that it matches")
	case name:
		j.say(OK, "permissions", f.Member, "not checked for locks: the user may use only certain names, and not "+strconv.Quote(j.terms.Key), "", "--key with the name of one of your locks")
	}
	for _, c := range rest {
		if c == "SSUBSCRIBE" || c == "SPUBLISH" {
			sharded = append(sharded, c)
		} else if without, ok := dispensable[c]; ok {
			j.say(Warning, "permissions", f.Member, "the user may not: "+c, without[1], without[0])
		} else {
			denied = append(denied, c)
		}
	}
	if s := program(f.Info); len(sharded) > 0 && !(s.Brand == "Redis" && s.Version != "" && older(s.Version, 7, 0)) { // which has none
		j.say(Warning, "permissions", f.Member, "the user may not: "+strings.Join(sharded, ", "),
			"each hand-over is sent to every server of the cluster, and not to one", "+ssubscribe +spublish")
	}
	if len(denied) > 0 {
		j.say(Critical, "permissions", f.Member, "the user may not: "+strings.Join(denied, ", "),
			"locks fail, or the client cannot handle restarts and broken connections", "add them to the user's rules: acl/members.acl in the source tree has all of them; --key chooses the lock to check; if the server lacks them, see rename-command in its configuration")
	}
	if f.ACLErr != nil {
		j.say(OK, "permissions", f.Member, "not all checked: "+f.ACLErr.Error(), "", "+acl|whoami +acl|dryrun, for this check alone (Redis 7)")
	}
}

func (j *judge) buffers(f *Facts) {
	words := strings.Fields(f.Config["client-output-buffer-limit"])
	for i := 0; i+3 < len(words); i += 4 {
		hard, _ := strconv.Atoi(words[i+1])
		soft, _ := strconv.Atoi(words[i+2])
		least := hard
		if least == 0 || soft > 0 && soft < least {
			least = soft
		}
		if words[i] == "pubsub" && least > 0 && least < 1<<20 {
			j.say(Warning, "buffers", f.Member, fmt.Sprintf("client-output-buffer-limit pubsub is %d bytes", least),
				"subscriptions break under load, and waiters get the lock only at a heartbeat", "32mb 8mb 60, the default")
		}
	}
}

func (j *judge) certificate(member, what string, expires, now time.Time) {
	if expires.IsZero() {
		return
	}
	left := expires.Sub(now)
	date := expires.Format(time.DateOnly)
	switch {
	case left <= 0:
		j.say(Critical, "tls", member, what+" expired on "+date, "connections are refused", "renew it")
	case left < 30*24*time.Hour:
		j.say(Warning, "tls", member, fmt.Sprintf("%s expires on %s, in %d days", what, date, int(left.Hours()/24)), "connections will be refused", "renew it")
	}
}

// spread compares the members' clocks with one another.
func (j *judge) spread() {
	var low, high time.Duration
	first := true
	for i := range j.all {
		for _, f := range j.all[i].servers() {
			if f.Err != nil || f.Clock[0].Sent.IsZero() {
				continue
			}
			d, _ := offset(f.Clock[0])
			if first {
				low, high, first = d, d, false
			}
			low, high = min(low, d), max(high, d)
		}
	}
	if high-low > 500*time.Millisecond {
		j.say(Warning, "clock offset", "", fmt.Sprintf("the members' clocks differ by %v", (high-low).Round(time.Millisecond)),
			"after the loss of all counters, tokens may fall", "NTP on all members")
	}
}

// restart decides whether one member may be restarted.
func (j *judge) restart() {
	need := member.Majority(len(j.all))
	voting := 0
	var not []string
	for i := range j.all {
		switch s := j.all[i].state(); {
		case s == "refusing":
			not = append(not, j.all[i].Member+" refuses writes")
		case s != "voting":
			not = append(not, j.all[i].Member+" is "+s)
		default:
			voting++
		}
	}
	switch {
	case len(not) > 0:
		j.out.RestartNo = strings.Join(not, ", ")
	case voting-1 < need:
		j.out.RestartNo = fmt.Sprintf("without it %d of %d would be left, and %d are needed: nobody can take a lock", voting-1, len(j.all), need)
	case j.out.Severity == Critical:
		j.out.RestartNo = "mend first what is critical"
	default:
		j.out.Restart = true
	}
}

func (j *judge) summary(f *Facts) Summary {
	s := Summary{Member: f.Member, State: f.state()}
	if f.Slots > 0 && s.State != "voting" {
		s.SilentSlots = f.Slots
		if f.Left > 0 {
			until := j.now.Add(f.Left)
			s.SilentUntil = &until
		}
	}
	if f.Err != nil {
		return s
	}
	if len(f.Parts) > 0 {
		s.Up = f.up()
		for i := range f.Parts {
			m := j.summary(&f.Parts[i])
			s.Masters = append(s.Masters, m)
			s.SilentSlots += m.SilentSlots
			if m.SilentUntil != nil && (s.SilentUntil == nil || m.SilentUntil.After(*s.SilentUntil)) {
				s.SilentUntil = m.SilentUntil
			}
		}
		return s
	}
	if f.Kind == node.BySentinel {
		s.Master = f.Addr
	}
	s.Up, s.RTTUS = true, f.RTT.Microseconds()
	if is := program(f.Info); is.Brand == "Redis" {
		s.Version = is.Version
	} else {
		s.Version = strings.ToLower(is.String())
	}
	s.Uptime, _ = strconv.ParseInt(f.Info["uptime_in_seconds"], 10, 64)
	if !f.Clock[0].Sent.IsZero() {
		d, _ := offset(f.Clock[0])
		s.Offset = float64(d.Microseconds()) / 1000
	}
	if share, _, ok := j.rated(f); ok {
		ppm := math.Round(share * 1e6)
		s.Rate = &ppm
	}
	return s
}
