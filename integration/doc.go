// Package integration is a module of its own for what needs more than Go and redis-server, and for what
// takes long: faults on real servers, and other systems on the same wire. README.md lists what was
// injected, what is expected, what was measured, and the command that repeats it.
package integration
