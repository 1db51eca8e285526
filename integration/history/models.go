package history

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"
)

// op is one end of a tenure, for porcupine.
type op struct {
	grant   int // number of the tenure, from 1
	acquire bool
	token   uint64
}

type lockState struct {
	holder int // the grant that has it, 0: free
	token  uint64
}

// fencedLock is a lock that is granted only when free and only with a greater token than ever before.
// After Hazelcast's Jepsen model of a fenced mutex.
var fencedLock = porcupine.Model{
	Init: func() any { return lockState{} },
	Step: func(state, input, _ any) (bool, any) {
		s, o := state.(lockState), input.(op)
		if o.acquire {
			return s.holder == 0 && o.token > s.token, lockState{o.grant, o.token}
		}
		return s.holder == o.grant, lockState{0, s.token}
	},
	DescribeOperation: func(input, _ any) string {
		o := input.(op)
		if o.acquire {
			return fmt.Sprintf("grant %d, token %d", o.grant, o.token)
		}
		return fmt.Sprintf("end of grant %d", o.grant)
	},
}

// patience bounds the search for one key. A history that cannot be decided in it counts as illegal.
const patience = 30 * time.Second

// linearize returns the keys whose history is not that of a fenced lock. Only granted acquisitions count:
// one that failed may have failed for no reason. A tenure that nobody gave back may end at any time from
// the end of its validity on.
func linearize(tenures []Tenure) (illegal []string) {
	keys := map[string][]porcupine.Operation{}
	for i, x := range tenures {
		if x.To <= x.From {
			continue
		}
		back := x.Back
		if back == 0 {
			back = math.MaxInt64
		}
		keys[x.Key] = append(keys[x.Key],
			porcupine.Operation{ClientId: x.Client, Input: op{i + 1, true, x.Token}, Call: x.Asked, Return: x.From},
			porcupine.Operation{ClientId: x.Client, Input: op{i + 1, false, x.Token}, Call: x.To, Return: back})
	}
	names := make([]string, 0, len(keys))
	for key := range keys {
		names = append(names, key)
	}
	slices.Sort(names)
	for _, key := range names {
		if r := porcupine.CheckOperationsTimeout(fencedLock, keys[key], patience); r != porcupine.Ok {
			illegal = append(illegal, fmt.Sprintf("%s: %s after %d operations", key, r, len(keys[key])))
		}
	}
	return illegal
}
