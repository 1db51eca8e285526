package main

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/redquorum/redquorum/cluster"
	"github.com/redquorum/redquorum/cmd/redlock/internal/doctor"
	"github.com/redquorum/redquorum/cmd/redlock/internal/settings"
	"github.com/redquorum/redquorum/internal/printable"
	"github.com/redquorum/redquorum/internal/resp"
	"github.com/redquorum/redquorum/internal/topology"
	"github.com/redquorum/redquorum/member"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/redlock"
	"github.com/redquorum/redquorum/slot"
)

// heldLock is one lock that ls found: by its owner, or by all of its readers.
type heldLock struct {
	Key        string       `json:"key"`
	KeyBytes   []byte       `json:"key_base64,omitempty"` // the name, if it is no UTF-8
	Votes      int          `json:"votes"`                // of readers: that each of them has
	Token      uint64       `json:"token"`                // the greatest of the votes
	TTLMS      int64        `json:"ttl_ms"`               // the longest of the votes
	Kind       redlock.Kind `json:"kind"`
	Readers    int          `json:"readers,omitempty"`
	Leads      *string      `json:"leads,omitempty"` // the value of a leader
	LeadsBytes []byte       `json:"leads_base64,omitempty"`

	Who        string   `json:"who,omitempty"`         // what the holder's client tells of itself (--label)
	ReadersWho []string `json:"readers_who,omitempty"` // of readers, what those clients tell that do, each once

	seq     int64    // of the value
	clients []string // a hash of the holder's client; of readers, of each
}

func newLs() *cobra.Command {
	var c common
	all := false
	cmd := &cobra.Command{
		Use:   "ls [PREFIX]",
		Short: "List the locks that are held",
		Long: `ls walks over the keys of every member (SCAN, never KEYS). It lists a lock if a majority of the
members name the same holder; with --all it also lists locks with fewer votes. In a Redis Cluster it
asks every master. Locks that come and go while it walks may be missing, and so may locks whose
slots move.

Each line has the name, the token, the votes, and the time until the lease ends. Readers of a lock
share one line, which says how many they are: their greatest token, the votes that each of them has
at least, and the longest of their times. The line of a leader has its value. The JSON has the kind:
read, election, or mutex for every other one. A line ends with what the holders tell of themselves
(--label), of several at most three; the JSON has all.

Behind the locks come semaphores, with how many slots are held and how many wait, and latches, with what
is missing. ls lists a semaphore if a majority names the same holder of a slot, and a latch if a majority
has it; with --all also the others. It asks for them as "redlock semaphore" does.

ls needs the permissions SCAN, HLEN, HGET, HGETALL, PTTL and, for locks with readers, TIME; in a
Redis Cluster or with Sentinels also INFO.

` + configHelp,
		Example: `  redlock ls
  redlock ls invoice:
  redlock ls --json`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 1 {
				return fmt.Errorf("%q is too much, because ls takes one prefix: usage: redlock ls [PREFIX]", args[1])
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			s, err := c.load()
			if err != nil {
				return err
			}
			members, err := rawMembers(cmd.Context(), s)
			if err != nil {
				return err
			}
			defer closeAll(members)
			prefix := s.Prefix
			if len(args) > 0 {
				prefix += args[0]
			}
			locks, err := list(cmd.Context(), members, prefix, s.DialTimeout, all)
			if err != nil {
				return endedOr(cmd.Context(), err)
			}
			identify(cmd.Context(), members, s.Prefix, locks)
			for i := range locks {
				locks[i].Key = strings.TrimPrefix(locks[i].Key, s.Prefix)
			}
			var slots []*heldSlotsJSON
			var latches []*foundLatchJSON
			var missing error // why what is not a lock may be missing
			if !s.Interop {   // which has neither
				names, err := others(cmd.Context(), members, s.Prefix, prefix, s.DialTimeout)
				if err == nil {
					slots, latches, err = c.lookAt(cmd, names, all)
				}
				if err != nil {
					missing = endedOr(cmd.Context(), fmt.Errorf("semaphores and latches: %w", err))
				}
			}
			out := cmd.OutOrStdout()
			if c.json {
				e := json.NewEncoder(out)
				for _, l := range locks {
					if l.KeyBytes = exact(l.Key); l.Leads != nil {
						l.LeadsBytes = exact(*l.Leads)
					}
					if err := e.Encode(l); err != nil {
						return err
					}
				}
				return errors.Join(missing, encodeEach(e, slots), encodeEach(e, latches))
			}
			table := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
			for _, l := range locks {
				line := fmt.Sprintf("%s\ttoken %d\t%d/%d\t%v", printable.Quote(l.Key), l.Token, l.Votes, len(members), time.Duration(l.TTLMS)*time.Millisecond)
				switch {
				case l.Readers > 0:
					line += "\t" + counted(l.Readers, "reader")
				case l.Leads != nil:
					line += "\tleads as " + printable.Quote(*l.Leads)
				}
				switch {
				case l.Who != "":
					line += "\t" + plain([]byte(l.Who))
				case len(l.ReadersWho) > 0:
					line += "\t" + several(l.ReadersWho)
				}
				_, _ = fmt.Fprintln(table, line)
			}
			for _, l := range slots {
				_, _ = fmt.Fprintln(table, l.line(len(members)))
			}
			for _, l := range latches {
				_, _ = fmt.Fprintln(table, l.line(len(members)))
			}
			return errors.Join(missing, table.Flush())
		},
	}
	c.flags(cmd.Flags())
	cmd.Flags().BoolVar(&c.json, "json", false, "print one JSON object per line")
	cmd.Flags().BoolVar(&all, "all", false, "also list locks that less than a majority grants")
	return cmd
}

