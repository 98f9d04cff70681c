package io.sparklog.delta;

import io.delta.storage.S3SingleDriverLogStore;
import java.io.ByteArrayOutputStream;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.io.InputStream;
import java.io.InterruptedIOException;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Iterator;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FSDataOutputStreamBuilder;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Options.CreateFileOptionKeys;
import org.apache.hadoop.fs.Path;

/**
 * Delta's log store for S3 whose commit is one conditional PUT ({@code If-None-Match: *}).
 *
 * <p>Delta's own looks whether the entry is there and then writes it: what another client has committed in between is
 * overwritten. Set by {@code spark.delta.logStore.s3a.impl}. Needs S3A of Hadoop 3.4.2 or newer with {@code
 * fs.s3a.create.conditional.enabled}, which is on by default, and a store that obeys the condition.
 */
public class ConditionalS3LogStore extends S3SingleDriverLogStore {
  private static final String CONDITIONAL_CREATE = CreateFileOptionKeys.FS_OPTION_CREATE_CONDITIONAL_OVERWRITE;
  private static final int ATTEMPTS = 5;
  private static final long PAUSE_MS = 100;

  public ConditionalS3LogStore(Configuration hadoopConf) {
    super(hadoopConf);
  }

  /**
   * Write a file of the log; without {@code overwrite} only if none of this name is there.
   *
   * <p>S3A repeats a PUT whose answer was lost, and so is told that the file exists when it is this very one. Who wrote
   * it is told by its content: a commit has a random id ({@code txnId}) and random file names. One that has neither says
   * the same whoever wrote it.
   *
   * @throws java.nio.file.FileAlreadyExistsException another's file is there: a conflict, to Delta
   * @throws IOException the store didn't say whether the file was written, or refused it
   */
  @Override
  public void write(Path path, Iterator<String> actions, Boolean overwrite, Configuration hadoopConf)
      throws IOException {
    if (overwrite) {
      super.write(path, actions, true, hadoopConf);
      return;
    }
    FileSystem fs = path.getFileSystem(hadoopConf);
    Path file = fs.makeQualified(path);
    if (!fs.hasPathCapability(file, CONDITIONAL_CREATE)) {
      throw new UnsupportedOperationException(
          file + ": " + fs.getClass().getName() + " can't create a file only if there is none, as a commit must be;"
              + " expected S3A of Hadoop 3.4.2 or newer with fs.s3a.create.conditional.enabled=true");
    }
    byte[] content = bytes(actions); // all of it first: closing a stream publishes what it holds, also after an error
    for (int attempt = 1; ; attempt++) {
      try {
        create(fs, file, content);
        return;
      } catch (IOException error) { // of whatever class: what is there decides
        byte[] found = readBack(fs, file, content.length, error);
        if (found != null && Arrays.equals(found, content)) {
          return;
        }
        if (found != null) {
          throw alreadyExists(file, error);
        }
        if (attempt == ATTEMPTS) {
          throw error;
        }
        pause(attempt, error); // S3 answers 409 to PUTs that race, and means: try again
      }
    }
  }

  private static byte[] bytes(Iterator<String> lines) {
    ByteArrayOutputStream buffer = new ByteArrayOutputStream();
    while (lines.hasNext()) {
      buffer.writeBytes(lines.next().getBytes(StandardCharsets.UTF_8));
      buffer.write('\n');
    }
    return buffer.toByteArray();
  }

  /** The PUT is sent as the stream closes. */
  private static void create(FileSystem fs, Path file, byte[] content) throws IOException {
    FSDataOutputStreamBuilder<?, ?> builder = fs.createFile(file);
    builder.overwrite(false).recursive();
    builder.must(CONDITIONAL_CREATE, true);
    FSDataOutputStream stream = builder.build();
    try {
      stream.write(content);
    } catch (IOException | RuntimeException | Error error) {
      stream.abort(); // a close would publish a part
      throw error;
    }
    stream.close();
  }

  /** The first {@code length + 1} bytes of a file; null where there is none. Throws {@code cause} if nobody can say. */
  private static byte[] readBack(FileSystem fs, Path file, int length, IOException cause) throws IOException {
    try (InputStream stream = fs.open(file)) {
      byte[] found = stream.readNBytes(length);
      return stream.read() < 0 ? found : Arrays.copyOf(found, length + 1);
    } catch (FileNotFoundException missing) {
      return null;
    } catch (IOException error) {
      cause.addSuppressed(error);
      throw cause;
    }
  }

  private static IOException alreadyExists(Path file, IOException cause) {
    IOException conflict = new java.nio.file.FileAlreadyExistsException(file.toString());
    conflict.initCause(cause);
    return conflict;
  }

  private static void pause(int attempt, IOException cause) throws IOException {
    try {
      Thread.sleep(PAUSE_MS * attempt);
    } catch (InterruptedException interrupt) {
      Thread.currentThread().interrupt();
      IOException error = new InterruptedIOException("interrupted, and it isn't known whether the file was written");
      error.initCause(cause);
      throw error;
    }
  }
}
