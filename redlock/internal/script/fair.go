package script

// fair differs from exclusive in what looks at the order of the queue. Its calls travel alone.
var fair = dialect{
	acquire:   call{script: &FairAcquire, shared: 2, reach: withQueue, args: 2},
	wait:      call{script: &FairWait, shared: 2, reach: withQueue, args: 4, ticket: true},
	waitFreed: call{script: &FairWait, shared: 2, reach: withQueue, args: 4, ticket: true},
	release:   call{script: &FairRelease, shared: 2, reach: withQueue, args: 2},
	yield:     call{script: &FairYield, shared: 2, reach: withQueue, args: 5, ticket: true},
	raise:     exclusive.raise,
	rejoin:    exclusive.rejoin,
	peek:      exclusive.peek,
	force:     exclusive.force,
	adopt:     adopting,
	served:    rwRelease,
	extend:    &Extend,
}

// Fair returns the lock of Exclusive, with the calls of owners that are served strictly in order.
func Fair(name string) Lock {
	l := Exclusive(name)
	l.how = &fair
	return l
}
