package io.sparklog.delta;

import java.io.ByteArrayOutputStream;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.io.InputStream;
import java.io.InterruptedIOException;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Iterator;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;

/**
 * A commit of Delta's: a file that is created once. After an error what is there decides.
 *
 * <p>Clients of object stores repeat a request whose answer was lost, and so are told that the file exists when it is
 * this very one. Who wrote it is told by its content: a commit has a random id ({@code txnId}) and random file names. One
 * that has neither says the same whoever wrote it.
 */
final class CreateOnce {
  private static final int ATTEMPTS = 5;
  private static final long PAUSE_MS = 100;

  /** Creates a file with its whole content; fails with whatever {@code IOException} where there is one of its name. */
  interface Creation {
    void create(FileSystem fs, Path file, byte[] content) throws IOException;
  }

  private CreateOnce() {}

  /**
   * Create a file of the log.
   *
   * @throws java.nio.file.FileAlreadyExistsException another's file is there: a conflict, to Delta
   * @throws IOException the store didn't say whether the file was written, or refused it
   */
  static void write(FileSystem fs, Path file, Iterator<String> actions, Creation creation) throws IOException {
    byte[] content = bytes(actions); // all of it first: closing a stream publishes what it holds, also after an error
    for (int attempt = 1; ; attempt++) {
      try {
        creation.create(fs, file, content);
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

  /** The first {@code length + 1} bytes of a file; null where there is none. Throws {@code cause} if nobody can say. */
  private static byte[] readBack(FileSystem fs, Path file, int length, IOException cause) throws IOException {
    if (cause instanceof InterruptedIOException && Thread.currentThread().isInterrupted()) {
      throw cause;
    }
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
      throw interrupted(cause);
    }
  }

  static IOException interrupted(Exception cause) {
    IOException error = new InterruptedIOException("interrupted, and it isn't known whether the file was written");
    error.initCause(cause);
    return error;
  }
}
