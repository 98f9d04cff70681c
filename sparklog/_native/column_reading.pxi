# Columns of data files -------------------------------------------------------------------------------------------------

# A query of one column out of hundreds of small files: to open each by a general reader, and to have it decode what is
# the same everywhere, takes longer than the query itself. Nothing here believes a file: each number that leads to a place
# is checked against the bytes that are there.

cdef extern from *:
    """
    #include <errno.h>
    #include <fcntl.h>
    #include <unistd.h>
    /* All of these bytes of a file; 0: they can't be read. */
    static int sparklog_read_range(int descriptor, char *out, int64_t size, int64_t start) {
        while (size > 0) {
            ssize_t count = pread(descriptor, out, (size_t)size, (off_t)start);
            if (count < 0 && errno == EINTR) {
                continue;
            }
            if (count <= 0) {
                return 0;
            }
            out += count;
            size -= count;
            start += count;
        }
        return 1;
    }
    /* A descriptor, and the size of its file; -1: it can't be opened. */
    static int sparklog_open_file(const char *path, int64_t *size) {
        int descriptor = open(path, O_RDONLY | O_CLOEXEC);
        if (descriptor >= 0 && (*size = (int64_t)lseek(descriptor, 0, SEEK_END)) < 0) {
            close(descriptor);
            return -1;
        }
        return descriptor;
    }
    """
    int sparklog_read_range(int descriptor, char *out, int64_t size, int64_t start) nogil
    int sparklog_open_file(const char *path, int64_t *size) nogil
    int close(int descriptor) nogil


cdef enum:
    _END_OF_FILE = 8  # the size of the footer, and the magic number
    _FOOTER_AT_ONCE = 4_096  # most footers are smaller
    _MOST_OF_FOOTER = 1_048_576
    _MOST_OF_COLUMN = 67_108_864
    _PADDING = 8  # behind what is read, since numbers are taken out of eight bytes
    _MOST_COLUMNS = 32
    _MOST_DEPTH = 16
    _MOST_WIDTH = 20  # of numbers into a dictionary
    _MOST_PROBES = 64

cdef enum:  # kinds of Thrift's compact protocol
    _BYTE_KIND = 3
    _DOUBLE_KIND = 7
    _BINARY_KIND = 8
    _LIST_KIND = 9
    _SET_KIND = 10
    _MAP_KIND = 11
    _STRUCT_KIND = 12

cdef enum:  # Parquet's
    _DATA_PAGE = 0
    _DICTIONARY_PAGE = 2
    _PLAIN_ENCODING = 0
    _OLD_DICTIONARY_ENCODING = 2
    _RLE_ENCODING = 3
    _DICTIONARY_ENCODING = 8


cdef struct _Room:  # memory that grows
    char *address
    int64_t size


cdef struct _Wanted:  # a column of which each file has a chunk
    int64_t number  # among the leaves of the schema
    int most_level
    int width  # of a value, in bytes; 0: texts, as numbers into a dictionary
    char *values
    uint8_t *bits
    int64_t nulls
    char *texts  # the dictionary: different texts, one behind the other
    int64_t texts_size, texts_room
    int32_t *ends  # of the texts; the first is 0
    int64_t count, ends_room
    int32_t *slots  # of a table of all texts, by what is computed from each; -1: nothing
    int64_t slot_count


cdef struct _ChunkPlace:
    int64_t start, size, values


cdef struct _PageHeader:
    int64_t kind, raw_size, size, values, encoding, level_encoding
    bint has_sum
    int64_t sum


cdef int _make_room(_Room *room, int64_t size) noexcept nogil:
    """Room for so many bytes, whose contents may be lost. Returns 0 where there is no memory."""
    if size <= room.size:
        return 1
    PyMem_RawFree(room.address)
    room.address = <char *>PyMem_RawMalloc(size)
    room.size = size if room.address != NULL else 0
    return room.address != NULL


# Thrift


cdef inline bint _unsigned_number(_Cursor *cursor, uint64_t *found) noexcept nogil:
    cdef uint64_t number = 0
    cdef int shift = 0
    cdef uint8_t byte
    while cursor.at < cursor.end and shift < 64:
        byte = <uint8_t>cursor.at[0]
        cursor.at += 1
        number |= <uint64_t>(byte & 0x7F) << shift
        if byte < 0x80:
            found[0] = number
            return True
        shift += 7
    return False


