// Package fenceobj is a guard for data in an object store, over compare-and-swap of one object: the
// manifest. Delta Lake, Iceberg and SlateDB work this way.
//
// An object store cannot write two objects at once. So the state of a lock name is one object, with
// the greatest token in it:
//
//	claim    read the manifest; write it back with the new token, if it is still that version
//	write    read the manifest; smaller or equal token: write the new state, if still that version
//
// The token is in the body, because the version of an S3 object (ETag) is that of its body alone. A
// claim that raises metadata leaves the ETag, and an overtaken write passes.
//
// A refusal of the store does not say that nothing was written: a proxy may have sent the write twice,
// and tell of the second one. So each attempt has a nonce, and a manifest has those of the 32 writes
// before it. They tell what became of an attempt. If more writes, or those of programs of an earlier
// version, came in between, the attempt is in doubt, and the error says so.
//
// State that is large goes to objects of its own. Give them names that are never used twice
// (DataName), write them first, and commit a state that names them. What no state names is garbage.
//
// A store must keep its conditions: not all do, and some race. Open probes that, and refuses such a
// store. Never delete a manifest: the guard would accept overtaken holders. If the store can, deny
// deletion, and writes without a condition, by a policy.
//
// Start at Store and Open. Package fences3 has the Store of S3.
package fenceobj
