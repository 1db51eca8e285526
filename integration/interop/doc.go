// Package interop contends with Redisson, the reference system's own Java client, for one lock. It
// uses Redisson's RLock and RFencedLock on one server, and its RedLock over three. It needs Java
// 17, and Maven, which fetches the client. `make test-interop` runs it.
package interop
