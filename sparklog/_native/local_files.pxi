# Local files ----------------------------------------------------------------------------------------------------------

# Python's own calls give the GIL away for each step of each file. While the application computes, it takes five
# milliseconds to get it back, so ten files that are written beside it would take a third of a second.

cdef extern from *:
    """
    #include <dirent.h>
    #include <errno.h>
    #include <fcntl.h>
    #include <stdio.h>
    #include <stdlib.h>
    #include <string.h>
    #include <sys/stat.h>
    #include <unistd.h>
    #ifdef O_TMPFILE
    #include <sys/syscall.h>
    #endif
    /* By its number, as new headers need a new glibc for it; it fills the structure of new headers, the kernel's. */
    static int sparklog_stat(int folder, const char *name, struct stat *found) {
    #if defined(SYS_newfstatat) && defined(__LP64__)
        return (int)syscall(SYS_newfstatat, folder, name, found, 0);
    #else
        return fstatat(folder, name, found, 0);
    #endif
    }
    /* 1: created; 0: nothing was done; else the negative number of the link's error. Paths are relative to `within`. */
    static int sparklog_create_within(
        int within, const char *folder, const char *target, const char *data, size_t size
    ) {
        int answer = 0;
    #ifdef O_TMPFILE
        char name[32];
        int descriptor = openat(within, folder, O_WRONLY | O_TMPFILE | O_CLOEXEC, 0666);
        if (descriptor < 0) {
            return 0;
        }
        while (size) {
            ssize_t written = write(descriptor, data, size);
            if (written <= 0) {
                break;
            }
            data += written;
            size -= written;
        }
        /* Closing reports errors too. By its number, as fcntl() and fstat() of new headers need a new glibc. */
        if (!size && !close((int)syscall(SYS_fcntl, descriptor, F_DUPFD_CLOEXEC, 0))) {
            answer = -ENOENT;
    #ifdef AT_EMPTY_PATH
            answer = linkat(descriptor, "", within, target, AT_EMPTY_PATH) ? -errno : 1;
    #endif
            /* Before Linux 6.10 it is for the privileged alone, who are told ENOENT else; others don't know the flag. */
            if (answer == -ENOENT || answer == -EINVAL || answer == -EPERM) {
                snprintf(name, sizeof name, "/proc/self/fd/%d", descriptor);
                answer = linkat(AT_FDCWD, name, within, target, AT_SYMLINK_FOLLOW) ? -errno : 1;
            }
        }
        close(descriptor);
    #endif
        return answer;
    }
    static int sparklog_create_file(const char *folder, const char *target, const char *data, size_t size) {
        return sparklog_create_within(AT_FDCWD, folder, target, data, size);
    }
    /* As it does, in a folder that is held open, if its name leads to it; 2: it doesn't, or that can't be found out. */
    static int sparklog_create_in_held(
        int held, uint64_t device, uint64_t inode, const char *folder, const char *name, const char *data, size_t size
    ) {
        struct stat found;
        if (sparklog_stat(AT_FDCWD, folder, &found)) {
            return 2;
        }
        if ((uint64_t)found.st_ino != inode || (uint64_t)found.st_dev != device) {
            return 2;
        }
        return sparklog_create_within(held, ".", name, data, size);
    }
    /* A file is summed piece by piece as it is read, while the bytes are in the second cache; but for its last ones,
       among which a footer lies. */
    #define SPARKLOG_READ_AT_ONCE 262144
    #define SPARKLOG_NOT_SUMMED 4096
    typedef struct {
        uint32_t sum;
        int64_t count;  /* of bytes that were summed */
    } sparklog_read_sum;
    /* The file's size; -2: there is none; -1: it can't be read, or is larger. */
    static int64_t sparklog_read_summed(const char *path, char *out, int64_t most, sparklog_read_sum *summed) {
        int64_t size, done = -1;
        int descriptor = open(path, O_RDONLY | O_CLOEXEC);
        if (descriptor < 0) {
            return errno == ENOENT ? -2 : -1;
        }
        size = lseek(descriptor, 0, SEEK_END);
        if (size >= 0 && size <= most) {
            ssize_t count = 1;
            for (done = 0; done < size && count > 0; done += count) {
                int64_t wanted = size - done, more;
                if (summed && wanted > SPARKLOG_READ_AT_ONCE) {
                    wanted = SPARKLOG_READ_AT_ONCE;
                }
                count = pread(descriptor, out + done, wanted, done);
                more = done + count;
                more = (more < size - SPARKLOG_NOT_SUMMED ? more : size - SPARKLOG_NOT_SUMMED) - done;
                if (summed && count > 0 && more > 0) {
                    summed->sum = sparklog_crc32((const uint8_t *)out + done, more, summed->sum, 0);
                    summed->count = done + more;
                }
            }
            done = count > 0 ? done : -1;
        }
        close(descriptor);
        return done;
    }
    static int64_t sparklog_read_file(const char *path, char *out, int64_t most) {
        return sparklog_read_summed(path, out, most, NULL);
    }
    typedef struct {
        int64_t size, mtime_ns;
        uint64_t inode;
        int is_folder;
        char name[256];
    } sparklog_listed;
    /* How many there are from `first` on, or whose name it begins with; -2: there is no such folder; -1: it can't be
       listed, or holds more of these than `most`. They are at `*found_at`, which the caller frees, whatever it is told. */
    static int sparklog_list_folder(const char *path, const char *first, sparklog_listed **found_at, int most) {
        DIR *folder = opendir(path);
        sparklog_listed *out = NULL, *more;
        int listed = 0, count = 0, room = 0, at;
        if (!folder) {
            return errno == ENOENT ? -2 : -1;
        }
        while (1) {
            struct dirent *entry;
            size_t length;
            errno = 0;
            entry = readdir(folder);
            if (!entry) {
                listed = errno ? -1 : listed;
                break;
            }
            if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, "..")) {
                continue;
            }
            length = strlen(entry->d_name);
            if (strcmp(entry->d_name, first) < 0 && strncmp(entry->d_name, first, length)) {
                continue;
            }
            if (listed == most || length >= sizeof out->name) {
                listed = -1;
                break;
            }
            if (listed == room) {
                room = room ? 2 * room : 32;
                more = realloc(out, room * sizeof *out);
                if (!more) {
                    listed = -1;
                    break;
                }
                *found_at = out = more;
            }
            strcpy(out[listed++].name, entry->d_name);
        }
        for (at = 0; at < listed && count >= 0; at++) {
            struct stat found;
            if (sparklog_stat(dirfd(folder), out[at].name, &found)) {
                count = errno == ENOENT ? count : -1;  /* deleted meanwhile */
                continue;
            }
    #ifdef __APPLE__
            out[count].mtime_ns = found.st_mtimespec.tv_sec * (int64_t)1000000000 + found.st_mtimespec.tv_nsec;
    #else
            out[count].mtime_ns = found.st_mtim.tv_sec * (int64_t)1000000000 + found.st_mtim.tv_nsec;
    #endif
            out[count].is_folder = S_ISDIR(found.st_mode);
            out[count].size = found.st_size;
            out[count].inode = found.st_ino;
            if (count < at) {
                strcpy(out[count].name, out[at].name);
            }
            count++;
        }
        count = listed < 0 ? -1 : count;
        closedir(folder);
        return count;
    }
    """
    ctypedef struct sparklog_listed:
        int64_t size
        int64_t mtime_ns
        uint64_t inode
        int is_folder
        char name[256]
    int sparklog_list_folder(const char *path, const char *first, sparklog_listed **found_at, int most) nogil
    void free_listed "free"(void *listed) nogil
    int sparklog_create_file(const char *folder, const char *target, const char *data, size_t size) nogil
    int sparklog_create_in_held(
        int held, uint64_t device, uint64_t inode, const char *folder, const char *name, const char *data, size_t size
    ) nogil
    ctypedef struct sparklog_read_sum:
        uint32_t sum
        int64_t count
    int64_t sparklog_read_file(const char *path, char *out, int64_t most) nogil
    int64_t sparklog_read_summed(const char *path, char *out, int64_t most, sparklog_read_sum *summed) nogil


