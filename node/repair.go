package node

import (
	"strings"

	"github.com/redquorum/redquorum/internal/ability"
	"github.com/redquorum/redquorum/internal/resp"
	"github.com/redquorum/redquorum/member"
	"github.com/redquorum/redquorum/node/internal/line"
)

// alone is how the script refuses a call because it travels with others: such a server takes no
// such commands.
const alone = "TRYAGAIN alone"

// refusesAll takes the error that several calls got as one command, and reports whether it may be because of one of them: keys
// of several slots, a key that the user may not touch. Then nothing was executed.
func (s *session) refusesAll(r *member.Reply) bool {
	kind := classify(string(r.Str)).Kind
	refused := kind == member.KindCluster || kind == member.KindAuth
	if refused {
		s.travelApart()
	}
	return refused
}

// refused completes a call that was answered by an error, or has it repeated.
func (s *session) refused(entry line.Entry, together, unexecuted bool) {
	c := entry.Call
	refused := classify(string(c.Reply.Str))
	if again := refused.Kind == member.KindNoScript && !entry.Repaired; again || unexecuted {
		if done, err := s.repeat(entry, again); done {
			return
		} else if err != nil {
			s.node.finish(c, member.NotSent, err)
			return
		}
	}
	if together && (refused.Kind == member.KindAuth || strings.HasPrefix(refused.Text, alone)) {
		s.travelApart() // such a call is told which command it was
	}
	if refused.Kind == member.KindAuth {
		refused = naming(refused, string(c.Reply.Str), s.node.scripts.in(c))
	}
	if s.node.seat.Suspects(refused) && c.State.Gen == s.node.State().Gen {
		s.node.suspicion()
	}
	s.node.finish(c, member.Refused, refused)
}

// repeat puts a call in line again that was not executed: as an EVAL with the source of its script if it was answered
// NOSCRIPT, and else alone, because it was refused together with others. It reports whether it did; an error says that the call
// must not be sent again, and neither that the script is not ours.
func (s *session) repeat(entry line.Entry, unknown bool) (done bool, _ error) {
	c, source := entry.Call, ""
	if unknown {
		var ok bool
		if source, ok = s.node.scripts.of(c); !ok {
			return false, nil
		}
		entry.Repaired = true
	}
	s.line.Lock()
	defer s.line.Unlock()
	if s.broke != nil {
		return false, s.err
	}
	var before []*member.Call
	// The script of batches comes by no other way than SCRIPT LOAD, because the calls of a batch are repaired one by one.
	// EVAL brings every other script, when a call needs it.
	load := unknown && c.Item != nil && s.reloading == 0
	if load {
		before = append(before, ownCall(resp.Command("SCRIPT", "LOAD", s.node.scripts.sources[c.Item.Batch]), (*reload)(s)))
	}
	if ability.Asking(c) {
		before = append(before, ownCall(asking, discard{}))
	}
	if _, size := s.line.InFlight(); size+int64(len(source)) > int64(s.node.cfg.MaxBytes) {
		source = "" // enough EVALs of it are in line already, they load it
	}
	if !s.againLocked(entry, source, before...) {
		return false, s.node.errEnded
	}
	if load {
		s.reloading++
	}
	if entry.Note == acked {
		s.line.Add(line.Entry{Call: s.waitCall()}, member.Brief{}, "", false)
	}
	if !s.flushing {
		s.flushing = true
		s.wakeLocked()
	}
	return true, nil
}

// reload counts the SCRIPT LOADs of a session that are done.
type reload session

func (r *reload) Done(c *member.Call) {
	s := (*session)(r)
	refused, _ := c.Err.(*member.ReplyError)
	s.line.Lock()
	s.reloading--
	if refused != nil && notPermitted(refused) {
		s.apart = true // the batches' script comes by no other way
	}
	s.line.Unlock()
}

// travelApart ends the joining of calls: what this server says of them says too little, or it takes
// no such command.
func (s *session) travelApart() {
	s.line.Lock()
	s.apart = true
	s.line.Unlock()
}
