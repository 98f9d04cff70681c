// sarama BOOTSTRAP PREFIX: says "ok TEST" or "FAIL TEST: WHY" for each test, which are made in their order.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/IBM/sarama"
)

const (
	count      = 5000
	partitions = 3
	patience   = 60 * time.Second
)

var (
	bootstrap, prefix, topic string
	began                    = time.UnixMilli(1700000000000)
	admin                    sarama.ClusterAdmin
	client                   sarama.Client
)

func main() {
	bootstrap, prefix = os.Args[1], os.Args[2]
	topic = prefix + "-main"
	var err error
	if admin, err = sarama.NewClusterAdmin([]string{bootstrap}, settings()); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	if client, err = sarama.NewClient([]string{bootstrap}, settings()); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	test("create-topics", createTopics)
	test("produce", produce)
	test("read", read)
	test("offsets-by-time", offsetsByTime)
	test("groups", groups)
	test("transactions", transactions)
	test("administration", administration)
}

func test(name string, what func() error) {
	if err := what(); err != nil {
		fmt.Printf("FAIL %s: %v\n", name, err)
	} else {
		fmt.Printf("ok %s\n", name)
	}
}

func settings() *sarama.Config {
	found := sarama.NewConfig()
	found.Version = sarama.V4_0_0_0
	found.Producer.Return.Successes = true
	found.Producer.RequiredAcks = sarama.WaitForAll
	found.Producer.Idempotent = true
	found.Net.MaxOpenRequests = 1
	found.Consumer.Offsets.Initial = sarama.OffsetOldest
	found.Consumer.Offsets.AutoCommit.Enable = false
	found.Consumer.IsolationLevel = sarama.ReadCommitted
	return found
}

func createTopics() error {
	retention := "600000000"
	detail := &sarama.TopicDetail{NumPartitions: partitions, ReplicationFactor: 1, ConfigEntries: map[string]*string{"retention.ms": &retention}}
	if err := admin.CreateTopic(topic, detail, false); err != nil {
		return err
	}
	if err := admin.CreateTopic(topic, detail, false); !errors.Is(err, sarama.ErrTopicAlreadyExists) {
		return fmt.Errorf("a second time: %v", err)
	}
	return nil
}

func key(n int) sarama.Encoder {
	switch n % 10 {
	case 0:
		return nil
	case 1:
		return sarama.StringEncoder("")
	}
	return sarama.StringEncoder(fmt.Sprint("k", n%100))
}

func value(n int) sarama.Encoder {
	if n%50 == 7 {
		return nil
	}
	return sarama.StringEncoder(fmt.Sprint("v", n))
}

func isSame(got []byte, wanted sarama.Encoder) bool {
	if wanted == nil {
		return got == nil
	}
	bytes, _ := wanted.Encode()
	return got != nil && string(got) == string(bytes)
}

func produce() error {
	n := 0
	for codec := sarama.CompressionNone; codec <= sarama.CompressionZSTD; codec++ {
		config := settings()
		config.Producer.Compression = codec
		config.Producer.Partitioner = sarama.NewManualPartitioner
		producer, err := sarama.NewSyncProducer([]string{bootstrap}, config)
		if err != nil {
			return err
		}
		var messages []*sarama.ProducerMessage
		for i := 0; i < count/5; i++ {
			headers := []sarama.RecordHeader{{Key: []byte("n"), Value: []byte(fmt.Sprint(n))}, {Key: []byte("none")}}
			messages = append(messages, &sarama.ProducerMessage{
				Topic: topic, Partition: int32(n % partitions), Timestamp: began.Add(time.Duration(n) * time.Millisecond),
				Headers: headers, Key: key(n), Value: value(n),
			})
			n++
		}
		if err := producer.SendMessages(messages); err != nil {
			return fmt.Errorf("%v: %w", codec, err)
		}
		if err := producer.Close(); err != nil {
			return err
		}
	}
	return nil
}

func read() error {
	consumer, err := sarama.NewConsumerFromClient(client)
	if err != nil {
		return err
	}
	total := 0
	for partition := int32(0); partition < partitions; partition++ {
		end, err := client.GetOffset(topic, partition, sarama.OffsetNewest)
		if err != nil {
			return err
		}
		messages, err := consumer.ConsumePartition(topic, partition, sarama.OffsetOldest)
		if err != nil {
			return err
		}
		last := -1
		for next := int64(0); next < end; next++ {
			select {
			case one := <-messages.Messages():
				n, _ := strconv.Atoi(string(one.Headers[0].Value))
				at := began.Add(time.Duration(n) * time.Millisecond)
				if one.Offset != next || n <= last || !one.Timestamp.Equal(at) || !isSame(one.Key, key(n)) || !isSame(one.Value, value(n)) {
					return fmt.Errorf("message %d is %+v", n, one)
				}
				last = n
				total++
			case <-time.After(patience):
				return fmt.Errorf("partition %d: nothing after offset %d of %d", partition, next, end)
			}
		}
		if err := messages.Close(); err != nil {
			return err
		}
	}
	if total != count {
		return fmt.Errorf("%d messages", total)
	}
	return consumer.Close()
}

func offsetsByTime() error {
	for partition := int32(0); partition < partitions; partition++ {
		offset, err := client.GetOffset(topic, partition, began.UnixMilli()+3000)
		if err != nil || offset != 1000 {
			return fmt.Errorf("partition %d: %d %v", partition, offset, err)
		}
	}
	return nil
}

// counting counts the messages of all members, and ends the members' sessions at a goal.
type counting struct {
	lock sync.Mutex
	seen map[string]int
	goal int
	stop context.CancelFunc
}

