// Package interop contends with others for the same locks. One is the version of the library before.
// The other is Redisson, the reference system's own Java client: its RLock and RFencedLock on one server,
// and its RedLock over three. That needs Java 17, and Maven, which fetches the client. `make
// test-interop` runs it.
package interop
