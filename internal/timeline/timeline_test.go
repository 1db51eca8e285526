package timeline

import (
	"bytes"
	_ "embed" // the probe
	"encoding/json"
	"encoding/xml"
	"fmt"
	"html"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/redistest/rt"
)

// random is a log in which clients hold two locks, the second of them as readers, too. If they are careless, two hold at once.
func random(seed uint64, clients, holds int, careless bool) *Log {
	rng := rand.New(rand.NewPCG(seed, 7))
	upTo := func(d time.Duration) time.Duration { return time.Duration(rng.Int64N(int64(d))) }
	l := &Log{Title: "random", Locks: []Lock{{"first", "one holder at a time"}, {"second", ""}}, Members: []string{"a", "b", "c"}}
	now := [2]time.Duration{}
	for i := range holds {
		at := rng.IntN(2)
		from := now[at] + upTo(time.Millisecond)
		h := Hold{
			Lock: l.Locks[at].Name, Who: fmt.Sprint("client ", rng.IntN(clients)), Token: 1_795_000_000_000_000 + uint64(i), Shared: at == 1 && rng.IntN(2) == 0,
			Asked: max(0, now[at]-upTo(5*time.Millisecond)), From: from, To: from + upTo(20*time.Millisecond),
		}
		if rng.IntN(20) == 0 {
			h.Renewed, h.To = []time.Duration{from + 100*time.Millisecond}, from+300*time.Millisecond
		}
		if now[at] = h.To; careless {
			now[at] -= upTo(time.Millisecond)
		}
		l.Hold(h)
		l.Length = max(l.Length, h.To)
	}
	l.Spell(Spell{Kind: Dead, Who: "b", From: l.Length / 4, To: l.Length / 2})
	l.Spell(Spell{Kind: Votes, Who: "b", From: l.Length / 4, To: l.Length / 2, Text: "beside it"})
	l.Spell(Spell{Kind: Rests, Who: "b", From: l.Length / 2, To: l.Length * 3 / 4, Text: "it may have forgotten"})
	for i := range 30 {
		l.Mark(Mark{At: l.Length/4 + time.Duration(i*i)*time.Millisecond, Lock: "first", Who: "client 0", Refused: i == 7, Text: fmt.Sprint("event ", i)})
	}
	l.CloseUps = []View{l.Around("larger", l.Length/4, l.Length/4, 100*time.Millisecond)}
	l.EnlargeOverlaps()
	return l
}

// element is a part of a page, which is well-formed XML, too.
type element struct {
	XMLName xml.Name
	Tab     string    `xml:"tabindex,attr"`
	Content string    `xml:"content,attr"`
	Hidden  string    `xml:"aria-hidden,attr"`
	Label   string    `xml:"aria-labelledby,attr"`
	Text    string    `xml:",chardata"`
	Parts   []element `xml:",any"`
}

func (e *element) all(name string) (found []*element) {
	if e.XMLName.Local == name {
		found = append(found, e)
	}
	for i := range e.Parts {
		found = append(found, e.Parts[i].all(name)...)
	}
	return found
}

func parsed(t *testing.T, l *Log) (page *element, text string) {
	var b bytes.Buffer
	require.NoError(t, l.HTML(&b))
	require.LessOrEqual(t, b.Len(), mostBytes)
	page = &element{}
	require.NoError(t, xml.Unmarshal(b.Bytes(), page))
	return page, b.String()
}

var leases = regexp.MustCompile(`: (?:([\d,]+) (?:lease|read)s|holds|reads), token`)

// leasesOf is how many leases some bars stand for, by their titles.
func leasesOf(titles string) (n int) {
	for _, m := range leases.FindAllStringSubmatch(titles, -1) {
		some, _ := strconv.Atoi(strings.ReplaceAll(m[1], ",", ""))
		n += max(1, some)
	}
	return n
}

// Cost: 2 s, of pages with thousands of leases.
func TestPageTellsAsManyLeasesAndOverlapsAsItsLog(t *testing.T) {
	for seed := range uint64(12) {
		l := random(seed, 2+int(seed)*4, 20<<(seed%7), seed%3 == 0)
		page, text := parsed(t, l)
		sum, pairs := 0, 0
		require.Equal(t, len(l.Holds), leasesOf(text[strings.Index(text, `id="v1"`):strings.Index(text, `id="v1-t"`)]), "the whole time")
		tables := page.all("tbody")
		for _, row := range tables[len(tables)-2].Parts {
			sum += rt.Must(strconv.Atoi(row.Parts[2].Text))(t)
		}
		require.Equal(t, len(l.Holds), sum, "the table of clients")
		for i, x := range l.Holds {
			for _, y := range l.Holds[:i] {
				if x.Lock == y.Lock && x.From < y.To && y.From < x.To && !(x.Shared && y.Shared) {
					pairs++
				}
			}
		}
		require.Len(t, l.count().overlaps, pairs)
		require.Equal(t, pairs > 0, strings.Contains(text, "TWO AT ONCE"))
	}
}

