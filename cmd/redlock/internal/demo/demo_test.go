package demo

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/redquorum/redquorum/fence"
	"github.com/redquorum/redquorum/internal/redistest/rt"
)

// Workers that ask members of their own, and so do not exclude each other, must not get away with it.
func TestWorkersThatDoNotExcludeEachOtherAreFound(t *testing.T) {
	o := Options{Duration: 10 * time.Minute, Workers: 3} // more than desks. The first overlaps of all locks end the run.
	d := &demo{options: o, store: &store{}}
	defer d.closeClients()
	for range o.Workers {
		m := rt.Must(embeddedMembers())(t)
		defer func() { _ = m.close() }()
		if d.members == nil {
			d.members, d.board = m, newBoard(o.Workers, m.names)
		}
		require.NoError(t, d.hire(t.Context(), "key", m.urls))
	}
	ctx, cancel := context.WithTimeout(t.Context(), o.Duration)
	defer cancel()
	found := func() bool {
		d.board.mu.Lock()
		defer d.board.mu.Unlock()
		return d.board.ledger.overlaps > 0 && d.board.page.overlaps > 0 && d.board.desks.overlaps > 0
	}
	go func() { // ends with ctx
		defer cancel()
		for ctx.Err() == nil && !found() {
			sleep(ctx, time.Millisecond)
		}
	}()
	d.play(ctx)
	r := d.result(t.Context())
	assert.False(t, r.Acquisitions == 0 || r.Overlaps == 0 || r.BesideWriter == 0 || r.BesidePermit == 0 || r.Broken() == "",
		"%d acquisitions, %d overlaps, broken: %q", r.Acquisitions, r.Overlaps, r.Broken())
	if text := r.Text(false); !strings.Contains(text, "NO  overlapping holders") || !strings.Contains(text, "NO  beside a writer") || !strings.Contains(text, "NO  beside a permit") {
		t.Errorf("not said:\n%s", text)
	}
}

func TestStoreRefusesStaleWrites(t *testing.T) {
	t.Parallel()
	var s store
	read := func(token uint64) int { return rt.Must(s.read(token))(t) }
	require.NoError(t, s.write(0, 10, read(10)+1))
	overtaken := s.watch(10)
	if err := s.write(0, 10, read(10)+1); err != nil { // its own: not an overtaking
		t.Fatal(err)
	}
	assert.Empty(t, overtaken, "overtaken by itself")
	for range 2 { // the second is told to nobody
		require.NoError(t, s.write(1, 12, read(12)+1))
	}
	assert.Equal(t, (overtaking{1, 12}), <-overtaken)
	assert.ErrorIs(t, s.write(0, 10, 77), fence.ErrStale, "stale write")
	if value, accepted, refused := s.books(); value != 4 || accepted != 4 || refused != 1 {
		t.Errorf("value %d, %d accepted, %d refused", value, accepted, refused)
	}
	assert.ErrorIs(t, rt.Err(s.read(10)), fence.ErrStale, "stale read")
	// Who has read with a later token is not undone by who has not written yet.
	read(13)
	assert.ErrorIs(t, s.write(1, 12, 88), fence.ErrStale, "write after a later read")
}

func testSnapshot() snapshot {
	return snapshot{
		at: 5 * time.Second, workers: []workerState{{doing: writes, grants: 7}, {doing: stalls, grants: 6}, {doing: waits}},
		up: []int{3, 3, 0, 2, 3}, holder: 0, token: 1_795_253_480_259_706, trusted: 2 * time.Second, votes: 4, grants: 13,
		events: []event{{time.Second, "first"}, {2 * time.Second, "VIOLATION"}, {3 * time.Second, "last"}},
	}
}

func TestFrameFitsTheTerminal(t *testing.T) {
	t.Parallel()
	o := Options{Duration: 10 * time.Second, Workers: 3}
	for height := range 30 {
		for _, color := range []bool{false, true} {
			f := frame{options: o, kind: "members: 5", now: testSnapshot(), palette: palette(color)}
			lines := f.lines(height)
			assert.True(t, len(lines) <= max(height, 1), "%d lines in %d", len(lines), height)
			all := strings.Join(lines, "\n")
			assert.True(t, strings.Contains(all, "\x1b") == color, "color %v: %q", color, all)
			if height >= 20 {
				for _, want := range []string{"3 DOWN", "4 up for 2/3", "STALLED", "token 1795253480259706", "3 of 5 decide", "first", "last"} {
					assert.Contains(t, all, want, "lacks %q:\n%s", want, all)
				}
			}
		}
	}
}

func TestFrameKeepsTheLatestEvents(t *testing.T) {
	t.Parallel()
	f := frame{options: Options{Duration: time.Second, Workers: 3}, now: testSnapshot()}
	full := f.lines(100)
	short := f.lines(len(full) - 2)
	if all := strings.Join(short, "\n"); strings.Contains(all, "first") || !strings.Contains(all, "last") {
		t.Errorf("got:\n%s", all)
	}
}

func TestFit(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		line  string
		width int
		want  string
	}{
		{"short", 10, "short"},
		{"exactly", 7, "exactly"},
		{"too long", 3, "too"},
		{"░░░░", 2, "░░"},
		{"\x1b[31mred\x1b[0m rest", 5, "\x1b[31mred\x1b[0m r\x1b[0m"},
		{"\x1b[31mred\x1b[0m", 2, "\x1b[31mre\x1b[0m\x1b[0m"},
		{"", 5, ""},
	} {
		assert.Equal(t, tc.want, fit(tc.line, tc.width), "%v, %v", tc.line, tc.width)
	}
}

// The live display ends with its run, leaves the cursor visible, and returns to the top of its last
// frame before it draws the next.
func TestLiveDisplay(t *testing.T) {
	frames := 0
	for duration := time.Second; frames < 5; duration *= 10 { // a busy machine draws less often
		var out bytes.Buffer
		r, err := Run(t.Context(), Options{
			Duration: duration, Workers: 2,
			Progress: Progress{To: &out, Live: true, Size: func() (int, int) { return 70, 24 }},
		})
		require.NoError(t, err)
		require.Empty(t, r.Broken())
		text := out.String()
		assert.True(t, strings.HasPrefix(text, "\x1b[?25l") && strings.HasSuffix(text, "\x1b[?25h"), "the cursor is hidden and shown again")
		assert.Contains(t, text, ", finished", "no last frame")
		frames = strings.Count(text, "\x1b[J")
		assert.LessOrEqual(t, frames, 20+int(r.Elapsed/redraw))
	}
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
