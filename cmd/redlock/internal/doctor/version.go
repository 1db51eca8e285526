package doctor

import (
	"slices"
	"strings"

	"github.com/redquorum/redquorum/internal/tested"
	"github.com/redquorum/redquorum/node"
)

// alike are servers that tell a redis_version for the sake of clients, and their own version beside it. What is said of
// each is known of it beyond that it is not tested.
var alike = map[string]string{
	"Valkey":    "",
	"Redict":    "",
	"Garnet":    "",
	"Kvrocks":   "",
	"Dragonfly": "its documentation has no CLIENT KILL: a command on a broken connection may be executed when it arrives",
	"KeyDB":     "the tests ran once, by hand, on 6.3.4: with min-replicas-to-write it does not refuse a release",
}

// program is what a member runs, by its INFO.
func program(info map[string]string) tested.Server {
	for brand := range alike {
		if v := info[strings.ToLower(brand)+"_version"]; v != "" {
			return tested.Server{Brand: brand, Version: v}
		}
	}
	if _, ok := info["mvcc_depth"]; ok { // KeyDB has no field with its name
		return tested.Server{Brand: "KeyDB", Version: info["redis_version"]}
	}
	return tested.Server{Brand: "Redis", Version: info["redis_version"]}
}

// version says whether the tests run on the version of a server.
func (j *judge) version(f *Facts) {
	s := program(f.Info)
	switch {
	case s.Version == "":
		j.say(OK, "version", f.Member, "it does not tell its version", "", "")
	case s.Brand == "Redis" && older(s.Version, 6, 2):
		j.say(Critical, "version", f.Member, s.String(), "the scripts are written for Redis 6.2 and later", "upgrade")
	case !s.Tested():
		risk := "versions differ in ways that break locks, and that only tests show"
		if known := alike[s.Brand]; known != "" {
			risk = known
		}
		j.say(Warning, "version", f.Member, s.String()+" is not tested", risk, "use one of "+lines()+", or read docs/servers.md in the source tree")
	}
}

// lines names what the tests run on: "Redis 6.2, 7.0, Valkey 8.0".
func lines() string {
	var out []string
	last := ""
	for _, s := range tested.Servers {
		line := s.Line()
		if s.Brand != last {
			line, last = s.Brand+" "+line, s.Brand
		}
		out = append(out, line)
	}
	return strings.Join(out, ", ")
}

// faults tells of a Redis Cluster which known faults its masters have that matter here.
func (j *judge) faults(f *Facts) {
	if f.Kind != node.RedisCluster {
		return
	}
	var shards, lookup []string
	for _, m := range f.Parts {
		s := program(m.Info)
		switch s.Name() {
		case "redis-7.2", "redis-7.4", "valkey-7.2":
			shards = append(shards, s.String())
		}
		if s.Name() == "redis-7.4" {
			lookup = append(lookup, s.String())
		}
	}
	if len(shards) > 0 {
		j.say(OK, "known fault", f.Member, some(shards)+": after a failover CLUSTER SHARDS can lack the slots of the new master",
			"none while the user may run CLUSTER SLOTS, which clients ask then", "Redis 8 or Valkey 8")
	}
	if len(lookup) > 0 {
		j.say(OK, "known fault", f.Member, some(lookup)+": behind SPUBLISH a script looks its keys up in the channel's slot, and can fail while a slot moves",
			"none for locks, whose scripts avoid it; it concerns other scripts with SPUBLISH", "Redis 8")
	}
}

// some names each of them once.
func some(servers []string) string {
	slices.Sort(servers)
	return strings.Join(slices.Compact(servers), ", ")
}
