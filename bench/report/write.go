package report

import (
	_ "embed"
	"fmt"
	"html/template"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/redquorum/redquorum/bench/entry"
	"github.com/redquorum/redquorum/bench/suite"
)

//go:embed page.html
var page string

// inOrder sorts names of entries as entry.All does.
func inOrder(names []string) []string {
	rank := map[string]int{}
	for i, s := range entry.All() {
		rank[s.Name] = i + 1
	}
	slices.SortStableFunc(names, func(a, b string) int { return rank[a] - rank[b] })
	return names
}

// Write writes report.html, report.md and a picture per chart.
func (r *Report) Write(dir string) error {
	charts := r.Charts()
	for _, c := range charts {
		if err := os.WriteFile(filepath.Join(dir, c.File+".svg"), []byte(c.SVG()), 0o644); err != nil {
			return err
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "report.md"), []byte(r.Markdown()), 0o644); err != nil {
		return err
	}
	text, err := r.HTML()
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "report.html"), []byte(text), 0o644)
}

var about = map[string]string{
	"W1":    "One caller locks and unlocks names that nobody else wants. A closed loop: latencies are those of one operation after the other.",
	"W2":    "Many callers of one client, each on names of its own. A closed loop: latencies include the queue of the other callers.",
	"W3":    "All contenders want one name, through one client or eight. The index is over clients then. The wait of each counts, also when the end of a slice cuts it short.",
	"W3d":   "All contenders want one name, each with a client and connections of its own, and pause 2 ms after a release: nobody profits from a queue in the process.",
	"W3f":   "As W3d, with the variants that serve callers of all clients in the order in which they came.",
	"W3p":   "As W3d, with a process per contender.",
	"burst": "All contenders, each with a client of its own, ask for one name at the same moment. Times count from that moment (an open loop).",
	"W4":    "One member of the set fails after a tenth of a slice; the first operations after it are in. Closed loops show throughput, and hide what one stuck operation keeps others from; the rows with arrivals on a schedule count from the arrival and hide nothing.",
	"W5":    "As W4, with one member whose answers take 40 ms longer.",
	"W6":    "Leases are held and renewed every third of their length, by the library itself or, where it does not, by what its user would write.",
	"W7":    "Memory of a held lease, and of a waiter on one name less its own goroutine. Registered: what the servers know of 10,000 waiters of one process.",
	"W9":    "Callers of several clients read and write one name in a closed loop, and hold it as long in either way. redquorum-mutex has no readers: it shows what they save. Libraries whose readers share a lock in the process do so.",
	"W9w":   "One caller writes, with 5 ms pause after each release; all others read. Round trips to a majority of the members are measured meanwhile, on connections of their own.",
	"W9r":   "Readers ask while a writer has the lock. When all of them wait, it releases. Times count from the start of that release.",
	"W9s":   "One caller, and names that nobody else wants, for write locks and first read locks. Latencies of further ones are those of one operation in 64.",
	"W10":   "One caller locks several free names, all or none, and unlocks them. redquorum-mutex locks one name, redquorum-each all names one by one.",
	"W11":   "One caller acquires a permit of a semaphore of which half are taken, and releases it. redquorum-mutex locks a name that nobody else wants.",
	"W12":   "All contenders, each with a client of its own, want one of the permits of one name. More holders than permits, and two holders of one slot, are overlaps.",
	"W13":   "Clients arrive at a latch in a closed loop while as many callers wait for it. Times count from the start of the last arrival. Round trips to a majority of the members are measured meanwhile. A waiter that returns too early is an overlap.",
	"W14":   "Candidates with a client each wait to lead, and observers with a client each hear who does. The leader resigns 10 ms after all of them know it, or its process is killed. Then its lease is 2 s, and it renews it every third of that. Two leaders are an overlap.",
	"W15":   "Curves: what becomes of 64 callers of one client at three members if one thing grows. An exponent is the slope in a picture with logarithmic axes: 1 grows as the thing does, 0 stays. With contended names p50 and p99 are of the wait.",
	"W16":   "A member of three or five, that many clients of one process use, is killed and starts again without data. One client tries a free lock every 3 ms meanwhile. The member is silent for the longest lease, 3 s, and then one client copies the token counters of others. Times count from the kill, bytes and slow calls are those of the members that were not killed.",
	"W17":   "Goroutine runs (by the function that a goroutine began with), context switches and system calls of the client's process for one lock and unlock.",
	"W18":   "Instructions and cache misses of the client's process for one lock and unlock, garbage collection included and the kernel left out, by callgrind: 32 kB of L1 each, 512 kB of L2. Timer changes are timers set, moved or stopped.",
	"W19":   "Instructions of a member for one lock and unlock by callgrind, the kernel left out: sixteen locks in one call or write, and sixteen unlocks in another.",
	"W20":   "One caller locks and unlocks one name that nobody else wants, again and again, or two clients do so in turns. redquorum-keep keeps the lock meanwhile, and floor-mutex is no lock of several processes. Latencies below 0.1 ms are those of one operation in 64.",
	"W8":    "The price of fencing: acquisitions whose token took a second round. Each slot was used once before; with redquorum-new none was, on servers that are new in every slice.",
}

