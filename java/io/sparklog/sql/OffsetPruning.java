package io.sparklog.sql;

import java.util.Map;
import java.util.TreeMap;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.SparkSessionExtensions;
import org.apache.spark.sql.catalyst.expressions.And;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.EqualTo;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.GreaterThanOrEqual;
import org.apache.spark.sql.catalyst.expressions.LessThanOrEqual;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.Or;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.delta.Snapshot;
import org.apache.spark.sql.delta.stats.PreparedDeltaFileIndex;
import org.apache.spark.sql.execution.datasources.HadoopFsRelation;
import org.apache.spark.sql.execution.datasources.LogicalRelation;
import org.apache.spark.sql.types.DataTypes;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import scala.jdk.javaapi.CollectionConverters;
import scala.runtime.AbstractFunction1;
import scala.runtime.AbstractPartialFunction;
import scala.runtime.BoxedUnit;

/**
 * Leaves out files of a topic's table that hold no offset a query asks for: an extension of Spark's
 * ({@code spark.sql.extensions}), which stands behind Delta's.
 *
 * <p>An offset is {@code base_offset + offset_delta}. Delta knows the first of each file, as a partition column, and the
 * bounds of the second, but rules no file out by a sum. This rule asks the snapshot that Delta has chosen for the query
 * which base offsets the files have that can hold such sums, and adds these as a condition on the partition columns.
 */
public final class OffsetPruning extends AbstractFunction1<SparkSessionExtensions, BoxedUnit> {
  private static final Logger LOG = LoggerFactory.getLogger(OffsetPruning.class);

  /** More partitions than this share one range of base offsets, so that a condition stays short. */
  private static final int RANGES = 256;

  @Override
  public BoxedUnit apply(SparkSessionExtensions extensions) {
    // By then filters are beside their tables. Delta's rule of the same place pins the snapshot first.
    extensions.injectPreCBORule(
        new AbstractFunction1<>() {
          @Override
          public Rule<LogicalPlan> apply(org.apache.spark.sql.SparkSession spark) {
            return new Pruning();
          }
        });
    return BoxedUnit.UNIT;
  }

  private static final class Pruning extends Rule<LogicalPlan> {
    @Override
    public LogicalPlan apply(LogicalPlan plan) {
      return plan.transformDown(
          new AbstractPartialFunction<LogicalPlan, LogicalPlan>() {
            @Override
            public boolean isDefinedAt(LogicalPlan node) {
              return node instanceof Filter;
            }

            @Override
            public LogicalPlan apply(LogicalPlan node) {
              Filter filter = (Filter) node;
              try {
                Expression bases = OffsetPruning.bases(filter);
                return bases == null ? node : new Filter(new And(filter.condition(), bases), filter.child());
              } catch (LinkageError error) { // another Delta or Spark: the query is right without this rule, too
                LOG.warn("queries of offsets read all files of a topic: this Spark or Delta isn't known", error);
                return node;
              }
            }
          });
    }
  }

  /** A condition on the base offsets that files with such offsets have; null where a filter says nothing of offsets. */
  static Expression bases(Filter filter) {
    if (!(filter.child() instanceof LogicalRelation)) {
      return null;
    }
    LogicalRelation table = (LogicalRelation) filter.child();
    OffsetBounds wanted = OffsetBounds.of(filter.condition());
    if (wanted == null
        || !(table.relation() instanceof HadoopFsRelation)
        || !(((HadoopFsRelation) table.relation()).location() instanceof PreparedDeltaFileIndex)) {
      return null;
    }
    PreparedDeltaFileIndex files = (PreparedDeltaFileIndex) ((HadoopFsRelation) table.relation()).location();
    AttributeReference partition = column(table, "partition");
    AttributeReference base = column(table, "base_offset");
    Snapshot snapshot = files.preparedScan().scannedSnapshot();
    if (partition == null || base == null || !isTopic(snapshot)) {
      return null;
    }
    return condition(ranges(snapshot, wanted), partition, base);
  }

  /** The least and the greatest base offset of files that may hold such offsets, by partition. */
  private static Map<Integer, long[]> ranges(Snapshot snapshot, OffsetBounds wanted) {
    Dataset<Row> files =
        snapshot
            .allFiles()
            .selectExpr(
                "try_cast(partitionValues['partition'] AS INT) AS partition",
                "try_cast(partitionValues['base_offset'] AS BIGINT) AS base",
                "try_cast(get_json_object(stats, '$.minValues.offset_delta') AS BIGINT) AS low",
                "try_cast(get_json_object(stats, '$.maxValues.offset_delta') AS BIGINT) AS high")
            .where("partition IS NOT NULL AND base IS NOT NULL")
            // A file without statistics may hold any offset.
            .where("coalesce(try_add(base, low) <= " + wanted.last + "L, true)")
            .where("coalesce(try_add(base, high) >= " + wanted.first + "L, true)");
    Map<Integer, long[]> ranges = new TreeMap<>();
    for (Row file : files.collectAsList()) {
      long base = file.getLong(1);
      long[] range = ranges.computeIfAbsent(file.getInt(0), number -> new long[] {base, base});
      range[0] = Math.min(range[0], base);
      range[1] = Math.max(range[1], base);
    }
    return ranges;
  }

  private static boolean isTopic(Snapshot snapshot) {
    return CollectionConverters.asJava(snapshot.metadata().configuration()).containsKey("sparklog.format.version");
  }

  private static Expression condition(Map<Integer, long[]> ranges, AttributeReference partition, AttributeReference base) {
    if (ranges.isEmpty()) {
      return new EqualTo(base, number(-1)); // which no file has
    }
    long low = Long.MAX_VALUE;
    long high = Long.MIN_VALUE;
    Expression each = null;
    for (Map.Entry<Integer, long[]> range : ranges.entrySet()) {
      low = Math.min(low, range.getValue()[0]);
      high = Math.max(high, range.getValue()[1]);
      Expression one =
          new And(
              new EqualTo(partition, new Literal(range.getKey(), DataTypes.IntegerType)),
              between(base, range.getValue()[0], range.getValue()[1]));
      each = each == null ? one : new Or(each, one);
    }
    return ranges.size() > RANGES ? between(base, low, high) : each;
  }

  private static Expression between(Expression column, long low, long high) {
    return new And(
        new GreaterThanOrEqual(column, number(low)), new LessThanOrEqual(column, number(high)));
  }

  private static Literal number(long value) {
    return new Literal(value, DataTypes.LongType);
  }

  private static AttributeReference column(LogicalRelation table, String name) {
    scala.collection.Iterator<AttributeReference> columns = table.output().iterator();
    while (columns.hasNext()) {
      AttributeReference column = columns.next();
      if (column.name().equalsIgnoreCase(name)) {
        return column;
      }
    }
    return null;
  }
}