func (c *counting) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (c *counting) Cleanup(sarama.ConsumerGroupSession) error { return nil }

func (c *counting) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for {
		select {
		case one, isOpen := <-claim.Messages():
			if !isOpen {
				return nil
			}
			c.lock.Lock()
			if len(c.seen) < c.goal {
				c.seen[fmt.Sprint(one.Partition, "/", one.Offset)]++
				session.MarkMessage(one, "")
			}
			if len(c.seen) == c.goal {
				session.Commit()
				c.stop()
			}
			c.lock.Unlock()
		case <-session.Context().Done():
			return nil
		}
	}
}

// groups: two members one after the other read each message once.
func groups() error {
	group := prefix + "-group"
	members := &counting{seen: map[string]int{}}
	for _, goal := range []int{count / 2, count} {
		ctx, stop := context.WithTimeout(context.Background(), patience)
		members.goal, members.stop = goal, stop
		member, err := sarama.NewConsumerGroup([]string{bootstrap}, group, settings())
		if err != nil {
			return err
		}
		for ctx.Err() == nil {
			if err := member.Consume(ctx, []string{topic}, members); err != nil {
				return err
			}
		}
		if err := member.Close(); err != nil {
			return err
		}
	}
	if len(members.seen) != count {
		return fmt.Errorf("%d messages", len(members.seen))
	}
	for at, times := range members.seen {
		if times != 1 {
			return fmt.Errorf("%s came %d times", at, times)
		}
	}
	found, err := admin.ListConsumerGroupOffsets(group, map[string][]int32{topic: {0, 1, 2}})
	if err != nil {
		return err
	}
	sum := int64(0)
	for partition := int32(0); partition < partitions; partition++ {
		sum += found.GetBlock(topic, partition).Offset
	}
	if sum != count {
		return fmt.Errorf("committed are %d in sum", sum)
	}
	return admin.DeleteConsumerGroup(group)
}

// transactions: with offsets of a group; every second one is aborted.
func transactions() error {
	name := prefix + "-transactions"
	if err := admin.CreateTopic(name, &sarama.TopicDetail{NumPartitions: 1, ReplicationFactor: 1}, false); err != nil {
		return err
	}
	config := settings()
	config.Producer.Transaction.ID = name
	producer, err := sarama.NewSyncProducer([]string{bootstrap}, config)
	if err != nil {
		return err
	}
	answered := []int64{}
	for round := 0; round < 4; round++ {
		if err := producer.BeginTxn(); err != nil {
			return err
		}
		for i := 0; i < 20; i++ {
			message := &sarama.ProducerMessage{Topic: name, Value: sarama.StringEncoder(fmt.Sprint(round, "-", i))}
			_, offset, err := producer.SendMessage(message)
			if err != nil {
				return err
			}
			if round%2 == 0 {
				answered = append(answered, offset)
			}
		}
		offsets := map[string][]*sarama.PartitionOffsetMetadata{topic: {{Partition: 0, Offset: int64(round*10 + 1)}}}
		if err := producer.AddOffsetsToTxn(offsets, name); err != nil {
			return err
		}
		end := producer.CommitTxn
		if round%2 == 1 {
			end = producer.AbortTxn
		}
		if err := end(); err != nil {
			return err
		}
	}
	if err := producer.Close(); err != nil {
		return err
	}
	for at, offset := range answered { // nobody else writes there
		if offset != int64(at) {
			return fmt.Errorf("message %d was answered with offset %d", at, offset)
		}
	}
	if end, err := client.GetOffset(name, 0, sarama.OffsetNewest); err != nil || end != 40 {
		return fmt.Errorf("the topic ends at %d %v", end, err)
	}
	found, err := admin.ListConsumerGroupOffsets(name, map[string][]int32{topic: {0}})
	if err != nil || found.GetBlock(topic, 0).Offset != 21 {
		return fmt.Errorf("committed is %+v %v", found, err)
	}
	return nil
}

func administration() error {
	if err := admin.CreatePartitions(topic, 4, nil, false); err != nil {
		return err
	}
	described, err := admin.DescribeTopics([]string{topic})
	if err != nil || len(described[0].Partitions) != 4 {
		return fmt.Errorf("described as %+v %v", described, err)
	}
	if err := admin.DeleteRecords(topic, map[int32]int64{0: 100}); err != nil {
		return err
	}
	if oldest, err := client.GetOffset(topic, 0, sarama.OffsetOldest); err != nil || oldest != 100 {
		return fmt.Errorf("the partition begins with %d %v", oldest, err)
	}
	retention := "123000"
	change := sarama.IncrementalAlterConfigsEntry{Operation: sarama.IncrementalAlterConfigsOperationSet, Value: &retention}
	entries := map[string]sarama.IncrementalAlterConfigsEntry{"retention.ms": change}
	if err := admin.IncrementalAlterConfig(sarama.TopicResource, topic, entries, false); err != nil {
		return err
	}
	resource := sarama.ConfigResource{Type: sarama.TopicResource, Name: topic, ConfigNames: []string{"retention.ms"}}
	if found, err := admin.DescribeConfig(resource); err != nil || len(found) != 1 || found[0].Value != retention {
		return fmt.Errorf("settings are %+v %v", found, err)
	}
	if _, err := admin.ListConsumerGroups(); err != nil {
		return err
	}
	_, controller, err := admin.DescribeCluster()
	if err != nil {
		return err
	}
	if _, err := admin.DescribeLogDirs([]int32{controller}); err != nil {
		return err
	}
	return admin.DeleteTopic(topic)
}
