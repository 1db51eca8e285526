//go:build unix

package fencing

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"

	"github.com/redquorum/redquorum/fence"
	"github.com/redquorum/redquorum/fence/fenceobj"
	"github.com/redquorum/redquorum/fence/fences3"
)

// Two holders add lines to a state in a bucket, on a server of S3 in this process. The first one was
// overtaken while it slept, and its write is refused. A program has the tokens from its leases.
func Example_s3() {
	server := httptest.NewServer(gofakes3.New(s3mem.New()).Server())
	defer server.Close()
	client := s3Client(server.URL, nil)
	ctx := context.Background()
	if _, err := client.CreateBucket(ctx, &s3.CreateBucketInput{Bucket: aws.String("data")}); err != nil {
		fmt.Println(err)
		return
	}
	guard, err := fenceobj.Open(ctx, fences3.New(client, "data"), "locks/") // probes the conditions of the store
	if err != nil {
		fmt.Println(err)
		return
	}
	add := func(token uint64, line string) error {
		return guard.Update(ctx, "report", token, func(state []byte) ([]byte, error) {
			return append(state, line...), nil
		})
	}
	fmt.Println("holder 33 writes:", add(33, "one;"))
	fmt.Println("holder 34 writes:", add(34, "two;"))
	fmt.Println("holder 33 wakes up, and is refused:", errors.Is(add(33, "late;"), fence.ErrStale))
	// Output:
	// holder 33 writes: <nil>
	// holder 34 writes: <nil>
	// holder 33 wakes up, and is refused: true
}
