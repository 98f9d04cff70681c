package io.sparklog.sql;

import org.apache.spark.sql.catalyst.expressions.Add;
import org.apache.spark.sql.catalyst.expressions.And;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.EqualTo;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.GreaterThan;
import org.apache.spark.sql.catalyst.expressions.GreaterThanOrEqual;
import org.apache.spark.sql.catalyst.expressions.In;
import org.apache.spark.sql.catalyst.expressions.InSet;
import org.apache.spark.sql.catalyst.expressions.LessThan;
import org.apache.spark.sql.catalyst.expressions.LessThanOrEqual;
import org.apache.spark.sql.catalyst.expressions.Literal;

/** The first and the last offset, both inclusive, that a condition leaves. */
final class OffsetBounds {
  final long first;
  final long last;

  private static final OffsetBounds NOTHING = new OffsetBounds(Long.MAX_VALUE, Long.MIN_VALUE);

  private OffsetBounds(long first, long last) {
    this.first = first;
    this.last = last;
  }

  /** The bounds of {@code base_offset + offset_delta} in a condition; null where there are none. */
  static OffsetBounds of(Expression condition) {
    if (condition instanceof And) {
      return both(of(((And) condition).left()), of(((And) condition).right()));
    }
    if (condition instanceof In && isOffset(((In) condition).value())) {
      return among(((In) condition).list().iterator());
    }
    if (condition instanceof InSet && isOffset(((InSet) condition).child())) {
      return among(((InSet) condition).hset().iterator());
    }
    if (condition instanceof EqualTo) {
      EqualTo equal = (EqualTo) condition;
      return compared("=", equal.left(), equal.right());
    }
    if (condition instanceof GreaterThan) {
      return compared(">", ((GreaterThan) condition).left(), ((GreaterThan) condition).right());
    }
    if (condition instanceof GreaterThanOrEqual) {
      return compared(">=", ((GreaterThanOrEqual) condition).left(), ((GreaterThanOrEqual) condition).right());
    }
    if (condition instanceof LessThan) {
      return compared("<", ((LessThan) condition).left(), ((LessThan) condition).right());
    }
    if (condition instanceof LessThanOrEqual) {
      return compared("<=", ((LessThanOrEqual) condition).left(), ((LessThanOrEqual) condition).right());
    }
    return null;
  }

  private static OffsetBounds compared(String operator, Expression left, Expression right) {
    if (isOffset(left) && number(right) != null) {
      return bounds(operator, number(right));
    }
    if (isOffset(right) && number(left) != null) {
      return bounds(operator.replace('<', '?').replace('>', '<').replace('?', '>'), number(left));
    }
    return null;
  }

  private static OffsetBounds bounds(String operator, long number) {
    switch (operator) {
      case "=":
        return new OffsetBounds(number, number);
      case ">":
        return number == Long.MAX_VALUE ? NOTHING : new OffsetBounds(number + 1, Long.MAX_VALUE);
      case ">=":
        return new OffsetBounds(number, Long.MAX_VALUE);
      case "<":
        return number == Long.MIN_VALUE ? NOTHING : new OffsetBounds(Long.MIN_VALUE, number - 1);
      default:
        return new OffsetBounds(Long.MIN_VALUE, number);
    }
  }

  /** The bounds of a list; null where something in it is no number. */
  private static OffsetBounds among(scala.collection.Iterator<?> values) {
    long first = Long.MAX_VALUE;
    long last = Long.MIN_VALUE;
    while (values.hasNext()) {
      Object value = values.next();
      Long number = value instanceof Long ? (Long) value : value instanceof Literal ? number((Literal) value) : null;
      if (number == null) {
        return null;
      }
      first = Math.min(first, number);
      last = Math.max(last, number);
    }
    return new OffsetBounds(first, last);
  }

  private static OffsetBounds both(OffsetBounds one, OffsetBounds other) {
    if (one == null || other == null) {
      return one == null ? other : one;
    }
    return new OffsetBounds(Math.max(one.first, other.first), Math.min(one.last, other.last));
  }

  private static Long number(Expression expression) {
    return expression instanceof Literal && ((Literal) expression).value() instanceof Long
        ? (Long) ((Literal) expression).value()
        : null;
  }

  private static boolean isOffset(Expression expression) {
    if (!(expression instanceof Add)) {
      return false;
    }
    Expression left = ((Add) expression).left();
    Expression right = ((Add) expression).right();
    return (isColumn(left, "base_offset") && isColumn(right, "offset_delta"))
        || (isColumn(left, "offset_delta") && isColumn(right, "base_offset"));
  }

  private static boolean isColumn(Expression expression, String name) {
    return expression instanceof AttributeReference && ((AttributeReference) expression).name().equalsIgnoreCase(name);
  }
}
