package entry

import "context"

// Probe takes the time of round trips to a majority of the members, over connections of its own.
type Probe struct{ wires *wires }

// DialProbe connects.
func DialProbe(ctx context.Context, members []string) (*Probe, error) {
	ws, err := dialWires(ctx, members)
	if err != nil {
		return nil, err
	}
	return &Probe{ws}, nil
}

var ping = command("PING")

// RoundTrip returns when a majority have answered.
func (p *Probe) RoundTrip(ctx context.Context) error {
	f := newFan(len(p.wires.addrs), func(r reply) bool { return r.kind == '+' })
	p.wires.ask(ping, f, 0, p.wires.everybody(), true)
	won, err := f.wait(ctx)
	if err == nil && !won {
		err = errNotHeld
	}
	return err
}

// Close ends the connections.
func (p *Probe) Close() { p.wires.Close() }
