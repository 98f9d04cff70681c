# Checksums of files ---------------------------------------------------------------------------------------------------
# CRC-32 as zlib and Parquet have it: by ISA-L, ten times as fast, where sparklog._native has found it, else by tables.
# Included by core.pyx. The twin is delta/parquet_seals.py, which says what a file's seal is.

cdef extern from *:
    """
    static uint32_t sparklog_crc32_tables[8][256];
    static void sparklog_crc32_prepare(void) {
        for (uint32_t number = 0; number < 256; number++) {
            uint32_t value = number;
            for (int bit = 0; bit < 8; bit++) {
                value = value >> 1 ^ (0xEDB88320u & (0u - (value & 1)));
            }
            sparklog_crc32_tables[0][number] = value;
        }
        for (int table = 1; table < 8; table++) {
            for (int number = 0; number < 256; number++) {
                uint32_t before = sparklog_crc32_tables[table - 1][number];
                sparklog_crc32_tables[table][number] = sparklog_crc32_tables[0][before & 255] ^ before >> 8;
            }
        }
    }
    static uint32_t sparklog_crc32_by_tables(uint32_t before, const uint8_t *data, uint64_t size) {
        uint32_t value = ~before;
        for (; size >= 8; size -= 8, data += 8) {
            value ^= (uint32_t)data[0] | (uint32_t)data[1] << 8 | (uint32_t)data[2] << 16 | (uint32_t)data[3] << 24;
            value = sparklog_crc32_tables[7][value & 255] ^ sparklog_crc32_tables[6][value >> 8 & 255]
                ^ sparklog_crc32_tables[5][value >> 16 & 255] ^ sparklog_crc32_tables[4][value >> 24]
                ^ sparklog_crc32_tables[3][data[4]] ^ sparklog_crc32_tables[2][data[5]]
                ^ sparklog_crc32_tables[1][data[6]] ^ sparklog_crc32_tables[0][data[7]];
        }
        for (; size > 0; size--, data++) {
            value = sparklog_crc32_tables[0][(value ^ *data) & 255] ^ value >> 8;
        }
        return ~value;
    }
    typedef uint32_t (*sparklog_crc32_function)(uint32_t before, const uint8_t *data, uint64_t size);
    static sparklog_crc32_function sparklog_crc32_fast = sparklog_crc32_by_tables;
    static void sparklog_crc32_use(uint64_t address) {
        sparklog_crc32_fast = (sparklog_crc32_function)(uintptr_t)address;
    }
    static uint32_t sparklog_crc32(const uint8_t *data, size_t size, uint32_t before, int by_tables) {
        return (by_tables ? sparklog_crc32_by_tables : sparklog_crc32_fast)(before, data, size);
    }
    """
    void sparklog_crc32_prepare()
    void sparklog_crc32_use(uint64_t address)
    uint32_t sparklog_crc32(const uint8_t *data, size_t size, uint32_t before, bint by_tables) noexcept nogil


sparklog_crc32_prepare()


def use_crc32(uint64_t address):
    """Take a library's function in place of the tables: ``uint32_t (uint32_t before, const uint8_t *data, uint64_t
    size)``, which does what ``zlib.crc32`` does. Whoever hands it in has tried it, and keeps the library loaded."""
    sparklog_crc32_use(address)


cdef enum:
    _MARK_BYTES = 18
    _SIZE_DIGITS = 12
    _DIGITS = 8
    _SEAL_BYTES = 28
    _CRC_BYTES = 5  # of a page's checksum in its header: a number of 32 bits, always in as many bytes
    _SUMMED_AT_ONCE = 262_144  # of more, Python's lock is given away

cdef const char *_MARK = b"\x18\x0esparklog.crc32\x18\x1c"  # of the seal among the metadata of a footer
cdef const char *_ZEROS = b"00000000"
cdef const char *_HEX = b"0123456789abcdef"


def crc32(data, uint32_t value=0, bint by_tables=False):
    """The CRC-32 of bytes, as ``zlib.crc32``: by what :func:`use_crc32` was given last, unless ``by_tables``."""
    cdef _View view = _View(data)
    if view.size < _SUMMED_AT_ONCE:
        return sparklog_crc32(<const uint8_t *>view.address, view.size, value, by_tables)
    cdef uint32_t found
    with nogil:
        found = sparklog_crc32(<const uint8_t *>view.address, view.size, value, by_tables)
    return found


cdef void _write_digits(char *out, uint64_t value, int count) noexcept nogil:
    cdef int at
    for at in range(count):
        out[at] = _HEX[(value >> (4 * (count - 1 - at))) & 15]


cdef char *_seal_of(char *footer, char *end) noexcept nogil:
    """The digits of a footer's seal, whichever; NULL: it has none."""
    cdef char *at = end - _MARK_BYTES - _SEAL_BYTES
    while at >= footer:
        if not memcmp(at, _MARK, _MARK_BYTES):
            return at + _MARK_BYTES
        at -= 1
    return NULL


cdef char *_find_seal(char *footer, char *end, int64_t size) noexcept nogil:
    """The digits of a footer's seal; NULL: it has none, or that of another file."""
    cdef char stated[_SIZE_DIGITS]
    cdef char *digits = _seal_of(footer, end)
    _write_digits(stated, size, _SIZE_DIGITS)
    return NULL if digits == NULL or memcmp(stated, digits, _SIZE_DIGITS) else digits