cdef inline bint _signed_number(_Cursor *cursor, int64_t *found) noexcept nogil:
    cdef uint64_t number
    if not _unsigned_number(cursor, &number):
        return False
    found[0] = <int64_t>(number >> 1) ^ -<int64_t>(number & 1)
    return True


cdef inline int _next_field(_Cursor *cursor, int64_t *field) noexcept nogil:
    """Go to the next field of a struct: its kind; 0: there is none; -1: it makes no sense."""
    cdef uint8_t byte
    if cursor.at >= cursor.end:
        return -1
    byte = <uint8_t>cursor.at[0]
    cursor.at += 1
    if byte == 0:
        return 0
    if byte >> 4:
        field[0] += byte >> 4
    elif not _signed_number(cursor, field):
        return -1
    return byte & 15 or -1


cdef inline int64_t _begin_list(_Cursor *cursor, int *kind) noexcept nogil:
    """The number of a list's elements; -1: it makes no sense."""
    cdef uint8_t byte
    cdef uint64_t count
    if cursor.at >= cursor.end:
        return -1
    byte = <uint8_t>cursor.at[0]
    cursor.at += 1
    kind[0] = byte & 15
    count = byte >> 4
    if count == 15 and not _unsigned_number(cursor, &count):
        return -1
    return <int64_t>count if count <= <uint64_t>(cursor.end - cursor.at) else -1  # an element has a byte at least


cdef bint _pass_over(_Cursor *cursor, int kind, bint is_element, int depth) noexcept nogil:
    """Go behind a value. A truth value has a byte as an element, and none as a field."""
    cdef uint64_t size
    cdef int64_t count, number
    cdef int64_t field = 0
    cdef int inner, other
    if depth > _MOST_DEPTH:
        return False
    if kind <= _BYTE_KIND:
        size = 1 if is_element or kind == _BYTE_KIND else 0
    elif kind < _DOUBLE_KIND:
        return _unsigned_number(cursor, &size)
    elif kind == _DOUBLE_KIND:
        size = 8
    elif kind == _BINARY_KIND:
        if not _unsigned_number(cursor, &size):
            return False
    elif kind == _LIST_KIND or kind == _SET_KIND:
        count = _begin_list(cursor, &inner)
        for number in range(count):
            if not _pass_over(cursor, inner, True, depth + 1):
                return False
        return count >= 0
    elif kind == _STRUCT_KIND:
        while True:
            inner = _next_field(cursor, &field)
            if inner <= 0:
                return inner == 0
            if not _pass_over(cursor, inner, False, depth + 1):
                return False
    else:  # footers have no maps
        return False
    if size > <uint64_t>(cursor.end - cursor.at):
        return False
    cursor.at += size
    return True


# Footers


cdef int64_t _read_footer(
    int descriptor, int64_t size, _Room *room, _Cursor *footer, bint *is_sealed
) noexcept nogil:
    """Read the footer of a file, and whether the file has a seal. Returns where it begins in the file; -1: it has none, a
    large one, or one that has changed since it was sealed."""
    cdef uint32_t footer_size
    cdef int64_t tail = min(size, _FOOTER_AT_ONCE)
    cdef char *end
    cdef char *digits
    if tail <= _END_OF_FILE or not _make_room(room, tail) or not sparklog_read_range(
        descriptor, room.address, tail, size - tail
    ):
        return -1
    end = room.address + tail - _END_OF_FILE
    memcpy(&footer_size, end, sizeof(footer_size))
    if memcmp(end + 4, b"PAR1", 4) or footer_size > _MOST_OF_FOOTER or footer_size >= size - _END_OF_FILE:
        return -1
    if footer_size > tail - _END_OF_FILE:
        tail = footer_size + _END_OF_FILE
        if not _make_room(room, tail) or not sparklog_read_range(descriptor, room.address, tail, size - tail):
            return -1
        end = room.address + tail - _END_OF_FILE
    footer.at, footer.end = end - footer_size, end
    digits = _find_seal(footer.at, end + _END_OF_FILE, size)
    is_sealed[0] = digits != NULL
    if digits != NULL and not _is_footer_right(footer.at, end + _END_OF_FILE, digits):
        return -1
    return size - _END_OF_FILE - footer_size