// rawMember is a member that is looked at and not taken part in: no marker is written.
type rawMember struct {
	name      string // as a client names it
	target    node.Target
	servers   []rawServer       // one; of a Redis Cluster every master
	err       error             // why there is none
	views     []doctor.View     // of a cluster: what each of the servers that the URL names says of it
	sightings []doctor.Sighting // of a master that Sentinels watch
}

// rawServer is one server of a member.
type rawServer struct {
	*node.Node
	cfg   node.Config
	name  string   // announced address
	slots []uint16 // of a master of a cluster
	id    string   // its node id, "" where its cluster does not tell
}

// configured explains why no client could have the settings: such as a prefix that none has. A command
// that makes no client must not go on with them, or it looks at other locks.
func configured(s *settings.Settings) error {
	cfg, err := s.Config()
	if err != nil {
		return err
	}
	return cfg.Validate()
}

// rawMembers finds and connects to the servers of every member.
func rawMembers(ctx context.Context, s *settings.Settings) ([]*rawMember, error) {
	t, err := s.TLS()
	if err != nil {
		return nil, err
	}
	if err := configured(s); err != nil {
		return nil, err
	}
	if len(s.Members) == 0 {
		return nil, &settings.Error{Problem: "no members: use --members, or set REDLOCK_MEMBERS to the URLs of 1, 3 or 5 independent Redis masters"}
	}
	var out []*rawMember
	for i, u := range s.URLs() {
		target, err := node.ParseTarget(u)
		if err != nil {
			return nil, &settings.Error{Problem: fmt.Sprintf("member %d: %v", i+1, err)}
		}
		if s.Interop && target.Kind != node.OneServer {
			return nil, usage("member %d: --interop works with plain masters only, not with a Redis Cluster or Sentinels", i+1)
		}
		target.Config.DefaultTLS(t)
		if target.Config.DialTimeout == 0 {
			target.Config.DialTimeout = s.DialTimeout
		}
		if w := target.Config.Sentinels; w != nil {
			w.Config.DialTimeout = target.Config.DialTimeout
		}
		out = append(out, &rawMember{target: target})
	}
	var wg sync.WaitGroup
	for _, m := range out {
		wg.Go(func() { m.find(ctx) })
	}
	wg.Wait()
	for _, m := range out {
		for i := range m.servers {
			at := &m.servers[i]
			if at.Node, err = node.New(at.cfg); err != nil {
				closeAll(out)
				return nil, &settings.Error{Problem: err.Error()}
			}
		}
	}
	return out, nil
}

// find fills in the servers.
func (m *rawMember) find(ctx context.Context) {
	c := m.target.Config
	m.name = m.target.Name()
	switch m.target.Kind {
	case node.RedisCluster:
		m.findMasters(ctx)
	case node.BySentinel:
		watched := c.Sentinels
		c.Sentinels, c.Network = nil, "tcp"
		if m.sightings, c.Addr = doctor.AskSentinels(ctx, watched); c.Addr != "" {
			m.servers = []rawServer{{cfg: c, name: c.Addr}}
			return
		}
		var failed []error
		for _, s := range m.sightings {
			who := "sentinel "
			if !strings.HasPrefix(s.Err.Error(), s.Sentinel+": ") {
				who += s.Sentinel + ": "
			}
			failed = append(failed, fmt.Errorf("%s%w", who, s.Err))
		}
		m.err = fmt.Errorf("%s: %w", m.name, errors.Join(failed...))
	default:
		m.servers = []rawServer{{cfg: c, name: c.Addr}}
	}
}

