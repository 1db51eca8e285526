// Package interop contends with the reference system's own Java client, Redisson, for one lock: with its
// RLock and RFencedLock on one server, and with its RedLock over three. Needs Java 17 and Maven, which
// fetches the client; `make test-interop` runs it.
package interop
