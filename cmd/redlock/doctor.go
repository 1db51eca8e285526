package main

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/redquorum/redquorum/cmd/redlock/internal/doctor"
	"github.com/redquorum/redquorum/cmd/redlock/internal/settings"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/slot"
)

func newDoctor() *cobra.Command {
	var c common
	show, key, sample, trial := false, "redquorum-doctor", time.Second, true
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Is this set of members fit to lock?",
		Long: `doctor asks every member and reports what is wrong, what that risks, and what cures it. That changes
nothing: unlike a client, it does not even leave the restart guard's marker. If nothing is critical and
a client would mark no member, it ends with a trial: it takes, renews and releases a lock, and waits for
it, under a name that nobody else has (that of --key, a colon and a random word). The trial is over
within 15 seconds and leaves no key but a counter, as every lock does. --trial=false leaves it out.

It checks:

  - whether it can reach the members, and how fast;
  - versions that no test runs on, and known faults of others;
  - one Redis listed twice, or replicating another;
  - eviction, output buffers, certificates, and persistence against the restart guard;
  - clocks, their offset and their rate;
  - the permissions of every command that the library uses, on Redis 7 and later. It uses ACL
    DRYRUN. If that is not permitted, it tries each command in a way that leaves at most an entry in
    ACL LOG;
  - whether they take writes, with one that changes nothing;
  - members that do not vote yet, and whether one member may be restarted now. It sees no leases:
    those that are renewed have the votes of all members again some seconds after all vote;
  - in a Redis Cluster, every master: slots that no master serves, servers that disagree, two
    members in one cluster, and cluster-node-timeout against failover_lag;
  - behind Sentinels: Sentinels that do not answer or disagree, the role of the server that they
    name, and min-replicas-to-write.

A finding is critical, a warning, or a note of what is good to know (in JSON "ok").

Exit codes, as of a monitoring plugin: 0 fit; 1 warnings; 2 critical; 64 usage; 78 configuration.

` + configHelp,
		Example: `  redlock doctor
  redlock doctor --json | jq '.findings[] | select(.severity == "critical")'
  redlock doctor --key app:nightly     permissions for this lock
  redlock doctor --show-config         where each setting comes from`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := c.load()
			if err != nil {
				return err
			}
			if show {
				return showConfig(cmd.OutOrStdout(), s, c.json)
			}
			if sample < 10*time.Millisecond || sample > time.Minute {
				return usage("--sample is %v, must be between 10ms and 1m", sample)
			}
			c.learnMaxTTL(cmd.Context(), s)
			report, err := examine(cmd.Context(), s, s.Prefix+key, cmd.Flags().Changed("key"), sample)
			if err != nil {
				return err
			}
			tried := doctor.Trial{Not: report.NoTrial()}
			if !trial {
				tried.Not = "--trial=false"
			} else if tried.Not == "" {
				tried = try(cmd.Context(), s, key)
			}
			if err := cmd.Context().Err(); err != nil {
				return endedOr(cmd.Context(), err)
			}
			report.Tried(tried)
			err = c.show(cmd, func() any { return report }, func(w io.Writer) error { return printReport(w, report) })
			if err == nil && report.Severity > doctor.OK {
				err = &exitError{int(report.Severity), nil}
			}
			return err
		},
	}
	c.flags(cmd.Flags())
	cmd.Flags().BoolVar(&c.json, "json", false, "print JSON")
	cmd.Flags().BoolVar(&show, "show-config", false, "print every setting and where it comes from, without secrets, and contact no member")
	cmd.Flags().StringVar(&key, "key", key, "name of a lock, for the check of permissions and for the trial")
	cmd.Flags().BoolVar(&trial, "trial", trial, "end with a trial: a lock of a name of its own")
	cmd.Flags().DurationVar(&sample, "sample", sample, "time between the two readings of each clock, 10ms to 1m; if it is short, the rate stays unknown")
	return cmd
}

