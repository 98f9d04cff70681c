import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Random;
import java.util.Set;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.Config;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.OffsetAndTimestamp;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.GroupIdNotFoundException;
import org.apache.kafka.common.errors.InvalidPartitionsException;
import org.apache.kafka.common.errors.InvalidProducerEpochException;
import org.apache.kafka.common.errors.OffsetOutOfRangeException;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.errors.RecordTooLargeException;
import org.apache.kafka.common.errors.TopicExistsException;
import org.apache.kafka.common.errors.UnknownTopicOrPartitionException;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Client BOOTSTRAP PREFIX: says "ok TEST" or "FAIL TEST: WHY" for each test, which are made in their order. */
public class Client {
    static final int COUNT = 5000;
    static final int PARTITIONS = 3;
    static final long BEGAN_MS = 1_700_000_000_000L;
    static final Duration POLL = Duration.ofMillis(300);
    static String bootstrap;
    static String prefix;
    static String topic;
    static Admin admin;

    interface Test {
        void run() throws Exception;
    }

    static void test(String name, Test test) {
        try {
            test.run();
            System.out.println("ok " + name);
        } catch (Throwable error) {
            Throwable cause = error instanceof ExecutionException ? error.getCause() : error;
            System.out.println("FAIL " + name + ": " + cause.getClass().getSimpleName() + ": " + cause.getMessage());
            error.printStackTrace();
        }
    }

    static void expect(boolean holds, String seen) {
        if (!holds) throw new IllegalStateException(seen);
    }

    /** What a call is refused with. */
    static void expectRefused(Class<? extends Exception> expected, Future<?> asked) throws Exception {
        try {
            asked.get();
        } catch (ExecutionException error) {
            expect(expected.isInstance(error.getCause()), "refused with " + error.getCause() + ", expected " + expected);
            return;
        }
        throw new IllegalStateException("it was done, expected " + expected);
    }

    static Properties common() {
        Properties found = new Properties();
        found.put("bootstrap.servers", bootstrap);
        return found;
    }

    static KafkaProducer<byte[], byte[]> producer(String... settings) {
        Properties found = common();
        found.put("enable.idempotence", "true");
        found.put("acks", "all");
        found.put("linger.ms", "20");
        found.put("max.request.size", "7000000");
        for (int at = 0; at < settings.length; at += 2) found.put(settings[at], settings[at + 1]);
        return new KafkaProducer<>(found, new ByteArraySerializer(), new ByteArraySerializer());
    }

