# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""What happens once per record, and nothing else: records into Arrow buffers and out of them, hashes, orders, varints.

Whoever uses this has a twin in pure Python with the same results: ``producer/pure_accumulator.py``, and functions in
``producer/prepared_batch.py``, ``consumer/records.py``, ``log/data/murmur2.py``, ``log/data/varints.py`` and
``gateway/records/``. What a record may be, where it goes and when it is sent is decided elsewhere.

Rules of this file. A caller's thread may be interrupted, and another one may run, wherever Python code does: also in
the garbage collector, which may run wherever an object is made that it looks after, and wherever the last reference to
one is dropped. So a method that changes a state makes its objects first, and then changes it without a call of Python.
It is this, with the GIL, that guards an :class:`Accumulator`: the module isn't safe without a GIL, doesn't say that it
is, and an interpreter that is built without one therefore turns it on as it imports the module.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_FillInfo, PyBuffer_Release, PyObject_GetBuffer
from cpython.mem cimport PyMem_RawCalloc, PyMem_RawFree, PyMem_RawMalloc, PyMem_RawRealloc
from cpython.object cimport PyTypeObject
from cpython.ref cimport Py_INCREF
from cpython.tuple cimport PyTuple_SET_ITEM
from libc.stdint cimport INT32_MAX, INT64_MIN, int8_t, int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy, memmove, memset

cdef extern from *:
    """
    #include <time.h>
    #include <sys/mman.h>
    #ifndef SPARKLOG_CORE_CHECKSUM
    #define SPARKLOG_CORE_CHECKSUM ""
    #endif
    static int64_t sparklog_now_ns(void) {
        struct timespec now;
        timespec_get(&now, TIME_UTC);
        return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
    }
    static char *sparklog_map(size_t size) {
        void *address = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANON, -1, 0);
        return address == MAP_FAILED ? NULL : (char *)address;
    }
    static void sparklog_unmap(char *address, size_t size) {
        munmap(address, size);
    }
    static PyObject *sparklog_new_future(PyTypeObject *type, PyObject *nothing) {
        return type->tp_new(type, nothing, NULL);
    }
    static PyObject *sparklog_new_tuple(PyTypeObject *type, Py_ssize_t size) {
        PyObject *made = type->tp_alloc(type, size);
    #if PY_VERSION_HEX >= 0x030E0000
        if (made != NULL) {
            ((PyTupleObject *)made)->ob_hash = -1;  /* not computed yet */
        }
    #endif
        return made;
    }
    """
    const char *SPARKLOG_CORE_CHECKSUM
    int64_t sparklog_now_ns() nogil
    char *sparklog_map(size_t size) noexcept nogil
    void sparklog_unmap(char *address, size_t size) noexcept nogil
    object sparklog_new_future(PyTypeObject *type, object nothing)
    object sparklog_new_tuple(PyTypeObject *type, Py_ssize_t size)

cdef extern from "Python.h":
    void PyObject_GC_UnTrack(void *)
    bint PyGC_Disable()
    bint PyGC_Enable()
    object PyByteArray_FromStringAndSize(const char *, Py_ssize_t)
    char *PyByteArray_AS_STRING(object)

CHECKSUM = SPARKLOG_CORE_CHECKSUM.decode()
"""Of the source that this was compiled from."""

cdef int64_t _NS_PER_MS = 1_000_000
cdef tuple _NOTHING = ()
cdef char *_NO_BYTES = b""


# Blocks: for what a producer gathers, and for the files that it makes of it, again and again. The system's allocator
# would keep several times as much, in pieces between which nothing fits; and to touch new pages takes as long as to
# fill them.
cdef enum:
    _BLOCK_BYTES = 8_388_608  # what an upload holds at most, and a third; pages that nobody touches take no memory
    _LEAST_BLOCK_BYTES = 524_288
    _MOST_KEPT = 3

cdef char *_kept[_MOST_KEPT]
cdef int _kept_count = 0


cdef char *_take_block() noexcept:
    """A block of whatever bytes; NULL: there is no memory."""
    global _kept_count
    if _kept_count:
        _kept_count -= 1
        return _kept[_kept_count]
    return sparklog_map(_BLOCK_BYTES)


