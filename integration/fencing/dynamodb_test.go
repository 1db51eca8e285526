//go:build unix

package fencing

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/fence"
	"github.com/redquorum/redquorum/fence/fencetest"
	"github.com/redquorum/redquorum/internal/dbtest"
	"github.com/redquorum/redquorum/internal/redistest/rt"
)

// Dynamo is the recipe for DynamoDB: a table has the tokens, in the number fence under the binary key
// name, and each transaction compares. Reads are consistent (ConsistentRead), and come neither from an
// index nor from another region.
type Dynamo struct {
	client *dynamodb.Client
	table  string
}

const (
	notOlder = "attribute_not_exists(fence) OR fence <= :token"
	raise    = "SET fence = :token"
)

func (d Dynamo) key(resource string) map[string]types.AttributeValue {
	return map[string]types.AttributeValue{"name": &types.AttributeValueMemberB{Value: []byte("=" + resource)}} // no key is empty
}

func tokenValue(token uint64) map[string]types.AttributeValue {
	return map[string]types.AttributeValue{":token": &types.AttributeValueMemberN{Value: strconv.FormatUint(token, 10)}}
}

// Check is the claim.
func (d Dynamo) Check(ctx context.Context, resource string, token uint64) error {
	if err := fence.CheckToken(resource, token); err != nil {
		return err
	}
	_, err := d.client.UpdateItem(ctx, &dynamodb.UpdateItemInput{
		TableName: &d.table, Key: d.key(resource), UpdateExpression: aws.String(raise), ConditionExpression: aws.String(notOlder),
		ExpressionAttributeValues: tokenValue(token), ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
	})
	var refused *types.ConditionalCheckFailedException
	if errors.As(err, &refused) {
		return stale(resource, token, refused.Item)
	}
	return err
}

// Write enters and writes, in one step: at most 99 puts, updates and deletes, each of another item. The SDK
// sends a token of its own with the request, so that DynamoDB does not run a repetition again.
func (d Dynamo) Write(ctx context.Context, resource string, token uint64, writes ...types.TransactWriteItem) error {
	if err := fence.CheckToken(resource, token); err != nil {
		return err
	}
	enter := types.TransactWriteItem{Update: &types.Update{
		TableName: &d.table, Key: d.key(resource), UpdateExpression: aws.String(raise), ConditionExpression: aws.String(notOlder),
		ExpressionAttributeValues: tokenValue(token), ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
	}}
	for ctx.Err() == nil {
		_, err := d.client.TransactWriteItems(ctx, &dynamodb.TransactWriteItemsInput{TransactItems: append([]types.TransactWriteItem{enter}, writes...)})
		var cancelled *types.TransactionCanceledException
		if !errors.As(err, &cancelled) {
			return err
		}
		again := false
		for i, reason := range cancelled.CancellationReasons {
			switch code := aws.ToString(reason.Code); {
			case i == 0 && code == "ConditionalCheckFailed":
				return stale(resource, token, reason.Item)
			case code == "TransactionConflict": // with a claim, or with another write: nothing was written
				again = true
			case code != "None":
				return err
			}
		}
		if !again {
			return err
		}
	}
	return ctx.Err()
}

func stale(resource string, token uint64, item map[string]types.AttributeValue) error {
	if n, ok := item["fence"].(*types.AttributeValueMemberN); ok {
		if highest, err := strconv.ParseUint(n.Value, 10, 64); err == nil && highest > token {
			return fence.Admit(resource, highest, token)
		}
	}
	return fmt.Errorf("damaged token of %q", resource)
}

type dynamoRows struct {
	Dynamo
	data string
}

func (d dynamoRows) item(resource, value string) map[string]types.AttributeValue {
	item := d.key(resource)
	item["value"] = &types.AttributeValueMemberS{Value: value}
	return item
}

