# Runs of data files ----------------------------------------------------------------------------------------------------

# A consumer that is behind reads a dozen files at a time. While the application computes, each request for the GIL takes
# up to five milliseconds; so all of them are read, recognized and copied by one call, which asks for it once.


cdef enum:
    _MOST_NUMBERS = 32
    _TEXT = -1
    _ANY_BYTES = -2
    _PARTS = 7  # times, and of two binary columns the bits, the ends and the data
    _COLUMNS_READ = 4  # of a file: the places in it, times, keys, values
    _ROOM_BYTES = 2_097_152
    _LEAST_ROOM = 786_432  # less has memory of its own size: a room that was used before takes all of its own
    _MOST_ROOMS = 16

cdef const char *_ASCENDING_VALUES = b"\x15\x0a\x15\x06\x15\x06\x00\x00"  # a page's encodings, of differences
cdef const char *_DIFFERENCES = b"\x80\x01\x04"  # blocks of 128, of 4 parts; then how many numbers, and the first
cdef const char *_BLOCK_OF_ONES = b"\x02\x00\x00\x00\x00"


# Memory of records that are read is used again, as blocks are: to touch new pages takes as long as to fill them.
cdef char *_rooms[_MOST_ROOMS]
cdef int _room_count = 0


cdef char *_take_room() noexcept:
    """Memory of whatever bytes; NULL: there is none."""
    global _room_count
    if _room_count:
        _room_count -= 1
        return _rooms[_room_count]
    return sparklog_map(_ROOM_BYTES)


cdef void _give_room(char *address) noexcept:
    global _room_count
    if _room_count < _MOST_ROOMS:
        _rooms[_room_count] = address
        _room_count += 1
    else:
        sparklog_unmap(address, _ROOM_BYTES)


cdef class _ReadMemory(Memory):
    """Memory of records that were read."""

    cdef char *room

    def __dealloc__(self):
        if self.room != NULL:
            self.address = NULL  # before the base class frees it
            _give_room(self.room)


cdef Memory _memory_of(int64_t size):
    """Memory of so many bytes; None: there is none."""
    cdef _ReadMemory memory = _ReadMemory.__new__(_ReadMemory)
    if _LEAST_ROOM <= size <= _ROOM_BYTES:
        memory.address = memory.room = _take_room()
    else:
        memory.address = <char *>PyMem_RawMalloc(size or 1)
    memory.size = size
    return None if memory.address == NULL else memory


cdef struct _Mark:
    int kind  # or the place of a number
    int64_t size
    char *text


cdef class FooterPattern:
    """What footers of the same columns have in common, and where their numbers are."""

    cdef Memory memory
    cdef tuple parts
    cdef int count

    def __cinit__(self, tuple parts):
        """
        Args:
            parts: bytes, as they are; a number, by its place among all, the same wherever it stands again, from 0 on;
                or how many bytes there are, whichever, as a number below 0.
        """
        cdef int at
        cdef _Mark *marks
        self.parts, self.count = parts, <int>len(parts)
        self.memory = _new_memory(self.count * sizeof(_Mark))
        marks = <_Mark *>self.memory.address
        for at in range(self.count):
            part = parts[at]
            if type(part) is bytes:
                marks[at].kind, marks[at].text, marks[at].size = _TEXT, PyBytes_AS_STRING(part), len(part)
            elif part < 0:
                marks[at].kind, marks[at].size = _ANY_BYTES, -part
            elif part < _MOST_NUMBERS:
                marks[at].kind = part
            else:
                raise ValueError(f"part {part}")

    cdef bint find(self, _Cursor footer, int64_t *numbers) noexcept nogil:
        """Find the numbers of a footer, -1 for what isn't there; False: it is another."""
        cdef _Mark *marks = <_Mark *>self.memory.address
        cdef int64_t number
        cdef int at
        for at in range(_MOST_NUMBERS):
            numbers[at] = -1
        for at in range(self.count):
            if marks[at].kind == _TEXT:
                if not _literal(&footer, marks[at].text, marks[at].size):
                    return False
            elif marks[at].kind == _ANY_BYTES:
                if footer.end - footer.at < marks[at].size:
                    return False
                footer.at += marks[at].size
            else:
                number = _zigzag(&footer)
                if number < 0 or numbers[marks[at].kind] not in (-1, number):
                    return False
                numbers[marks[at].kind] = number
        return True


cdef struct _RunFile:
    char *path
    int64_t rows
    char *data
    int64_t size
    sparklog_read_sum summed
    int64_t starts[_COLUMNS_READ]
    int64_t sizes[_COLUMNS_READ]


cdef struct _Run:
    _RunFile *files
    int64_t count
    char *out
    int64_t room
    int64_t done  # files that were read
    int64_t rows, bytes
    int64_t nulls[2]
    int64_t parts[_PARTS + 1]
    char *other  # the file behind them, which is of another kind; NULL: nobody knows
    int64_t other_size


