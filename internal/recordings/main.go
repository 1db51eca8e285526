// Command recordings makes the recordings of docs/recordings.md anew: it types the lines behind "$ " into a shell, and writes
// what that says into the document and, with times, into docs/NAME.cast for asciinema. It makes docs/timeline.png anew, too: what
// chromium shows of a page of the demo. Run it on a quiet machine:
//
//	make recordings
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"
	"unicode/utf8"
)

const (
	document = "docs/recordings.md"
	home     = "/home/you" // what the folder of a recording is called in it
	answered = "\036"      // what the shell says after each line
)

// recording is a heading of the document, and the block below it.
var recording = regexp.MustCompile("(?ms)^## redlock (\\w+)\n(?:.*?)^```text\n(.*?)^```$")

func main() {
	log.SetFlags(0)
	if err := all(); err != nil {
		log.Fatal(err)
	}
}

func all() error {
	text, err := os.ReadFile(document)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "recordings")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if out, err := exec.Command("go", "build", "-o", filepath.Join(dir, "bin", "redlock"), "./cmd/redlock").CombinedOutput(); err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	next, done := "", 0
	for _, m := range recording.FindAllSubmatchIndex(text, -1) {
		name, block := string(text[m[2]:m[3]]), string(text[m[4]:m[5]])
		said, err := record(dir, name, block)
		if err != nil {
			return fmt.Errorf("redlock %s: %w", name, err)
		}
		next, done = next+string(text[done:m[4]])+said, m[5]
	}
	if err := picture(dir); err != nil {
		return fmt.Errorf("docs/timeline.png: %w", err)
	}
	return os.WriteFile(document, []byte(next+string(text[done:])), 0o644)
}

// picture makes the picture of a timeline anew: the beginning of its page.
func picture(dir string) error {
	page := filepath.Join(dir, "demo.html")
	for _, args := range [][]string{
		{filepath.Join(dir, "bin", "redlock"), "demo", "--html", page},
		{"chromium", "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--user-data-dir=" + filepath.Join(dir, "chromium"),
			"--blink-settings=preferredColorScheme=1", "--window-size=1300,1010", "--screenshot=docs/timeline.png", "file://" + page},
	} {
		if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w\n%s", args[0], err, out)
		}
	}
	return nil
}

// cast is a recording in the making.
type cast struct {
	text, events strings.Builder
	began        time.Time
	typed        time.Duration // as long as a person would have typed by now
}

func (c *cast) says(text string) {
	c.text.WriteString(text)
	shown, _ := json.Marshal(strings.ReplaceAll(text, "\n", "\r\n")) // a string can be marshalled
	fmt.Fprintf(&c.events, "[%.3f, \"o\", %s]\n", (time.Since(c.began) + c.typed).Seconds(), shown)
}

// record types the lines of a block anew, and returns the block with what the shell says now.
func record(dir, name, block string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	typing, lines, err := os.Pipe()
	if err != nil {
		return "", err
	}
	defer lines.Close()
	shell := exec.CommandContext(ctx, "bash", "/dev/fd/3")
	shell.Dir, shell.ExtraFiles = dir, []*os.File{typing}
	shell.Env = []string{"HOME=" + dir, "PATH=" + filepath.Join(dir, "bin") + ":" + os.Getenv("PATH")}
	output, err := shell.StdoutPipe()
	if err != nil {
		return "", err
	}
	shell.Stderr = shell.Stdout
	if err := shell.Start(); err != nil {
		return "", err
	}
	_ = typing.Close()
	c := &cast{began: time.Now()}
	for _, line := range strings.Split(block, "\n") {
		command, ok := strings.CutPrefix(line, "$ ")
		if !ok {
			continue
		}
		c.says("$ ")
		for _, key := range command {
			c.typed += 50 * time.Millisecond
			c.says(string(key))
		}
		c.says("\n")
		if _, err := fmt.Fprintf(lines, "%s\ncode=$?; printf '\\036'; (exit $code)\n", command); err != nil {
			return "", err
		}
		if err := c.hear(output, dir); err != nil {
			return "", fmt.Errorf("%s: %w", command, err)
		}
	}
	_ = lines.Close()
	if err := shell.Wait(); err != nil {
		return "", err
	}
	head := fmt.Sprintf("{\"version\": 2, \"width\": 110, \"height\": 32, \"title\": \"redlock %s\"}\n", name)
	return c.text.String(), os.WriteFile("docs/"+name+".cast", []byte(head+c.events.String()), 0o644)
}

// hear takes what the shell says until it has answered.
func (c *cast) hear(output io.Reader, dir string) error {
	part, buf := "", make([]byte, 1<<12)
	for {
		n, err := output.Read(buf)
		part += string(buf[:n])
		said, _, end := strings.Cut(part, answered)
		if end || utf8.ValidString(said) && strings.HasSuffix(said, "\n") {
			if part = ""; said != "" {
				c.says(strings.ReplaceAll(said, dir, home))
			}
		}
		if end || err != nil {
			return err
		}
	}
}
