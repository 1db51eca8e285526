package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"os/signal"
	"syscall"

	"github.com/redquorum/redquorum/cmd/redlock/internal/child"
	"github.com/redquorum/redquorum/cmd/redlock/internal/settings"
	"github.com/redquorum/redquorum/member"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/redlock"
)

// Exit codes, from the range of sysexits(3) where it has one, so that a script can tell them apart.
const (
	exitFailed      = 1   // something that must hold did not
	exitUsage       = 64  // flags or arguments that cannot work
	exitForeign     = 65  // the key exists and is no lock
	exitUnavailable = 69  // no quorum could be reached, or the members could not be started
	exitInternal    = 70  // anything else: a bug, or a system call that failed
	exitNotObtained = 75  // the lock is another's, and was for as long as we were told to wait
	exitAuth        = 77  // so many members refused the user that no quorum is left
	exitConfig      = 78  // configuration or TLS
	exitLost        = 79  // the lock was lost, or is not held any more
	exitNotRunnable = 126 // the command of run cannot be executed
	exitNotFound    = 127 // the command of run was not found
	exitInterrupted = 130 // SIGINT; SIGTERM is 143
)

// exitError is an error that decides the exit code. Without err it is silent.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit code %d", e.code)
	}
	return e.err.Error()
}
func (e *exitError) Unwrap() error { return e.err }

func usage(format string, args ...any) error {
	return &exitError{exitUsage, fmt.Errorf(format, args...)}
}

// signalError is the cause of a context that a signal ended.
type signalError struct{ sig syscall.Signal }

func (e signalError) Error() string { return "ended by " + e.sig.String() }

// interruptible returns a context that SIGINT, SIGTERM and SIGHUP end. A second one ends the process at once.
func interruptible(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	signals := make(chan os.Signal, 1)
	child.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	done := make(chan struct{})
	go func() { // ends with the context
		defer close(done)
		select {
		case s := <-signals:
			cancel(signalError{s.(syscall.Signal)})
		case <-ctx.Done():
		}
		signal.Stop(signals)
	}()
	return ctx, func() { cancel(nil); <-done }
}

// notObtained reports whether the members refuse the lock, or so many permits.
func notObtained(err error) bool {
	return errors.Is(err, redlock.ErrHeld) || errors.Is(err, redlock.ErrLimit)
}

// codeOf finds the exit code for an error.
func codeOf(ctx context.Context, err error) int {
	var (
		exit    *exitError
		ended   signalError
		setting *settings.Error
	)
	switch {
	case errors.As(err, &exit):
		return exit.code
	case errors.As(err, &ended), errors.As(context.Cause(ctx), &ended) && errors.Is(err, context.Canceled):
		return 128 + int(ended.sig)
	case errors.As(err, &setting):
		if setting.Flag {
			return exitUsage
		}
		return exitConfig
	case notObtained(err):
		return exitNotObtained
	case errors.Is(err, redlock.ErrDuplicateMember):
		return exitConfig
	case errors.Is(err, redlock.ErrForeignKey):
		return exitForeign
	case errors.Is(err, redlock.ErrConflict):
		return exitUsage
	case errors.Is(err, redlock.ErrLost), errors.Is(err, redlock.ErrNotHeld), errors.Is(err, redlock.ErrPassed):
		return exitLost
	case errors.Is(err, redlock.ErrNoQuorum), errors.Is(err, redlock.ErrTooSlow),
		errors.Is(err, redlock.ErrInDoubt), errors.Is(err, redlock.ErrQuarantined), errors.Is(err, redlock.ErrTokensExhausted):
		return codeOfQuorum(err)
	case errors.Is(err, redlock.ErrInput):
		return exitUsage
	}
	return exitInternal
}

// codeOfQuorum looks at why there was no quorum: by the members whose causes alone made it impossible.
func codeOfQuorum(err error) int {
	var q *redlock.QuorumError
	if !errors.As(err, &q) {
		return exitUnavailable
	}
	auth, config := 0, 0
	for _, v := range q.Votes {
		var refused *member.ReplyError
		switch {
		case errors.As(v.Err, &refused) && refused.Kind == member.KindAuth:
			auth++
		case isConfig(v.Err):
			config++
		}
	}
	switch enough := len(q.Votes) - q.Need; {
	case auth > enough:
		return exitAuth
	case config > enough, auth+config > enough && config > 0:
		return exitConfig
	}
	return exitUnavailable
}

// isConfig reports whether err says that a member is not what its URL says, or is about TLS.
func isConfig(err error) bool {
	var other *node.SchemeError
	return errors.As(err, &other) || isTLS(err)
}

// isTLS reports whether err is about certificates or the TLS handshake rather than about the network.
func isTLS(err error) bool {
	var (
		verify  *tls.CertificateVerificationError
		record  tls.RecordHeaderError
		alert   *net.OpError // the other side's word for what it did not like
		unknown x509.UnknownAuthorityError
		invalid x509.CertificateInvalidError
		host    x509.HostnameError
	)
	return errors.As(err, &verify) || errors.As(err, &record) || errors.As(err, &alert) && alert.Op == "remote error" ||
		errors.As(err, &unknown) || errors.As(err, &invalid) || errors.As(err, &host)
}
