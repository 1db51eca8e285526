// Package slot computes where a Redis Cluster keeps a key, and builds names that are kept in the
// same place:
//
//	slot of a key = CRC16-XMODEM(hash tag) mod 16384
//
// A script on a cluster may only touch keys of one slot, so everything that belongs to a lock (its
// queue, its channel, its token counter) needs a name in the slot of the lock's own name. Sibling
// gives one for every name, whatever bytes it is made of, and never the same one for two names.
// Compatible gives the name that Redisson uses, which is neither always in the slot nor always
// distinct, for what is shared with Java clients. TagOf gives one short tag for each slot.
//
// The package only computes; which node serves a slot is not decided here. The slot function is in
// slot.go, the names are in sibling.go, the table of tags is in tag.go.
package slot
