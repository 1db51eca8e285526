// Package slot computes where a Redis Cluster keeps a key, and builds names that the cluster keeps
// in the same place:
//
//	slot of a key = CRC16-XMODEM(hash tag) mod 16384
//
// Package slot is a part of how package redlock works. The compatibility promise does not cover it:
// any release may change it.
//
// A script on a cluster may only touch keys of one slot. So everything that belongs to a lock (its
// queue, its channel, its token counter) needs a name in the slot of the lock's own name.
//
//   - Sibling gives one for every name, whatever bytes it has, and never the same one for two
//     names.
//   - Compatible gives the name that Redisson uses, for what Java clients share. That name is not
//     always in the slot, and not always distinct.
//   - TagOf gives one short hash tag for each slot.
//
// The package only computes, and does not know which node serves a slot. The slot function is in
// slot.go, the names are in sibling.go, and the table of tags is in tag.go.
package slot