cdef void _give_block(char *address) noexcept:
    global _kept_count
    if _kept_count < _MOST_KEPT:
        _kept[_kept_count] = address
        _kept_count += 1
    else:
        sparklog_unmap(address, _BLOCK_BYTES)


cdef class Memory:
    """Bytes outside of Python's heap, which it frees at its end; any buffer's user can read them."""

    cdef char *address
    cdef Py_ssize_t size
    cdef bint is_block

    def __dealloc__(self):
        if self.is_block:
            _give_block(self.address)
        else:
            PyMem_RawFree(self.address)

    def __getbuffer__(self, Py_buffer *view, int flags):
        cdef char *address = self.address if self.address != NULL else _NO_BYTES  # Arrow refuses a null pointer
        PyBuffer_FillInfo(view, self, address, self.size, 1, flags)

    def __len__(self):
        return self.size


cdef Memory _owned(char *address, Py_ssize_t size, bint is_block=False):
    """Memory that was allocated before."""
    cdef Memory memory = Memory.__new__(Memory)
    memory.address = address
    memory.size = size
    memory.is_block = is_block
    return memory


cdef Memory _new_memory(Py_ssize_t size):
    cdef Memory memory = Memory.__new__(Memory)
    memory.address = <char *>PyMem_RawMalloc(size or 1)
    if memory.address == NULL:
        raise MemoryError(size)
    memory.size = size
    return memory


cdef class _View:
    """Somebody else's buffer, for as long as this lives; None: an empty one."""

    cdef Py_buffer buffer
    cdef bint is_held
    cdef char *address
    cdef Py_ssize_t size

    def __cinit__(self, given, bint is_writable=False):
        if given is not None:
            PyObject_GetBuffer(given, &self.buffer, PyBUF_WRITABLE if is_writable else PyBUF_SIMPLE)
            self.is_held = True
            self.address = <char *>self.buffer.buf
            self.size = self.buffer.len

    def __dealloc__(self):
        if self.is_held:
            PyBuffer_Release(&self.buffer)


include "typed_values.pxi"


# Gathering ------------------------------------------------------------------------------------------------------------


cdef class FutureBase:
    """The attributes of a future: its batch, and the place of its record there."""

    cdef public object _batch
    cdef public Py_ssize_t _index


cdef struct _Binary:
    char *data
    bint is_block
    int64_t size
    int64_t capacity
    int32_t *ends
    uint8_t *is_valid
    int64_t null_count


cdef inline int _reserve_data(_Binary *column, int64_t more) noexcept:
    """Make room for so many bytes. -1: there is no memory; -2: they would be too many for one column."""
    cdef int64_t wanted = column.size + more
    if wanted <= column.capacity:
        return 0
    if wanted > INT32_MAX:
        return -2
    return _grow_data(column, wanted)


cdef int _grow_data(_Binary *column, int64_t wanted) noexcept:
    """Move a column to more memory, of a block where it fits into one and is large."""
    cdef int64_t capacity = column.capacity * 2 if column.capacity * 2 > wanted else wanted + 256
    cdef bint is_block = _LEAST_BLOCK_BYTES <= wanted <= _BLOCK_BYTES
    cdef char *data
    if not is_block and not column.is_block:
        data = <char *>PyMem_RawRealloc(column.data, capacity)
        if data == NULL:
            return -1
    else:
        data = _take_block() if is_block else <char *>PyMem_RawMalloc(capacity)
        if data == NULL:
            return -1
        if column.size:
            memcpy(data, column.data, column.size)
        _free_data(column)
    column.data, column.is_block = data, is_block
    column.capacity = _BLOCK_BYTES if is_block else capacity
    return 0


cdef void _free_data(_Binary *column) noexcept:
    if column.is_block:
        _give_block(column.data)
    else:
        PyMem_RawFree(column.data)


cdef inline int _reserve_rows(_Binary *column, int64_t capacity) noexcept:
    cdef bint is_new = column.ends == NULL
    cdef void *moved = PyMem_RawRealloc(column.ends, (capacity + 1) * sizeof(int32_t))
    if moved == NULL:
        return -1
    column.ends = <int32_t *>moved
    if is_new:
        column.ends[0] = 0
    moved = PyMem_RawRealloc(column.is_valid, capacity)
    if moved == NULL:
        return -1
    column.is_valid = <uint8_t *>moved
    return 0


