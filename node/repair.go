package node

import (
	"github.com/redquorum/redquorum/internal/ability"
	"github.com/redquorum/redquorum/internal/resp"
	"github.com/redquorum/redquorum/member"
	"github.com/redquorum/redquorum/node/internal/line"
)

// alone is how the script refuses a call because it travels with others: such a server takes no
// such commands.
const alone = "TRYAGAIN alone"

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
	now := s.node.published.Load()
	if !s.line.Again(entry, now.state.Gen, now.tag, source, before...) {
		return false, s.node.errEnded
	}
	if load {
		s.reloading++
	}
	if entry.Note == acked {
		s.line.Add(line.Entry{Call: s.waitCall()}, now.state.Brief, now.tag, false)
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
