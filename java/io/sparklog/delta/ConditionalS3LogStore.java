package io.sparklog.delta;

import io.delta.storage.S3SingleDriverLogStore;
import java.io.IOException;
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

  public ConditionalS3LogStore(Configuration hadoopConf) {
    super(hadoopConf);
  }

  /**
   * Write a file of the log; without {@code overwrite} only if none of this name is there, see {@link CreateOnce}.
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
    CreateOnce.write(fs, file, actions, ConditionalS3LogStore::create);
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
}