cdef inline void _put(_Binary *column, int64_t row, object value) noexcept:
    """Add bytes or None, for which there is room."""
    if value is None:
        _put_null(column, row)
    else:
        _put_bytes(column, row, PyBytes_AS_STRING(value), PyBytes_GET_SIZE(value))


cdef inline void _put_null(_Binary *column, int64_t row) noexcept:
    column.is_valid[row] = 0
    column.null_count += 1
    column.ends[row + 1] = <int32_t>column.size


cdef inline void _put_bytes(_Binary *column, int64_t row, const char *data, Py_ssize_t size) noexcept:
    memcpy(column.data + column.size, data, size)
    column.is_valid[row] = 1
    column.size += size
    column.ends[row + 1] = <int32_t>column.size


cdef void _free(_Binary *column) noexcept:
    _free_data(column)
    PyMem_RawFree(column.ends)
    PyMem_RawFree(column.is_valid)
    memset(column, 0, sizeof(_Binary))


cdef class Accumulator:
    """The records of a batch, as Arrow keeps them.

    ``append`` adds a record whole or not at all, whatever is interrupted; ``take`` gives them away, once.
    """

    cdef readonly int64_t count
    """Records that were added, also once they are taken."""
    cdef public int64_t size_bytes
    """What they count against the buffer."""
    cdef public int64_t room_bytes
    """How large it may grow by records that ask nobody."""
    cdef dict details
    cdef _Binary keys
    cdef _Binary values
    cdef _Binary rows  # packed values, from the first on; null where a value isn't packed
    cdef Packer packer
    cdef int64_t *times_ms
    cdef int64_t capacity
    cdef bint is_closed

    def __dealloc__(self):
        self.free()

    cdef void free(self) noexcept:
        _free(&self.keys)
        _free(&self.values)
        _free(&self.rows)
        PyMem_RawFree(self.times_ms)
        self.times_ms = NULL
        self.capacity = 0

    cdef int grow(self) noexcept:
        cdef int64_t capacity = self.capacity * 2 if self.capacity else 16
        if _reserve_rows(&self.keys, capacity) or _reserve_rows(&self.values, capacity):
            return -1
        if self.packer is not None and _reserve_rows(&self.rows, capacity):
            return -1
        cdef void *moved = PyMem_RawRealloc(self.times_ms, capacity * sizeof(int64_t))
        if moved == NULL:
            return -1
        self.times_ms = <int64_t *>moved
        self.capacity = capacity
        return 0

    cdef inline int add(self, object key, object value, Packer packer, int64_t now_ns, int64_t size_bytes) noexcept:
        """Add a record of bytes or None, without a call of Python. Less than 0: nothing was added.

        Args:
            packer: has packed the value, which is None then; None: it is bytes.
        """
        cdef int failed
        if self.is_closed:
            return -3
        if packer is not None and self.packer is not packer:
            failed = self.begin_rows(packer)
            if failed:
                return failed
        if self.count == self.capacity and self.grow():
            return -1
        failed = _reserve_data(&self.keys, 0 if key is None else PyBytes_GET_SIZE(key))
        if not failed:
            failed = _reserve_data(&self.values, 0 if value is None else PyBytes_GET_SIZE(value))
        if not failed and packer is not None:
            failed = _reserve_data(&self.rows, packer.packed.size)
        if failed:
            return failed
        _put(&self.keys, self.count, key)
        _put(&self.values, self.count, value)
        if packer is not None:
            _put_bytes(&self.rows, self.count, packer.packed.data, packer.packed.size)
        elif self.packer is not None:
            _put_null(&self.rows, self.count)
        self.times_ms[self.count] = now_ns // _NS_PER_MS - (now_ns % _NS_PER_MS < 0)
        self.size_bytes += size_bytes
        self.count += 1
        return 0

    cdef int begin_rows(self, Packer packer) noexcept:
        """Make room for packed values; those before are null."""
        cdef int64_t row
        if self.packer is not None:
            return _NOT_PLAIN  # values of one schema fill a batch
        if self.capacity and _reserve_rows(&self.rows, self.capacity):
            return -1
        for row in range(self.count):
            _put_null(&self.rows, row)
        self.packer = packer
        return 0

    def append(self, bytes key, bytes value, int64_t now_ns, details, int64_t size_bytes):
        """Add a record. Returns its place; None: there is no room.

        Raises ``OverflowError``: more than 2**31 - 1 bytes of keys or of values; ``ValueError``: they were taken.
        """
        if details is not None and self.details is None:
            self.details = {}
        cdef int64_t at = self.count  # from here on nothing of Python runs
        place = at
        if self.size_bytes + size_bytes > self.room_bytes:
            return None
        if details is not None:
            self.details[place] = details
        cdef int failed = self.add(key, value, None, now_ns, size_bytes)
        if failed:
            if details is not None:
                self.details.pop(place, None)
            _raise(failed)
        return place

    def take(self):
        """The records: their number, times (int64 ms), keys and values (each validity, offsets and data), details; and
        the type and the columns of packed values, or None.

        Validity is one byte a value, None without nulls; offsets are int32. Details are by place. Columns are as of
        ``_column_parts``, null where a value isn't packed.
        """
        cdef int64_t count = 0 if self.is_closed else self.count
        self.is_closed = True
        self.room_bytes = 0
        cdef _Binary keys = self.keys
        cdef _Binary values = self.values
        cdef _Binary rows = self.rows
        cdef Memory times = _owned(<char *>self.times_ms, count * sizeof(int64_t))
        memset(&self.keys, 0, sizeof(_Binary))
        memset(&self.values, 0, sizeof(_Binary))
        memset(&self.rows, 0, sizeof(_Binary))
        self.times_ms = NULL
        self.capacity = 0
        packer, self.packer = self.packer, None
        details, self.details = self.details, None
        key_parts = _parts(&keys, count)
        value_parts = _parts(&values, count)
        try:
            columns = (packer.type, _columns_of(packer, &rows, count)) if packer is not None and count else None
        finally:
            _free(&rows)
        return count, times, key_parts, value_parts, details or {}, columns

    def drop(self):
        """Free the records: nobody will take them."""
        self.is_closed = True
        self.room_bytes = 0
        self.free()
        packer, self.packer = self.packer, None
        self.details = None


