package fencetest

import (
	"bytes"
	"context"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"
)

// Between stands for what lies between a client and its storage. It sends some requests twice and tells of the second
// answer, as a proxy does that takes the first one for lost. It sends some late, and of some it sends a copy later.
// A guard behind it loses nothing.
type Between struct {
	mu   sync.Mutex
	rng  *rand.Rand // guarded by mu
	late sync.WaitGroup
}

// NewBetween returns one whose last copies have been sent when t ends.
func NewBetween(t testing.TB) *Between {
	b := &Between{rng: rand.New(rand.NewPCG(3, 4))}
	t.Cleanup(b.late.Wait)
	return b
}

// Send carries one request of a client: send sends it once, and returns the answer. It may be called from several
// goroutines, also after Send has returned.
func Send[T any](b *Between, send func() (T, error)) (T, error) {
	b.mu.Lock()
	what, pause := b.rng.IntN(5), time.Duration(b.rng.IntN(4000))*time.Microsecond
	b.mu.Unlock()
	switch what {
	case 0:
		_, _ = send()
	case 1:
		time.Sleep(pause)
	case 2:
		b.late.Go(func() {
			time.Sleep(pause)
			_, _ = send()
		})
	}
	return send()
}

// Handler is between the clients of an HTTP server and its handler.
func (b *Between) Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		answer, _ := Send(b, func() (*httptest.ResponseRecorder, error) {
			again := r.Clone(context.WithoutCancel(r.Context()))
			again.Body = io.NopCloser(bytes.NewReader(body))
			answer := httptest.NewRecorder()
			next.ServeHTTP(answer, again)
			return answer, nil
		})
		for name, values := range answer.Header() {
			w.Header()[name] = values
		}
		w.WriteHeader(answer.Code)
		_, _ = w.Write(answer.Body.Bytes())
	})
}
