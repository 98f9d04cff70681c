// kafka_go BOOTSTRAP PREFIX: says "ok TEST" or "FAIL TEST: WHY" for each test, which are made in their order.
package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"os"
	"strconv"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
)

const (
	count      = 5000
	partitions = 3
	patience   = 60 * time.Second
)

var (
	bootstrap, prefix, topic string
	began                    = time.UnixMilli(1700000000000)
	client                   *kafka.Client
)

func main() {
	bootstrap, prefix = os.Args[1], os.Args[2]
	topic = prefix + "-main"
	client = &kafka.Client{Addr: kafka.TCP(bootstrap), Timeout: patience}
	test("create-topics", createTopics)
	test("produce", produce)
	test("read", read)
	test("offsets-by-time", offsetsByTime)
	test("large-records", largeRecords)
	test("groups", groups)
	test("transactions", transactions)
	test("connection", connection)
	test("administration", administration)
}

func test(name string, what func(context.Context) error) {
	ctx, stop := context.WithTimeout(context.Background(), 2*patience)
	defer stop()
	if err := what(ctx); err != nil {
		fmt.Printf("FAIL %s: %v\n", name, err)
	} else {
		fmt.Printf("ok %s\n", name)
	}
}

func create(ctx context.Context, name string, partitions int, settings ...kafka.ConfigEntry) error {
	config := kafka.TopicConfig{Topic: name, NumPartitions: partitions, ReplicationFactor: 1, ConfigEntries: settings}
	found, err := client.CreateTopics(ctx, &kafka.CreateTopicsRequest{Topics: []kafka.TopicConfig{config}})
	if err != nil {
		return err
	}
	return found.Errors[name]
}

func createTopics(ctx context.Context) error {
	return create(ctx, topic, partitions, kafka.ConfigEntry{ConfigName: "retention.ms", ConfigValue: "600000000"})
}

func message(n int) kafka.Message {
	found := kafka.Message{
		Key: []byte(fmt.Sprint("k", n%100)), Value: []byte(fmt.Sprint("v", n)),
		Time:    began.Add(time.Duration(n) * time.Millisecond),
		Headers: []kafka.Header{{Key: "n", Value: []byte(fmt.Sprint(n))}},
	}
	if n%10 == 0 {
		found.Key = nil
	}
	if n%50 == 7 {
		found.Value = nil
	}
	return found
}

func byTime(one kafka.Message, known ...int) int {
	return int(one.Time.Sub(began).Milliseconds()) % len(known)
}

func produce(ctx context.Context) error {
	n := 0
	for _, codec := range []kafka.Compression{0, kafka.Gzip, kafka.Snappy, kafka.Lz4, kafka.Zstd} {
		writer := &kafka.Writer{
			Addr: kafka.TCP(bootstrap), Topic: topic, Balancer: kafka.BalancerFunc(byTime), BatchSize: 500,
			BatchTimeout: 5 * time.Millisecond, RequiredAcks: kafka.RequireAll, Compression: codec,
		}
		var messages []kafka.Message
		for i := 0; i < count/5; i++ {
			messages = append(messages, message(n))
			n++
		}
		if err := writer.WriteMessages(ctx, messages...); err != nil {
			return fmt.Errorf("%v: %w", codec, err)
		}
		if err := writer.Close(); err != nil {
			return err
		}
	}
	return nil
}

func reader(partition int) *kafka.Reader {
	return kafka.NewReader(kafka.ReaderConfig{
		Brokers: []string{bootstrap}, Topic: topic, Partition: partition, MaxWait: 300 * time.Millisecond,
	})
}

func read(ctx context.Context) error {
	total := 0
	for partition := 0; partition < partitions; partition++ {
		reader := reader(partition)
		lag, err := reader.ReadLag(ctx)
		if err != nil {
			return err
		}
		last := -1
		for next := int64(0); next < lag; next++ {
			one, err := reader.ReadMessage(ctx)
			if err != nil {
				return err
			}
			n, _ := strconv.Atoi(string(one.Headers[0].Value))
			wanted := message(n)
			if one.Offset != next || n <= last || !one.Time.Equal(wanted.Time) || !bytes.Equal(one.Key, wanted.Key) || !bytes.Equal(one.Value, wanted.Value) {
				return fmt.Errorf("message %d is %+v", n, one)
			}
			last = n
			total++
		}
		if err := reader.Close(); err != nil {
			return err
		}
	}
	if total != count {
		return fmt.Errorf("%d messages", total)
	}
	return nil
}

func offsetsByTime(ctx context.Context) error {
	reader := reader(1)
	defer reader.Close()
	if err := reader.SetOffsetAt(ctx, began.Add(3000*time.Millisecond)); err != nil {
		return err
	}
	if one, err := reader.ReadMessage(ctx); err != nil || one.Offset != 1000 {
		return fmt.Errorf("by time: %d %v", one.Offset, err)
	}
	if err := reader.SetOffset(17); err != nil {
		return err
	}
	if one, err := reader.ReadMessage(ctx); err != nil || one.Offset != 17 {
		return fmt.Errorf("by offset: %d %v", one.Offset, err)
	}
	return nil
}