cdef int64_t _size_of_schema(_Cursor footer) noexcept nogil:
    """The bytes of a footer before the number of its rows: a version and the schema. -1: it doesn't begin so."""
    cdef char *begin = footer.at
    cdef int64_t field = 0
    cdef int64_t number
    cdef int kind
    for number in range(2):
        kind = _next_field(&footer, &field)
        if kind <= 0 or field != number + 1 or not _pass_over(&footer, kind, False, 0):
            return -1
    return footer.at - begin


cdef bint _of_column(_Cursor *footer, _ChunkPlace *place) noexcept nogil:
    """Read what a footer tells of a chunk: not compressed, and in this file."""
    cdef int64_t dictionary = 0
    cdef int64_t field = 0
    cdef int64_t in_field, found
    cdef int64_t codec = -1
    cdef int kind, in_kind
    place.start = place.size = place.values = 0
    while True:
        kind = _next_field(footer, &field)
        if kind <= 0:
            break
        if field != 3 or kind != _STRUCT_KIND:
            if field in (1, 8, 9) or not _pass_over(footer, kind, False, 0):  # another file; encrypted
                return False
            continue
        in_field = 0
        while True:
            in_kind = _next_field(footer, &in_field)
            if in_kind <= 0:
                break
            if in_field in (4, 5, 7, 9, 11):
                if not _BYTE_KIND < in_kind < _DOUBLE_KIND or not _signed_number(footer, &found):
                    return False
                if in_field == 4:
                    codec = found
                elif in_field == 5:
                    place.values = found
                elif in_field == 7:
                    place.size = found
                elif in_field == 9:
                    place.start = found
                else:
                    dictionary = found
            elif not _pass_over(footer, in_kind, False, 0):
                return False
        if in_kind < 0:
            return False
    if dictionary > 0:
        place.start = min(place.start, dictionary)
    return kind == 0 and codec == 0 and place.start > 0 and 0 < place.size <= _MOST_OF_COLUMN


cdef bint _find_chunks(
    _Cursor *footer, int64_t rows, _Wanted *wanted, int count, _ChunkPlace *places
) noexcept nogil:
    """Where the wanted columns, which are in the order of their numbers, lie in a file of one row group.

    Args:
        footer: behind its schema.
    """
    cdef int64_t field = 2
    cdef int64_t found, groups, columns, number
    cdef int kind
    cdef int found_count = 0
    if _next_field(footer, &field) <= 0 or field != 3 or not _signed_number(footer, &found) or found != rows:
        return False
    if _next_field(footer, &field) != _LIST_KIND or field != 4:
        return False
    groups = _begin_list(footer, &kind)
    field = 0
    if groups != 1 or kind != _STRUCT_KIND or _next_field(footer, &field) != _LIST_KIND or field != 1:
        return False
    columns = _begin_list(footer, &kind)
    if kind != _STRUCT_KIND:
        return False
    for number in range(columns):
        if number == wanted[found_count].number:
            if not _of_column(footer, &places[found_count]) or places[found_count].values != rows:
                return False
            found_count += 1
            if found_count == count:
                return True
        elif not _pass_over(footer, _STRUCT_KIND, True, 0):
            return False
    return False


# Pages


