package script

// fair differs from exclusive in what looks at the order of the queue. Its calls travel alone.
var fair = dialect{
	acquire: asking(&FairAcquire, queued, argOwner, argTTL),
	wait:    asking(&FairWait, queued, argOwner, argTTL, argEntry, argTicket),
	release: asking(&FairRelease, queued, argOwner, argOther),
	yield:   asking(&FairYield, queued, argOwner, argToken, argTTL, argEntry, argTicket),
	raise:   exclusive.raise,
	rejoin:  exclusive.rejoin,
	adopt:   exclusive.adopt,
	peek:    exclusive.peek,
	force:   exclusive.force,
	served:  rwRelease,
	extend:  exclusive.extend,
}

// Fair returns the lock of Exclusive, with the calls of owners that are served strictly in order.
func Fair(name string) Lock {
	l := Exclusive(name)
	l.how = &fair
	return l
}
