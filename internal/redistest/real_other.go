//go:build !unix

package redistest

import (
	"errors"
	"os/exec"
)

func supported() error { return errors.New("redistest: real servers need Unix signals") }

func dieWithParent(*exec.Cmd) {}
func signalKill(int)          {}
func signalCont(int)          {}
func signalStop(int)          {}