cdef bint _read_header(_Cursor *column, _PageHeader *page, bint needs_sum) noexcept nogil:
    """Read the header of a page that isn't compressed, whose bytes are all there and have the checksum that it states.

    Args:
        needs_sum: it has to state one.
    """
    cdef int64_t field = 0
    cdef int64_t in_field
    cdef int64_t *place
    cdef int kind, in_kind
    page.kind = page.raw_size = page.size = page.values = page.encoding = -1
    page.level_encoding, page.has_sum = _RLE_ENCODING, False
    while True:
        kind = _next_field(column, &field)
        if kind <= 0:
            break
        if field <= 3:
            place = &page.kind if field == 1 else &page.raw_size if field == 2 else &page.size
            if not _BYTE_KIND < kind < _DOUBLE_KIND or not _signed_number(column, place):
                return False
        elif field == 4:
            if not _BYTE_KIND < kind < _DOUBLE_KIND or not _signed_number(column, &page.sum):
                return False
            page.has_sum = True
        elif field in (5, 7) and kind == _STRUCT_KIND:
            in_field = 0
            while True:
                in_kind = _next_field(column, &in_field)
                if in_kind <= 0:
                    break
                if in_field <= 2 or (in_field == 3 and field == 5):
                    place = (
                        &page.values if in_field == 1 else &page.encoding if in_field == 2 else &page.level_encoding
                    )
                    if not _BYTE_KIND < in_kind < _DOUBLE_KIND or not _signed_number(column, place):
                        return False
                elif not _pass_over(column, in_kind, False, 0):
                    return False
            if in_kind < 0:
                return False
        elif not _pass_over(column, kind, False, 0):
            return False
    if kind or page.values < 0 or not 0 <= page.size == page.raw_size <= column.end - column.at:
        return False
    if not page.has_sum:
        return not needs_sum
    return <uint32_t>page.sum == sparklog_crc32(
        <const uint8_t *>column.at, page.size, 0, False
    )


cdef bint _read_numbers(_Cursor *page, int width, int64_t count, const int32_t *mean, int32_t *out) noexcept nogil:
    """Read numbers that are in runs, or packed as bits.

    Args:
        mean: what each number of so many bits means; -1: there is no such number.
    """
    cdef int64_t done = 0
    cdef int64_t many, at
    cdef uint64_t header, word
    cdef uint64_t mask = (<uint64_t>1 << width) - 1
    cdef int32_t found
    cdef int32_t bad = 0
    cdef uint32_t number
    cdef int size = (width + 7) // 8
    while done < count:
        if not _unsigned_number(page, &header) or header >> 1 == 0 or header >> 32:
            return False
        many = header >> 1
        if header & 1:  # eight numbers at a time
            if many * width > page.end - page.at:
                return False
            many = min(8 * many, count - done)
            for at in range(many):
                memcpy(&word, page.at + ((at * width) >> 3), sizeof(word))  # behind the page there is padding
                found = mean[(word >> ((at * width) & 7)) & mask]
                bad |= found
                out[done + at] = found
            page.at += (<int64_t>(header >> 1)) * width
        else:
            if many > count - done or size > page.end - page.at:
                return False
            number = 0
            memcpy(&number, page.at, size)
            page.at += size
            if number > mask:
                return False
            found = mean[number]
            bad |= found
            for at in range(done, done + many):
                out[at] = found
        done += many
    return bad >= 0


cdef int64_t _read_which(_Cursor *page, int64_t rows, int most_level, int32_t *out) noexcept nogil:
    """Read which rows have a value, as ones and zeros, unless all have one. Returns how many; -1: it makes no sense."""
    cdef int32_t[4] mean
    cdef uint32_t size
    cdef int64_t there = 0
    cdef int64_t row
    cdef uint64_t header
    cdef int width = 2 if most_level > 1 else 1
    cdef _Cursor levels
    cdef _Cursor first
    for row in range(4):
        mean[row] = -1 if row > most_level else 1 if row == most_level else 0
    if page.end - page.at < <int64_t>sizeof(size):
        return -1
    memcpy(&size, page.at, sizeof(size))
    page.at += sizeof(size)
    if size > <uint64_t>(page.end - page.at):
        return -1
    levels.at, levels.end = page.at, page.at + size
    page.at += size
    first = levels
    if _unsigned_number(&first, &header) and header == <uint64_t>rows << 1 and first.at < first.end:
        if first.at[0] == most_level:
            return rows
    if not _read_numbers(&levels, width, rows, mean, out):
        return -1
    for row in range(rows):
        there += out[row]
    return there


# Texts


cdef inline uint64_t _hash(const char *text, int64_t size) noexcept nogil:
    cdef uint64_t found = <uint64_t>size
    cdef uint64_t word
    while size > 0:
        word = 0
        memcpy(&word, text, min(size, <int64_t>sizeof(word)))
        found = (found ^ word) * <uint64_t>0x9E3779B97F4A7C15
        found = (found ^ found >> 32) * <uint64_t>0xD6E8FEB86659FD93
        found ^= found >> 32
        text += sizeof(word)
        size -= sizeof(word)
    return found


