package io.sparklog.delta;

import io.delta.storage.GCSLogStore;
import io.delta.storage.internal.ThreadUtils;
import java.io.IOException;
import java.util.Iterator;
import java.util.Set;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;

/**
 * Delta's log store for Google Cloud Storage that knows a commit of its own whose answer was lost.
 *
 * <p>Its commit is one upload with {@code ifGenerationMatch=0}, as that of Delta's own, which takes each 412 for a
 * conflict, and each other error for a commit that wasn't made. Set by {@code spark.delta.logStore.gs.impl}.
 */
public class ConditionalGcsLogStore extends GCSLogStore {
  /** Their {@code create(path, false)} uploads under that condition: Hadoop's own, and Google's. */
  private static final Set<String> FILE_SYSTEMS =
      Set.of(
          "org.apache.hadoop.fs.gs.GoogleHadoopFileSystem", "com.google.cloud.hadoop.fs.gcs.GoogleHadoopFileSystem");

  public ConditionalGcsLogStore(Configuration hadoopConf) {
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
    if (!FILE_SYSTEMS.contains(fs.getClass().getName())) {
      throw new UnsupportedOperationException(
          file + ": it isn't known whether " + fs.getClass().getName() + " creates a file only if there is none;"
              + " expected one of " + FILE_SYSTEMS);
    }
    CreateOnce.write(fs, file, actions, ConditionalGcsLogStore::create);
  }

  /** Upload in a thread that nobody interrupts: an interrupted upload may publish a part, see Delta's own log store. */
  private static void create(FileSystem fs, Path file, byte[] content) throws IOException {
    try {
      ThreadUtils.runInNewThread(
          "sparklog-commit",
          true,
          () -> {
            FSDataOutputStream stream = fs.create(file, false);
            stream.write(content);
            stream.close(); // not after an error: it would publish a part
            return file;
          });
    } catch (IOException | RuntimeException | Error error) {
      throw error;
    } catch (InterruptedException interrupt) {
      Thread.currentThread().interrupt();
      throw CreateOnce.interrupted(interrupt);
    } catch (Throwable error) {
      throw new IOException(error);
    }
  }
}
