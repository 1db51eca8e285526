package main

import (
	"fmt"
	"os"

	"github.com/redquorum/redquorum/internal/printable"
	"github.com/redquorum/redquorum/internal/timeline"
)

// htmlFile is the file of --html. It is opened before a run, so that a run is not made for a file that cannot be written. A run
// that has nothing to show leaves a page of before as it is, and no empty one.
type htmlFile struct {
	f     *os.File
	empty bool // it is new, and has no page yet
}

// openHTML opens the file; nil: there is no name.
func openHTML(name string) (*htmlFile, error) {
	if name == "" {
		return nil, nil
	}
	f, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644) // #nosec G302 G304 -- the user's page, to be shown to others
	empty := err == nil
	if !empty {
		f, err = os.OpenFile(name, os.O_CREATE|os.O_WRONLY, 0o644) // #nosec G302 G304 -- as above
	}
	if err != nil {
		return nil, usage("--html: %w", err)
	}
	return &htmlFile{f, empty}, nil
}

// write writes the page in place of what the file has.
func (h *htmlFile) write(log *timeline.Log) error {
	if h == nil || log == nil {
		return nil
	}
	h.empty = false
	err := h.f.Truncate(0)
	if err == nil {
		_, err = h.f.Seek(0, 0)
	}
	if err == nil {
		err = log.HTML(h.f)
	}
	if err != nil {
		return fmt.Errorf("--html: %w", err)
	}
	return nil
}

// said is the line that says where the page is.
func (h *htmlFile) said() string { return "the timeline is in " + printable.Text(h.f.Name(), 4096) }

func (h *htmlFile) close() {
	if h != nil {
		_ = h.f.Close()
		if h.empty {
			_ = os.Remove(h.f.Name())
		}
	}
}
