import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.Properties;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StoreQueryParameters;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.processor.StateRestoreListener;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.QueryableStoreTypes;

/**
 * Counts the records of each key of the topic APP-in into APP-out, with exactly_once_v2 and a store "counts".
 *
 * Streams BOOTSTRAP APP STATE_FOLDER COMMIT_INTERVAL_MS. Says "restoring PARTITION FROM TO", "restored PARTITION COUNT",
 * "running", and "processed COUNT". Reads "state" (says "count KEY COUNT" for each key, then "whole") and "close"
 * (says "closed").
 */
public class Streams {
    public static void main(String[] args) throws Exception {
        String app = args[1];
        Properties settings = new Properties();
        settings.put("application.id", app);
        settings.put("bootstrap.servers", args[0]);
        settings.put("state.dir", args[2]);
        settings.put("processing.guarantee", "exactly_once_v2");
        settings.put("commit.interval.ms", args[3]);
        settings.put("num.stream.threads", "2");
        settings.put("session.timeout.ms", "6000");
        settings.put("heartbeat.interval.ms", "1000");
        settings.put("producer.transaction.timeout.ms", "120000");
        settings.put("auto.offset.reset", "earliest");
        settings.put("statestore.cache.max.bytes", "0");
        settings.put("default.key.serde", Serdes.String().getClass());
        settings.put("default.value.serde", Serdes.String().getClass());
        AtomicLong processed = new AtomicLong();
        StreamsBuilder builder = new StreamsBuilder();
        builder.<String, String>stream(app + "-in")
            .groupByKey()
            .count(Materialized.<String, Long, KeyValueStore<Bytes, byte[]>>as("counts"))
            .toStream()
            .mapValues(
                count -> {
                    processed.incrementAndGet();
                    return String.valueOf(count);
                })
            .to(app + "-out");
        KafkaStreams streams = new KafkaStreams(builder.build(), settings);
        streams.setGlobalStateRestoreListener(new Restoring());
        streams.setStateListener(
            (now, before) -> {
                if (now == KafkaStreams.State.RUNNING) say("running");
                if (now == KafkaStreams.State.ERROR) say("error");
            });
        Thread telling = new Thread(() -> tell(processed));
        telling.setDaemon(true);
        telling.start();
        streams.start();
        BufferedReader asked = new BufferedReader(new InputStreamReader(System.in));
        for (String line = asked.readLine(); line != null; line = asked.readLine()) {
            if (line.equals("state")) state(streams);
            if (line.equals("close")) break;
        }
        streams.close();
        say("closed");
        System.exit(0);
    }

    static synchronized void say(String line) {
        System.out.println(line);
        System.out.flush();
    }

    static void tell(AtomicLong processed) {
        long told = 0;
        while (true) {
            long now = processed.get();
            if (now != told) say("processed " + now);
            told = now;
            try {
                Thread.sleep(50);
            } catch (InterruptedException e) {
                return;
            }
        }
    }

    static void state(KafkaStreams streams) {
        var store = streams.store(
            StoreQueryParameters.fromNameAndType("counts", QueryableStoreTypes.<String, Long>keyValueStore()));
        try (KeyValueIterator<String, Long> all = store.all()) {
            while (all.hasNext()) {
                KeyValue<String, Long> one = all.next();
                say("count " + one.key + " " + one.value);
            }
        }
        say("whole");
    }

    static class Restoring implements StateRestoreListener {
        public void onRestoreStart(TopicPartition at, String store, long from, long to) {
            say("restoring " + at.partition() + " " + from + " " + to);
        }

        public void onBatchRestored(TopicPartition at, String store, long end, long count) {}

        public void onRestoreEnd(TopicPartition at, String store, long total) {
            say("restored " + at.partition() + " " + total);
        }
    }
}
