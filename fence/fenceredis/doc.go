// Package fenceredis is a guard for data in Redis or Valkey: commands of a holder that has been
// overtaken do not run. The guarded server holds data, and is no member of a lock.
//
// A script compares the token with the greatest one, keeps the greater of the two, and runs the
// command, all in one step:
//
//	EVAL script 2 redquorum:fence:{invoice:42} {invoice:42}:total 34 SET {invoice:42}:total 70
//
// The package has no client. New takes a function that calls EVAL, which every client can give: see
// the example. A client that repeats commands by itself may run them twice. The one of go-redis does,
// unless its MaxRetries is -1.
//
// Token and data must be in one hash slot. So a key of the resource "invoice:42" is that name, or
// has it as its hash tag: "{invoice:42}:total". Key says which key has the token.
//
// The guard is as good as the memory of the server:
//
//   - Set appendfsync to always. Otherwise a crash forgets claims of the last second.
//   - Set maxmemory-policy to noeviction, give the key no TTL, and do not delete it.
//   - A replica that takes over may lack the claim, as it may lack any write. WAIT and WAITAOF make
//     that rarer, and do not exclude it.
//
// Redis does not roll back. If a command fails after the check, its token stays accepted.
//
// The user needs the permissions +eval, +get and +set for keys that begin with redquorum:fence:, and
// those of the commands. Start at New. The script is guard.lua.
package fenceredis
