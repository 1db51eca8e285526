//go:build unix

package main

import (
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"syscall"
	"time"
)

func init() { programs["heartbeat"] = heartbeat }

// heartbeat is a command that writes the time into a file every millisecond, does not care for SIGTERM,
// and has a child in a session of its own that does the same with a second file.
//
//	heartbeat FILE [FILE2]
func heartbeat() {
	signal.Ignore(syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	if len(os.Args) > 2 {
		cmd := exec.Command(os.Args[0], os.Args[2])
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		if err := cmd.Start(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	f, err := os.Create(os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(time.Millisecond) {
		_, _ = f.WriteAt([]byte(strconv.FormatInt(time.Now().UnixNano(), 10)), 0)
	}
}