func largeRecords(ctx context.Context) error {
	name := prefix + "-large"
	if err := create(ctx, name, 1, kafka.ConfigEntry{ConfigName: "max.message.bytes", ConfigValue: "6000000"}); err != nil {
		return err
	}
	value := bytes.Repeat([]byte("0123456789abcdef"), 1<<18)
	writer := &kafka.Writer{Addr: kafka.TCP(bootstrap), Topic: name, RequiredAcks: kafka.RequireAll, BatchBytes: 8 << 20}
	if err := writer.WriteMessages(ctx, kafka.Message{Value: value}); err != nil {
		return err
	}
	if err := writer.WriteMessages(ctx, kafka.Message{Value: bytes.Repeat(value, 2)[:7<<20]}); err == nil {
		return fmt.Errorf("7 MiB were accepted")
	}
	if err := writer.Close(); err != nil {
		return err
	}
	reader := kafka.NewReader(kafka.ReaderConfig{Brokers: []string{bootstrap}, Topic: name, MaxBytes: 1 << 20, MaxWait: time.Second})
	defer reader.Close()
	if one, err := reader.ReadMessage(ctx); err != nil || !bytes.Equal(one.Value, value) {
		return fmt.Errorf("%d bytes were read: %v", len(one.Value), err)
	}
	return nil
}

// groups: two members one after the other read each message once.
func groups(ctx context.Context) error {
	group := prefix + "-group"
	seen := map[string]bool{}
	for _, goal := range []int{count / 2, count} {
		member := kafka.NewReader(kafka.ReaderConfig{
			Brokers: []string{bootstrap}, GroupID: group, Topic: topic, StartOffset: kafka.FirstOffset, MaxWait: 300 * time.Millisecond,
		})
		var read []kafka.Message
		for len(seen) < goal {
			one, err := member.FetchMessage(ctx)
			if err != nil {
				return fmt.Errorf("%w with %d messages", err, len(seen))
			}
			at := fmt.Sprint(one.Partition, "/", one.Offset)
			if seen[at] {
				return fmt.Errorf("%s came twice", at)
			}
			seen[at] = true
			read = append(read, one)
		}
		if err := member.CommitMessages(ctx, read...); err != nil {
			return err
		}
		if err := member.Close(); err != nil {
			return err
		}
	}
	found, err := client.OffsetFetch(ctx, &kafka.OffsetFetchRequest{GroupID: group, Topics: map[string][]int{topic: {0, 1, 2}}})
	if err != nil {
		return err
	}
	sum := int64(0)
	for _, one := range found.Topics[topic] {
		sum += one.CommittedOffset
	}
	if sum != count {
		return fmt.Errorf("committed are %d in sum", sum)
	}
	described, err := client.DescribeGroups(ctx, &kafka.DescribeGroupsRequest{GroupIDs: []string{group}})
	if err != nil || described.Groups[0].GroupState != "Empty" {
		return fmt.Errorf("described as %+v %v", described, err)
	}
	deleted, err := client.DeleteGroups(ctx, &kafka.DeleteGroupsRequest{GroupIDs: []string{group}})
	if err != nil {
		return err
	}
	return deleted.Errors[group]
}

// transactions by the Client, which sends number 0/0 at first; the second one is aborted.
func transactions(ctx context.Context) error {
	name := prefix + "-transactions"
	if err := create(ctx, name, 1); err != nil {
		return err
	}
	began, err := client.InitProducerID(ctx, &kafka.InitProducerIDRequest{TransactionalID: name, TransactionTimeoutMs: 30_000})
	if err != nil {
		return err
	}
	if began.Error != nil {
		return began.Error
	}
	id, epoch := began.Producer.ProducerID, began.Producer.ProducerEpoch
	for round, isCommitted := range []bool{true, false, true} {
		added, err := client.AddPartitionsToTxn(ctx, &kafka.AddPartitionsToTxnRequest{
			TransactionalID: name, ProducerID: id, ProducerEpoch: epoch,
			Topics: map[string][]kafka.AddPartitionToTxn{name: {{Partition: 0}}},
		})
		if err != nil {
			return err
		}
		if added.Topics[name][0].Error != nil {
			return added.Topics[name][0].Error
		}
		records := protocol.RawRecordSet{Reader: bytes.NewReader(batch(int64(id), int16(epoch), int32(round)))}
		produced, err := client.RawProduce(ctx, &kafka.RawProduceRequest{
			Topic: name, RequiredAcks: kafka.RequireAll, TransactionalID: name, RawRecords: records,
		})
		if err != nil {
			return err
		}
		if produced.Error != nil {
			return produced.Error
		}
		if wanted := int64((round + 1) / 2); produced.BaseOffset != wanted { // nobody else writes there
			return fmt.Errorf("round %d was answered with offset %d, expected %d", round, produced.BaseOffset, wanted)
		}
		ended, err := client.EndTxn(ctx, &kafka.EndTxnRequest{TransactionalID: name, ProducerID: id, ProducerEpoch: epoch, Committed: isCommitted})
		if err != nil {
			return err
		}
		if ended.Error != nil {
			return ended.Error
		}
	}
	ends, err := client.ListOffsets(ctx, &kafka.ListOffsetsRequest{Topics: map[string][]kafka.OffsetRequest{name: {kafka.LastOffsetOf(0)}}})
	if err != nil || ends.Topics[name][0].LastOffset != 2 {
		return fmt.Errorf("the topic ends at %+v %v", ends, err)
	}
	return nil
}