    static KafkaConsumer<byte[], byte[]> consumer(String group) {
        Properties found = common();
        found.put("auto.offset.reset", "earliest");
        found.put("enable.auto.commit", "false");
        found.put("isolation.level", "read_committed");
        if (group != null) found.put("group.id", group);
        return new KafkaConsumer<>(found, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    static String text(byte[] bytes) {
        return new String(bytes, StandardCharsets.UTF_8);
    }

    static byte[] key(int n) {
        return n % 10 == 0 ? null : n % 10 == 1 ? new byte[0] : bytes("k" + n % 100);
    }

    static byte[] value(int n) {
        return n % 50 == 7 ? null : n % 50 == 8 ? new byte[0] : bytes("v" + n);
    }

    static List<TopicPartition> partitions(String name, int count) {
        List<TopicPartition> found = new ArrayList<>();
        for (int at = 0; at < count; at++) found.add(new TopicPartition(name, at));
        return found;
    }

    static void create(String name, int count, String... config) throws Exception {
        Map<String, String> settings = new HashMap<>();
        for (int at = 0; at < config.length; at += 2) settings.put(config[at], config[at + 1]);
        admin.createTopics(Arrays.asList(new NewTopic(name, count, (short) 1).configs(settings))).all().get();
    }

    static List<ConsumerRecord<byte[], byte[]>> all(String name, int count) {
        List<ConsumerRecord<byte[], byte[]>> found = new ArrayList<>();
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(null)) {
            List<TopicPartition> wanted = partitions(name, count);
            consumer.assign(wanted);
            consumer.seekToBeginning(wanted);
            Map<TopicPartition, Long> ends = consumer.endOffsets(wanted);
            long deadline = System.currentTimeMillis() + 60_000;
            while (!wanted.stream().allMatch(one -> consumer.position(one) >= ends.get(one))) {
                expect(System.currentTimeMillis() < deadline, "the end wasn't read within 60 s: " + found.size());
                consumer.poll(POLL).forEach(found::add);
            }
        }
        return found;
    }

    static boolean hasGroup(String group) throws Exception {
        return admin.listConsumerGroups().all().get().stream().anyMatch(one -> one.groupId().equals(group));
    }

    public static void main(String[] args) throws Exception {
        bootstrap = args[0];
        prefix = args[1];
        topic = prefix + "-main";
        admin = Admin.create(common());
        test("create-topics", Client::createTopics);
        test("produce", Client::produce);
        test("read", Client::read);
        test("large-records", Client::largeRecords);
        test("offsets-by-time", Client::offsetsByTime);
        test("seek", Client::seek);
        test("groups", Client::groups);
        test("transactions", Client::transactions);
        test("consume-transform-produce", Client::consumeTransformProduce);
        test("zombie", Client::zombie);
        test("answered-offsets", Client::answeredOffsets);
        test("settings", Client::settings);
        test("partitions-and-records", Client::partitionsAndRecords);
        test("delete-topics", Client::deleteTopics);
        test("acks", Client::acks);
        System.exit(0);
    }

    static void createTopics() throws Exception {
        create(topic, PARTITIONS, "retention.ms", "604800000");
        NewTopic again = new NewTopic(topic, PARTITIONS, (short) 1);
        expectRefused(TopicExistsException.class, admin.createTopics(Arrays.asList(again)).all());
        expect(admin.listTopics().names().get().contains(topic), "it isn't listed");
    }

    static void produce() throws Exception {
        int n = 0;
        for (String codec : new String[] {"none", "gzip", "snappy", "lz4", "zstd"}) {
            try (KafkaProducer<byte[], byte[]> producer = producer("compression.type", codec)) {
                List<Future<RecordMetadata>> sent = new ArrayList<>();
                for (int i = 0; i < COUNT / 5; i++, n++) {
                    ProducerRecord<byte[], byte[]> record =
                        new ProducerRecord<>(topic, n % PARTITIONS, BEGAN_MS + n, key(n), value(n));
                    record.headers().add(new RecordHeader("n", bytes("" + n)));
                    record.headers().add(new RecordHeader("same", null));
                    record.headers().add(new RecordHeader("same", new byte[0]));
                    sent.add(producer.send(record));
                }
                for (Future<RecordMetadata> one : sent) expect(one.get().offset() >= 0, "an answer without an offset");
            }
        }
    }

    static void read() {
        List<ConsumerRecord<byte[], byte[]>> found = all(topic, PARTITIONS);
        expect(found.size() == COUNT, found.size() + " records");
        long[] next = new long[PARTITIONS];
        int[] last = {-1, -1, -1};
        for (ConsumerRecord<byte[], byte[]> one : found) {
            int n = Integer.parseInt(text(one.headers().lastHeader("n").value()));
            Header[] headers = one.headers().toArray();
            boolean isRight = one.offset() == next[one.partition()]++
                && n > last[one.partition()]
                && Arrays.equals(key(n), one.key())
                && Arrays.equals(value(n), one.value())
                && one.timestamp() == BEGAN_MS + n
                && headers.length == 3
                && headers[1].value() == null
                && headers[2].value().length == 0;
            expect(isRight, "record " + n + " is " + one);
            last[one.partition()] = n;
        }
    }

    static void largeRecords() throws Exception {
        String large = prefix + "-large";
        create(large, 1, "max.message.bytes", "6291456");
        byte[][] values = {new byte[1_000_000], new byte[6_200_000]};
        Random random = new Random(1);
        for (byte[] value : values) random.nextBytes(value);
        try (KafkaProducer<byte[], byte[]> producer = producer()) {
            for (byte[] value : values) producer.send(new ProducerRecord<>(large, value)).get();
            expectRefused(RecordTooLargeException.class, producer.send(new ProducerRecord<>(large, new byte[6_400_000])));
            long offset = producer.send(new ProducerRecord<>(large, bytes("after"))).get().offset();
            expect(offset == 2, "the next record has offset " + offset);
        }
        List<ConsumerRecord<byte[], byte[]>> found = all(large, 1);
        expect(found.size() == 3 && Arrays.equals(found.get(1).value(), values[1]), found.size() + " records");
    }

    static void offsetsByTime() {
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(null)) {
            Map<TopicPartition, Long> asked = new HashMap<>();
            for (TopicPartition at : partitions(topic, PARTITIONS)) asked.put(at, BEGAN_MS + 3000);
            for (Map.Entry<TopicPartition, OffsetAndTimestamp> one : consumer.offsetsForTimes(asked).entrySet()) {
                int partition = one.getKey().partition();  // 3000 is of partition 0, 3001 of 1, …: each the 1000th there
                boolean isRight = one.getValue().offset() == 1000 && one.getValue().timestamp() == BEGAN_MS + 3000 + partition;
                expect(isRight, one.toString());
            }
            asked.replaceAll((at, time) -> BEGAN_MS + COUNT);
            Map<TopicPartition, OffsetAndTimestamp> later = consumer.offsetsForTimes(asked);
            expect(later.get(new TopicPartition(topic, 0)) == null, "after the end: " + later);
        }
    }

