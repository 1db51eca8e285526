// Package integration is a module of its own for what needs more than Go and redis-server, and for
// what takes long. It has faults on real servers, and other systems on the same wire. For each
// fault README.md lists the injection, the expectation, the measurement, and the command that
// repeats it.
package integration
