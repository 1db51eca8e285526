// Package fences3 is the store of S3 for package fenceobj: objects of one bucket, written with If-Match
// and If-None-Match.
//
//	guard, err := fenceobj.Open(ctx, fences3.New(s3.NewFromConfig(config), "bucket"), "locks/")
//
// S3 itself keeps these conditions since 2024. Stores that speak its protocol may not: Open probes
// that. The user needs s3:GetObject, s3:PutObject, s3:ListBucket (or a missing object is 403 and not
// 404), and s3:DeleteObject for the keys locks/probe-*. Deny deletion of locks/manifest-*. A bucket
// policy with the condition key s3:if-match keeps out writers that send no condition.
//
// It is a module of its own because of the SDK.
package fences3

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go"

	"github.com/redquorum/redquorum/fence/fenceobj"
)

// MaxObject is the greatest size of an object that Get reads and Put writes: 64 MiB. A manifest names
// large data, and does not contain it.
const MaxObject = 64 << 20

// Client is what the package needs of *s3.Client.
type Client interface {
	GetObject(ctx context.Context, in *s3.GetObjectInput, options ...func(*s3.Options)) (*s3.GetObjectOutput, error)
	PutObject(ctx context.Context, in *s3.PutObjectInput, options ...func(*s3.Options)) (*s3.PutObjectOutput, error)
	DeleteObject(ctx context.Context, in *s3.DeleteObjectInput, options ...func(*s3.Options)) (*s3.DeleteObjectOutput, error)
}

// Store is a fenceobj.Store in a bucket. It is safe for concurrent use.
type Store struct {
	client Client
	bucket string
}

var _ fenceobj.Store = (*Store)(nil)

// New returns the store of a bucket. It panics if client is nil.
func New(client Client, bucket string) *Store {
	if client == nil {
		panic("fences3: nil Client")
	}
	return &Store{client, bucket}
}

// Get returns an object and its ETag.
func (s *Store) Get(ctx context.Context, key string) (body []byte, version string, err error) {
	out, err := s.client.GetObject(ctx, &s3.GetObjectInput{Bucket: &s.bucket, Key: &key})
	if status(err) == http.StatusNotFound && !noBucket(err) {
		return nil, "", fmt.Errorf("%w: %w", fenceobj.ErrNotFound, err)
	}
	if err != nil {
		return nil, "", err
	}
	defer out.Body.Close()
	body, err = io.ReadAll(io.LimitReader(out.Body, MaxObject+1))
	switch {
	case err != nil:
		return nil, "", err
	case len(body) > MaxObject:
		return nil, "", fmt.Errorf("fences3: %s has more than %d bytes", key, MaxObject)
	case aws.ToString(out.ETag) == "":
		return nil, "", errors.New("fences3: an object without an ETag")
	}
	return body, *out.ETag, nil
}

// Put writes an object under a condition. The SDK does not repeat the request: the repetition of one
// that has happened, and whose answer was lost, would say that its condition does not hold.
func (s *Store) Put(ctx context.Context, key string, body []byte, version string) error {
	if len(body) > MaxObject {
		return fmt.Errorf("%w: %s with %d bytes, not up to %d", fenceobj.ErrTooLarge, key, len(body), MaxObject)
	}
	in := &s3.PutObjectInput{Bucket: &s.bucket, Key: &key, Body: bytes.NewReader(body), ContentType: aws.String("application/json")}
	if version == "" {
		in.IfNoneMatch = aws.String("*")
	} else {
		in.IfMatch = &version
	}
	_, err := s.client.PutObject(ctx, in, func(o *s3.Options) { o.Retryer = aws.NopRetryer{} })
	switch status(err) {
	case http.StatusPreconditionFailed, http.StatusConflict:
		return fmt.Errorf("%w: %w", fenceobj.ErrConflict, err)
	case http.StatusNotFound:
		if version != "" && !noBucket(err) {
			return fmt.Errorf("%w: %w", fenceobj.ErrConflict, err)
		}
	}
	return err
}

// Delete removes an object.
func (s *Store) Delete(ctx context.Context, key string) error {
	_, err := s.client.DeleteObject(ctx, &s3.DeleteObjectInput{Bucket: &s.bucket, Key: &key})
	return err
}

// status is that of the answer, or 0.
func status(err error) int {
	var answer interface{ HTTPStatusCode() int }
	if errors.As(err, &answer) {
		return answer.HTTPStatusCode()
	}
	return 0
}

// noBucket tells a missing bucket from a missing object: both are 404.
func noBucket(err error) bool {
	var api smithy.APIError
	return errors.As(err, &api) && api.ErrorCode() == "NoSuchBucket"
}
