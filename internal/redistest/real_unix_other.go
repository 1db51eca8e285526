//go:build unix && !linux

package redistest

import "os/exec"

func dieWithParent(*exec.Cmd) {}

func awaitStopped(int) {}
