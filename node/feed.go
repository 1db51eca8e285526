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

// feed counts the reads in a row that needed little of the buffer.
type feed int

// size is how large the next buffer is to be, behind a read into br, which was empty.
func (f *feed) size(br *bufio.Reader) int {
	have, size := br.Buffered(), br.Size()
	if 4*have > size {
		*f = 0
		if have == size {
			return min(4*size, mostBuffer)
		}
		return size
	}
	if *f++; *f < lean || size <= readBuffer {
		return size
	}
	*f = 0
	return max(size/4, readBuffer)
}
