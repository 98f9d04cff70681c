# Record batches of data files that are read ---------------------------------------------------------------------------
# Each value of a file with plain values is copied once, to its place in a batch, whose checksum follows while the bytes
# are in the processor's first cache. Included by core.pyx. The twin is what log/data/record_streaming.py reads and
# gateway/records/encoding.py encodes.


cdef enum:
    _SUMMED_BYTES = 12_288  # the checksum is taken of so many bytes at a time, while they are in the first cache
    _HEADER_BYTES = 61
    _SUM_START = 21  # a batch's checksum spans what follows
    _APPEND_TIME_BITS = 8  # of a batch's attributes: its timestamps are those of the append


cdef struct _PlainReader:
    _Cursor rest  # the pages that follow
    _Cursor page
    char *bits  # NULL: all rows of the page have a value, or none
    int64_t rows  # of the page
    int64_t done
    bint has_values


cdef struct _PlainRow:
    int64_t time_ms
    char *key
    char *value
    int32_t key_size  # -1: null
    int32_t value_size
    int32_t size  # of the encoded record, without the varint of its length


cdef struct _PlainBatch:
    int64_t first
    int64_t count
    int64_t size
    int64_t latest_ms
    char *out


cdef bint _next_page(_PlainReader *column, int64_t most_rows) noexcept nogil:
    """Go to the next page, and read its levels as ``_read_levels`` does; False: it isn't as expected."""
    cdef uint32_t size
    cdef int64_t header
    cdef int64_t byte_count
    cdef bint is_run
    cdef _Cursor *page = &column.page
    column.rows, column.done = _begin_page(&column.rest, page, most_rows), 0
    if column.rows < 0 or page.end - page.at < <int64_t>sizeof(size):
        return False
    memcpy(&size, page.at, sizeof(size))
    page.at += sizeof(size)
    if page.end - page.at < <int64_t>size:
        return False
    cdef char *end = page.at + size
    header, byte_count = _number(page), (column.rows + 7) // 8
    is_run = header == column.rows << 1
    if page.at + (1 if is_run else byte_count) != end or not (is_run or header == byte_count << 1 | 1):
        return False
    if is_run and not 0 <= page.at[0] <= 1:  # Arrow refuses other levels
        return False
    column.bits, column.has_values = NULL if is_run else page.at, is_run and page.at[0] != 0
    page.at = end
    return True


cdef inline bint _begin_row(_PlainReader *column, int64_t most_rows) noexcept nogil:
    """Go to the page of the next row. False: it isn't as expected, or the page before it holds more."""
    if column.done < column.rows:
        return True
    return column.page.at == column.page.end and _next_page(column, most_rows)


cdef inline bint _next_value(_PlainReader *column, int64_t most_rows, char **at, int32_t *size) noexcept nogil:
    """Where the next value lies, and its size, -1 for null; False: the column isn't as expected."""
    if not _begin_row(column, most_rows):
        return False
    at[0], size[0] = NULL, -1
    if column.has_values if column.bits == NULL else _is_set(column.bits, column.done):
        if column.page.end - column.page.at < <int64_t>sizeof(int32_t):
            return False
        memcpy(size, column.page.at, sizeof(int32_t))
        column.page.at += sizeof(int32_t)
        if not 0 <= size[0] <= column.page.end - column.page.at:
            return False
        at[0] = column.page.at
        column.page.at += size[0]
    column.done += 1
    return True


cdef bint _find_rows(_PlainReader *columns, _PlainRow *rows, int64_t count) noexcept nogil:
    """Where the parts of each row lie; False: the columns aren't as expected."""
    cdef int64_t row, time_us, number
    cdef _PlainReader *times = &columns[0]
    for row in range(count):
        if not _begin_row(times, count - row) or times.bits != NULL or not times.has_values:
            # A time that is missing is left to Arrow, as are bits for times, which sparklog doesn't write.
            return False
        if times.page.end - times.page.at < <int64_t>sizeof(int64_t):
            return False
        memcpy(&time_us, times.page.at, sizeof(int64_t))
        times.page.at += sizeof(int64_t)
        times.done += 1
        rows[row].time_ms = time_us // 1_000 - (time_us % 1_000 < 0)  # in C it rounds towards zero
        if not _next_value(&columns[1], count - row, &rows[row].key, &rows[row].key_size):
            return False
        if not _next_value(&columns[2], count - row, &rows[row].value, &rows[row].value_size):
            return False
    for number in range(3):
        if columns[number].page.at != columns[number].page.end or columns[number].rest.at != columns[number].rest.end:
            return False
        if columns[number].done != columns[number].rows:
            return False
    return True