// findMasters asks every server that the URL names who the masters are, and believes what most of them say; where as
// many say something else, what the masters themselves confirm.
func (m *rawMember) findMasters(ctx context.Context) {
	seeds := m.target.Seeds
	told := make([][]topology.Master, len(seeds))
	m.views = make([]doctor.View, len(seeds))
	var wg sync.WaitGroup
	for i, seed := range seeds {
		wg.Go(func() {
			v := doctor.View{Server: seed}
			told[i], v.Err = m.topology(ctx, seed)
			for _, at := range told[i] {
				v.Slots = append(v.Slots, serves(at))
			}
			slices.Sort(v.Slots)
			m.views[i] = v
		})
	}
	wg.Wait()
	var tied []int // the first of each view that most of them have
	most := 0
	var failed []error
	for i, v := range m.views {
		if v.Err != nil {
			failed = append(failed, v.Err)
			continue
		}
		alike := func(k int) bool { return m.views[k].Err == nil && slices.Equal(v.Slots, m.views[k].Slots) }
		same := 0
		for k := range m.views {
			if alike(k) {
				same++
			}
		}
		if same > most {
			tied, most = nil, same
		}
		if same == most && !slices.ContainsFunc(tied, alike) {
			tied = append(tied, i)
		}
	}
	if len(tied) == 0 {
		if m.err = errors.Join(failed...); !strings.HasPrefix(m.err.Error(), m.name+": ") { // of one server, it names it
			m.err = fmt.Errorf("%s: %w", m.name, m.err)
		}
		return
	}
	for _, at := range told[m.confirmed(ctx, told, tied)] {
		c := m.target.Config
		c.Network, c.Addr = "tcp", at.Dial
		m.servers = append(m.servers, rawServer{cfg: c, name: at.Addr, slots: at.Slots, id: at.ID})
	}
}

// topology is what one server says of its cluster.
func (m *rawMember) topology(ctx context.Context, server string) ([]topology.Master, error) {
	return cluster.Topology(ctx, cluster.Config{Seeds: []string{server}, Node: m.target.Config, Dial: m.target.Dial})
}

// serves says which slots a master serves, so that two servers that mean the same say the same.
func serves(at topology.Master) string {
	who := at.ID
	if who == "" {
		who = at.Addr
	}
	return fmt.Sprint(who, at.Slots)
}

// confirmed chooses one of several views: the one in which most slots have a master that answers, and says so itself.
func (m *rawMember) confirmed(ctx context.Context, told [][]topology.Master, views []int) int {
	if len(views) == 1 {
		return views[0]
	}
	var masters []string
	for _, i := range views {
		for _, at := range told[i] {
			if !slices.Contains(masters, at.Addr) {
				masters = append(masters, at.Addr)
			}
		}
	}
	say := make([][]topology.Master, len(masters))
	var wg sync.WaitGroup
	for k, addr := range masters {
		wg.Go(func() { say[k], _ = m.topology(ctx, addr) })
	}
	wg.Wait()
	best, most := views[0], 0
	for _, i := range views {
		n := 0
		for _, at := range told[i] {
			own := say[slices.Index(masters, at.Addr)]
			if slices.ContainsFunc(own, func(o topology.Master) bool { return serves(o) == serves(at) }) {
				n += len(at.Slots)
			}
		}
		if n > most {
			best, most = i, n
		}
	}
	return best
}

// ready waits until every server of the member is up, or one has failed.
func (m *rawMember) ready(ctx context.Context, patience time.Duration) error {
	if m.err != nil {
		return m.err
	}
	for _, s := range m.servers {
		if err := doctor.Ready(ctx, s.Node, patience); err != nil {
			return err
		}
	}
	if n := m.served(); m.target.Kind == node.RedisCluster && n < slot.Count {
		return fmt.Errorf("%s: no master serves %d of %d slots", m.name, slot.Count-n, slot.Count)
	}
	return nil
}

