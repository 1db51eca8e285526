package suite

import (
	"bytes"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Machine describes the machine and the programs of a run.
type Machine struct {
	System    string  `json:"system"`
	Processor string  `json:"processor"`
	CPUs      int     `json:"cpus"`
	MemoryGB  float64 `json:"memory_gb"`
	Go        string  `json:"go"`
	Commit    string  `json:"commit,omitempty"`
	Load      string  `json:"load,omitempty"` // at the start
	Args      string  `json:"args"`
	SliceMS   int     `json:"slice_ms"`
	Reps      int     `json:"reps"`
}

// ThisMachine describes the machine that the suite runs on.
func ThisMachine() *Machine {
	m := &Machine{CPUs: runtime.NumCPU(), Go: runtime.Version(), Processor: runtime.GOARCH, System: runtime.GOOS}
	var u unix.Utsname
	if unix.Uname(&u) == nil {
		m.System = unix.ByteSliceToString(u.Sysname[:]) + " " + unix.ByteSliceToString(u.Release[:])
	}
	for line := range strings.Lines(read1("/proc/cpuinfo")) {
		if k, v, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(k) == "model name" {
			m.Processor = strings.TrimSpace(v)
			break
		}
	}
	for line := range strings.Lines(read1("/proc/meminfo")) {
		if f := strings.Fields(line); len(f) > 1 && f[0] == "MemTotal:" {
			kb, _ := strconv.ParseFloat(f[1], 64)
			m.MemoryGB = float64(int(kb/1024/1024*10)) / 10
		}
	}
	if f := strings.Fields(read1("/proc/loadavg")); len(f) > 2 {
		m.Load = strings.Join(f[:3], " ")
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, b := range info.Settings {
			if b.Key == "vcs.revision" {
				m.Commit = b.Value
			}
		}
	}
	if m.Commit == "" {
		if out, err := exec.Command("git", "rev-parse", "HEAD").Output(); err == nil {
			m.Commit = string(bytes.TrimSpace(out))
		}
	}
	m.Commit = m.Commit[:min(12, len(m.Commit))]
	return m
}

func read1(path string) string {
	b, _ := os.ReadFile(path)
	return string(b)
}

// usage is processor time in seconds.
type usage struct {
	busy   float64 // of the whole machine
	clock  float64 // busy and idle
	known  bool
	server float64
	ours   float64
}

// tick is the unit of /proc: 1/100 s on all systems that Go runs on.
const tick = 0.01

func processTime(pid int) float64 {
	text := read1("/proc/" + strconv.Itoa(pid) + "/stat")
	_, rest, ok := strings.Cut(text, ") ")
	f := strings.Fields(rest)
	if !ok || len(f) < 13 {
		return 0
	}
	user, _ := strconv.ParseFloat(f[11], 64)
	system, _ := strconv.ParseFloat(f[12], 64)
	return (user + system) * tick
}

func usageOf(servers, children []int) (u usage) {
	line, _, _ := strings.Cut(read1("/proc/stat"), "\n")
	f := strings.Fields(line)
	if len(f) < 9 {
		return u
	}
	for i, v := range f[1:9] {
		n, _ := strconv.ParseFloat(v, 64)
		u.clock += n * tick
		if i != 3 && i != 4 && i != 7 { // idle, iowait, steal
			u.busy += n * tick
		}
	}
	u.known = true
	for _, pid := range servers {
		u.server += processTime(pid)
	}
	u.ours = u.server + processTime(os.Getpid())
	for _, pid := range children {
		u.ours += processTime(pid)
	}
	return u
}
