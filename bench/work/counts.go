package work

import (
	"bytes"
	"cmp"
	"errors"
	"io"
	"runtime/trace"
	"strings"
	"time"

	exptrace "golang.org/x/exp/trace"
)

// tracedFor bounds the work under the trace: the keeper looks every 100 ms.
const tracedFor = 300 * time.Millisecond

// traced works once more, under a trace of the runtime, and books how often goroutines ran.
func traced(r *Result, work func() []*caller) error {
	var b bytes.Buffer
	if err := trace.Start(&b); err != nil {
		return err
	}
	back := work()
	trace.Stop()
	var done int64
	for _, c := range back {
		done += c.all
	}
	r.AllOps += done
	runs, err := runsOf(&b)
	if err != nil || done == 0 {
		return err
	}
	r.Runs = map[string]float64{}
	for name, n := range runs {
		r.Runs[name] = float64(n) / float64(done)
	}
	return nil
}

// runsOf counts how often goroutines begin to run, by the functions that they began with.
func runsOf(in io.Reader) (map[string]int64, error) {
	events, err := exptrace.NewReader(in)
	if err != nil {
		return nil, err
	}
	runs, began := map[exptrace.GoID]int64{}, map[exptrace.GoID]string{}
	for {
		e, err := events.ReadEvent()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		if e.Kind() != exptrace.EventStateTransition {
			continue
		}
		change := e.StateTransition()
		if change.Resource.Kind != exptrace.ResourceGoroutine {
			continue
		}
		g := change.Resource.Goroutine()
		from, to := change.Goroutine()
		if from == exptrace.GoRunnable && to == exptrace.GoRunning {
			runs[g]++
		}
		switch {
		case began[g] != "":
		case from == exptrace.GoRunning: // it says where it stops
			began[g] = beganWith(e.Stack())
		case from == exptrace.GoUndetermined: // it was there before
			began[g] = beganWith(change.Stack)
		}
	}
	sum := map[string]int64{}
	for g, n := range runs {
		sum[cmp.Or(began[g], "others")] += n
	}
	return sum, nil
}

// beganWith is the first function of a goroutine that has a name, without its package. It is "runtime" if it is the
// runtime's own, and empty if the stack is.
func beganWith(stack exptrace.Stack) (name string) {
	for frame := range stack.Frames() {
		switch {
		case strings.Contains(frame.Func, "/bench/work."):
			return "caller"
		case strings.HasPrefix(frame.Func, "runtime") && (name == "" || name == "runtime"):
			name = "runtime"
		case !strings.HasPrefix(frame.Func, "sync.") && !strings.HasPrefix(frame.Func, "runtime") && !strings.Contains(frame.Func, ".func"):
			name = frame.Func
		}
	}
	name = name[strings.LastIndexByte(name, '/')+1:]
	if _, rest, ok := strings.Cut(name, "."); ok {
		name = rest
	}
	return strings.NewReplacer("(*", "", ")", "").Replace(name)
}