// served counts the slots that have a master.
func (m *rawMember) served() (n int) {
	for _, s := range m.servers {
		n += len(s.slots)
	}
	return n
}

// isMaster makes sure that what a server told was that of a master: a replica redirects, or is behind.
func (s *rawServer) isMaster(ctx context.Context) error {
	r, err := ask(ctx, s.Node, "INFO", "replication")
	if err == nil && !strings.Contains(string(r.Str), "role:master") {
		err = fmt.Errorf("%s: it is a replica now", s.name)
	}
	return err
}

// scan is that of all servers. A key that moves between two of them may be missing.
func (m *rawMember) scan(ctx context.Context, prefix string) ([]vote, error) {
	all := make([][]vote, len(m.servers))
	failed := make([]error, len(m.servers))
	var wg sync.WaitGroup
	for i, s := range m.servers {
		wg.Go(func() {
			if all[i], failed[i] = scan(ctx, s.Node, prefix); failed[i] == nil && m.target.Kind != node.OneServer {
				failed[i] = s.isMaster(ctx)
			}
		})
	}
	wg.Wait()
	var out []vote
	at := make(map[string]int) // or it would have two votes, before and after its slot moved
	for i, ofServer := range all {
		for _, v := range ofServer {
			if first, seen := at[v.key]; !seen || first == i {
				at[v.key] = i
				out = append(out, v)
			}
		}
	}
	return out, errors.Join(failed...)
}

func closeAll(members []*rawMember) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	for _, m := range members {
		for _, s := range m.servers {
			if s.Node != nil {
				_ = s.Close(ctx)
			}
		}
	}
}

func ask(ctx context.Context, m *node.Node, args ...string) (member.Reply, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	return member.Ask(ctx, m, member.Command{Cmd: resp.Command(args...)})
}

// vote is one member's for one lock.
type vote struct {
	key, owner string
	token      uint64
	ttl        int64
	reads      bool
	leads      *string // the value that the owner has proclaimed; nil: none
	seq        int64   // of the value
}

// list asks all members at once and counts.
func list(ctx context.Context, members []*rawMember, prefix string, patience time.Duration, all bool) ([]heldLock, error) {
	votes := make([][]vote, len(members))
	failed := make([]error, len(members))
	var wg sync.WaitGroup
	for i, m := range members {
		wg.Go(func() {
			if failed[i] = m.ready(ctx, patience); failed[i] == nil {
				votes[i], failed[i] = m.scan(ctx, prefix)
			}
		})
	}
	wg.Wait()
	need := member.Majority(len(members))
	silent := 0
	for _, err := range failed {
		if err != nil {
			silent++
		}
	}
	if len(members)-silent < need {
		return nil, &exitError{codeOfMembers(failed, need), fmt.Errorf("no quorum: %w", errors.Join(failed...))}
	}
	return tally(votes, need, all), nil
}

// codeOfMembers is codeOfQuorum for members that were asked one by one.
func codeOfMembers(failed []error, need int) int {
	auth, config := 0, 0
	for _, err := range failed {
		var refused *member.ReplyError
		switch {
		case errors.As(err, &refused) && refused.Kind == member.KindAuth:
			auth++
		case isConfig(err):
			config++
		}
	}
	switch enough := len(failed) - need; {
	case auth > enough:
		return exitAuth
	case auth+config > enough && config > 0:
		return exitConfig
	}
	return exitUnavailable
}