cdef bint _more_slots(_Wanted *column) noexcept nogil:
    """A table of twice as many slots, in which all texts so far are."""
    cdef int64_t count = max(1_024, 2 * column.slot_count)
    cdef int32_t *slots = <int32_t *>PyMem_RawMalloc(count * sizeof(int32_t))
    cdef int64_t number, slot
    if slots == NULL:
        return False
    memset(slots, 0xFF, count * sizeof(int32_t))
    for number in range(column.count):
        slot = _hash(column.texts + column.ends[number], column.ends[number + 1] - column.ends[number]) & (count - 1)
        while slots[slot] >= 0:
            slot = (slot + 1) & (count - 1)
        slots[slot] = <int32_t>number
    PyMem_RawFree(column.slots)
    column.slots, column.slot_count = slots, count
    return True


cdef int32_t _number_of(_Wanted *column, const char *text, int64_t size) noexcept nogil:
    """The number of a text, which may be new; -1: there is no room, or too many that look alike are before it."""
    cdef int64_t slot
    cdef int probes
    cdef int32_t number, begin
    cdef char *texts
    cdef int32_t *ends
    if 2 * column.count >= column.slot_count and not _more_slots(column):
        return -1
    slot = _hash(text, size) & (column.slot_count - 1)
    for probes in range(_MOST_PROBES):
        number = column.slots[slot]
        if number < 0:
            break
        begin = column.ends[number]
        if column.ends[number + 1] - begin == size and not memcmp(column.texts + begin, text, size):
            return number
        slot = (slot + 1) & (column.slot_count - 1)
    else:
        return -1
    if column.texts_size + size > INT32_MAX // 2:
        return -1
    if column.texts_size + size > column.texts_room:
        column.texts_room = 2 * (column.texts_size + size)
        texts = <char *>PyMem_RawRealloc(column.texts, column.texts_room)
        if texts == NULL:
            return -1
        column.texts = texts
    if column.count + 2 > column.ends_room:
        column.ends_room = 2 * (column.count + 2)
        ends = <int32_t *>PyMem_RawRealloc(column.ends, column.ends_room * sizeof(int32_t))
        if ends == NULL:
            return -1
        column.ends = ends
    memcpy(column.texts + column.texts_size, text, size)
    column.texts_size += size
    number = <int32_t>column.count
    column.count += 1
    column.ends[number + 1] = <int32_t>column.texts_size
    column.slots[slot] = number
    return number


cdef int64_t _read_dictionary(_Wanted *column, _Cursor page, int64_t count, _Room *mean) noexcept nogil:
    """Read a file's dictionary: what each of its numbers is in the column's; as many as have bits, the others are -1.
    Returns how many have bits; 0: it makes no sense."""
    cdef int64_t number
    cdef int64_t room = 2
    cdef uint32_t size
    while room < count:
        room *= 2
    if room > 1 << _MOST_WIDTH or not _make_room(mean, room * sizeof(int32_t)):
        return 0
    memset(mean.address, 0xFF, room * sizeof(int32_t))
    for number in range(count):
        if page.end - page.at < <int64_t>sizeof(size):
            return 0
        memcpy(&size, page.at, sizeof(size))
        page.at += sizeof(size)
        if size > <uint64_t>(page.end - page.at):
            return 0
        (<int32_t *>mean.address)[number] = _number_of(column, page.at, size)
        if (<int32_t *>mean.address)[number] < 0:
            return 0
        page.at += size
    return room if page.at == page.end else 0


# Columns


cdef bint _spread(_Wanted *column, int64_t first, int64_t rows, int64_t there, const int32_t *which) noexcept nogil:
    """Move values, which lie one behind the other from ``first`` on, to the rows that have one; mark the others."""
    cdef int64_t row
    cdef int64_t left = there
    cdef int width = column.width or <int>sizeof(int32_t)
    cdef char *values = column.values + first * width
    for row in range(rows - 1, -1, -1):
        if which[row]:
            left -= 1
            memmove(values + row * width, values + left * width, width)
        else:
            memset(values + row * width, 0, width)
            column.bits[(first + row) >> 3] &= <uint8_t>~(1 << ((first + row) & 7))
    column.nulls += rows - there
    return left == 0