cdef bint _is_ascending(_Cursor column, int64_t count) noexcept nogil:
    """Is it one page of the numbers from 0 on, without nulls?"""
    cdef uint32_t levels
    cdef int64_t size, block
    if not _literal(&column, _PAGE, 3):
        return False
    size = _zigzag(&column)
    if not _literal(&column, b"\x15", 1) or _zigzag(&column) != size:
        return False
    if not _page_sum(&column) or not _literal(&column, _OF_PAGE, 2):
        return False
    if _zigzag(&column) != count or not _literal(&column, _ASCENDING_VALUES, 8) or column.end - column.at != size:
        return False
    if size < <int64_t>sizeof(levels):
        return False
    memcpy(&levels, column.at, sizeof(levels))
    column.at += sizeof(levels)
    if levels > column.end - column.at:
        return False
    cdef char *end = column.at + levels
    if _number(&column) != count << 1 or not _literal(&column, b"\x01", 1) or column.at != end:
        return False
    if not _literal(&column, _DIFFERENCES, 3) or _number(&column) != count or not _literal(&column, b"\x00", 1):
        return False
    for block in range((count + 126) // 128):
        if not _literal(&column, _BLOCK_OF_ONES, 5):
            return False
    return column.at == column.end


cdef bint _is_plain(_RunFile *file, FooterPattern pattern) noexcept nogil:
    """Find the columns of a file; False: it isn't one of so many plain records, or has changed since it was sealed."""
    cdef int64_t[_MOST_NUMBERS] numbers
    cdef uint32_t footer_size
    cdef _Cursor footer
    cdef int64_t end
    cdef int at
    if file.size <= _END_OF_FILE + 4 or memcmp(file.data, b"PAR1", 4) or memcmp(file.data + file.size - 4, b"PAR1", 4):
        return False
    memcpy(&footer_size, file.data + file.size - _END_OF_FILE, sizeof(footer_size))
    end = file.size - _END_OF_FILE - <int64_t>footer_size
    if end <= 0:
        return False
    footer.at, footer.end = file.data + end, file.data + file.size - _END_OF_FILE
    if not pattern.find(footer, numbers) or numbers[0] != file.rows:
        return False
    for at in range(_COLUMNS_READ):
        file.starts[at], file.sizes[at] = numbers[2 + 2 * at], numbers[1 + 2 * at]
        if file.starts[at] < 0 or not 0 <= file.sizes[at] <= end - file.starts[at]:
            return False
    footer.at, footer.end = file.data + file.starts[0], file.data + file.starts[0] + file.sizes[0]
    return _is_ascending(footer, file.rows) and _is_sealed(
        file.data, file.size, end, file.summed.sum, file.summed.count
    )


cdef int64_t _lay_out(_Run *run, int64_t files) noexcept nogil:
    """Where the parts of so many files begin. Returns how many bytes they take."""
    cdef int64_t[_PARTS] sizes
    cdef int64_t rows = 0
    cdef int64_t keys = 0
    cdef int64_t values = 0
    cdef int64_t at
    for at in range(files):
        rows += run.files[at].rows
        keys += run.files[at].sizes[2]
        values += run.files[at].sizes[3]
    if rows >= INT32_MAX or keys > INT32_MAX or values > INT32_MAX:
        return run.room + 1
    sizes[0], sizes[3], sizes[6] = rows * <int64_t>sizeof(int64_t), keys, values
    sizes[1] = sizes[4] = (rows + 7) // 8
    sizes[2] = sizes[5] = (rows + 1) * <int64_t>sizeof(int32_t)
    run.parts[0] = 0
    for at in range(_PARTS):
        run.parts[at + 1] = run.parts[at] + (sizes[at] + _ALIGNED - 1) // _ALIGNED * _ALIGNED
    return run.parts[_PARTS]


cdef bint _copy_file(_Run *run, _RunFile *file) noexcept nogil:
    """Copy the columns of a file behind those of the files before; False: they aren't as expected."""
    cdef _Cursor[_COLUMNS_READ] columns
    cdef int64_t keys, values
    cdef int at
    for at in range(_COLUMNS_READ):
        columns[at].at = file.data + file.starts[at]
        columns[at].end = columns[at].at + file.sizes[at]
    if not _read_times(&columns[1], file.rows, <int64_t *>(run.out + run.parts[0]) + run.rows):
        return False
    keys = _read_values(
        &columns[2], run.rows, file.rows, run.out + run.parts[1], <int32_t *>(run.out + run.parts[2]),
        run.out + run.parts[3],
    )
    values = -1 if keys < 0 else _read_values(
        &columns[3], run.rows, file.rows, run.out + run.parts[4], <int32_t *>(run.out + run.parts[5]),
        run.out + run.parts[6],
    )
    if values < 0:
        return False
    run.nulls[0] += keys
    run.nulls[1] += values
    run.rows += file.rows
    return True


cdef char *_read_run(_Run *run, FooterPattern pattern, char *block, char *end, int64_t most_bytes) noexcept nogil:
    """Read the files of a run, up to the first that is another. Returns where in the block there is room for the next
    run."""
    cdef char *at = block
    cdef int64_t found = 0
    cdef _RunFile *file
    while found < run.count:
        file = &run.files[found]
        file.data, file.size = at, sparklog_read_summed(
            file.path, at, min(most_bytes, end - at), &file.summed
        )
        if file.size <= 0:
            break
        if not _is_plain(file, pattern):
            run.other, run.other_size = at, file.size
            break
        at += min(end - at, (file.size + _ALIGNED - 1) // _ALIGNED * _ALIGNED)
        found += 1
    while found and _lay_out(run, found) > run.room:
        found -= 1
        run.other, run.other_size = run.files[found].data, run.files[found].size
    if found:
        memset(run.out + run.parts[1], 0, run.parts[2] - run.parts[1])
        memset(run.out + run.parts[4], 0, run.parts[5] - run.parts[4])
        (<int32_t *>(run.out + run.parts[2]))[0] = (<int32_t *>(run.out + run.parts[5]))[0] = 0
    while run.done < found:
        file = &run.files[run.done]
        if not _copy_file(run, file):
            run.other, run.other_size = file.data, file.size
            break
        run.bytes += file.size
        run.done += 1
    if run.other == NULL:
        return block
    return run.other + min(end - run.other, (run.other_size + _ALIGNED - 1) // _ALIGNED * _ALIGNED)


def read_plain_runs(tuple paths, tuple runs, FooterPattern pattern not None, int64_t most_bytes, int64_t least_bytes):
    """The records of local files of many plain ones, the files of each run together. Without the GIL.

    Args:
        paths: of all files, run by run.
        runs: of each run how many rows its files have, as a tuple; and how many bytes their records may take.
        pattern: of the files' footers. Its numbers: rows; then of places, times, keys and values the size of the column
            and where it begins.
        most_bytes: of a file that is read so.
        least_bytes: as in :func:`read_files`.
    Returns:
        Of each run how many files were read, up to the first that is another; their bytes; their records, where in them
        the parts begin as :func:`read_plain` has them, with the end, and how many keys and values are null; and the
        bytes of that other file as :func:`read_files` has them, or None where they aren't there. None: there is no
        memory, and nothing was read.
    """
    cdef Py_ssize_t file_count = len(paths)
    cdef Py_ssize_t run_count = len(runs)
    cdef Memory of_files = _new_memory(file_count * sizeof(_RunFile))
    cdef Memory of_runs = _new_memory(run_count * sizeof(_Run))
    cdef _RunFile *files = <_RunFile *>of_files.address
    cdef _Run *run = <_Run *>of_runs.address
    cdef Memory block = _owned(NULL, 0)
    cdef Memory memory
    cdef tuple counts
    cdef list memories = []
    cdef Py_ssize_t at
    cdef Py_ssize_t first = 0
    cdef char *free
    memset(files, 0, file_count * sizeof(_RunFile))
    memset(run, 0, run_count * sizeof(_Run))
    for at in range(run_count):
        counts, run[at].room = runs[at]
        run[at].files, run[at].count = files + first, len(counts)
        if first + run[at].count > file_count:
            raise ValueError(f"{file_count} files, expected more")
        for count in counts:
            files[first].path, files[first].rows = _path(paths[first]), count
            if files[first].rows <= 0:
                raise ValueError(f"{count} rows")
            first += 1
        memory = _memory_of(run[at].room)
        if memory is None:
            return None
        memories.append(memory)
        run[at].out = memory.address
    block.address = _take_block()
    if block.address == NULL:
        return None
    block.size, block.is_block = _BLOCK_BYTES, True
    free = block.address
    with nogil:
        for at in range(run_count):
            free = _read_run(&run[at], pattern, free, block.address + _BLOCK_BYTES, most_bytes)
    view = memoryview(block)
    found = []
    for at in range(run_count):
        other = None
        if run[at].other != NULL and run[at].other_size < least_bytes:
            other = PyBytes_FromStringAndSize(run[at].other, run[at].other_size)
        elif run[at].other != NULL:
            first = run[at].other - block.address
            other = view[first : first + run[at].other_size]
        parts = tuple([run[at].parts[number] for number in range(_PARTS + 1)])
        nulls = run[at].nulls[0], run[at].nulls[1]
        found.append((run[at].done, run[at].bytes, memories[at], parts, nulls, other))
    return found