// section is a workload in the report.
type section struct {
	Name   string
	About  string
	Charts []*Chart
	Tables []Table
}

func (r *Report) sections() (out []*section) {
	for _, w := range suite.Workloads {
		s := &section{Name: w, About: about[w]}
		for _, c := range r.Charts() {
			if strings.HasPrefix(c.Title, w+" ") || w == "burst" && strings.HasPrefix(c.Title, "Burst") {
				s.Charts = append(s.Charts, c)
			}
		}
		s.Tables = r.tables(w)
		if len(s.Tables) > 0 {
			out = append(out, s)
		}
	}
	return out
}

func (r *Report) machine() (lines []string) {
	for _, m := range r.Machines {
		lines = append(lines, fmt.Sprintf("%s, %s, %d processors, %.1f GB; %s; commit %s; slices of %d ms, %d repetitions", m.System, m.Processor, m.CPUs, m.MemoryGB, m.Go, m.Commit, m.SliceMS, m.Reps))
	}
	if len(r.Servers) > 0 {
		lines = append(lines, "Servers: "+strings.Join(r.Servers, "; "))
	}
	if r.Others.N > 0 {
		lines = append(lines, fmt.Sprintf("Strangers used %.2f processors meanwhile (median; at most %.2f)", r.Others.Median, r.Others.Max))
	}
	return lines
}

const reading = "Medians of the repetitions, their range below. Ratios compare slices of the same repetition, which run one after the other. Violations and keys that were left are sums over all repetitions."

// HTML returns one page that needs no other file.
func (r *Report) HTML() (string, error) {
	t, err := template.New("page").Funcs(template.FuncMap{
		"svg": func(c *Chart) template.HTML { return template.HTML(c.SVG()) },
	}).Parse(page)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	targets := r.Targets()
	err = t.Execute(&b, map[string]any{
		"Machine": r.machine(), "Missing": r.Missing, "Versions": r.Versions, "Targets": targets, "HasTargets": len(targets.Rows) > 0,
		"Violations": r.Violations(), "Sections": r.sections(), "Reading": reading, "Notes": r.notes(),
	})
	return b.String(), err
}

// notes explain the entries that took part.
func (r *Report) notes() (out [][2]string) {
	part := map[string]bool{}
	for _, c := range r.Cells {
		for _, row := range c.Rows {
			part[row.Entry] = true
		}
	}
	versions := map[string]string{}
	for _, v := range r.Versions {
		versions[v[0]] = v[1]
	}
	for _, s := range entry.All() {
		if part[s.Name] {
			note := s.Note
			if v := versions[s.Name]; v != "" {
				note += " (" + v + ")"
			}
			out = append(out, [2]string{s.Name, note})
		}
	}
	return out
}