func examine(ctx context.Context, s *settings.Settings, key string, chosen bool, sample time.Duration) (doctor.Report, error) {
	members, err := rawMembers(ctx, s)
	if err != nil {
		return doctor.Report{}, err
	}
	defer closeAll(members)
	own, err := s.TLS()
	if err != nil {
		return doctor.Report{}, err
	}
	terms := doctor.Terms{
		Drift: s.Drift, MaxTTL: s.MaxTTL, GuardOff: s.RestartGuard == "off", Interop: s.Interop,
		Key: key, KeyChosen: chosen, Dial: s.DialTimeout, Patience: s.MemberTimeout, Between: sample,
	}
	if own != nil && len(own.Certificates) > 0 {
		if cert, err := x509.ParseCertificate(own.Certificates[0].Certificate[0]); err == nil {
			terms.Own = cert.NotAfter
		}
	}
	facts := make([]doctor.Facts, len(members))
	var wg sync.WaitGroup
	for i, m := range members {
		facts[i] = m.facts()
		for k, at := range m.servers {
			into := &facts[i]
			if m.target.Kind == node.RedisCluster {
				into = &facts[i].Parts[k]
			}
			wg.Go(func() {
				*into = doctor.Ask(ctx, m.askable(at), terms)
				into.TLSErr, into.Sightings = isTLS(into.Err), m.sightings
			})
		}
	}
	wg.Wait()
	if err := ctx.Err(); err != nil {
		return doctor.Report{}, endedOr(ctx, err)
	}
	return doctor.Judge(facts, terms, time.Now()), nil
}

// facts are those that are known before any server is asked.
func (m *rawMember) facts() doctor.Facts {
	f := doctor.Facts{
		Member: m.name, Kind: m.target.Kind, Err: m.err, TLSErr: isTLS(m.err), Lag: max(0, m.target.Config.FailoverLag),
		Views: m.views, Sightings: m.sightings,
	}
	if f.Kind == node.RedisCluster {
		f.Parts = make([]doctor.Facts, len(m.servers))
	}
	return f
}

// askable is one of its servers as doctor.Ask wants it.
func (m *rawMember) askable(s rawServer) doctor.Target {
	t := doctor.Target{Node: s.Node, Config: s.cfg, Kind: m.target.Kind, Name: m.name, Slots: s.slots, ID: s.id, Lag: max(0, m.target.Config.FailoverLag), Dial: m.target.Dial}
	switch {
	case m.target.Kind == node.RedisCluster:
		t.Name = s.name
	case m.target.Config.Sentinels != nil:
		t.Dial = m.target.Config.Sentinels.Dial
	}
	return t
}

func showConfig(w io.Writer, s *settings.Settings, asJSON bool) error {
	if asJSON {
		return json.NewEncoder(w).Encode(s.Show())
	}
	table := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	for _, v := range s.Show() {
		_, _ = fmt.Fprintf(table, "%s\t%s\t%s\n", v.Name, v.Value, v.From)
	}
	return table.Flush()
}

func printReport(w io.Writer, r doctor.Report) error {
	table := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	_, _ = fmt.Fprintln(table, "MEMBER\tSTATE\tVERSION\tUPTIME\tROUND TRIP\tCLOCK OFFSET\tRATE")
	row := func(name string, m doctor.Summary) {
		if !m.Up || len(m.Masters) > 0 {
			state := m.State
			if m.SilentSlots > 0 && len(m.Masters) > 0 {
				state += fmt.Sprintf(": %d of %d slots", m.SilentSlots, slot.Count)
			}
			_, _ = fmt.Fprintf(table, "%s\t%s\t-\t-\t-\t-\t-\n", name, state)
			return
		}
		rate := "not known" // a short --sample, or a slow network
		if m.Rate != nil {
			rate = fmt.Sprintf("%+.0f ppm", *m.Rate)
		}
		_, _ = fmt.Fprintf(table, "%s\t%s\t%s\t%v\t%v\t%+.1f ms\t%s\n", name, m.State, m.Version,
			time.Duration(m.Uptime)*time.Second, time.Duration(m.RTTUS)*time.Microsecond, m.Offset, rate)
	}
	for _, m := range r.Members {
		row(m.Member, m)
		for _, part := range m.Masters {
			row("  "+part.Member, part)
		}
	}
	_ = table.Flush()
	_, _ = fmt.Fprintln(w)
	counts := map[doctor.Severity]int{}
	for _, f := range r.Findings {
		counts[f.Severity]++
		who := ""
		if f.Member != "" {
			who = f.Member + ": "
		}
		word := f.Severity.String()
		if f.Severity == doctor.OK && f.Risk+f.Cure != "" {
			word = "note"
		}
		_, _ = fmt.Fprintf(w, "%-8s  %s: %s%s\n", word, f.Check, who, f.What)
		if f.Risk != "" {
			_, _ = fmt.Fprintf(w, "          risk: %s\n", f.Risk)
		}
		if f.Cure != "" {
			_, _ = fmt.Fprintf(w, "          cure: %s\n", f.Cure)
		}
	}
	restart := "one member may be restarted now"
	if !r.Restart {
		restart = "restart no member now: " + r.RestartNo
	}
	_, err := fmt.Fprintf(w, "%s: %d critical, %s; %s\n", counted(len(r.Members), "member"), counts[doctor.Critical], counted(counts[doctor.Warning], "warning"), restart)
	return err
}