cdef enum:
    _ALIGNED = 64
    _SMALL_BYTES = 32_768
    _MISSING = -2
    _MOST_LISTED = 1_024


def create_files(tuple files):
    """Create files, each whole or not at all, in their order up to the first that can't be. Without the GIL.

    Args:
        files: folder, path and data of each; folder and path without a null byte.
    Returns:
        How many were created. The next one isn't there, unless the answer to its link was lost.
    """
    cdef Py_ssize_t count = len(files)
    cdef list views = [_View(file[2]) for file in files]
    cdef Memory memory = _new_memory(3 * count * sizeof(char *))
    cdef char **texts = <char **>memory.address
    cdef Memory lengths = _new_memory(count * sizeof(int64_t))
    cdef int64_t *sizes = <int64_t *>lengths.address
    cdef Py_ssize_t at
    cdef Py_ssize_t done = 0
    for at in range(count):
        texts[3 * at], texts[3 * at + 1] = _path(files[at][0]), _path(files[at][1])
        texts[3 * at + 2], sizes[at] = (<_View>views[at]).address, (<_View>views[at]).size
    with nogil:
        while done < count and sparklog_create_file(
            texts[3 * done], texts[3 * done + 1], texts[3 * done + 2], sizes[done]
        ) == 1:
            done += 1
    return done


