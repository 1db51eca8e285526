package node

import (
	"bufio"
	"io"
)

// A reader's buffer grows while reads fill it and shrinks when that is over: most clients read a
// reply now and then, and a busy one reads many at once.
const (
	readBuffer = 4 << 10 // at first
	mostBuffer = 64 << 10
	lean       = 64 // reads in a row that needed a quarter of the buffer at most
)

func newBuffer(r io.Reader) *bufio.Reader { return bufio.NewReaderSize(r, readBuffer) }

type feed struct {
	br   *bufio.Reader
	lean int
}

// fill reads once into an empty buffer, which is of the size that the reads before ask for.
func (f *feed) fill(from io.Reader) error {
	size := f.br.Size()
	switch {
	case f.lean < 0 && size < mostBuffer:
		f.br, f.lean = bufio.NewReaderSize(from, min(4*size, mostBuffer)), 0
	case f.lean >= lean && size > readBuffer:
		f.br, f.lean = bufio.NewReaderSize(from, max(size/4, readBuffer)), 0
	}
	_, err := f.br.Peek(1)
	switch have := f.br.Buffered(); {
	case have == f.br.Size():
		f.lean = -1
	case 4*have <= f.br.Size():
		f.lean++
	default:
		f.lean = 0
	}
	return err
}