cdef tuple _parts(_Binary *column, int64_t count):
    cdef Memory data = _owned(column.data, column.size, column.is_block)
    cdef Memory is_valid = _owned(<char *>column.is_valid, count)
    cdef Memory ends
    if column.ends != NULL:
        ends = _owned(<char *>column.ends, (count + 1) * sizeof(int32_t))
    else:
        ends = _new_memory(sizeof(int32_t))
        memset(ends.address, 0, sizeof(int32_t))
    return (is_valid if column.null_count else None), ends, data


cdef object _raise(int failed):
    if failed == -1:
        raise MemoryError
    if failed == -2:
        raise OverflowError("a batch holds at most 2**31 - 1 bytes of keys, and of values")
    raise ValueError("the records of this batch were taken")


cdef class Gatherer:
    """Adds plain records to whichever batch is open, and returns their futures."""

    cdef public int64_t max_record_bytes
    """Most bytes of key and value together."""
    cdef public int64_t overhead_bytes
    """Bytes that a record counts beside its key and value."""
    cdef public Packer packer
    """Packs values that are dicts; None: they aren't plain."""
    cdef object _batch
    cdef Accumulator _records
    cdef object _clock
    cdef object _lock
    cdef bint _is_system_clock
    cdef type _future_type

    def __init__(self, type future_type, clock, lock, int64_t overhead_bytes):
        """
        Args:
            future_type: made without arguments; a :class:`FutureBase`.
            clock: returns nanoseconds since 1970.
            lock: guards the open batch in Python. Python's own isn't taken: the GIL is enough. Another's is: in a
                simulation, whoever takes it may have to wait for another thread's turn.
            overhead_bytes: that a record counts beside its key and value.
        """
        import _thread
        import time

        if not issubclass(future_type, FutureBase):
            raise TypeError(f"future_type: got {future_type!r}, expected a subclass of FutureBase")
        self._future_type = future_type
        self._clock = clock
        self._is_system_clock = clock is time.time_ns
        self.overhead_bytes = overhead_bytes
        self._lock = None if type(lock) is _thread.LockType else lock

    @property
    def open(self):
        """The batch that records are added to, or None."""
        return self._batch

    @open.setter
    def open(self, batch):
        cdef Accumulator records = None if batch is None else batch.records
        former, former_records = self._batch, self._records  # let go of at the end: that may run Python code
        self._batch = batch
        self._records = records

    def add_plain(self, key, value):
        """Add a record of bytes or None, or with a dict that the packer takes as its value, as of now.

        Returns:
            Its future; None: it is something else, or too large, or no batch is open that has room.
        """
        cdef int64_t size = 0
        if type(value) is bytes:
            size = PyBytes_GET_SIZE(value)
        elif value is not None and (type(value) is not dict or self.packer is None):
            return None
        if type(key) is bytes:
            size += PyBytes_GET_SIZE(key)
        elif key is not None:
            return None
        if size > self.max_record_bytes:
            return None
        if self._lock is None:
            return self.add_record(key, value, size)
        with self._lock:
            return self.add_record(key, value, size)

    def add_detailed(self, key, value, details, int64_t size, int64_t memory_bytes):
        """Add a record with a dict that the packer takes as its value, and with details, which may be None.

        Args:
            key: bytes or None.
            size: of key and headers.
            memory_bytes: that it counts beside its value.
        Returns:
            Its future; None as for ``add_plain``.
        """
        if type(value) is not dict or self.packer is None or size > self.max_record_bytes:
            return None
        if self._lock is None:
            return self.add_record_with(key, value, details, size, memory_bytes)
        with self._lock:
            return self.add_record_with(key, value, details, size, memory_bytes)

    cdef object add_record_with(self, object key, object value, object details, int64_t size, int64_t memory_bytes):
        cdef Packer packer = self.packer
        if packer is None or self._records is None:
            return None
        cdef dict first_details = {} if details is not None and self._records.details is None else None
        if packer.prepare is not None:
            value = packer.prepare(value)
            if value is None:
                return None
        cdef FutureBase future = sparklog_new_future(<PyTypeObject *>self._future_type, _NOTHING)
        cdef int64_t now_ns = sparklog_now_ns() if self._is_system_clock else self._clock()
        cdef Accumulator records = self._records  # from here on nothing of Python runs
        if records is None or (details is not None and records.details is None and first_details is None):
            return None
        if packer.pack(value) or size + packer.packed.counted > self.max_record_bytes:
            return None
        memory_bytes += packer.packed.size
        if records.size_bytes + memory_bytes > records.room_bytes:
            return None
        future._batch = self._batch
        future._index = records.count
        place = records.count
        if details is not None:
            if records.details is None:
                records.details = first_details
            records.details[place] = details
        cdef int failed = records.add(key, None, packer, now_ns, memory_bytes)
        if failed and details is not None:
            records.details.pop(place, None)
        if failed == _NOT_PLAIN:
            return None
        if failed:
            _raise(failed)
        return future

    cdef object add_record(self, object key, object value, int64_t size):
        if self._records is None:
            return None
        cdef Packer packer = self.packer if type(value) is dict else None
        if packer is not None and packer.prepare is not None:
            value = packer.prepare(value)
            if value is None:
                return None
        cdef FutureBase future = sparklog_new_future(<PyTypeObject *>self._future_type, _NOTHING)
        cdef int64_t now_ns = sparklog_now_ns() if self._is_system_clock else self._clock()
        cdef Accumulator records = self._records  # from here on nothing of Python runs
        if packer is not None:
            if packer.pack(value) or size + packer.packed.counted > self.max_record_bytes:
                return None
            size += packer.packed.size
            value = None
        size += self.overhead_bytes
        if records is None or records.size_bytes + size > records.room_bytes:
            return None
        future._batch = self._batch
        future._index = records.count
        cdef int failed = records.add(key, value, packer, now_ns, size)
        if failed == _NOT_PLAIN:
            return None
        if failed:
            _raise(failed)
        return future