def create_file(bytes folder, bytes target, data):
    """Create a file, whole or not at all, without the GIL.

    Returns:
        1: it was created; 0: nothing was done; else the negative number of the error that its link told: see
        ``linkat``.
    """
    cdef _View view = _View(data)
    cdef char *at = _path(folder)
    cdef char *name = _path(target)
    cdef int answer
    with nogil:
        answer = sparklog_create_file(at, name, view.address, view.size)
    return answer


def create_in_held(int held, uint64_t device, uint64_t inode, bytes folder, bytes name, data):
    """Create a file in a folder that is held open, whole or not at all, if the folder's name leads to it; without the
    GIL.

    Args:
        held: the folder's descriptor; ``device`` and ``inode`` are its numbers.
        folder: its path.
        name: the file's, in it.
    Returns:
        As :func:`create_file`; 2: nothing was done, as the name leads to another folder or to none.
    """
    cdef _View view = _View(data)
    cdef char *at = _path(folder)
    cdef char *within = _path(name)
    cdef int answer
    with nogil:
        answer = sparklog_create_in_held(held, device, inode, at, within, view.address, view.size)
    return answer


def read_small_files(tuple paths):
    """The bytes of files that are a few kilobytes together, without the GIL.

    Returns:
        Of each: its bytes; None where there is none; False where it is empty, too large, or can't be read.
    """
    cdef Py_ssize_t count = len(paths)
    cdef Memory texts = _new_memory(count * sizeof(char *))
    cdef char **names = <char **>texts.address
    cdef Memory places = _new_memory(count * sizeof(int64_t))
    cdef int64_t *sizes = <int64_t *>places.address
    cdef char[_SMALL_BYTES] block
    cdef Py_ssize_t at
    cdef int64_t used = 0
    for at in range(count):
        names[at] = _path(paths[at])
    with nogil:
        for at in range(count):
            sizes[at] = sparklog_read_file(names[at], block + used, _SMALL_BYTES - used)
            if sizes[at] > 0:
                used += sizes[at]
    found = []
    used = 0
    for at in range(count):
        if sizes[at] > 0:
            found.append(PyBytes_FromStringAndSize(block + used, sizes[at]))
            used += sizes[at]
        else:
            found.append(None if sizes[at] == _MISSING else False)
    return found


def list_folder(bytes path, bytes first):
    """The files and folders in a folder, in no order, without the GIL.

    Of a large folder, as a log becomes one, Python would look at each name to find the few at its end.

    Args:
        first: names that sort before it are left out, but for those that it begins with.
    Returns:
        The name, whether it is a folder, size, time of the last change in nanoseconds since the epoch and inode of
        each; none where there is no such folder. None where there are more than 1,024, or it can't be listed.
    """
    cdef sparklog_listed *found = NULL
    cdef char *folder = _path(path)
    cdef char *least = _path(first)
    cdef int count
    cdef int at
    try:
        with nogil:
            count = sparklog_list_folder(folder, least, &found, _MOST_LISTED)
        if count == _MISSING:
            return []
        if count < 0:
            return None
        return [
            (<bytes>found[at].name, found[at].is_folder != 0, found[at].size, found[at].mtime_ns, found[at].inode)
            for at in range(count)
        ]
    finally:
        free_listed(found)


def read_files(tuple paths, int64_t least_bytes):
    """The bytes of files, without the GIL: as views of one block, and of a file below ``least_bytes`` as ``bytes``.

    Returns:
        Of each; None where it is empty, finds no room in the block, or can't be read.
    """
    cdef Py_ssize_t count = len(paths)
    cdef Memory texts = _new_memory(count * sizeof(char *))
    cdef char **names = <char **>texts.address
    cdef Memory places = _new_memory(2 * count * sizeof(int64_t))
    cdef int64_t *starts = <int64_t *>places.address
    cdef int64_t *sizes = starts + count
    cdef Memory block = _owned(NULL, 0)
    cdef Py_ssize_t at
    cdef int64_t used = 0
    for at in range(count):
        names[at] = _path(paths[at])
    block.address = _take_block()
    if block.address == NULL:
        return [None] * count
    block.size, block.is_block = _BLOCK_BYTES, True
    with nogil:
        for at in range(count):
            starts[at] = used
            sizes[at] = sparklog_read_file(names[at], block.address + used, _BLOCK_BYTES - used)
            if sizes[at] > 0:
                used += (sizes[at] + _ALIGNED - 1) // _ALIGNED * _ALIGNED
    view = memoryview(block)
    found = []
    for at in range(count):
        if sizes[at] <= 0:
            found.append(None)
        elif sizes[at] < least_bytes:
            found.append(PyBytes_FromStringAndSize(block.address + starts[at], sizes[at]))
        else:
            found.append(view[starts[at] : starts[at] + sizes[at]])
    return found


cdef char *_path(bytes path) except NULL:
    if b"\0" in path:
        raise ValueError("a path with a null byte")
    return PyBytes_AS_STRING(path)
