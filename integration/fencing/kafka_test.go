//go:build unix

package fencing

import (
	"context"
	"crypto/rand"
	"fmt"
	"strconv"
	"sync"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/redquorum/redquorum/fence"
	"github.com/redquorum/redquorum/fence/fencetest"
	"github.com/redquorum/redquorum/internal/redistest/rt"
)

// Reader is the recipe for Kafka: who reads a partition drops the records of overtaken holders. The key
// of a record is the resource, so that all its records are in one partition, and a header has the token.
// All readers see the records in one order, so they drop the same ones.
//
// A reader that does not begin with the first record begins with the tokens of the place where it begins.
// So it saves them with what it has made of the records before. A topic must not be compacted: that
// would keep the last record of a key, which may be one to drop, and delete the one that counts.
type Reader struct{ tokens map[string]uint64 }

// Admit judges the next record of a partition. If its error matches fence.ErrStale, drop the record.
func (r Reader) Admit(record *kgo.Record) error {
	resource := string(record.Key)
	token, err := strconv.ParseUint(header(record, "fence-token"), 10, 64)
	if err != nil {
		return fmt.Errorf("%w in a record of %q: %w", fence.ErrNoToken, resource, err)
	}
	if err := fence.Admit(resource, r.tokens[resource], token); err != nil {
		return err
	}
	r.tokens[resource] = token
	return nil
}

func header(record *kgo.Record, key string) string {
	for _, h := range record.Headers {
		if h.Key == key {
			return string(h.Value)
		}
	}
	return ""
}

// Record is one of a holder. Without a value it is the claim.
func Record(topic, resource string, token uint64, value []byte) *kgo.Record {
	return &kgo.Record{Topic: topic, Key: []byte(resource), Value: value, Headers: []kgo.RecordHeader{
		{Key: "fence-token", Value: []byte(strconv.FormatUint(token, 10))},
	}}
}

// The readers drop what an overtaken holder has written after the claim.
func Example_kafka() {
	ctx := context.Background()
	cluster := kfake.MustCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "invoices"))
	defer cluster.Close()
	client, err := kgo.NewClient(kgo.SeedBrokers(cluster.ListenAddrs()...), kgo.ConsumeTopics("invoices"))
	if err != nil {
		panic(err)
	}
	defer client.Close()
	written := client.ProduceSync(ctx,
		Record("invoices", "42", 33, []byte("50")),
		Record("invoices", "42", 34, nil), // the claim
		Record("invoices", "42", 33, []byte("120")),
		Record("invoices", "42", 34, []byte("70")),
	)
	if err := written.FirstErr(); err != nil {
		panic(err)
	}
	reader := Reader{map[string]uint64{}}
	for read := 0; read < 4; {
		client.PollFetches(ctx).EachRecord(func(record *kgo.Record) {
			read++
			if err := reader.Admit(record); err != nil {
				fmt.Println(err)
			} else if record.Value != nil {
				fmt.Printf("the total is %s\n", record.Value)
			}
		})
	}
	// Output:
	// the total is 50
	// fence: stale token 33 for "42": 34 has been accepted
	// the total is 70
}

// kafkaRows is a table that is made of a partition. A holder that writes reads, too: its claim is over
// when it has read the claim, and it knows then whether it counts, and all that came before.
type kafkaRows struct {
	client *kgo.Client
	topic  string

	mu     sync.Mutex
	reader Reader                // guarded by mu
	rows   map[string]string     // guarded by mu
	mine   map[string]chan error // guarded by mu: what becomes of records of this process, by their id
}

func (k *kafkaRows) read(ctx context.Context) {
	for ctx.Err() == nil {
		k.client.PollFetches(ctx).EachRecord(k.apply)
	}
}

func (k *kafkaRows) apply(record *kgo.Record) {
	k.mu.Lock()
	defer k.mu.Unlock()
	var err error
	kind := header(record, "kind")
	if kind == "claim" || kind == "write" {
		err = k.reader.Admit(record)
	}
	if err == nil && (kind == "write" || kind == "overwrite") {
		k.rows[string(record.Key)] = string(record.Value)
	}
	if verdict := k.mine[header(record, "id")]; verdict != nil {
		verdict <- err
		delete(k.mine, header(record, "id"))
	}
}

// append writes a record, and waits until this process has read it.
func (k *kafkaRows) append(ctx context.Context, kind, resource string, token uint64, value string) error {
	id, verdict := rand.Text(), make(chan error, 1)
	rt.Locked(&k.mu, func() { k.mine[id] = verdict })
	defer func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		delete(k.mine, id)
	}()
	record := Record(k.topic, resource, token, []byte(value))
	record.Headers = append(record.Headers, kgo.RecordHeader{Key: "kind", Value: []byte(kind)}, kgo.RecordHeader{Key: "id", Value: []byte(id)})
	if err := k.client.ProduceSync(ctx, record).FirstErr(); err != nil {
		return err
	}
	select {
	case err := <-verdict:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (k *kafkaRows) Check(ctx context.Context, resource string, token uint64) error {
	if err := fence.CheckToken(resource, token); err != nil {
		return err
	}
	return k.append(ctx, "claim", resource, token, "")
}

// Get reads all that had been written when it was called.
func (k *kafkaRows) Get(ctx context.Context, resource string) (string, error) {
	err := k.append(ctx, "look", resource, 0, "")
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.rows[resource], err
}

// Put does not call entered: the record is the entry and the write.
func (k *kafkaRows) Put(ctx context.Context, resource string, token uint64, value string, _ func()) error {
	if err := fence.CheckToken(resource, token); err != nil {
		return err
	}
	return k.append(ctx, "write", resource, token, value)
}

func (k *kafkaRows) Overwrite(ctx context.Context, resource, value string) error {
	return k.append(ctx, "overwrite", resource, 0, value)
}

func TestRecipeOfKafka(t *testing.T) {
	t.Parallel()
	topic := func(t *testing.T) fencetest.Fixture {
		cluster := rt.Must(kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "rows")))(t)
		t.Cleanup(cluster.Close)
		open := func() (*kafkaRows, error) {
			client, err := kgo.NewClient(kgo.SeedBrokers(cluster.ListenAddrs()...), kgo.ConsumeTopics("rows"), kgo.ProducerLinger(0),
				kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
			if err != nil {
				return nil, err
			}
			k := &kafkaRows{client: client, topic: "rows", reader: Reader{map[string]uint64{}}, rows: map[string]string{}, mine: map[string]chan error{}}
			ctx, cancel := context.WithCancel(context.Background())
			var wg sync.WaitGroup
			wg.Go(func() { k.read(ctx) })
			t.Cleanup(func() { cancel(); wg.Wait(); client.Close() })
			return k, nil
		}
		k := rt.Must(open())(t)
		return fencetest.Fixture{Guard: k, Storage: k, Reopen: func() (fence.Guard, error) { return open() }}
	}
	fencetest.Run(t, topic)
	fencetest.RunSet(t, topic, 30)
}
