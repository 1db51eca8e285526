package fenceredis_test

import (
	"context"
	"fmt"
	"strconv"

	"github.com/mediocregopher/radix/v4"

	"github.com/redquorum/redquorum/fence/fenceredis"
	"github.com/redquorum/redquorum/internal/redistest"
)

// A client of radix gives EVAL as below. It speaks RESP3: with RESP2 radix takes nil for an empty text. With go-redis, and
// MaxRetries of -1 because its client repeats commands otherwise, it is
//
//	func(ctx context.Context, script string, keys []string, args ...string) (any, error) {
//		words := make([]any, len(args))
//		for i, word := range args {
//			words[i] = word
//		}
//		return client.Eval(ctx, script, keys, words...).Result()
//	}
//
// and with rueidis or valkey-go
//
//	return client.Do(ctx, client.B().Eval().Script(script).Numkeys(int64(len(keys))).Key(keys...).Arg(args...).Build()).ToAny()
func Example() {
	ctx := context.Background()
	server := redistest.NewEmbeddedCluster(1) // in a service: the Redis that has the data
	defer server.Close()
	if err := server.Embedded(0).ServeTCP("127.0.0.1:0"); err != nil {
		panic(err)
	}
	client, err := radix.PoolConfig{Dialer: radix.Dialer{Protocol: "3"}}.New(ctx, "tcp", server.Servers[0].Addr())
	if err != nil {
		panic(err)
	}
	defer client.Close()

	guard := fenceredis.New(func(ctx context.Context, script string, keys []string, args ...string) (reply any, err error) {
		words := append([]string{script, strconv.Itoa(len(keys))}, keys...)
		err = client.Do(ctx, radix.Cmd(&reply, "EVAL", append(words, args...)...))
		return reply, err
	})

	const total = "{invoice:42}:total"
	fmt.Println(guard.Check(ctx, "invoice:42", 34)) // with a lease: fence.Claim(ctx, guard, lease)
	_, err = guard.Run(ctx, "invoice:42", 34, []string{total}, "SET", total, "70")
	fmt.Println(err)
	_, err = guard.Run(ctx, "invoice:42", 33, []string{total}, "SET", total, "120")
	fmt.Println(err)
	reply, err := guard.Run(ctx, "invoice:42", 34, []string{total}, "GET", total)
	fmt.Printf("%s %v\n", reply, err)
	// Output:
	// <nil>
	// <nil>
	// fence: stale token 33 for "invoice:42": 34 has been accepted
	// 70 <nil>
}
