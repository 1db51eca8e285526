package resp

// Marks note where the parts of a script call begin in its Cmd. With them, a member can write the
// call in another form without parsing the command:
//
//	*11 EVALSHA SHA-1   5        lock   counters marker   queue   waiters   bucket   owner   hint
//	                    Count    Own    Shared            More    Lean      Args     Owner   Last
//
// The parts from Own to Args are the keys. Those between Shared and More are the keys that all
// locks of a member share. A member may have one such key per slot. It then writes the name of that
// key in place of each of them, so that one encoding serves all members.
//
// Lean is where the last of the own keys begins, Owner the argument behind the bucket, and Last the
// last argument. They are set if the call has an Item; Lean if that is a ReleaseItem.
type Marks struct {
	Count, Own         uint8
	Sharing            uint8 // number of shared keys
	Shared, More, Lean int32
	Args, Owner, Last  int32
}

// Item says how a Tagged script call travels in one command with others: as one item of another
// script. Items are executed in the order of submission, and each has an answer of its own. All
// calls of one script share an Item, which must not change.
//
// The first argument of such a call, its bucket, is the number of its Slot.
type Item struct {
	Batch string // SHA-1 in hex of the member's script that carries such calls
	Kind  byte   // AcquireItem or ReleaseItem
}

// The kinds of items, as the script that carries them reads them: each is a digit.
const (
	// AcquireItem has one key that is not shared, and behind the bucket an owner and a TTL. One or
	// more of Again, Chained and Repeated may be added.
	AcquireItem = '0'
	// Again: the TTL is that of the acquire before it, and is left out.
	Again = 1
	// Chained: the item stands in a group behind another one. The script executes it only if it has
	// answered the item before it with a number above 0. Otherwise it answers it with 0.
	Chained = 2
	// Repeated: an item before it in the command is in the same slot.
	Repeated = 4
	// ReleaseItem has three keys that are not shared, and behind the bucket an owner and a hint. It
	// is executed in any case.
	ReleaseItem = '8'
	// LeanItem is a ReleaseItem whose hint is empty. The hint and the last key are left out.
	LeanItem = '9'
)

// SlotWidth is how many characters a bucket has in the argument that lists those of several items:
// its number, and spaces.
const SlotWidth = 6