// tally finds the holders: owners that enough members name for a key. Readers that hold a key
// are one lock, and with all those that do not are another.
func tally(votes [][]vote, need int, all bool) []heldLock {
	owners := make(map[[2]string]*heldLock)
	for _, ofMember := range votes {
		for _, v := range ofMember {
			l := owners[[2]string{v.key, v.owner}]
			if l == nil {
				l = &heldLock{Key: v.key, Kind: redlock.KindMutex, clients: []string{clientOf(v.owner)}}
				owners[[2]string{v.key, v.owner}] = l
			}
			if v.reads {
				l.Kind, l.Readers = redlock.KindRead, 1
			}
			if v.leads != nil && (l.Leads == nil || v.seq >= l.seq) {
				l.Kind, l.Leads, l.seq = redlock.KindElection, v.leads, v.seq
			}
			l.Votes++
			l.Token, l.TTLMS = max(l.Token, v.token), max(l.TTLMS, v.ttl)
		}
	}
	type phase struct {
		key  string
		held bool
	}
	phases := make(map[phase]*heldLock)
	var found []*heldLock
	for _, l := range owners {
		if !all && l.Votes < need {
			continue
		}
		if l.Readers == 0 {
			found = append(found, l)
			continue
		}
		of := phase{l.Key, l.Votes >= need}
		if p := phases[of]; p != nil {
			p.Readers++
			p.Votes = min(p.Votes, l.Votes)
			p.Token, p.TTLMS = max(p.Token, l.Token), max(p.TTLMS, l.TTLMS)
			p.clients = append(p.clients, l.clients...)
			continue
		}
		phases[of] = l
		found = append(found, l)
	}
	out := make([]heldLock, len(found))
	for i, l := range found {
		slices.Sort(l.clients)
		l.clients = slices.Compact(l.clients)
		out[i] = *l
	}
	slices.SortFunc(out, func(a, b heldLock) int {
		if c := strings.Compare(a.Key, b.Key); c != 0 {
			return c
		}
		return b.Votes - a.Votes
	})
	return out
}

// clientOf is the hash under which the client of an owner tells who it is.
func clientOf(owner string) string {
	client, _, _ := strings.Cut(owner, ":")
	sum := sha1.Sum([]byte(client))
	return hex.EncodeToString(sum[:])[:16]
}

// mostReadersAsked is of how many readers of a lock identify asks who they are.
const mostReadersAsked = 64

// longestWho is how much of what a client tells of itself is shown.
const longestWho = 256

// identify notes who holds each lock, as far as a member knows.
func identify(ctx context.Context, members []*rawMember, environment string, locks []heldLock) {
	clients := make(map[string]bool)
	for _, l := range locks {
		for _, client := range l.clients[:min(len(l.clients), mostReadersAsked)] {
			clients[client] = true
		}
	}
	known := make(map[string]string)
	var mu sync.Mutex
	var wg sync.WaitGroup
	for client := range clients {
		key := slot.Sibling("redquorum:id", environment+client)
		for _, m := range members {
			on := m.server(slot.Of(key))
			if on == nil {
				continue
			}
			wg.Go(func() {
				r, err := ask(ctx, on, "HGET", key, "who")
				if err != nil || r.Kind != '$' {
					return
				}
				mu.Lock()
				defer mu.Unlock()
				known[client] = printable.Text(string(r.Str), longestWho)
			})
		}
	}
	wg.Wait()
	for i := range locks {
		l := &locks[i]
		var who []string
		for _, client := range l.clients {
			who = append(who, known[client])
		}
		if l.Readers > 0 {
			l.ReadersWho = eachOnce(who)
		} else {
			l.Who = who[0]
		}
	}
}

// eachOnce are those of some clients that tell of themselves, sorted.
func eachOnce(who []string) []string {
	who = slices.DeleteFunc(who, func(w string) bool { return w == "" })
	slices.Sort(who)
	return slices.Compact(who)
}

