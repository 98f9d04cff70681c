package org.apache.hadoop.fs.gs;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.StandardOpenOption;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RawLocalFileSystem;

/** A folder that stands in for Google's storage, under the name of Hadoop's own class: a file is there once it is closed. */
public class GoogleHadoopFileSystem extends RawLocalFileSystem {
  private boolean isOver;

  @Override
  public FSDataOutputStream create(Path path, boolean overwrite) throws IOException {
    return new FSDataOutputStream(new Upload(path), null);
  }

  private class Upload extends ByteArrayOutputStream {
    private final Path path;

    Upload(Path path) {
      this.path = path;
    }

    @Override
    public void close() throws IOException {
      String mode = isOver ? "" : getConf().get("trial.mode");
      isOver = true;
      if (mode.equals("taken")) {
        Files.writeString(pathToFile(path).toPath(), "another's\n");
      }
      if (mode.equals("not sent")) {
        throw new IOException("connection refused");
      }
      Files.write(pathToFile(path).toPath(), toByteArray(), StandardOpenOption.CREATE_NEW, StandardOpenOption.WRITE);
      if (mode.equals("lost")) {
        throw new IOException("connection reset");
      }
    }
  }
}