cdef bint _read_chunk(
    _Wanted *column, _Cursor chunk, bint needs_sums, int64_t first, int64_t rows, _Room *mean, _Room *which
) noexcept nogil:
    """Read a file's chunk of a column, whose pages may need checksums, to its rows from ``first`` on."""
    cdef _PageHeader header
    cdef _Cursor page
    cdef int64_t done = 0
    cdef int64_t there
    cdef int64_t numbers = 0  # of the dictionary; 0: there is none yet
    cdef int width
    while done < rows:
        if not _read_header(&chunk, &header, needs_sums):
            return False
        page.at, page.end = chunk.at, chunk.at + header.size
        chunk.at += header.size
        if header.kind == _DICTIONARY_PAGE:
            if column.width or numbers or done or header.encoding not in (
                _PLAIN_ENCODING, _OLD_DICTIONARY_ENCODING
            ):
                return False
            if header.values > header.size:
                return False
            numbers = _read_dictionary(column, page, header.values, mean)
            if not numbers:
                return False
            continue
        if header.kind != _DATA_PAGE or header.level_encoding != _RLE_ENCODING:
            return False
        if not 0 < header.values <= rows - done:
            return False
        if not _make_room(which, header.values * sizeof(int32_t)):
            return False
        there = _read_which(&page, header.values, column.most_level, <int32_t *>which.address)
        if there < 0:
            return False
        if column.width:
            if header.encoding != _PLAIN_ENCODING or page.end - page.at != there * column.width:
                return False
            memcpy(column.values + (first + done) * column.width, page.at, there * column.width)
        elif there:
            if not numbers or page.at == page.end or header.encoding not in (
                _DICTIONARY_ENCODING, _OLD_DICTIONARY_ENCODING
            ):
                return False
            width = <uint8_t>page.at[0]
            page.at += 1
            if width > _MOST_WIDTH or <int64_t>1 << width > numbers:  # more bits than its numbers need
                return False
            if not _read_numbers(
                &page, width, there, <int32_t *>mean.address, <int32_t *>column.values + first + done
            ):
                return False
        if there < header.values and not _spread(
            column, first + done, header.values, there, <int32_t *>which.address
        ):
            return False
        done += header.values
    return chunk.at == chunk.end


cdef bint _read_one(
    const char *path, const char *schema, int64_t schema_size, int64_t first, int64_t rows, _Wanted *wanted, int count,
    _Room *rooms
) noexcept nogil:
    """Read the wanted columns of a file to rows from ``first`` on."""
    cdef _ChunkPlace places[_MOST_COLUMNS]
    cdef _Cursor footer, chunk
    cdef int64_t size = 0
    cdef int64_t end
    cdef int number
    cdef bint is_read = False
    cdef bint is_sealed = False
    cdef int descriptor = sparklog_open_file(path, &size)
    if descriptor < 0:
        return False
    end = _read_footer(descriptor, size, &rooms[0], &footer, &is_sealed)
    if end >= 0 and footer.end - footer.at > schema_size and not memcmp(footer.at, schema, schema_size):
        footer.at += schema_size
        is_read = _find_chunks(&footer, rows, wanted, count, places)
        for number in range(count):
            if not is_read:
                break
            is_read = (
                places[number].start <= end - places[number].size
                and _make_room(&rooms[1], places[number].size + _PADDING)
                and sparklog_read_range(descriptor, rooms[1].address, places[number].size, places[number].start)
            )
            if is_read:
                chunk.at, chunk.end = rooms[1].address, rooms[1].address + places[number].size
                memset(chunk.end, 0, _PADDING)
                is_read = _read_chunk(&wanted[number], chunk, is_sealed, first, rows, &rooms[2], &rooms[3])
    close(descriptor)
    return is_read


def file_schema(bytes path):
    """The first bytes of a local file's footer: Parquet's version and schema. None: there is no such file, or not so."""
    cdef char *name = _path(path)
    cdef _Room room
    cdef _Cursor footer
    cdef int64_t size = 0
    cdef int64_t found = -1
    cdef bint is_sealed = False
    cdef int descriptor
    room.address, room.size = NULL, 0
    with nogil:
        descriptor = sparklog_open_file(name, &size)
        if descriptor >= 0:
            if _read_footer(descriptor, size, &room, &footer, &is_sealed) >= 0:
                found = _size_of_schema(footer)
            close(descriptor)
    try:
        return None if found < 0 else PyBytes_FromStringAndSize(footer.at, found)
    finally:
        PyMem_RawFree(room.address)