cdef int64_t _cut_batches(
    _PlainRow *rows, int64_t count, int64_t first, int64_t batch_bytes, bint is_append_time, _PlainBatch *batches
) noexcept nogil:
    """Which rows go into which batch, from ``first`` on. Returns how many there are; -1: one would be too large."""
    cdef int64_t found = 0
    cdef int64_t used = 0
    cdef int64_t row, content, size
    cdef _PlainBatch *batch = NULL
    for row in range(first, count):
        content = <int64_t>max(0, rows[row].key_size) + max(0, rows[row].value_size)
        if batch == NULL or used + content + 8 > batch_bytes or (
            is_append_time and rows[row].time_ms != rows[batch.first].time_ms
        ):
            batch = &batches[found]
            found += 1
            used = 0
            batch.first, batch.count, batch.size, batch.latest_ms = row, 0, _HEADER_BYTES, rows[row].time_ms
        used += content + 8
        size = 2 + _varint_size(rows[row].time_ms - rows[batch.first].time_ms) + _varint_size(batch.count)
        size += _varint_size(rows[row].key_size) + _varint_size(rows[row].value_size) + content
        batch.size += size + _varint_size(size)
        if batch.size > INT32_MAX:
            return -1
        rows[row].size = <int32_t>size
        batch.count += 1
        batch.latest_ms = max(batch.latest_ms, rows[row].time_ms)
    return found


cdef inline char *_put_number(char *out, int64_t number, int size) noexcept nogil:
    """Write a big-endian number, and return where it ends."""
    cdef int place
    for place in range(size):
        out[place] = <char>(<uint64_t>number >> 8 * (size - 1 - place) & 255)
    return out + size


cdef inline char *_put_value(char *out, const char *value, int32_t size) noexcept nogil:
    out = _put_varint(out, size)
    if size <= 0:
        return out
    memcpy(out, value, size)
    return out + size


cdef void _fill_batch(_PlainRow *rows, _PlainBatch *batch, int64_t base_offset, int attributes) noexcept nogil:
    """Write a batch to its memory."""
    cdef _PlainRow *row = &rows[batch.first]
    cdef int64_t first_ms = row.time_ms
    cdef int64_t number
    cdef char *out = batch.out
    cdef char *summed = out + _SUM_START
    cdef uint32_t checksum = 0
    out = _put_number(out, base_offset + batch.first, 8)
    out = _put_number(out, batch.size - 12, 4)
    out = _put_number(out, 0, 4)  # the epoch of the leader
    out = _put_number(out, 2, 1)  # the format
    out = _put_number(out + 4, attributes, 2)
    out = _put_number(out, batch.count - 1, 4)
    out = _put_number(out, first_ms, 8)
    out = _put_number(out, batch.latest_ms, 8)
    memset(out, 255, 14)  # no producer's id, epoch and sequence
    out = _put_number(out + 14, batch.count, 4)
    for number in range(batch.count):
        out = _put_varint(out, row.size)
        out[0] = 0
        out = _put_varint(out + 1, row.time_ms - first_ms)
        out = _put_varint(out, number)
        out = _put_value(out, row.key, row.key_size)
        out = _put_value(out, row.value, row.value_size)
        out[0] = 0  # headers
        out += 1
        row += 1
        if out - summed >= _SUMMED_BYTES:
            checksum = sparklog_crc_more(checksum, <const uint8_t *>summed, out - summed, 0)
            summed = out
    checksum = sparklog_crc_more(checksum, <const uint8_t *>summed, out - summed, 0)
    _put_number(batch.out + 17, checksum, 4)


def plain_batches(data, int64_t count, tuple places, int64_t base_offset, int64_t first_row, int64_t batch_bytes,
                  bint is_append_time=False):
    """The record batches of a file whose columns have plain values, as bytearrays. Without the GIL but for those.

    Args:
        data, count, places: as in :func:`read_plain`.
        base_offset: of the file's first row; those behind it count on.
        first_row: from which on rows go into batches.
        batch_bytes, is_append_time: as ``encode_batches`` in gateway/records has them.
    Returns:
        None: the file isn't as expected, or a record would be too large.
    """
    cdef _View file = _View(data)
    cdef _PlainReader columns[3]
    cdef int64_t start, end, number
    if count <= 0 or not 0 <= first_row <= count or len(places) != 3:
        raise ValueError(f"{count} rows from row {first_row} on, {len(places)} columns")
    memset(columns, 0, sizeof(columns))
    for number in range(3):
        start, end = places[number]
        if not 0 <= start <= end <= file.size or end - start > INT32_MAX:
            raise ValueError(f"bytes {start} to {end} of {file.size}")
        columns[number].rest.at, columns[number].rest.end = file.address + start, file.address + end
    if count > (columns[0].rest.end - columns[0].rest.at) // <int64_t>sizeof(int64_t):  # before memory is taken for them
        return None
    cdef Memory of_rows = _new_memory(count * sizeof(_PlainRow))
    cdef _PlainRow *rows = <_PlainRow *>of_rows.address
    cdef Memory of_batches = _new_memory((count - first_row) * sizeof(_PlainBatch))
    cdef _PlainBatch *batches = <_PlainBatch *>of_batches.address
    cdef int64_t found = -1
    with nogil:
        if _find_rows(columns, rows, count):
            found = _cut_batches(rows, count, first_row, batch_bytes, is_append_time, batches)
    if found < 0:
        return None
    cdef list made = []
    for number in range(found):
        made.append(PyByteArray_FromStringAndSize(NULL, batches[number].size))
        batches[number].out = PyByteArray_AS_STRING(made[number])
    with nogil:
        for number in range(found):
            _fill_batch(rows, &batches[number], base_offset, _APPEND_TIME_BITS if is_append_time else 0)
    return made
