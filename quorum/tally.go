package quorum

// MaxMembers bounds the number of members, because a Set fits a word. Five members are usual, and
// nine are many.
const MaxMembers = 31

// Vote is what one member's answer counts for.
type Vote uint8

const (
	Open Vote = iota // no answer yet
	Yes              // the member did it
	No               // the member said no, refused with an error, or never got the call
	// The member may or may not have done it. Unsure is never a yes, and is always cleaned up.
	Unsure
	NotAsked // the question did not go to this member
)

func (v Vote) String() string {
	switch v {
	case Open:
		return "open"
	case Yes:
		return "yes"
	case No:
		return "no"
	case Unsure:
		return "unsure"
	case NotAsked:
		return "not asked"
	}
	return "invalid vote"
}

// Verdict is the state of a round.
type Verdict uint8

const (
	Undecided Verdict = iota
	Won
	Lost
)

// Decide is the whole rule: it takes the yes votes, the votes still open, and the number needed.
func Decide(yes, open, need int) Verdict {
	switch {
	case yes >= need:
		return Won
	case yes+open < need:
		return Lost
	}
	return Undecided
}

// decideDenied is Decide for a question to which a number of refusals, deny, is an answer too. A
// round that is lost stays undecided while the votes that are open may still make the refusals that
// it has as many as that.
func decideDenied(yes, no, open, need, deny int) Verdict {
	v := Decide(yes, open, need)
	if v == Lost && no > 0 && no < deny && no+open >= deny {
		return Undecided
	}
	return v
}