// Markdown returns the same tables.
func (r *Report) Markdown() string {
	var b strings.Builder
	p := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	p("# Distributed locks compared\n")
	for _, m := range r.machine() {
		p("- %s", m)
	}
	p("\n%s\n", reading)
	if v := r.Violations(); len(v) > 0 {
		p("## Promises broken, keys left\n")
		for _, line := range v {
			p("- 🟥 %s", line)
		}
		p("")
	}
	if t := r.Targets(); len(t.Rows) > 0 {
		p("## %s\n", t.Title)
		markdownTable(p, t, false)
	}
	for _, s := range r.sections() {
		p("## %s\n\n%s\n", s.Name, s.About)
		for _, c := range s.Charts {
			p("![%s](%s.svg)\n", c.Title, c.File)
		}
		for _, t := range s.Tables {
			p("### %s\n", t.Title)
			markdownTable(p, t, true)
		}
	}
	p("## Entries\n")
	for _, n := range r.notes() {
		p("- **%s**: %s", n[0], n[1])
	}
	for _, m := range r.Missing {
		p("- **%s** is missing: %s; `%s`", m.Entry, m.Why, m.Install)
	}
	return b.String()
}

func markdownTable(p func(string, ...any), t Table, ranges bool) {
	p("| %s |", strings.Join(t.Head, " | "))
	p("|---|%s", strings.Repeat("--:|", len(t.Head)-1))
	for _, row := range t.Rows {
		var cells []string
		for _, f := range row {
			text := strings.ReplaceAll(f.Text, "|", "\\|")
			if ranges && f.Range != "" {
				text += "<br><sub>" + f.Range + "</sub>"
			}
			switch {
			case f.Bad:
				text = "🟥 **" + text + "**"
			case f.Good:
				text = "✓ " + text
			case f.Ours:
				text = "**" + text + "**"
			case f.Floor:
				text = "*" + text + "*"
			}
			cells = append(cells, text)
		}
		p("| %s |", strings.Join(cells, " | "))
	}
	p("")
	for _, n := range t.Notes {
		p("%s\n", strings.ReplaceAll(n, "|", "\\|"))
	}
}

// Summary returns what a run prints at its end.
func (r *Report) Summary() string {
	var b strings.Builder
	p := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	for _, w := range suite.Workloads {
		for _, t := range r.tables(w) {
			p("\n%s", t.Title)
			textTable(p, t)
			for _, n := range t.Notes {
				p("  %s", n)
			}
		}
	}
	if t := r.Targets(); len(t.Rows) > 0 {
		p("\n%s", t.Title)
		textTable(p, t)
		if out := t.bad(); len(out) > 0 {
			p("  ! out of goal, %d of %d: %s", len(out), len(t.Rows), strings.Join(out, "; "))
		}
	}
	if v := r.Violations(); len(v) > 0 {
		p("\nPROMISES BROKEN, KEYS LEFT")
		for _, line := range v {
			p("  %s", line)
		}
	}
	for _, m := range r.Missing {
		p("missing: %s: %s; install: %s", m.Entry, m.Why, m.Install)
	}
	return b.String()
}

// bad names the rows with fields that are bad, and their columns.
func (t Table) bad() (out []string) {
	for _, row := range t.Rows {
		var where []string
		for i, f := range row {
			if f.Bad {
				where = append(where, t.Head[i])
			}
		}
		if len(where) > 0 {
			out = append(out, fmt.Sprintf("%s (%s)", row[0].Text, strings.Join(where, ", ")))
		}
	}
	return out
}

func textTable(p func(string, ...any), t Table) {
	widths := make([]int, len(t.Head))
	text := func(f Field) string {
		if f.Bad {
			return f.Text + " !"
		}
		return f.Text
	}
	length := func(s string) int { return len([]rune(s)) }
	for i, h := range t.Head {
		widths[i] = length(h)
		for _, row := range t.Rows {
			widths[i] = max(widths[i], length(text(row[i])))
		}
	}
	line := func(cells []string) {
		var b strings.Builder
		for i, c := range cells {
			pad := strings.Repeat(" ", widths[i]-length(c))
			if i == 0 {
				b.WriteString("  " + c + pad)
			} else {
				b.WriteString("  " + pad + c)
			}
		}
		p("%s", strings.TrimRight(b.String(), " "))
	}
	line(t.Head)
	for _, row := range t.Rows {
		var cells []string
		for _, f := range row {
			cells = append(cells, text(f))
		}
		line(cells)
	}
}