// several is what a line of ls says of several clients: as many as fit.
func several(who []string) string {
	const most = 3
	var out []string
	for _, w := range who[:min(len(who), most)] {
		out = append(out, plain([]byte(w)))
	}
	if more := len(who) - most; more > 0 {
		out = append(out, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(out, ", ")
}

// server is the one of a member's servers that has the keys of a slot, nil: none that is up.
func (m *rawMember) server(of uint16) *node.Node {
	for _, s := range m.servers {
		if s.Node != nil && s.State().Up && (m.target.Kind != node.RedisCluster || slices.Contains(s.slots, of)) {
			return s.Node
		}
	}
	return nil
}

// scan walks over one server's keys.
func scan(ctx context.Context, m *node.Node, prefix string) ([]vote, error) {
	var out []vote
	seen := make(map[string]bool) // SCAN may return a key twice
	for cursor := "0"; ; {
		r, err := ask(ctx, m, "SCAN", cursor, "MATCH", globQuoted(prefix)+"*", "COUNT", "1000", "TYPE", "hash")
		if err != nil {
			return nil, err
		}
		if len(r.Elems) != 2 {
			return nil, fmt.Errorf("%s: SCAN: reply of an unexpected shape", m.Name())
		}
		var keys []string
		for _, e := range r.Elems[1].Elems {
			if k := string(e.Str); !seen[k] && !strings.HasPrefix(k, "redquorum:") {
				seen[k] = true
				keys = append(keys, k)
			}
		}
		cursor = string(r.Elems[0].Str)
		of := make([][]vote, len(keys))
		failed := make([]error, len(keys))
		var wg sync.WaitGroup
		for i, k := range keys { // all at once: one connection, in a pipeline
			wg.Go(func() { of[i], failed[i] = votesFor(ctx, m, k) })
		}
		wg.Wait()
		if err := errors.Join(failed...); err != nil {
			return nil, err
		}
		out = append(out, slices.Concat(of...)...)
		if cursor == "0" {
			return out, nil
		}
	}
}

// Prefixes of the keys of semaphores, latches and barriers.
const (
	semaphoreKeys = "redquorum:s1"
	latchKeys     = "redquorum:l1"
	barrierKeys   = "redquorum:b1"
)

// others finds the names of semaphores and latches that begin with a prefix, by the prefix of their keys. It leaves the
// environment out of a name.
func others(ctx context.Context, members []*rawMember, environment, prefix string, patience time.Duration) (map[string][]string, error) {
	var mu sync.Mutex
	var wg sync.WaitGroup
	found := make(map[string]map[string]bool) // by prefix, names
	var all []error
	for _, m := range members {
		wg.Go(func() {
			var keys []string
			err := m.ready(ctx, patience)
			if err == nil {
				keys, err = m.keys(ctx, "redquorum:[slb]1:*")
			}
			mu.Lock()
			defer mu.Unlock()
			all = append(all, err)
			for _, key := range keys {
				of := key[:min(len(key), len(semaphoreKeys))]
				name, ok := nameOf(of, key)
				if !ok || !strings.HasPrefix(name, prefix) {
					continue
				}
				if of == barrierKeys { // it is looked at as a latch is
					of = latchKeys
				}
				if found[of] == nil {
					found[of] = make(map[string]bool)
				}
				found[of][strings.TrimPrefix(name, environment)] = true
			}
		})
	}
	wg.Wait()
	if err := tooFew(all); err != nil {
		return nil, err
	}
	out := make(map[string][]string)
	for of, names := range found {
		out[of] = slices.Sorted(maps.Keys(names))
	}
	return out, nil
}

// keys walks over the keys of all servers of a member that match a pattern and are hashes.
func (m *rawMember) keys(ctx context.Context, pattern string) ([]string, error) {
	var out []string
	for _, s := range m.servers {
		for cursor := "0"; ; {
			r, err := ask(ctx, s.Node, "SCAN", cursor, "MATCH", pattern, "COUNT", "1000", "TYPE", "hash")
			if err != nil {
				return out, err
			}
			if len(r.Elems) != 2 {
				return out, fmt.Errorf("%s: SCAN: reply of an unexpected shape", s.Name())
			}
			for _, e := range r.Elems[1].Elems {
				out = append(out, string(e.Str))
			}
			if cursor = string(r.Elems[0].Str); cursor == "0" {
				break
			}
		}
	}
	return out, nil
}

// nameOf is the name for which slot.Sibling makes a key. Each key is that of one name at most.
func nameOf(prefix, key string) (string, bool) {
	rest, found := strings.CutPrefix(key, prefix+":")
	if !found {
		return "", false
	}
	names := []string{rest}
	if inner, ok := strings.CutPrefix(rest, "{"); ok {
		if plain, ok := strings.CutSuffix(inner, "}"); ok {
			names = append(names, plain)
		}
		if _, behind, ok := strings.Cut(inner, "}:"); ok {
			names = append(names, behind)
		}
	}
	for _, name := range names {
		if slot.Sibling(prefix, name) == key {
			return name, true
		}
	}
	return "", false
}

// votesFor reads a key that may be a lock: a hash with a TTL, and with one field "client:number"
// or the fields of readers. None: it is no lock.
func votesFor(ctx context.Context, m *node.Node, key string) ([]vote, error) {
	n, err := ask(ctx, m, "HLEN", key)
	if err != nil || n.Int < 1 { // gone
		return nil, ignoreForeign(err)
	}
	phase := ""
	if n.Int > 1 { // read by many, or something else: not read, it may be large
		r, err := ask(ctx, m, "HGET", key, "r")
		if phase = string(r.Str); err != nil || !phaseShape.MatchString(phase) {
			return nil, ignoreForeign(err)
		}
	}
	ttl, err := ask(ctx, m, "PTTL", key)
	if err != nil || ttl.Int <= 0 {
		return nil, ignoreForeign(err)
	}
	h, err := ask(ctx, m, "HGETALL", key)
	if err != nil {
		return nil, ignoreForeign(err)
	}
	if phase != "" {
		now, err := ask(ctx, m, "TIME")
		if err != nil {
			return nil, err
		}
		return readersOf(key, h.Elems, now.Elems), nil
	}
	if len(h.Elems) != 2 {
		return nil, nil
	}
	owner := string(h.Elems[0].Str)
	token, err := strconv.ParseUint(string(h.Elems[1].Str), 10, 64)
	if err != nil || !isOwner(owner) {
		return nil, nil
	}
	v := vote{key: key, owner: owner, token: token, ttl: ttl.Int}
	record, err := ask(ctx, m, "HGETALL", slot.Sibling("redquorum:e1", key))
	if err != nil {
		return []vote{v}, ignoreForeign(err)
	}
	v.proclaimed(record.Elems)
	return []vote{v}, nil
}

// proclaimed reads the record of an election: what its owner has proclaimed.
func (v *vote) proclaimed(hash []member.Reply) {
	field := make(map[string]string)
	for ; len(hash) > 1; hash = hash[2:] {
		field[string(hash[0].Str)] = string(hash[1].Str)
	}
	by := sha1.Sum([]byte(v.owner))
	if value, ok := field["v"]; ok && field["o"] == hex.EncodeToString(by[:]) {
		v.leads = &value
		v.seq, _ = strconv.ParseInt(field["s"], 10, 64)
	}
}

// phaseShape is the field r of a lock that readers hold: the token that it drew, the one that
// newcomers are told, and a marker.
var phaseShape = regexp.MustCompile(`^\d+ (\d+) `)

// latestEnd is greater than every end of a reader. What is beyond is the token of a writer that
// has given its vote up.
const latestEnd = 100_000_000_000_000

// readersOf are the votes of the readers in a lock's hash, at a server's time. Those whose end
// has come have none.
func readersOf(key string, hash, now []member.Reply) []vote {
	if len(now) != 2 {
		return nil
	}
	s, _ := strconv.ParseInt(string(now[0].Str), 10, 64)
	us, _ := strconv.ParseInt(string(now[1].Str), 10, 64)
	var out []vote
	told := uint64(0)
	for ; len(hash) > 1; hash = hash[2:] {
		field, value := string(hash[0].Str), string(hash[1].Str)
		if field == "r" {
			if r := phaseShape.FindStringSubmatch(value); r != nil {
				told, _ = strconv.ParseUint(r[1], 10, 64)
			}
			continue
		}
		end, err := strconv.ParseInt(value, 10, 64)
		left := end - s*1000 - us/1000
		if err != nil || left <= 0 || end > latestEnd || !isOwner(field) {
			continue
		}
		out = append(out, vote{key: key, owner: field, ttl: left, reads: true})
	}
	if told == 0 { // the phase has ended meanwhile
		return nil
	}
	for i := range out {
		out[i].token = told
	}
	return out
}

// isOwner reports whether a field has the form of an owner's name.
func isOwner(field string) bool {
	return ownerShape.MatchString(field)
}

// ownerShape is that of an owner of ours, or of Redisson: as foreign.lua has it.
var ownerShape = regexp.MustCompile(`^([A-Z2-7]{26}|[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}):-?\d+$`)

// counted is a number of things: 1 reader, 2 readers.
func counted(n int, thing string) string {
	if n != 1 {
		thing += "s"
	}
	return fmt.Sprintf("%d %s", n, thing)
}

// ignoreForeign drops the error of a key that became something else meanwhile, or went to another server.
func ignoreForeign(err error) error {
	refused := (*member.ReplyError)(nil)
	if !errors.As(err, &refused) {
		return err
	}
	word, _, _ := strings.Cut(refused.Text, " ")
	if refused.Kind == member.KindForeign || refused.Kind == member.KindCluster && (word == "MOVED" || word == "ASK") {
		return nil
	}
	return err
}

// globQuoted takes the meaning of a pattern from a prefix.
func globQuoted(s string) string {
	var b strings.Builder
	for i := range len(s) {
		if strings.IndexByte(`*?[]\^`, s[i]) >= 0 {
			b.WriteByte('\\')
		}
		b.WriteByte(s[i])
	}
	return b.String()
}
