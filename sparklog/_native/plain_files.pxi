# Data files -----------------------------------------------------------------------------------------------------------


cdef struct _PlainColumn:
    int32_t *ends
    char *data
    char *bits
    int64_t first


cdef struct _Piece:
    int kind
    int64_t start
    int64_t count
    int64_t size
    char *data


cdef enum:
    _PAGE_SUM = -2
    _BYTES = -1
    _TIMES = 0
    _VALUES = 1  # of the first column; then of the second
    _LEVELS = 3
    _LEAST_ROOM_BYTES = 65_536


cdef class FileRoom:
    """Room for the files of one upload, one behind the other."""

    cdef Memory memory
    cdef int64_t used

    cdef char *take(self, int64_t size) noexcept:
        """Room for a file; NULL: it is small, or there isn't any."""
        if not _LEAST_ROOM_BYTES <= size <= _BLOCK_BYTES - self.used:
            return NULL
        cdef Memory memory
        if self.memory is None:
            memory = _owned(NULL, 0)
            memory.address = _take_block()
            if memory.address == NULL:  # the next file asks again
                return NULL
            memory.size, memory.is_block = _BLOCK_BYTES, True
            self.memory = memory
        self.used += size
        return self.memory.address + self.used - size


cdef class PlainRows:
    """Rows of a number and two binary values, in an order: pages of Parquet files are made of some of them each.

    The file's structure is decided by whoever asks: this finds where pages end, and copies values into files.
    """

    cdef _View times
    cdef _View order
    cdef _Ends first_ends
    cdef _Ends second_ends
    cdef _View first_bits
    cdef _View second_bits
    cdef _PlainColumn columns[2]
    cdef int64_t first_time
    cdef readonly int64_t count
    """Rows in the order."""

    def __cinit__(self, times, int64_t first_time, int64_t count, tuple first_column, tuple second_column, order):
        """
        Args:
            times: buffer of int64; first_time: the array's first value in it; count: how many there are.
            first_column, second_column: validity, offsets, data, and the array's first value in them.
            order: buffer of int64: the place of each row in the columns; None: as they are.
        """
        if first_time < 0 or count < 0:
            raise ValueError(f"{count} rows from {first_time} on")
        self.times, self.first_time = _numbers(times, first_time + count), first_time
        self.first_ends, self.first_bits = self.hold(0, first_column, count)
        self.second_ends, self.second_bits = self.hold(1, second_column, count)
        self.order = _View(order)
        self.count = count
        cdef int64_t *places = <int64_t *>self.order.address
        cdef int64_t at
        cdef bint is_wrong = False
        if self.order.is_held:
            self.count = self.order.size // <int64_t>sizeof(int64_t)
            for at in range(self.count):
                is_wrong |= places[at] < 0 or places[at] >= count
        if is_wrong:
            raise ValueError(f"places: expected 0 to {count - 1}")

    cdef tuple hold(self, int which, tuple given, int64_t count):
        bits, offsets, data, of_first = given
        cdef int64_t first = of_first
        cdef _Ends ends = _Ends(offsets, data, first, count)
        cdef _View of_bits = _validity(bits, first + count)
        cdef _PlainColumn *column = &self.columns[which]
        column.ends, column.data, column.bits, column.first = ends.offsets, ends.data, of_bits.address, first
        return ends, of_bits

    cdef int check(self, int64_t start, int64_t count) except -1:
        if start < 0 or count < 0 or start + count > self.count:
            raise ValueError(f"rows {start} to {start + count} of {self.count}")
        return 0

    cdef inline int64_t place(self, int64_t row) noexcept nogil:
        return (<int64_t *>self.order.address)[row] if self.order.is_held else row

    def bounds(self, int64_t start, int64_t count):
        """The least and the greatest number of some rows, at least one."""
        self.check(start, count)
        if count == 0:
            raise ValueError("no rows")
        cdef int64_t *times = <int64_t *>self.times.address + self.first_time
        cdef int64_t low = times[self.place(start)]
        cdef int64_t high = low
        cdef int64_t at, time
        for at in range(start, start + count):
            time = times[self.place(at)]
            low = time if time < low else low
            high = time if time > high else high
        return low, high

    def next_page(self, int which, int64_t start, int64_t count, int64_t limit_bytes):
        """How many of some rows fit into a page of a binary column: one at least, where there is one.

        Returns:
            Rows, bytes of their values with their lengths, and how many are null.
        """
        self.check(start, count)
        if not 0 <= which <= 1:
            raise ValueError(f"column {which}")
        cdef _PlainColumn *column = &self.columns[which]
        cdef int64_t size = 0
        cdef int64_t rows = 0
        cdef int64_t nulls = 0
        cdef int64_t place, more
        cdef int32_t *ends = column.ends
        for rows in range(count):
            place = self.place(start + rows)
            if not _is_set(column.bits, column.first + place):
                nulls += 1
                continue
            more = ends[place + 1] - ends[place] + <int64_t>sizeof(int32_t)
            if rows and size + more > limit_bytes:
                return rows, size, nulls
            size += more
        return count, size, nulls

    def assemble(self, list parts, int64_t size, FileRoom room=None, int64_t footer_at=-1):
        """A file of so many bytes: as bytes, or as a view of some in the room. Without the GIL while it is filled.

        Args:
            parts: bytes, as they are; or which (0 the number, 1 and 2 the columns' values, 3 and 4 a bit for each row
                that isn't null in them), the first row and the count of them, and how many bytes these are; or -2, the
                checksum of a page, with how far behind it the page begins, the page's bytes, and its own size.
            footer_at: where the footer begins, if the file is to be sealed.
        """
        cdef Py_ssize_t part_count = len(parts)
        cdef Memory memory = _new_memory(part_count * sizeof(_Piece))
        cdef _Piece *pieces = <_Piece *>memory.address
        cdef Py_ssize_t at
        cdef int64_t total = 0
        for at in range(part_count):
            part = parts[at]
            if type(part) is bytes:
                pieces[at].kind, pieces[at].data, pieces[at].size = _BYTES, PyBytes_AS_STRING(part), len(part)
            else:
                pieces[at].kind, pieces[at].start, pieces[at].count, pieces[at].size = part
                if pieces[at].kind == _PAGE_SUM:
                    self.check_sum(&pieces[at], size - total)
                    total += pieces[at].size
                    continue
                self.check(pieces[at].start, pieces[at].count)
                if not 0 <= pieces[at].kind <= _LEVELS + 1 or pieces[at].size < 0:
                    raise ValueError(f"part {part}")
            total += pieces[at].size
        if total != size:
            raise ValueError(f"the parts have {total} bytes, expected {size}")
        if not -1 <= footer_at <= size:
            raise ValueError(f"a footer at {footer_at} of {size}")
        cdef char *out = NULL if room is None else room.take(size)
        cdef bint is_right = True
        cdef Py_ssize_t first = 0
        if out == NULL:
            data = PyBytes_FromStringAndSize(NULL, size)
            out = PyBytes_AS_STRING(data)
        else:
            first = room.used - size
            data = memoryview(room.memory)[first : first + size]
        cdef char *begin = out
        with nogil:
            for at in range(part_count):
                is_right = is_right and self.fill(&pieces[at], out)
                pieces[at].data = out
                out += pieces[at].size
            for at in range(part_count):
                if pieces[at].kind == _PAGE_SUM:
                    _write_page_sum(
                        pieces[at].data, pieces[at].data + _CRC_BYTES + pieces[at].start, pieces[at].count
                    )
            if footer_at >= 0:
                is_right = is_right and _seal(begin, size, footer_at)
        if not is_right:
            raise ValueError("a part isn't as large as was said")
        return data

    cdef int check_sum(self, _Piece *piece, int64_t left) except -1:
        """Does a page that is to be summed lie within so many bytes from its checksum on?"""
        cdef int64_t most = left - _CRC_BYTES
        if piece.size != _CRC_BYTES or not 0 <= piece.start <= most or not 0 <= piece.count <= most - piece.start:
            raise ValueError(f"a page of {piece.count} bytes, {piece.start} behind its checksum, in {left}")
        return 0

    cdef bint fill(self, _Piece *piece, char *out) noexcept nogil:
        """Write a piece, whose size is as said; else nothing more than that, and False."""
        cdef int64_t *times = <int64_t *>self.times.address + self.first_time
        cdef int64_t at
        if piece.kind == _BYTES:
            memcpy(out, piece.data, piece.size)
            return True
        if piece.kind == _PAGE_SUM:
            return True  # it follows once the page is there
        if piece.kind == _TIMES:
            if piece.size != piece.count * <int64_t>sizeof(int64_t):
                return False
            for at in range(piece.count):
                memcpy(out + at * sizeof(int64_t), &times[self.place(piece.start + at)], sizeof(int64_t))
            return True
        if piece.kind < _LEVELS:
            return self.fill_values(&self.columns[piece.kind - _VALUES], piece, out)
        return self.fill_levels(&self.columns[piece.kind - _LEVELS], piece, out)

    cdef bint fill_values(self, _PlainColumn *column, _Piece *piece, char *out) noexcept nogil:
        cdef int32_t *ends = column.ends
        cdef char *end = out + piece.size
        cdef int64_t at, place
        cdef int32_t length
        for at in range(piece.start, piece.start + piece.count):
            place = self.place(at)
            if not _is_set(column.bits, column.first + place):
                continue
            length = ends[place + 1] - ends[place]
            if end - out < length + <int64_t>sizeof(int32_t):
                return False
            memcpy(out, &length, sizeof(int32_t))
            memcpy(out + sizeof(int32_t), column.data + ends[place], length)
            out += sizeof(int32_t) + length
        return out == end

    cdef bint fill_levels(self, _PlainColumn *column, _Piece *piece, char *out) noexcept nogil:
        cdef int64_t at
        if piece.size != (piece.count + 7) // 8:
            return False
        memset(out, 0, piece.size)
        for at in range(piece.count):
            if _is_set(column.bits, column.first + self.place(piece.start + at)):
                out[at >> 3] |= 1 << (at & 7)
        return True
