package io.sparklog.delta;

import io.delta.storage.AzureLogStore;
import java.io.IOException;
import java.io.OutputStream;
import java.util.Iterator;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.CommonPathCapabilities;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;

/**
 * Delta's log store for Azure Data Lake Storage Gen2 that refuses an account without a hierarchical namespace, and knows
 * a commit of its own whose answer was lost.
 *
 * <p>Its commit is a rename with {@code If-None-Match: *}, as that of Delta's own. Only a hierarchical namespace has a
 * rename; without one ABFS copies, which may show a file before all of it is there. Set by {@code
 * spark.delta.logStore.abfss.impl}.
 */
public class RenamingAdlsLogStore extends AzureLogStore {
  public RenamingAdlsLogStore(Configuration hadoopConf) {
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
    if (!fs.hasPathCapability(file, CommonPathCapabilities.FS_ACLS)) { // ABFS has them with such a namespace alone
      throw new UnsupportedOperationException(
          file + ": a commit needs a rename, which a storage account without a hierarchical namespace doesn't have;"
              + " let sparklog's own client write there");
    }
    CreateOnce.write(fs, file, actions, this::create);
  }

  private void create(FileSystem fs, Path file, byte[] content) throws IOException {
    Path temporary = createTempPath(file);
    try (OutputStream stream = fs.create(temporary, false)) {
      stream.write(content);
    } catch (IOException error) {
      throw withoutFile(fs, temporary, error);
    }
    try {
      if (!fs.rename(temporary, file)) { // ABFS's word for a name that is taken
        throw new IOException("can't rename " + temporary + " to " + file);
      }
    } catch (IOException error) {
      throw withoutFile(fs, temporary, error);
    }
  }

  /** The error, when the temporary file is gone, or couldn't be deleted: then it stays, and nobody reads it. */
  private static IOException withoutFile(FileSystem fs, Path temporary, IOException error) {
    try {
      fs.delete(temporary, false);
    } catch (IOException failure) {
      error.addSuppressed(failure);
    }
    return error;
  }
}
