package cluster

import (
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/redquorum/redquorum/member"
	"github.com/redquorum/redquorum/slot"
)

// master is one master as a topology describes it.
type masterInfo struct {
	id    string // node id; "" where the server is too old to tell
	addr  string // announced
	slots []uint16
}

// errTopology says what is wrong with a topology. It quotes nothing of it.
type errTopology string

func (e errTopology) Error() string { return "topology: " + string(e) }

// parseShards reads the answer to CLUSTER SHARDS (Redis 7). from is the address of the server that gave
// it. Masters without slots are left out. But Redis 7.2 and 7.4 tell the slots of the shard's first server, and of none if
// that is the master that another one has replaced: where one is not online, CLUSTER SLOTS has to be asked.
// (https://github.com/redis/redis/issues/13414)
func parseShards(r *member.Reply, from string, tls bool) ([]masterInfo, error) {
	if r.Kind != '*' {
		return nil, errTopology("no list of shards")
	}
	var out []masterInfo
	for i := range r.Elems {
		fields := pairs(&r.Elems[i])
		ranges, nodes := fields["slots"], fields["nodes"]
		if ranges == nil || nodes == nil || len(ranges.Elems)%2 != 0 {
			return nil, errTopology("a shard without slots or nodes")
		}
		if len(ranges.Elems) == 0 {
			if replaced(nodes) {
				return nil, errTopology("a shard without slots whose master is not online")
			}
			continue
		}
		var slots []uint16
		for k := 0; k < len(ranges.Elems); k += 2 {
			var err error
			if slots, err = appendRange(slots, &ranges.Elems[k], &ranges.Elems[k+1]); err != nil {
				return nil, err
			}
		}
		m, ok := masterOf(nodes, from, tls)
		if !ok {
			return nil, errTopology("a shard without a master that can be addressed")
		}
		m.slots = slots
		out = append(out, m)
	}
	return checked(out)
}

// replaced reports whether a shard has a master that is not online.
func replaced(nodes *member.Reply) bool {
	return slices.ContainsFunc(nodes.Elems, func(n member.Reply) bool {
		f := pairs(&n)
		return text(f["role"]) == "master" && text(f["health"]) != "online"
	})
}

// masterOf finds the master of a shard. While one replaces another both may be named: the healthy one.
func masterOf(nodes *member.Reply, from string, tls bool) (found masterInfo, ok bool) {
	for i := range nodes.Elems {
		f := pairs(&nodes.Elems[i])
		if text(f["role"]) != "master" {
			continue
		}
		port := text(f["port"])
		if tls {
			port = text(f["tls-port"])
		}
		host := text(f["endpoint"])
		if host == "" || host == "?" {
			host = text(f["ip"])
		}
		addr, valid := join(host, port, from)
		if !valid || ok && text(f["health"]) != "online" {
			continue
		}
		found, ok = masterInfo{id: text(f["id"]), addr: addr}, true
	}
	return found, ok
}

// parseSlots reads the answer to CLUSTER SLOTS, which is older and gives the port of the connection's kind.
func parseSlots(r *member.Reply, from string) ([]masterInfo, error) {
	if r.Kind != '*' {
		return nil, errTopology("no list of slots")
	}
	var out []masterInfo
	for i := range r.Elems {
		e := r.Elems[i].Elems
		if len(e) < 3 || len(e[2].Elems) < 2 {
			return nil, errTopology("a range of slots without a master")
		}
		n := e[2].Elems
		addr, ok := join(text(&n[0]), text(&n[1]), from)
		if !ok {
			return nil, errTopology("a master that cannot be addressed")
		}
		id := ""
		if len(n) > 2 {
			id = text(&n[2])
		}
		k := slices.IndexFunc(out, func(m masterInfo) bool { return m.addr == addr })
		if k < 0 {
			k = len(out)
			out = append(out, masterInfo{id: id, addr: addr})
		}
		var err error
		if out[k].slots, err = appendRange(out[k].slots, &e[0], &e[1]); err != nil {
			return nil, err
		}
	}
	return checked(out)
}

// checked refuses what would send a slot to two masters, or nowhere at all.
func checked(masters []masterInfo) ([]masterInfo, error) {
	if len(masters) == 0 {
		return nil, errTopology("no master serves a slot")
	}
	var taken [slot.Count]bool
	addrs := make(map[string]bool, len(masters))
	for i := range masters {
		if addrs[masters[i].addr] {
			return nil, errTopology("two masters at one address")
		}
		addrs[masters[i].addr] = true
		slices.Sort(masters[i].slots)
		for _, s := range masters[i].slots {
			if taken[s] {
				return nil, errTopology("a slot with two masters")
			}
			taken[s] = true
		}
	}
	return masters, nil
}

func appendRange(slots []uint16, from, to *member.Reply) ([]uint16, error) {
	lo, err1 := strconv.ParseUint(text(from), 10, 16)
	hi, err2 := strconv.ParseUint(text(to), 10, 16)
	if err := errors.Join(err1, err2); err != nil || lo > hi || hi >= slot.Count || len(slots)+int(hi-lo) >= slot.Count {
		return nil, errTopology("a range of slots out of bounds")
	}
	for s := lo; s <= hi; s++ {
		slots = append(slots, uint16(s))
	}
	return slots, nil
}

// pairs reads a flat list of names and values.
func pairs(r *member.Reply) map[string]*member.Reply {
	out := make(map[string]*member.Reply, len(r.Elems)/2)
	for i := 0; i+1 < len(r.Elems); i += 2 {
		out[string(r.Elems[i].Str)] = &r.Elems[i+1]
	}
	return out
}

// text is an integer or a string as text, "" for anything else.
func text(r *member.Reply) string {
	switch {
	case r == nil:
		return ""
	case r.Kind == ':':
		return fmt.Sprint(r.Int)
	case r.Kind == '$':
		return string(r.Str)
	}
	return ""
}
