package redistest

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
)

// Front lets programs that only speak TCP, such as other processes, use a Link. Each connection
// that it accepts becomes one through the Link, faults included.
type Front struct {
	link   *Link
	ln     net.Listener
	ctx    context.Context // ends dials that hang
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu    sync.Mutex // guards conns
	conns map[net.Conn]struct{}
}

// Listen opens a Front at a TCP address. Port 0 chooses one. Its goroutines end with Close.
func (l *Link) Listen(addr string) (*Front, error) {
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, err
	}
	f := &Front{link: l, ln: ln, conns: map[net.Conn]struct{}{}}
	f.ctx, f.cancel = context.WithCancel(context.Background())
	f.wg.Go(f.accept)
	return f, nil
}

// Addr is the address clients connect to.
func (f *Front) Addr() string { return f.ln.Addr().String() }

// Close stops listening, breaks the accepted connections and waits for the goroutines.
func (f *Front) Close() error {
	f.cancel()
	err := f.ln.Close()
	f.mu.Lock()
	for c := range f.conns {
		abortTCP(c)
	}
	f.mu.Unlock()
	f.wg.Wait()
	return err
}

func (f *Front) accept() {
	for {
		outer, err := f.ln.Accept()
		if err != nil {
			return
		}
		f.mu.Lock()
		if f.ctx.Err() != nil {
			f.mu.Unlock()
			abortTCP(outer)
			return
		}
		f.conns[outer] = struct{}{}
		f.mu.Unlock()
		f.wg.Go(func() { f.splice(outer) })
	}
}

// splice carries the bytes of one connection both ways. The end of either side ends the other.
func (f *Front) splice(outer net.Conn) {
	defer func() {
		f.mu.Lock()
		delete(f.conns, outer)
		f.mu.Unlock()
	}()
	inner, err := f.link.DialContext(f.ctx, "tcp", f.Addr())
	if err != nil {
		abortTCP(outer)
		return
	}
	var back sync.WaitGroup
	back.Go(func() {
		_, err := io.Copy(outer, inner)
		if err != nil && !errors.Is(err, net.ErrClosed) {
			abortTCP(outer) // a reset stays a reset
			return
		}
		_ = outer.Close()
	})
	_, _ = io.Copy(inner, outer)
	_ = inner.Close()
	back.Wait()
}
