package timeline

import (
	"bytes"
	"crypto/sha256"
	_ "embed" // the parts of the page
	"encoding/base64"
	"fmt"
	"html/template"
	"io"
	"time"

	"github.com/redquorum/redquorum/internal/printable"
)

//go:embed page.html
var pageText string

//go:embed page.css
var pageStyle string

//go:embed page.js
var pageScript string

// page is what the template writes. It escapes what is not of this package: names, and what judges and members said.
var page = template.Must(template.New("page").Funcs(template.FuncMap{
	"half":  func(x int) int { return x / 2 },
	"sub":   func(x, y float64) float64 { return tenth(x - y) },
	"twice": func(x float64) float64 { return tenth(2 * x) },
	"plus":  func(x, y int) int { return x + y },
}).Parse(pageText))

// HTML writes the page: one file that needs nothing else. The browser is told to load nothing, and to run no other script. If
// names are long, bars stand for more, so that the page does not grow beyond mostBytes.
func (l *Log) HTML(w io.Writer) error {
	var b bytes.Buffer
	for bars := mostBars; ; bars /= 2 {
		b.Reset()
		if err := l.html(&b, bars); err != nil {
			return err
		}
		if b.Len() <= mostBytes || bars < 100 {
			break
		}
	}
	_, err := w.Write(b.Bytes())
	return err
}

const mostBytes = 2_000_000

func (l *Log) html(w io.Writer, bars int) error {
	f := l.count()
	headline, good := l.headline(f)
	pictures := l.draw(f, bars)
	used := map[string]bool{}
	for _, p := range pictures {
		for _, b := range p.Bars {
			used[b.Class], used["renewal"] = true, used["renewal"] || len(b.Renewals) > 0
		}
		used["link"] = used["link"] || len(p.Links) > 0
		used["band"] = used["band"] || len(p.Bands) > 0
		for _, e := range p.Events {
			used["event"], used["cross"] = true, used["cross"] || e.Cross > 0
		}
	}
	c := clock{l.Start}
	when := fmt.Sprintf("%s in all; times count from the beginning", long(l.Length-l.From))
	if !l.Start.IsZero() {
		when = fmt.Sprintf("%s, %s in all; times are those of the zone %s", l.Start.Add(l.From).Format("2006-01-02 15:04:05"), long(l.Length-l.From), l.Start.Format("MST"))
	}
	var notes []string
	if l.left > 0 {
		notes = append(notes, fmt.Sprintf("There was too much for one page: the first %s are left out.", count(l.left, "lease, spell or mark")))
	}
	if l.Looks > 0 {
		notes = append(notes, fmt.Sprintf("The members were asked every %v. What was shorter may be missing, and each time may be off by that much.", l.Looks))
	}
	for _, n := range l.Notes {
		notes = append(notes, printable.Text(n, 500))
	}
	var objections []string
	for _, o := range l.Objections[:min(20, len(l.Objections))] {
		objections = append(objections, string(printable.Lines([]byte(cutAt(o, 4000)))))
	}
	var clients []client
	for _, lock := range f.locks {
		for _, x := range lock.clients {
			clients = append(clients, client{
				printable.Text(lock.Name, 500), printable.Text(x.Who, 500), x.Leases, len(x.waits), x.gaveUp,
				long(x.held), waited(x.waits, 0.5), waited(x.waits, 1), tokenText(x.first), tokenText(x.last),
			})
		}
	}
	return page.Execute(w, map[string]any{
		"Title": printable.Text(l.Title, 200), "When": when, "Headline": printable.Text(headline, 2000), "Good": good,
		"Objections": objections, "Notes": notes, "Answers": l.answers(f), "Whole": pictures[0], "CloseUps": pictures[1:], "Used": used, "Clients": clients,
		"Members": l.membersTable(c), "Tokens": l.tokensNote(), "Style": template.CSS(pageStyle), "Script": template.JS(pageScript),
		"StyleHash": hashOf(pageStyle), "ScriptHash": hashOf(pageScript),
	})
}

// client is a row of the table of clients.
type client struct {
	Lock, Who           string
	Leases, Waits, Gave int
	Held, Median, Most  string
	First, Last         string
}

func waited(all []time.Duration, q float64) string {
	if len(all) == 0 {
		return "–"
	}
	return long(Quantile(all, q))
}

// membersTable is what became of members. Their votes are in the table of each picture.
func (l *Log) membersTable(c clock) (rows [][4]string) {
	for _, s := range l.Spells {
		if s.Lock == "" && s.Kind != Votes && len(rows) < mostMarks {
			rows = append(rows, [4]string{printable.Text(s.Who, 500), kinds[s.Kind].what, c.at(s.From), l.until(s.To)})
		}
	}
	return rows
}

// tokensNote says how tokens are shown in bars.
func (l *Log) tokensNote() string {
	d := drawing{l: l}
	if d.shorten(); d.cut == 0 || len(l.Holds) == 0 {
		return ""
	}
	token := l.Holds[len(l.Holds)-1].Token
	return fmt.Sprintf("In a bar, %s is token %d.", d.short(token), token)
}

func hashOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "sha256-" + base64.StdEncoding.EncodeToString(sum[:])
}

func cutAt(s string, most int) string { return s[:min(len(s), most)] }
