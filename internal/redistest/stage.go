package redistest

import (
	"fmt"
	"time"
)

// Stage is an embedded server without connections. It executes one command at a time, on data that its caller gives it, and its
// clock stands still: the result is a function of the data and the command. It has no goroutine, and needs no end.
type Stage struct {
	server *Embedded
	asks   *session
	heard  heard
}

// heard takes what is published.
type heard struct{ messages []string }

func (h *heard) serverGone(error) {}

func (h *heard) fromServer(p []byte) {
	v, err := parseReply(p)
	if err != nil {
		panic(err)
	}
	said := v.([]any) // pmessage, pattern, channel, message
	h.messages = append(h.messages, said[3].(string))
}

// NewStage makes a server that knows scripts, each by the name that EVALSHA gives it.
func NewStage(now time.Time, scripts map[string]string) *Stage {
	s := &Stage{server: newEmbedded()}
	e := s.server
	e.clock = skewedClock{base: time.Now(), server: now}
	e.redis.SetTime(now)
	e.scripts = scripts
	s.asks, _ = e.connect(nil) // a server that has just been made is alive
	hears, _ := e.connect(&s.heard)
	hears.listen(patterns, "*")
	return s
}

// Play executes a command on a server that has these keys. It returns the reply, what was published, in order, and the keys that
// the server has then. Maps of the keys that it is given are not changed.
func (s *Stage) Play(keys []Key, args []string) (reply any, published []string, after []Key) {
	e := s.server
	e.exec.Lock()
	defer e.exec.Unlock()
	e.redis.DB(0).FlushDB()
	if err := e.restore(keys); err != nil {
		panic(err)
	}
	s.heard.messages = nil
	s.asks.perform(args)
	s.asks.cmd.Flush()
	reply, err := parseReply(s.asks.out)
	s.asks.out = s.asks.out[:0]
	if err == nil {
		after, err = e.keys()
	}
	if err != nil {
		panic(fmt.Sprintf("redistest: %v: %v", args, err))
	}
	return reply, s.heard.messages, after
}
