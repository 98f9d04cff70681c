# Data files that are read ----------------------------------------------------------------------------------------------


cdef struct _Cursor:
    char *at
    char *end


cdef const char *_PAGE = b"\x15\x00\x15"  # a data page; then its size, twice
cdef const char *_OF_PAGE = b"\x1c\x15"  # behind the checksum; then its rows
cdef const char *_PLAIN_VALUES = b"\x15\x00\x15\x06\x15\x06\x00\x00"  # the encodings of values and of levels


cdef inline bint _literal(_Cursor *cursor, const char *expected, int64_t size) noexcept nogil:
    if cursor.end - cursor.at < size or memcmp(cursor.at, expected, size):
        return False
    cursor.at += size
    return True


cdef inline int64_t _number(_Cursor *cursor) noexcept nogil:
    """A number of up to 35 bits, seven a byte, the lowest first; -1: there is none."""
    cdef int64_t found = 0
    cdef int shift = 0
    cdef uint8_t byte
    while cursor.at < cursor.end and shift < 35:
        byte = <uint8_t>cursor.at[0]
        cursor.at += 1
        found |= <int64_t>(byte & 0x7F) << shift
        if byte < 0x80:
            return found
        shift += 7
    return -1


cdef inline int64_t _zigzag(_Cursor *cursor) noexcept nogil:
    """A number that isn't negative; -1: there is none."""
    cdef int64_t found = _number(cursor)
    return -1 if found < 0 or found & 1 else found >> 1


cdef inline bint _page_sum(_Cursor *column) noexcept nogil:
    """Pass over a page's checksum: whoever reads on has compared that of the whole file."""
    if column.end - column.at <= _CRC_BYTES or column.at[0] != 0x15:
        return False
    column.at += 1 + _CRC_BYTES
    return True


cdef int64_t _begin_page(_Cursor *column, _Cursor *page, int64_t most_rows) noexcept nogil:
    """Go to the next page of a column, which has plain values. Returns its rows; -1: it isn't such a page."""
    if not _literal(column, _PAGE, 3):
        return -1
    cdef int64_t size = _zigzag(column)
    if not _literal(column, b"\x15", 1) or _zigzag(column) != size:
        return -1
    if not _page_sum(column) or not _literal(column, _OF_PAGE, 2):
        return -1
    cdef int64_t rows = _zigzag(column)
    if not _literal(column, _PLAIN_VALUES, 8) or not 0 < rows <= most_rows or not 0 <= size <= column.end - column.at:
        return -1
    page.at, page.end = column.at, column.at + size
    column.at += size
    return rows