func (d dynamoRows) Get(ctx context.Context, resource string) (string, error) {
	said, err := d.client.GetItem(ctx, &dynamodb.GetItemInput{TableName: &d.data, Key: d.key(resource), ConsistentRead: aws.Bool(true)})
	if err != nil {
		return "", err
	}
	value, _ := said.Item["value"].(*types.AttributeValueMemberS)
	if value == nil {
		return "", nil
	}
	return value.Value, nil
}

// Put does not call entered: it enters and writes in one step.
func (d dynamoRows) Put(ctx context.Context, resource string, token uint64, value string, _ func()) error {
	return d.Write(ctx, resource, token, types.TransactWriteItem{Put: &types.Put{TableName: &d.data, Item: d.item(resource, value)}})
}

func (d dynamoRows) Overwrite(ctx context.Context, resource, value string) error {
	_, err := d.client.PutItem(ctx, &dynamodb.PutItemInput{TableName: &d.data, Item: d.item(resource, value)})
	return err
}

var oneOfDynamoDB = &shared{kind: dbtest.DynamoDB(filepath.Join("dynamodb", "target", "lib"))}

// dynamoTables are two tables of one server, which are empty. There is no Crash: DynamoDB Local keeps less
// than it has acknowledged when it is killed, and says nothing about what DynamoDB keeps.
func dynamoTables(t *testing.T, s *dbtest.Server) fencetest.Fixture {
	number := databases.Add(1)
	tokens, data := fmt.Sprint("fences", number), fmt.Sprint("data", number)
	connect := func() dynamoRows {
		client := dynamodb.New(dynamodb.Options{
			Region: "us-east-1", BaseEndpoint: aws.String("http://" + s.Address()),
			Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) { return s3Credentials, nil }),
		})
		return dynamoRows{Dynamo{client, tokens}, data}
	}
	d := connect()
	for _, table := range []string{tokens, data} {
		_, err := d.client.CreateTable(t.Context(), &dynamodb.CreateTableInput{
			TableName: aws.String(table), BillingMode: types.BillingModePayPerRequest,
			AttributeDefinitions: []types.AttributeDefinition{{AttributeName: aws.String("name"), AttributeType: types.ScalarAttributeTypeB}},
			KeySchema:            []types.KeySchemaElement{{AttributeName: aws.String("name"), KeyType: types.KeyTypeHash}},
		})
		require.NoError(t, err)
		require.NoError(t, dynamodb.NewTableExistsWaiter(d.client).Wait(t.Context(), &dynamodb.DescribeTableInput{TableName: aws.String(table)}, time.Minute))
	}
	return fencetest.Fixture{Guard: d, Storage: d, Reopen: func() (fence.Guard, error) { return connect(), nil }}
}

// The holder claims, reads, and writes in transactions that enter.
func TestLongRecipeOfDynamoDB(t *testing.T) {
	rt.Long(t, "starts DynamoDB Local, which is a Java virtual machine")
	s := oneOfDynamoDB.take(t)
	f := dynamoTables(t, s)
	guard, ctx := f.Guard.(dynamoRows), t.Context()
	pay := func(token uint64, total string) error {
		return guard.Write(ctx, "invoice:42", token,
			types.TransactWriteItem{Put: &types.Put{TableName: &guard.data, Item: guard.item("invoice:42", total)}},
			types.TransactWriteItem{Put: &types.Put{TableName: &guard.data, Item: guard.item("paid:42", "yes")}})
	}
	require.NoError(t, guard.Check(ctx, "invoice:42", 34))
	require.NoError(t, pay(34, "70"))
	require.EqualError(t, pay(33, "120"), `fence: stale token 33 for "invoice:42": 34 has been accepted`)
	assert.Equal(t, "70", rt.Must(guard.Get(ctx, "invoice:42"))(t))

	fixture := func(t *testing.T) fencetest.Fixture { return dynamoTables(t, s) }
	fencetest.Run(t, fixture)
	fencetest.RunSet(t, fixture, 300)
}