# Columns --------------------------------------------------------------------------------------------------------------


cdef class _Ends:
    """The bounds of a binary array's values, checked against its data."""

    cdef _View offsets_view
    cdef _View data_view
    cdef int32_t *offsets
    cdef char *data

    def __cinit__(self, offsets, data, int64_t first, int64_t count):
        self.offsets_view, self.data_view = _View(offsets), _View(data)
        if first < 0 or count < 0 or (count and (first + count + 1) * <int64_t>sizeof(int32_t) > self.offsets_view.size):
            raise ValueError(f"{self.offsets_view.size} bytes of offsets: too few for {count} values from {first} on")
        self.offsets = <int32_t *>self.offsets_view.address + first
        self.data = self.data_view.address
        cdef int64_t at
        cdef int32_t before = self.offsets[0] if count else 0
        cdef bint is_wrong = before < 0
        for at in range(count):
            is_wrong |= self.offsets[at + 1] < before
            before = self.offsets[at + 1]
        if is_wrong or before > self.data_view.size:
            raise ValueError(f"offsets of binary values aren't ascending within {self.data_view.size} bytes")


cdef uint32_t _murmur2(const uint8_t *data, int32_t size) noexcept nogil:
    cdef uint32_t h = <uint32_t>0x9747B28C ^ <uint32_t>size
    cdef uint32_t k
    cdef int32_t at
    for at in range(size // 4):
        k = (
            <uint32_t>data[4 * at]
            | <uint32_t>data[4 * at + 1] << 8
            | <uint32_t>data[4 * at + 2] << 16
            | <uint32_t>data[4 * at + 3] << 24
        )
        k *= 0x5BD1E995
        k ^= k >> 24
        k *= 0x5BD1E995
        h *= 0x5BD1E995
        h ^= k
    cdef int32_t rest = size & 3
    cdef int32_t tail = size - rest
    if rest == 3:
        h ^= <uint32_t>data[tail + 2] << 16
    if rest >= 2:
        h ^= <uint32_t>data[tail + 1] << 8
    if rest >= 1:
        h ^= data[tail]
        h *= 0x5BD1E995
    h ^= h >> 13
    h *= 0x5BD1E995
    return h ^ (h >> 15)


def murmur2_hashes(offsets, data, int64_t first, int64_t count):
    """The hash of each value of a binary array, as a buffer of uint32. Without the GIL.

    Args:
        offsets: buffer of int32. data: buffer, or None. first: the array's first value in them.
    """
    cdef _Ends ends = _Ends(offsets, data, first, count)
    cdef Memory hashes = _new_memory(count * sizeof(uint32_t))
    cdef uint32_t *out = <uint32_t *>hashes.address
    cdef int64_t at
    with nogil:
        for at in range(count):
            out[at] = _murmur2(<uint8_t *>ends.data + ends.offsets[at], ends.offsets[at + 1] - ends.offsets[at])
    return hashes


def order_of(numbers, int32_t bound):
    """The places of small numbers in ascending order, equal ones in theirs, without those below 0. Without the GIL.

    Args:
        numbers: buffer of int32, each below ``bound``.
    Returns:
        A buffer of int64; and a buffer with the count (int64) of each number from 0 on.
    """
    cdef _View view = _View(numbers)
    cdef int32_t *given = <int32_t *>view.address
    cdef int64_t count = view.size // <int64_t>sizeof(int32_t)
    cdef Memory counts = _new_memory(bound * sizeof(int64_t))
    cdef Memory starts = _new_memory(bound * sizeof(int64_t))
    cdef int64_t *counted = <int64_t *>counts.address
    cdef int64_t *start = <int64_t *>starts.address
    cdef int64_t at
    cdef int64_t total = 0
    cdef bint is_wrong = False
    memset(counted, 0, bound * sizeof(int64_t))
    with nogil:
        for at in range(count):
            if given[at] >= bound:
                is_wrong = True
            elif given[at] >= 0:
                counted[given[at]] += 1
        for at in range(bound):
            start[at] = total
            total += counted[at]
    if is_wrong:
        raise ValueError(f"a number is {bound} or more")
    cdef Memory order = _new_memory(total * sizeof(int64_t))
    cdef int64_t *out = <int64_t *>order.address
    with nogil:
        for at in range(count):
            if given[at] >= 0:
                out[start[given[at]]] = at
                start[given[at]] += 1
    return order, counts


def take_binary(offsets, data, int64_t first, int64_t count, order):
    """The values of a binary array in another order, as buffers of int32 offsets and of data. Without the GIL.

    Args:
        order: buffer of int64: places below ``count``, each at most once.
    """
    cdef _Ends ends = _Ends(offsets, data, first, count)
    cdef _View view = _View(order)
    cdef int64_t *places = <int64_t *>view.address
    cdef int64_t size = view.size // <int64_t>sizeof(int64_t)
    cdef Memory moved_ends = _new_memory((size + 1) * sizeof(int32_t))
    cdef int32_t *out_ends = <int32_t *>moved_ends.address
    cdef int64_t at, start
    cdef int64_t total = 0
    cdef int64_t length
    cdef bint is_wrong = False
    out_ends[0] = 0
    with nogil:
        for at in range(size):
            if places[at] < 0 or places[at] >= count:
                is_wrong = True
                break
            total += ends.offsets[places[at] + 1] - ends.offsets[places[at]]
            if total > INT32_MAX:
                is_wrong = True
                break
            out_ends[at + 1] = <int32_t>total
    if is_wrong:
        raise ValueError(f"places: expected 0 to {count - 1}, each at most once")
    cdef Memory moved = _new_memory(total)
    with nogil:
        for at in range(size):
            start = ends.offsets[places[at]]
            length = ends.offsets[places[at] + 1] - start
            memcpy(moved.address + out_ends[at], ends.data + start, length)
    return moved_ends, moved


# Records --------------------------------------------------------------------------------------------------------------


cdef inline bint _is_set(char *bits, int64_t at) noexcept nogil:
    return bits == NULL or <uint8_t>bits[at >> 3] >> (at & 7) & 1


cdef _View _validity(bits, int64_t end):
    cdef _View view = _View(bits)
    if bits is not None and view.size * 8 < end:
        raise ValueError(f"{view.size} bytes of validity: too few for {end} values")
    return view


cdef _View _numbers(buffer, int64_t end):
    cdef _View view = _View(buffer)
    if view.size < end * <int64_t>sizeof(int64_t):
        raise ValueError(f"{view.size} bytes: too few for {end} numbers")
    return view


cdef inline bint _is_atomic(object value):
    kind = type(value)
    return value is None or kind is bytes or kind is str or kind is int or kind is float


cdef inline void _set(object record, Py_ssize_t at, object value):
    Py_INCREF(value)
    PyTuple_SET_ITEM(record, at, value)


def make_records(
    type record_type, tuple constants, tuple offsets, tuple timestamps, tuple keys, tuple values, int64_t count,
    headers, header_sizes, key_function, value_function, bint is_key_alone, bint is_value_alone
):
    """The records of some columns; arguments and results as of :func:`_make_records`.

    What the functions make stays alive until all are made, so the garbage collector would find nothing in it, again and
    again: it rests meanwhile, where it was on. An interrupt comes within a function, and it is on again afterwards.
    """
    cdef bint was_on = (key_function is not None or value_function is not None) and PyGC_Disable()
    try:
        return _make_records(
            record_type, constants, offsets, timestamps, keys, values, count,
            headers, header_sizes, key_function, value_function, is_key_alone, is_value_alone,
        )
    finally:
        if was_on:
            PyGC_Enable()


cdef tuple _make_records(
    type record_type, tuple constants, tuple offsets, tuple timestamps, tuple keys, tuple values, int64_t count,
    headers, header_sizes, key_function, value_function, bint is_key_alone, bint is_value_alone
):
    """The records of some columns, and why the next one couldn't be made.

    Args:
        record_type: a tuple of 13 fields, as ``ConsumerRecord``.
        constants: topic, partition, leader epoch, timestamp type, headers of a record without.
        offsets: int64; timestamps: int64 microseconds; keys, values: binary. Each as its buffers and its offset.
        headers, header_sizes: lists, or None where no record has any.
        key_function, value_function: called with topic, headers and bytes; None: the bytes stay. None isn't passed.
        is_key_alone, is_value_alone: call them with the bytes alone.
    Returns:
        A list; and None, or the number of the field that its function failed at, and the exception. A record whose key
        and value refer to nothing is none of the garbage collector's business.
    """
    if not issubclass(record_type, tuple):
        raise TypeError(f"record_type: got {record_type!r}, expected a subclass of tuple")
    topic, partition, epoch, timestamp_type, no_headers = constants
    cdef int64_t first_offset = offsets[2], first_time = timestamps[2], first_key = keys[3], first_value = values[3]
    cdef _View offset_view = _numbers(offsets[1], first_offset + count)
    cdef _View time_view = _numbers(timestamps[1], first_time + count)
    cdef _View time_bits = _validity(timestamps[0], first_time + count)
    cdef _View key_bits = _validity(keys[0], first_key + count)
    cdef _View value_bits = _validity(values[0], first_value + count)
    cdef _Ends key_ends = None if keys[1] is None else _Ends(keys[1], keys[2], first_key, count)
    cdef _Ends value_ends = None if values[1] is None else _Ends(values[1], values[2], first_value, count)
    if (headers is not None and not len(headers) == len(header_sizes) == count) or count < 0:
        raise ValueError(f"headers: expected {count}")
    cdef list made = []
    cdef int64_t at, time_us
    cdef int64_t last_time_us = 0
    cdef int32_t start
    cdef Py_ssize_t key_size, value_size
    minus_one = -1
    time_ms = 0
    field = 6
    try:
        for at in range(count):
            own_headers = no_headers if headers is None else headers[at]
            if not _is_set(time_bits.address, first_time + at):
                record_time = minus_one
            else:
                time_us = (<int64_t *>time_view.address)[first_time + at]
                if time_us != last_time_us:
                    last_time_us = time_us
                    time_ms = time_us // 1000 - (time_us % 1000 < 0)
                record_time = time_ms
            key, key_size = None, -1
            if key_ends is not None and _is_set(key_bits.address, first_key + at):
                start = key_ends.offsets[at]
                key_size = key_ends.offsets[at + 1] - start
                key = PyBytes_FromStringAndSize(key_ends.data + start, key_size)
                if key_function is not None:
                    field = 6
                    key = key_function(key) if is_key_alone else key_function(topic, own_headers, key)
            value, value_size = None, -1
            if value_ends is not None and _is_set(value_bits.address, first_value + at):
                start = value_ends.offsets[at]
                value_size = value_ends.offsets[at + 1] - start
                value = PyBytes_FromStringAndSize(value_ends.data + start, value_size)
                if value_function is not None:
                    field = 7
                    value = value_function(value) if is_value_alone else value_function(topic, own_headers, value)
            offset = (<int64_t *>offset_view.address)[first_offset + at]
            key_length, value_length = key_size, value_size
            header_size = minus_one if headers is None else header_sizes[at]
            record = sparklog_new_tuple(<PyTypeObject *>record_type, 13)
            _set(record, 0, topic)
            _set(record, 1, partition)
            _set(record, 2, epoch)
            _set(record, 3, offset)
            _set(record, 4, record_time)
            _set(record, 5, timestamp_type)
            _set(record, 6, key)
            _set(record, 7, value)
            _set(record, 8, own_headers)
            _set(record, 9, None)
            _set(record, 10, key_length)
            _set(record, 11, value_length)
            _set(record, 12, header_size)
            if own_headers is no_headers and _is_atomic(key) and _is_atomic(value):
                PyObject_GC_UnTrack(<void *>record)
            made.append(record)
    except Exception as error:
        if key_function is None and value_function is None:
            raise
        return made, (field, error)
    return made, None


include "checksums.pxi"
include "local_files.pxi"
include "plain_files.pxi"
include "plain_reading.pxi"
include "record_batches.pxi"
include "plain_batches.pxi"
include "column_reading.pxi"
include "plain_runs.pxi"
