package script

// These look at the exclusive lock, and take it by force.
var (
	Peek  = newScript("peek.lua")
	Force = newScript("force.lua")
)

// These are the scripts of the lock with readers. Its writers' acquire, yield, raise, rejoin and
// extend are those of the exclusive lock.
var (
	RWRead      = newScript("rw_read.lua")
	RWAwait     = newScript("rw_await.lua")
	RWWait      = newScript("rw_wait.lua")
	RWRelease   = newScript("rw_release.lua")
	RWDowngrade = newScript("rw_downgrade.lua")
	RWRaise     = newScript("rw_raise.lua")
	RWExtend    = newScript("rw_extend.lua")
	RWRejoin    = newScript("rw_rejoin.lua")
	RWForce     = newScript("rw_force.lua")
	RWPeek      = newScript("rw_peek.lua")
	RWAdopt     = newScript("rw_adopt.lua")
)

// These are the scripts of the exclusive lock that serves strictly in order, where they differ.
var (
	FairAcquire = newScript("fair_acquire.lua")
	FairWait    = newScript("fair_wait.lua")
	FairRelease = newScript("fair_release.lua")
	FairYield   = newScript("fair_yield.lua")
)

// These are the scripts of an election, beside those of the exclusive lock.
var (
	Proclaim = newScript("proclaim.lua")
	Observe  = newScript("observe.lua")
)

// These are the scripts of the semaphore.
var (
	SemAcquire = newScript("sem_acquire.lua")
	SemWait    = newScript("sem_wait.lua")
	SemRelease = newScript("sem_release.lua")
	SemClaim   = newScript("sem_claim.lua")
	SemRaise   = newScript("sem_raise.lua")
	SemExtend  = newScript("sem_extend.lua")
	SemRejoin  = newScript("sem_rejoin.lua")
	SemLimit   = newScript("sem_limit.lua")
	SemPeek    = newScript("sem_peek.lua")
	SemForce   = newScript("sem_force.lua")
	SemAdopt   = newScript("sem_adopt.lua")
)

// These are the scripts of the dialect that Redisson shares. Extend and Peek are the same there.
var (
	RedissonAcquire = newScript("interop_acquire.lua")
	RedissonWait    = newScript("interop_wait.lua")
	RedissonRelease = newScript("interop_release.lua")
	RedissonYield   = newScript("interop_yield.lua")
	RedissonRaise   = newScript("interop_raise.lua")
	RedissonRejoin  = newScript("interop_rejoin.lua")
	RedissonForce   = newScript("interop_force.lua")
)

// First returns the scripts of the exclusive lock: those that every client calls.
func First() []Script {
	return []Script{Acquire, Wait, Release, Yield, Raise, Reserve, Extend, Rejoin, Peek, Force, Batch}
}

// Own returns the scripts that a member must know, with those of the exclusive lock before the others.
func Own() []Script {
	return append(First(),
		RWRead, RWAwait, RWWait, RWRelease, RWDowngrade, RWRaise, RWExtend, RWRejoin, RWForce, RWPeek, RWAdopt,
		FairAcquire, FairWait, FairRelease, FairYield,
		Proclaim, Observe,
		LatchArrive, LatchAwait, LatchRead, LatchDelete, BarrierWait,
		SemAcquire, SemWait, SemRelease, SemClaim, SemRaise, SemExtend, SemRejoin, SemLimit, SemPeek, SemForce,
		Adopt, SemAdopt,
		Tell,
	)
}

// Redisson returns the scripts that a member must know if Redisson shares the locks.
func Redisson() []Script {
	return []Script{
		RedissonAcquire, RedissonWait, RedissonRelease, RedissonYield, RedissonRaise, RedissonRejoin, RedissonForce, Extend, Peek,
		Adopt, Tell,
	}
}