def read_columns(tuple paths, tuple counts, bytes schema, tuple leaves, tuple outs):
    """The same columns of local files, one file behind the other. Without the GIL.

    Args:
        paths, counts: of each file its path, and how many rows it has.
        schema: what :func:`file_schema` says of all of them.
        leaves: of each column the number of its leaf, ascending; its greatest definition level, 1 or 2; the width of
            its values in bytes, 4 or 8, or 0 for texts that are written by a dictionary.
        outs: of each column two buffers that are written to: values (numbers of texts: int32), and a bit for each row.
    Returns:
        Of each column how many rows are null, and of texts the ends (int32, from 0 on) and bytes of all different ones;
        None: a file isn't as expected.
    """
    cdef Py_ssize_t files = len(paths)
    cdef int columns = <int>len(leaves)
    cdef Memory memory = _new_memory(files * (sizeof(char *) + sizeof(int64_t)))
    cdef char **names = <char **>memory.address
    cdef int64_t *rows = <int64_t *>(memory.address + files * sizeof(char *))
    cdef _Wanted wanted[_MOST_COLUMNS]
    cdef _Room rooms[4]
    cdef _View values, bits
    cdef list views = []
    cdef int64_t total = 0
    cdef int64_t first = 0
    cdef int64_t last = -1
    cdef Py_ssize_t at
    cdef int number
    cdef bint is_read = True
    cdef char *schema_at = PyBytes_AS_STRING(schema)
    cdef int64_t schema_size = PyBytes_GET_SIZE(schema)
    if len(counts) != files or len(outs) != columns or not 0 < columns <= _MOST_COLUMNS:
        raise ValueError(f"{files} files, {len(counts)} counts, {columns} columns, {len(outs)} buffers")
    for at in range(files):
        names[at], rows[at] = _path(paths[at]), counts[at]
        if not 0 < rows[at] <= INT32_MAX - total:
            raise ValueError(f"{rows[at]} rows")
        total += rows[at]
    memset(wanted, 0, sizeof(wanted))
    memset(rooms, 0, sizeof(rooms))
    for number in range(columns):
        wanted[number].number, wanted[number].most_level, wanted[number].width = leaves[number]
        values, bits = _View(outs[number][0], True), _View(outs[number][1], True)
        views += [values, bits]
        if wanted[number].number <= last or wanted[number].most_level not in (1, 2):
            raise ValueError(f"leaf {leaves[number]}")
        if wanted[number].width not in (0, 4, 8):
            raise ValueError(f"values of {wanted[number].width} bytes")
        if values.size < total * (wanted[number].width or 4) or bits.size < (total + 7) // 8:
            raise ValueError(f"{values.size} and {bits.size} bytes for {total} rows")
        last = wanted[number].number
        wanted[number].values, wanted[number].bits = values.address, <uint8_t *>bits.address
    try:
        with nogil:
            for number in range(columns):
                memset(wanted[number].bits, 0xFF, (total + 7) // 8)
                if not wanted[number].width and is_read:
                    wanted[number].ends_room = 1_024
                    wanted[number].ends = <int32_t *>PyMem_RawCalloc(1_024, sizeof(int32_t))
                    is_read = wanted[number].ends != NULL
            for at in range(files):
                if not is_read:
                    break
                is_read = _read_one(names[at], schema_at, schema_size, first, rows[at], wanted, columns, rooms)
                first += rows[at]
        if not is_read:
            return None
        found = []
        for number in range(columns):
            if wanted[number].width:
                found.append((wanted[number].nulls, None, None))
                continue
            ends = _owned(<char *>wanted[number].ends, (wanted[number].count + 1) * sizeof(int32_t))
            wanted[number].ends = NULL
            texts = _owned(wanted[number].texts, wanted[number].texts_size)
            wanted[number].texts = NULL
            found.append((wanted[number].nulls, ends, texts))
        return found
    finally:
        for number in range(columns):
            PyMem_RawFree(wanted[number].ends)
            PyMem_RawFree(wanted[number].texts)
            PyMem_RawFree(wanted[number].slots)
        for number in range(4):
            PyMem_RawFree(rooms[number].address)