cdef int64_t _read_levels(_Cursor *page, int64_t rows, char *bits, int64_t first) noexcept nogil:
    """Set the bit of each row that has a value, unless there are no bits. Returns how many have one; -1: it is neither a
    run nor bits of all."""
    cdef uint32_t size
    cdef int64_t at
    cdef int64_t there = 0
    if page.end - page.at < <int64_t>sizeof(size):
        return -1
    memcpy(&size, page.at, sizeof(size))
    page.at += sizeof(size)
    cdef char *end = page.at + size
    if page.end - page.at < <int64_t>size:
        return -1
    cdef int64_t header = _number(page)
    cdef bint is_run = header == rows << 1
    if page.at + (1 if is_run else (rows + 7) // 8) != end or not (is_run or header == ((rows + 7) // 8) << 1 | 1):
        return -1
    if is_run and not 0 <= page.at[0] <= 1:  # Arrow refuses other levels
        return -1
    if is_run and (page.at[0] == 0 or bits == NULL):
        there = rows if page.at[0] else 0
        page.at = end
        return there
    for at in range(rows):
        if is_run or _is_set(page.at, at):
            if bits != NULL:
                bits[(first + at) >> 3] |= 1 << ((first + at) & 7)
            there += 1
    page.at = end
    return there


cdef bint _read_times(_Cursor *column, int64_t count, int64_t *out) noexcept nogil:
    cdef _Cursor page
    cdef int64_t rows
    cdef int64_t done = 0
    while done < count:
        rows = _begin_page(column, &page, count - done)
        if rows < 0 or _read_levels(&page, rows, NULL, 0) != rows:
            return False
        if page.end - page.at != rows * <int64_t>sizeof(int64_t):
            return False
        memcpy(out + done, page.at, rows * sizeof(int64_t))
        done += rows
    return column.at == column.end


cdef int64_t _read_values(
    _Cursor *column, int64_t first, int64_t count, char *bits, int32_t *ends, char *out
) noexcept nogil:
    """Copy values to the rows from ``first`` on, whose bits are 0, behind those of the rows before, for which there is as
    much room as the column is large. Returns how many are null; -1: they aren't as expected."""
    cdef _Cursor page
    cdef int64_t rows, row, there
    cdef int64_t nulls = 0
    cdef int64_t done = 0
    cdef int32_t length
    cdef int32_t used = ends[first]
    while done < count:
        rows = _begin_page(column, &page, count - done)
        there = -1 if rows < 0 else _read_levels(&page, rows, bits, first + done)
        if there < 0:
            return -1
        nulls += rows - there
        for row in range(first + done, first + done + rows):
            if there == rows or _is_set(bits, row):
                if page.end - page.at < <int64_t>sizeof(length):
                    return -1
                memcpy(&length, page.at, sizeof(length))
                page.at += sizeof(length)
                if not 0 <= length <= page.end - page.at:
                    return -1
                memcpy(out + used, page.at, length)
                page.at += length
                used += length
            ends[row + 1] = used
        if page.at != page.end:
            return -1
        done += rows
    return nulls if column.at == column.end else -1


def read_plain(data, int64_t count, tuple places, out, tuple parts):
    """Copy a time and two binary values of each row out of a file whose columns have plain values. Without the GIL.

    Args:
        data: the file; count: its rows.
        places: where each of the three columns begins in it and where it ends.
        out: a buffer that can be written to.
        parts: where in it the parts begin: times (int64), and of each binary column its bits, ends (int32) and data,
            for which there is as much room as the column is large.
    Returns:
        How many values of each binary column are null; None: the file isn't as expected.
    """
    cdef _View file = _View(data)
    cdef _View room = _View(out, True)
    cdef _Cursor columns[3]
    cdef int64_t sizes[3]
    cdef char *at[7]
    cdef int64_t needed[7]
    cdef int64_t start, end
    cdef int number
    if count <= 0 or len(places) != 3 or len(parts) != 7:
        raise ValueError(f"{count} rows, {len(places)} columns, {len(parts)} parts")
    for number in range(3):
        start, end = places[number]
        if not 0 <= start <= end <= file.size or end - start > INT32_MAX:
            raise ValueError(f"bytes {start} to {end} of {file.size}")
        columns[number].at, columns[number].end, sizes[number] = file.address + start, file.address + end, end - start
    needed[:] = [
        count * sizeof(int64_t), (count + 7) // 8, (count + 1) * sizeof(int32_t), sizes[1],
        (count + 7) // 8, (count + 1) * sizeof(int32_t), sizes[2],
    ]
    for number in range(7):
        start = parts[number]
        if not 0 <= start <= room.size - needed[number] or (number in (0, 2, 5) and start % 8):
            raise ValueError(f"part {number}: {needed[number]} bytes from {start} on, of {room.size}")
        at[number] = room.address + start
    cdef int64_t first_nulls = -1
    cdef int64_t second_nulls = -1
    with nogil:
        if _read_times(&columns[0], count, <int64_t *>at[0]):
            memset(at[1], 0, needed[1])
            memset(at[4], 0, needed[4])
            (<int32_t *>at[2])[0] = (<int32_t *>at[5])[0] = 0
            first_nulls = _read_values(&columns[1], 0, count, at[1], <int32_t *>at[2], at[3])
            if first_nulls >= 0:
                second_nulls = _read_values(&columns[2], 0, count, at[4], <int32_t *>at[5], at[6])
    return None if second_nulls < 0 else (first_nulls, second_nulls)
