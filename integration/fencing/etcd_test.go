//go:build unix

package fencing

import (
	"context"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/namespace"
	"go.uber.org/zap"

	"github.com/redquorum/redquorum/fence"
	"github.com/redquorum/redquorum/fence/fencetest"
	"github.com/redquorum/redquorum/internal/dbtest"
	"github.com/redquorum/redquorum/internal/redistest/rt"
)

// Etcd is the recipe for etcd: each transaction compares the token of a key with the holder's. etcd
// compares values as bytes, so a token has 20 digits. A comparison with a key that is not there is
// false, so the transaction asks whether the token there is greater, and writes if it is not.
type Etcd struct{ kv clientv3.KV }

// Write enters and writes, in one step: at most 126 operations. Without any it is the claim.
func (e Etcd) Write(ctx context.Context, resource string, token uint64, writes ...clientv3.Op) error {
	if err := fence.CheckToken(resource, token); err != nil {
		return err
	}
	key, mine := "redquorum_fence/"+resource, fmt.Sprintf("%020d", token)
	said, err := e.kv.Txn(ctx).
		If(clientv3.Compare(clientv3.Value(key), ">", mine)).
		Then(clientv3.OpGet(key)).
		Else(append(writes, clientv3.OpPut(key, mine))...).
		Commit()
	if err != nil || !said.Succeeded {
		return err
	}
	there := said.Responses[0].GetResponseRange().Kvs[0].Value
	highest, err := strconv.ParseUint(string(there), 10, 64)
	if err != nil || highest <= token {
		return fmt.Errorf("damaged token of %q", resource)
	}
	return fence.Admit(resource, highest, token)
}

// Check is the claim. It is on the disks of a majority when Commit returns.
func (e Etcd) Check(ctx context.Context, resource string, token uint64) error {
	return e.Write(ctx, resource, token)
}

type etcdRows struct{ Etcd }

// Get is linearizable, as reads of etcd are unless WithSerializable says otherwise.
func (e etcdRows) Get(ctx context.Context, resource string) (string, error) {
	said, err := e.kv.Get(ctx, "data/"+resource)
	if err != nil || len(said.Kvs) == 0 {
		return "", err
	}
	return string(said.Kvs[0].Value), nil
}

// Put does not call entered: it enters and writes in one step.
func (e etcdRows) Put(ctx context.Context, resource string, token uint64, value string, _ func()) error {
	return e.Write(ctx, resource, token, clientv3.OpPut("data/"+resource, value))
}

func (e etcdRows) Overwrite(ctx context.Context, resource, value string) error {
	_, err := e.kv.Put(ctx, "data/"+resource, value)
	return err
}

var oneOfEtcd = &shared{kind: dbtest.Etcd}

// etcdPart is a part of the keys of one etcd, which is empty.
func etcdPart(t *testing.T) fencetest.Fixture {
	s := oneOfEtcd.take(t)
	part := fmt.Sprintf("part%d/", databases.Add(1))
	var over func() (fencetest.Fixture, error)
	crash := func() (fencetest.Fixture, error) {
		if err := s.Restart(); err != nil {
			return fencetest.Fixture{}, err
		}
		return over()
	}
	over = func() (fencetest.Fixture, error) {
		client, err := clientv3.New(clientv3.Config{Endpoints: []string{"unix://" + s.Socket()}, Logger: zap.NewNop()})
		if err != nil {
			return fencetest.Fixture{}, err
		}
		t.Cleanup(func() { _ = client.Close() })
		ctx := rt.Within(t, time.Minute)
		if _, err := client.Get(ctx, "ready"); err != nil { // there is a leader
			return fencetest.Fixture{}, err
		}
		e := Etcd{namespace.NewKV(client, part)}
		return fencetest.Fixture{
			Guard: e, Storage: etcdRows{e}, Crash: crash,
			Reopen: func() (fence.Guard, error) { f, err := crash(); return f.Guard, err },
		}, nil
	}
	return rt.Must(over())(t)
}

// The holder claims, reads, and writes in transactions that enter.
func TestRecipeOfEtcd(t *testing.T) {
	t.Parallel()
	guard, ctx := etcdPart(t).Guard.(Etcd), t.Context()
	pay := func(token uint64, total string) error {
		return guard.Write(ctx, "invoice:42", token, clientv3.OpPut("invoices/42", total), clientv3.OpPut("paid/42", "yes"))
	}
	require.NoError(t, guard.Check(ctx, "invoice:42", 34))
	require.NoError(t, pay(34, "70"))
	require.EqualError(t, pay(33, "120"), `fence: stale token 33 for "invoice:42": 34 has been accepted`)
	assert.Equal(t, "70", string(rt.Must(guard.kv.Get(ctx, "invoices/42"))(t).Kvs[0].Value))
	require.NoError(t, rt.Err(guard.kv.Put(ctx, "redquorum_fence/invoice:42", "damaged")))
	assert.ErrorContains(t, guard.Check(ctx, "invoice:42", 99), "damaged")
}