// batch is one of a transaction, with one record.
func batch(id int64, epoch int16, sequence int32) []byte {
	value := fmt.Sprint("round ", sequence)
	record := []byte{0, 0, 0, 1, byte(len(value) << 1)} // attributes, time, offset, no key
	record = append(append(record, value...), 0)
	now := time.Now().UnixMilli()
	var body bytes.Buffer
	for _, one := range []any{int16(16), int32(0), now, now, id, epoch, sequence, int32(1), byte(len(record) << 1)} {
		binary.Write(&body, binary.BigEndian, one)
	}
	body.Write(record)
	var found bytes.Buffer
	sum := crc32.Checksum(body.Bytes(), crc32.MakeTable(crc32.Castagnoli))
	size := int32(8 + 4 + 4 + 1 + 4 + body.Len())
	for _, one := range []any{size, int64(0), int32(body.Len() + 9), int32(0), byte(2), sum} {
		binary.Write(&found, binary.BigEndian, one)
	}
	found.Write(body.Bytes())
	return found.Bytes()
}

// connection: the package's old interface.
func connection(ctx context.Context) error {
	leader, err := kafka.DialLeader(ctx, "tcp", bootstrap, topic, 0)
	if err != nil {
		return err
	}
	defer leader.Close()
	first, last, err := leader.ReadOffsets()
	if err != nil || first != 0 || last != (count+2)/3 {
		return fmt.Errorf("offsets are %d to %d: %v", first, last, err)
	}
	if _, err := leader.Seek(5, kafka.SeekAbsolute); err != nil {
		return err
	}
	messages := leader.ReadBatch(1, 1e6)
	if one, err := messages.ReadMessage(); err != nil || one.Offset != 5 {
		return fmt.Errorf("read was %d: %v", one.Offset, err)
	}
	if err := messages.Close(); err != nil {
		return err
	}
	if _, err := leader.WriteMessages(kafka.Message{Value: []byte("by a connection")}); err != nil {
		return err
	}
	if found, err := leader.ReadPartitions(topic); err != nil || len(found) != partitions {
		return fmt.Errorf("%d partitions: %v", len(found), err)
	}
	_, err = leader.Controller()
	return err
}

func administration(ctx context.Context) error {
	grown, err := client.CreatePartitions(ctx, &kafka.CreatePartitionsRequest{Topics: []kafka.TopicPartitionsConfig{{Name: topic, Count: 4}}})
	if err != nil {
		return err
	}
	if grown.Errors[topic] != nil {
		return grown.Errors[topic]
	}
	change := kafka.IncrementalAlterConfigsRequestConfig{Name: "retention.ms", Value: "123456789", ConfigOperation: kafka.ConfigOperationSet}
	altered, err := client.IncrementalAlterConfigs(ctx, &kafka.IncrementalAlterConfigsRequest{Resources: []kafka.IncrementalAlterConfigsRequestResource{
		{ResourceType: kafka.ResourceTypeTopic, ResourceName: topic, Configs: []kafka.IncrementalAlterConfigsRequestConfig{change}},
	}})
	if err != nil {
		return err
	}
	if altered.Resources[0].Error != nil {
		return altered.Resources[0].Error
	}
	described, err := client.DescribeConfigs(ctx, &kafka.DescribeConfigsRequest{Resources: []kafka.DescribeConfigRequestResource{
		{ResourceType: kafka.ResourceTypeTopic, ResourceName: topic, ConfigNames: []string{"retention.ms"}},
	}})
	if err != nil || described.Resources[0].ConfigEntries[0].ConfigValue != "123456789" {
		return fmt.Errorf("settings are %+v %v", described, err)
	}
	deleted, err := client.DeleteTopics(ctx, &kafka.DeleteTopicsRequest{Topics: []string{topic}})
	if err != nil {
		return err
	}
	return deleted.Errors[topic]
}