func TestNamesStayTextWhateverTheyAre(t *testing.T) {
	page, text := parsed(t, hostile())
	scripts := page.all("script")
	require.Len(t, scripts, 1)
	require.Contains(t, page.all("meta")[1].Content, "script-src '"+hashOf(scripts[0].Text)+"'", "no other script runs")
	require.Equal(t, "redlock "+evil, page.all("title")[0].Text)
	require.NotContains(t, text, "\x1b")
	require.NotRegexp(t, `(?i)(src|href)="?(https?:)?//|url\((&#34;|")?http|@import`, text, "it needs no network")
	for _, svg := range page.all("svg") {
		require.True(t, svg.Hidden == "true" || len(svg.all("desc")) == 1 && svg.Label != "", "a screen reader cannot name it")
		for _, r := range svg.all("rect") {
			require.True(t, r.Tab == "" || len(r.all("title")) == 1, "a bar that tells nothing")
		}
	}
}

const evil = `</title><script>alert('1')</script><img src=x onerror="x">`

func hostile() *Log {
	l := random(1, 3, 40, false)
	l.Title, l.Locks[0].Name, l.Members[1], l.Spells[0].Who = "redlock "+evil, evil, evil, evil
	for i := range l.Holds {
		l.Holds[i].Who, l.Holds[i].Text = evil+l.Holds[i].Who+"\x1b[2J\xff"+strings.Repeat("長い", 300), evil
		l.Holds[i].Lock = strings.Replace(l.Holds[i].Lock, "first", evil, 1)
	}
	l.Notes, l.Objections, l.Marks[3].Text = []string{evil}, []string{evil + "\x1b]0;x\x07"}, evil
	return l
}

func TestPageOfALongWatchIsBoundedAndSaysWhatItLeavesOut(t *testing.T) {
	l := &Log{Title: "watch", Start: time.Unix(1_795_000_000, 0), Looks: 10 * time.Millisecond, Length: 10 * time.Minute}
	for at := time.Duration(0); at < l.Length; at += l.Looks { // each look sees another holder
		who := fmt.Sprintf("a client with a name that is rather long, number %d", at/l.Looks%200)
		l.Hold(Hold{Lock: "k", Who: who, Token: uint64(at), Asked: at - l.Looks, From: at, To: at + l.Looks})
		l.Spell(Spell{Kind: Votes, Who: fmt.Sprint("member ", at/l.Looks%5), From: at, To: at + l.Looks, Text: who})
		l.Mark(Mark{At: at, Text: strings.Repeat("x", 1000)})
	}
	_, text := parsed(t, l)
	for _, want := range []string{"There was too much for one page: the first ", "The members were asked every 10ms", "more clients"} {
		require.Contains(t, text, want)
	}
}

//go:embed testdata/probe.js
var probe string

var report = regexp.MustCompile(`(?s)<pre id="report">(.*?)</pre>`)

func TestLongBrowserShowsThePageWithoutOverlapsAndWithTheFiguresOfTheLog(t *testing.T) {
	rt.Long(t, "starts a browser")
	program, err := exec.LookPath("chromium")
	if err != nil {
		t.Skipf("BROWSER MISSING: %v; install it (Debian: apt-get install chromium)", err)
	}
	for name, l := range map[string]*Log{"clean": random(2, 4, 300, false), "two at once": random(3, 40, 200, true), "hostile": hostile()} {
		var b bytes.Buffer
		require.NoError(t, l.HTML(&b))
		file := filepath.Join(t.TempDir(), "page.html")
		text := strings.Replace(b.String(), "script-src '", "script-src '"+hashOf(probe)+"' '", 1)
		text = strings.Replace(text, "</body>", "<script>"+probe+"</script></body>", 1)
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		for _, window := range []struct{ size, scheme string }{{"1400,900", "1"}, {"500,900", "0"}} {
			out, err := exec.CommandContext(t.Context(), program, "--headless", "--no-sandbox", "--disable-gpu", "--user-data-dir="+t.TempDir(),
				"--window-size="+window.size, "--blink-settings=preferredColorScheme="+window.scheme, "--dump-dom", "file://"+file).Output()
			require.NoError(t, err)
			m := report.FindSubmatch(out)
			require.NotNil(t, m, "the probe has not run")
			var told struct{ Found, Leases []string }
			require.NoError(t, json.Unmarshal([]byte(html.UnescapeString(string(m[1]))), &told))
			require.Empty(t, told.Found, "%s in %s", name, window.size)
			require.Equal(t, len(l.Holds), leasesOf(strings.Join(told.Leases, "\n")), name)
		}
	}
}
