import java.nio.file.Files;
import java.nio.file.Path;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.RichMapFunction;
import org.apache.flink.api.common.serialization.SimpleStringSchema;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.connector.base.DeliveryGuarantee;
import org.apache.flink.connector.kafka.sink.KafkaRecordSerializationSchema;
import org.apache.flink.connector.kafka.sink.KafkaSink;
import org.apache.flink.connector.kafka.sink.TransactionNamingStrategy;
import org.apache.flink.connector.kafka.source.KafkaSource;
import org.apache.flink.connector.kafka.source.enumerator.initializer.OffsetsInitializer;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.kafka.clients.consumer.OffsetResetStrategy;

/**
 * Copies a topic exactly once, and fails once in between.
 *
 * Copy BOOTSTRAP FROM TO GROUP FOLDER NAMING: INCREMENTING or POOLING. Ends once it has copied what there was at its start.
 */
public class Copy {
    static final int FAILS_AFTER = 1200;

    static class FailingOnce extends RichMapFunction<String, String> {
        final String mark;
        int count;

        FailingOnce(String mark) {
            this.mark = mark;
        }

        public String map(String value) throws Exception {
            Thread.sleep(1);
            if (++count == FAILS_AFTER && !Files.exists(Path.of(mark))) {
                Files.writeString(Path.of(mark), "failed");
                throw new IllegalStateException("failed on purpose");
            }
            return value;
        }
    }

    public static void main(String[] args) throws Exception {
        String bootstrap = args[0];
        String group = args[3];
        Configuration settings = new Configuration();
        settings.setString("execution.checkpointing.dir", "file://" + args[4] + "/checkpoints");
        settings.setString("state.backend.type", "hashmap");
        settings.setString("restart-strategy.type", "fixed-delay");
        settings.setString("restart-strategy.fixed-delay.attempts", "5");
        settings.setString("restart-strategy.fixed-delay.delay", "500 ms");
        settings.setString("rest.port", "0");
        settings.setString("taskmanager.memory.network.min", "32mb");
        settings.setString("taskmanager.memory.network.max", "32mb");
        StreamExecutionEnvironment job = StreamExecutionEnvironment.createLocalEnvironment(2, settings);
        job.enableCheckpointing(500);
        KafkaSource<String> source = KafkaSource.<String>builder()
            .setBootstrapServers(bootstrap)
            .setTopics(args[1])
            .setGroupId(group)
            .setStartingOffsets(OffsetsInitializer.committedOffsets(OffsetResetStrategy.EARLIEST))
            .setBounded(OffsetsInitializer.latest())
            .setValueOnlyDeserializer(new SimpleStringSchema())
            .setProperty("isolation.level", "read_committed")
            .build();
        KafkaSink<String> sink = KafkaSink.<String>builder()
            .setBootstrapServers(bootstrap)
            .setRecordSerializer(
                KafkaRecordSerializationSchema.builder()
                    .setTopic(args[2])
                    .setValueSerializationSchema(new SimpleStringSchema())
                    .build())
            .setDeliveryGuarantee(DeliveryGuarantee.EXACTLY_ONCE)
            .setTransactionalIdPrefix(group)
            .setTransactionNamingStrategy(TransactionNamingStrategy.valueOf(args[5]))
            .setProperty("transaction.timeout.ms", "600000")
            .build();
        job.fromSource(source, WatermarkStrategy.noWatermarks(), "from").map(new FailingOnce(args[4] + "/failed")).sinkTo(sink);
        job.execute("copy");
        System.exit(0);
    }
}
