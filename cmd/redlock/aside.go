package main

import (
	"bytes"
	"io"
	"time"
)

// aside writes on a goroutine of its own, so that nobody who logs waits for a pipe that nobody reads, or for a terminal that
// Ctrl-S has stopped. Leases are renewed, and commands are ended in time, whatever becomes of the messages.
type aside struct {
	lines chan []byte
	quit  chan struct{}
	done  chan struct{}
}

func newAside(w io.Writer) *aside {
	a := &aside{make(chan []byte, 1024), make(chan struct{}), make(chan struct{})}
	go func() { // until close
		defer close(a.done)
		for {
			select {
			case line := <-a.lines:
				_, _ = w.Write(line)
				continue
			default:
			}
			select {
			case line := <-a.lines:
				_, _ = w.Write(line)
			case <-a.quit:
				return
			}
		}
	}()
	return a
}

// Write never waits. A line for which there is no room is lost.
func (a *aside) Write(line []byte) (int, error) {
	select {
	case a.lines <- bytes.Clone(line):
	default:
	}
	return len(line), nil
}

// close waits until all is written, for a while.
func (a *aside) close() {
	close(a.quit)
	select {
	case <-a.done:
	case <-time.After(10 * time.Second):
	}
}