cdef uint32_t _sum_of_footer(char *footer, char *end, char *digits) noexcept nogil:
    """The checksum of a footer, with its last digits as zeros."""
    cdef char *own = digits + _SIZE_DIGITS + _DIGITS
    cdef uint32_t found = sparklog_crc32(<const uint8_t *>footer, own - footer, 0, False)
    found = sparklog_crc32(<const uint8_t *>_ZEROS, _DIGITS, found, False)
    return sparklog_crc32(<const uint8_t *>(own + _DIGITS), end - own - _DIGITS, found, False)


cdef bint _is_footer_right(char *footer, char *end, char *digits) noexcept nogil:
    """Has a footer, up to the end of its file, the checksum that it states?"""
    cdef char stated[_DIGITS]
    _write_digits(stated, _sum_of_footer(footer, end, digits), _DIGITS)
    return not memcmp(stated, digits + _SIZE_DIGITS + _DIGITS, _DIGITS)


cdef bint _is_sealed(
    char *data, int64_t size, int64_t footer_at, uint32_t first_sum, int64_t first_count
) noexcept nogil:
    """Has a file a seal, and are all of its bytes as they were when it was sealed?

    Args:
        first_sum, first_count: the checksum of so many first bytes, 0 of none.
    """
    cdef char stated[_DIGITS]
    cdef char *digits = _find_seal(data + footer_at, data + size, size)
    if digits == NULL or not _is_footer_right(data + footer_at, data + size, digits):
        return False
    if first_count > footer_at:
        first_sum, first_count = 0, 0
    _write_digits(
        stated,
        sparklog_crc32(<const uint8_t *>(data + first_count), footer_at - first_count, first_sum, False),
        _DIGITS,
    )
    return not memcmp(stated, digits + _SIZE_DIGITS, _DIGITS)


cdef bint _seal(char *data, int64_t size, int64_t footer_at) noexcept nogil:
    """Write the digits of a file's seal; False: there is no room for it."""
    cdef char *digits = _seal_of(data + footer_at, data + size)
    if digits == NULL:
        return False
    _write_digits(digits, size, _SIZE_DIGITS)
    _write_digits(digits + _SIZE_DIGITS, sparklog_crc32(<const uint8_t *>data, footer_at, 0, False), _DIGITS)
    _write_digits(
        digits + _SIZE_DIGITS + _DIGITS, _sum_of_footer(data + footer_at, data + size, digits), _DIGITS
    )
    return True


cdef void _write_page_sum(char *out, const char *page, int64_t size) noexcept nogil:
    """Write the checksum of a page as its header has it: a signed number, by Thrift's compact protocol."""
    cdef uint32_t found = sparklog_crc32(<const uint8_t *>page, size, 0, False)
    cdef int at
    found = (found << 1) ^ (<uint32_t>0 - (found >> 31))
    for at in range(_CRC_BYTES):
        out[at] = <char>(found & 0x7F | (0x80 if at < _CRC_BYTES - 1 else 0))
        found >>= 7


cdef int64_t _footer_of(const char *data, int64_t size) noexcept nogil:
    """Where the footer of a file begins; -1: it has none."""
    cdef uint32_t footer_size
    if size <= _END_OF_FILE + 4 or memcmp(data + size - 4, b"PAR1", 4):
        return -1
    memcpy(&footer_size, data + size - _END_OF_FILE, sizeof(footer_size))
    return -1 if footer_size > size - _END_OF_FILE - 4 else size - _END_OF_FILE - <int64_t>footer_size


def is_sealed(data):
    """Are the bytes of a whole file as they were when it was sealed? None: it has no seal of its own, or no footer."""
    cdef _View view = _View(data)
    cdef int64_t footer_at = _footer_of(view.address, view.size)
    cdef bint is_right
    if footer_at < 0 or _find_seal(view.address + footer_at, view.address + view.size, view.size) == NULL:
        return None
    if view.size < _SUMMED_AT_ONCE:
        return _is_sealed(view.address, view.size, footer_at, 0, 0)
    with nogil:
        is_right = _is_sealed(view.address, view.size, footer_at, 0, 0)
    return is_right


def seal_pages(bytes data, tuple pages, int64_t footer_at):
    """A file with the checksums of its pages and its seal, whose places it has.

    Args:
        pages: of each page where its checksum is, where it begins and where it ends, one after the other.
        footer_at: where the footer begins.
    """
    cdef int64_t size = PyBytes_GET_SIZE(data)
    cdef int64_t at, start, stop
    cdef Py_ssize_t page
    if not 0 <= footer_at <= size:
        raise ValueError(f"a footer at {footer_at} of {size}")
    found = PyBytes_FromStringAndSize(PyBytes_AS_STRING(data), size)
    cdef char *out = PyBytes_AS_STRING(found)
    for page in range(len(pages) // 3):
        at, start, stop = pages[3 * page], pages[3 * page + 1], pages[3 * page + 2]
        if not 0 <= at <= at + _CRC_BYTES <= start <= stop <= size:
            raise ValueError(f"a page from {start} to {stop} of {size}, its checksum at {at}")
        _write_page_sum(out + at, out + start, stop - start)
    if not _seal(out, size, footer_at):
        raise ValueError("no place for a seal")
    return found