    static void seek() {
        TopicPartition at = new TopicPartition(topic, 1);
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(null)) {
            consumer.assign(Arrays.asList(at));
            consumer.seek(at, 1234);
            ConsumerRecords<byte[], byte[]> found = polled(consumer);
            expect(found.iterator().next().offset() == 1234, "the first record is " + found.iterator().next().offset());
            consumer.seek(at, 99_999_999L);
            found = polled(consumer);
            expect(found.iterator().next().offset() == 0, "out of range: " + found.iterator().next().offset());
        }
    }

    static ConsumerRecords<byte[], byte[]> polled(KafkaConsumer<byte[], byte[]> consumer) {
        long deadline = System.currentTimeMillis() + 30_000;
        while (true) {
            ConsumerRecords<byte[], byte[]> found = consumer.poll(POLL);
            if (!found.isEmpty()) return found;
            expect(System.currentTimeMillis() < deadline, "no record within 30 s");
        }
    }

    static void groups() throws Exception {
        String group = prefix + "-group";
        Set<String> seen = new HashSet<>();
        for (int goal : new int[] {COUNT / 2, COUNT}) {
            try (KafkaConsumer<byte[], byte[]> consumer = consumer(group)) {
                consumer.subscribe(Arrays.asList(topic));
                while (seen.size() < goal) {
                    for (ConsumerRecord<byte[], byte[]> one : polled(consumer)) {
                        expect(seen.add(one.partition() + "/" + one.offset()), "a record came twice");
                    }
                    consumer.commitSync();
                }
            }
        }
        long sum = committed(group).values().stream().mapToLong(OffsetAndMetadata::offset).sum();
        expect(sum == COUNT, "committed are " + committed(group));
        String state = admin.describeConsumerGroups(Arrays.asList(group)).all().get().get(group).state().toString();
        expect(state.equals("Empty") && hasGroup(group), "the group is " + state);
        TopicPartition at = new TopicPartition(topic, 1);
        OffsetAndMetadata wanted = new OffsetAndMetadata(17, "why");
        admin.alterConsumerGroupOffsets(group, Collections.singletonMap(at, wanted)).all().get();
        expect(committed(group).get(at).offset() == 17 && committed(group).get(at).metadata().equals("why"), "altered");
        admin.deleteConsumerGroupOffsets(group, Collections.singleton(at)).all().get();
        expect(committed(group).get(at) == null, "an offset that was deleted is there");
        admin.deleteConsumerGroups(Arrays.asList(group)).all().get();
        expect(!hasGroup(group), "a group that was deleted is there");
        expectRefused(GroupIdNotFoundException.class, admin.deleteConsumerGroups(Arrays.asList(group)).all());
    }

    static Map<TopicPartition, OffsetAndMetadata> committed(String group) throws Exception {
        return admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get();
    }

    static void transactions() throws Exception {
        String name = prefix + "-transactions";
        create(name, 2);
        try (KafkaProducer<byte[], byte[]> producer = producer("transactional.id", name)) {
            producer.initTransactions();
            for (String round : new String[] {"a", "b", "c"}) {
                int before = all(name, 2).size();
                producer.beginTransaction();
                for (int i = 0; i < 100; i++) producer.send(new ProducerRecord<>(name, i % 2, null, bytes(round + i)));
                producer.flush();
                expect(all(name, 2).size() == before, "records of an open transaction are read");
                if (round.equals("b")) producer.abortTransaction();
                else producer.commitTransaction();
            }
        }
        List<ConsumerRecord<byte[], byte[]>> found = all(name, 2);
        expect(found.size() == 200, found.size() + " records");
        expect(found.stream().noneMatch(one -> text(one.value()).startsWith("b")), "aborted records are read");
    }

    static void consumeTransformProduce() throws Exception {
        String name = prefix + "-moved";
        create(name, 2);
        int moved = 0;
        int round = 0;
        try (KafkaProducer<byte[], byte[]> producer = producer("transactional.id", name);
            KafkaConsumer<byte[], byte[]> consumer = consumer(name)) {
            producer.initTransactions();
            consumer.subscribe(Arrays.asList(topic));
            while (moved < COUNT) {
                ConsumerRecords<byte[], byte[]> records = polled(consumer);
                Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
                producer.beginTransaction();
                for (ConsumerRecord<byte[], byte[]> one : records) {
                    byte[] value = bytes(one.partition() + "/" + one.offset());
                    producer.send(new ProducerRecord<>(name, one.partition() % 2, one.key(), value));
                    TopicPartition at = new TopicPartition(one.topic(), one.partition());
                    offsets.put(at, new OffsetAndMetadata(one.offset() + 1));
                }
                producer.sendOffsetsToTransaction(offsets, consumer.groupMetadata());
                if (round++ % 3 == 1) {
                    producer.abortTransaction();
                    records.partitions().forEach(at -> consumer.seek(at, records.records(at).get(0).offset()));
                } else {
                    producer.commitTransaction();
                    moved += records.count();
                }
            }
        }
        Set<String> values = new HashSet<>();
        List<ConsumerRecord<byte[], byte[]>> found = all(name, 2);
        found.forEach(one -> values.add(text(one.value())));
        expect(found.size() == COUNT && values.size() == COUNT, found.size() + " records, of them distinct " + values.size());
    }

    static void zombie() throws Exception {
        String name = prefix + "-zombie";
        create(name, 1);
        KafkaProducer<byte[], byte[]> old = producer("transactional.id", name);
        old.initTransactions();
        try (KafkaProducer<byte[], byte[]> producer = producer("transactional.id", name)) {
            producer.initTransactions();
            try {
                old.beginTransaction();
                old.send(new ProducerRecord<>(name, bytes("zombie"))).get();
                old.commitTransaction();
                throw new IllegalStateException("a zombie commits");
            } catch (ProducerFencedException | InvalidProducerEpochException expected) {
                old.close(Duration.ofSeconds(1));
            } catch (ExecutionException error) {
                Throwable cause = error.getCause();
                boolean isFenced = cause instanceof ProducerFencedException || cause instanceof InvalidProducerEpochException;
                expect(isFenced, "a zombie gets " + cause);
                old.close(Duration.ofSeconds(1));
            }
            producer.beginTransaction();
            producer.send(new ProducerRecord<>(name, bytes("living")));
            producer.commitTransaction();
        }
        List<ConsumerRecord<byte[], byte[]>> found = all(name, 1);
        expect(found.size() == 1 && text(found.get(0).value()).equals("living"), found.size() + " records");
    }

    /** Beside another writer: who seeks to the offset that a record was answered with reads that record. */
    static void answeredOffsets() throws Exception {
        String name = prefix + "-answered";
        create(name, 1);
        TopicPartition at = new TopicPartition(name, 0);
        Map<String, Long> answered = new HashMap<>();
        AtomicBoolean isDone = new AtomicBoolean();
        Thread beside = new Thread(() -> {
            try (KafkaProducer<byte[], byte[]> producer = producer("linger.ms", "0")) {
                while (!isDone.get()) {
                    producer.send(new ProducerRecord<>(name, bytes("other")));
                    Thread.sleep(5);
                }
            } catch (InterruptedException error) {
                throw new IllegalStateException(error);
            }
        });
        beside.start();
        try (KafkaProducer<byte[], byte[]> producer = producer("transactional.id", name)) {
            producer.initTransactions();
            long last = -1;
            for (int round = 0; round < 20; round++) {
                producer.beginTransaction();
                List<Future<RecordMetadata>> sent = new ArrayList<>();
                for (int i = 0; i < 20; i++) sent.add(producer.send(new ProducerRecord<>(name, bytes(round + "-" + i))));
                producer.flush();
                for (int i = 0; i < 20; i++) {
                    long offset = sent.get(i).get().offset();
                    expect(offset > last, "offset " + offset + " after " + last);
                    last = offset;
                    answered.put(round + "-" + i, offset);
                }
                producer.commitTransaction();
            }
        } finally {
            isDone.set(true);
            beside.join();
        }
        for (ConsumerRecord<byte[], byte[]> one : all(name, 1)) {
            Long offset = answered.get(text(one.value()));
            expect(offset == null || offset <= one.offset(), text(one.value()) + ": " + offset + " above " + one.offset());
        }
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(null)) {
            consumer.assign(Arrays.asList(at));
            for (String value : new String[] {"0-0", "7-19", "19-19"}) {
                consumer.seek(at, answered.get(value));
                boolean isFound = false;
                while (!isFound) {
                    for (ConsumerRecord<byte[], byte[]> one : polled(consumer)) {
                        isFound = isFound || text(one.value()).equals(value);
                    }
                }
            }
        }
    }

    static void settings() throws Exception {
        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
        alter(resource, "retention.ms", "777000", AlterConfigOp.OpType.SET);
        alter(resource, "cleanup.policy", "compact", AlterConfigOp.OpType.APPEND);
        Config found = admin.describeConfigs(Arrays.asList(resource)).all().get().get(resource);
        Set<String> policies = new HashSet<>(Arrays.asList(found.get("cleanup.policy").value().split(",")));
        expect(found.get("retention.ms").value().equals("777000") && policies.size() == 2, "settings " + found);
        alter(resource, "cleanup.policy", "compact", AlterConfigOp.OpType.SUBTRACT);
        alter(resource, "retention.ms", null, AlterConfigOp.OpType.DELETE);
        alter(resource, "preallocate", null, AlterConfigOp.OpType.DELETE);
    }

    static void alter(ConfigResource resource, String name, String value, AlterConfigOp.OpType how) throws Exception {
        AlterConfigOp change = new AlterConfigOp(new ConfigEntry(name, value), how);
        admin.incrementalAlterConfigs(Collections.singletonMap(resource, Collections.singletonList(change))).all().get();
    }

    static void partitionsAndRecords() throws Exception {
        admin.createPartitions(Collections.singletonMap(topic, NewPartitions.increaseTo(5))).all().get();
        expectRefused(
            InvalidPartitionsException.class,
            admin.createPartitions(Collections.singletonMap(topic, NewPartitions.increaseTo(2))).all());
        TopicPartition at = new TopicPartition(topic, 0);
        Map<TopicPartition, RecordsToDelete> most = Collections.singletonMap(at, RecordsToDelete.beforeOffset(1000));
        long low = admin.deleteRecords(most).lowWatermarks().get(at).get().lowWatermark();
        expect(low == 1000 && all(topic, 5).size() == COUNT - 1000, "the partition begins with " + low);
        Map<TopicPartition, RecordsToDelete> beyond = Collections.singletonMap(at, RecordsToDelete.beforeOffset(99_999));
        expectRefused(OffsetOutOfRangeException.class, admin.deleteRecords(beyond).all());
    }

    static void deleteTopics() throws Exception {
        admin.deleteTopics(Arrays.asList(topic)).all().get();
        expectRefused(UnknownTopicOrPartitionException.class, admin.deleteTopics(Arrays.asList(topic)).all());
        create(topic, 1);
        expect(all(topic, 1).isEmpty(), "a topic that was created again has records");
    }

    static void acks() throws Exception {
        String name = prefix + "-acks";
        create(name, 1);
        for (String acks : new String[] {"0", "1"}) {
            try (KafkaProducer<byte[], byte[]> producer = producer("acks", acks, "enable.idempotence", "false")) {
                for (int i = 0; i < 500; i++) producer.send(new ProducerRecord<>(name, bytes(acks + "-" + i)));
            }
        }
        long deadline = System.currentTimeMillis() + 30_000;
        while (all(name, 1).size() < 1000) expect(System.currentTimeMillis() < deadline, all(name, 1).size() + " records");
    }
}
