import io.delta.storage.LogStore;
import io.sparklog.delta.ConditionalGcsLogStore;
import io.sparklog.delta.RenamingAdlsLogStore;
import java.io.File;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.FileAlreadyExistsException;
import java.nio.file.Files;
import java.util.List;
import java.util.UUID;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.CommonPathCapabilities;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RawLocalFileSystem;
import org.apache.hadoop.fs.gs.GoogleHadoopFileSystem;

/** Commits by sparklog's log stores in a folder that behaves as a cloud does on its bad days; prints what came of it. */
public class LogStoreTrials {
  static final String MODE = "trial.mode";

  /** A folder that stands in for ABFS: its rename never overwrites. */
  public static class FakeAbfs extends RawLocalFileSystem {
    private boolean isOver;

    @Override
    public boolean hasPathCapability(Path path, String capability) throws IOException {
      return capability.equals(CommonPathCapabilities.FS_ACLS)
          ? !getConf().get(MODE).equals("flat")
          : super.hasPathCapability(path, capability);
    }

    @Override
    public boolean rename(Path from, Path to) throws IOException {
      String mode = isOver ? "" : getConf().get(MODE);
      isOver = true;
      if (mode.equals("taken")) {
        Files.writeString(pathToFile(to).toPath(), "another's\n");
      }
      if (mode.equals("not sent")) {
        throw new IOException("connection refused");
      }
      boolean isRenamed = !exists(to) && super.rename(from, to);
      if (mode.equals("lost")) {
        throw new IOException("connection reset");
      }
      if (mode.equals("repeated")) { // by the file system itself, after the answer was lost
        return false;
      }
      return isRenamed;
    }
  }

  public static void main(String[] arguments) throws Exception {
    for (String mode : List.of("", "taken", "lost", "repeated", "not sent", "flat")) {
      trial("adls", mode, FakeAbfs.class, RenamingAdlsLogStore.class, new File(arguments[0]));
    }
    for (String mode : List.of("", "taken", "lost", "not sent")) {
      trial("gcs", mode, GoogleHadoopFileSystem.class, ConditionalGcsLogStore.class, new File(arguments[0]));
    }
    trial("gcs", "unknown", FakeAbfs.class, ConditionalGcsLogStore.class, new File(arguments[0]));
  }

  private static void trial(
      String cloud, String mode, Class<?> fileSystem, Class<? extends LogStore> logStore, File root) throws Exception {
    Configuration conf = new Configuration(false);
    conf.set(MODE, mode);
    conf.set("fs.file.impl", fileSystem.getName());
    conf.set("fs.file.impl.disable.cache", "true");
    File folder = new File(root, UUID.randomUUID().toString());
    if (!folder.mkdirs()) {
      throw new IOException("can't make " + folder);
    }
    File file = new File(folder, "0.json");
    LogStore store = logStore.getConstructor(Configuration.class).newInstance(conf);
    String result = "committed";
    try {
      store.write(new Path(file.toURI()), List.of("ours").iterator(), false, conf);
    } catch (FileAlreadyExistsException error) {
      result = "conflict";
    } catch (UnsupportedOperationException error) {
      result = "refused";
    }
    String content = file.exists() ? Files.readString(file.toPath(), StandardCharsets.UTF_8).strip() : "nothing";
    System.out.println(String.join(";", cloud, mode, result, content, "" + folder.list().length));
  }
}
