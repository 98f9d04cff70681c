"""Values of typed topics: a dict is packed into bytes when it is sent, and packed values become Arrow's columns later.

A part of ``core.pyx``. What is packed never leaves the process. A value that isn't as plain as a :class:`Packer` wants
it (of a subclass, with a time in another zone than UTC, or one that the schema doesn't allow)
isn't packed: ``schemas/records.py`` checks it, takes it or says what is wrong with it.

Packed, a struct is its fields in the schema's order, a list its length and its elements, a map its length, and its keys
and values in turn. Each but a key begins with a byte that is 0 for null.
"""

from cpython.datetime cimport (
    PyDate_CheckExact,
    PyDateTime_CheckExact,
    PyDateTime_DATE_GET_HOUR,
    PyDateTime_DATE_GET_MICROSECOND,
    PyDateTime_DATE_GET_MINUTE,
    PyDateTime_DATE_GET_SECOND,
    PyDateTime_GET_DAY,
    PyDateTime_GET_MONTH,
    PyDateTime_GET_YEAR,
    datetime_tzinfo,
    get_utc,
    import_datetime,
)
from cpython.long cimport PyLong_CheckExact
from libc.math cimport fabs, isfinite

cdef extern from "Python.h":
    ctypedef struct PyObject:
        pass
    PyObject *Py_None
    PyObject *Py_True
    PyObject *Py_False
    bint PyDict_CheckExact(PyObject *)
    Py_ssize_t PyDict_Size(PyObject *)
    bint PyDict_Next(PyObject *, Py_ssize_t *, PyObject **, PyObject **)
    PyObject *PyDict_GetItem(PyObject *, PyObject *)
    bint PyList_CheckExact(PyObject *)
    Py_ssize_t PyList_GET_SIZE(PyObject *)
    PyObject *PyList_GET_ITEM(PyObject *, Py_ssize_t)
    bint PyTuple_CheckExact(PyObject *)
    Py_ssize_t PyTuple_GET_SIZE(PyObject *)
    PyObject *PyTuple_GET_ITEM(PyObject *, Py_ssize_t)
    bint PyUnicode_CheckExact(PyObject *)
    const char *PyUnicode_AsUTF8AndSize(PyObject *, Py_ssize_t *)
    bint PyBytes_CheckExact(PyObject *)
    bint PyFloat_CheckExact(PyObject *)
    double PyFloat_AS_DOUBLE(PyObject *)
    long long PyLong_AsLongLongAndOverflow(PyObject *, int *)
    long PyLong_AsLong(PyObject *)
    char *_bytes_of "PyBytes_AS_STRING"(PyObject *)
    Py_ssize_t _size_of_bytes "PyBytes_GET_SIZE"(PyObject *)
    void PyErr_Clear()

def _zone_utc():
    import zoneinfo

    try:
        return zoneinfo.ZoneInfo("UTC")
    except zoneinfo.ZoneInfoNotFoundError:
        return None


import_datetime()
cdef object _UTC = get_utc()
cdef object _ZONE_UTC = _zone_utc()
"""What pyarrow gives times, the same object at each call; None where there are no time zones."""

cdef int _PACKED = 0
cdef int _NOT_PLAIN = -4
"""Beside the codes of :func:`_raise`."""
cdef int64_t _EXACT_INTEGERS = 2**53
"""Above it a double can't tell one integer from the next."""
cdef int64_t _EXACT_FLOATS = 2**24
cdef double _MOST_OF_FLOATS = 2.0**128 - 2.0**103
"""From here on a double is rounded to infinity as a float of 32 bits."""
cdef int _NUMBER_BYTES = 8
"""What anything but a text or bytes counts, as ``log/data/value_sizes.py`` says."""

cdef enum _Kind:
    BOOLEAN = 1
    INTEGER
    FLOAT
    DOUBLE
    TEXT
    BYTES
    DATE
    MOMENT
    DECIMAL
    STRUCT
    LIST
    MAP

cdef dict _KINDS = {
    "boolean": BOOLEAN, "integer": INTEGER, "float": FLOAT, "double": DOUBLE, "text": TEXT, "bytes": BYTES,
    "date": DATE, "moment": MOMENT, "decimal": DECIMAL, "struct": STRUCT, "list": LIST, "map": MAP,
}

cdef struct _Field:
    int kind
    int width  # bytes of a value in its column; 0: of different lengths, or none
    PyObject *name
    PyObject *places  # of a struct: the place of each field by its name, a dict of exact types
    int64_t count  # of children
    _Field *children
    PyObject **given  # of a struct: the values of its fields, while one is packed

cdef struct _Packed:
    char *data
    Py_ssize_t size
    Py_ssize_t capacity
    Py_ssize_t counted  # bytes that the value counts against max.message.bytes

cdef struct _Column:
    _Field *field
    int64_t count
    int64_t capacity
    int64_t null_count
    uint8_t *is_valid
    char *data
    int64_t size  # of data, where values have different lengths
    int64_t data_capacity
    int32_t *ends
    _Column *children


cdef class Packer:
    """Packs the values of one schema. Holds them nowhere: one value at a time is in its memory."""

    cdef _Field root
    cdef _Packed packed
    cdef readonly object type
    """The values' type in Arrow."""
    cdef object prepare
    cdef list kept
    """What the fields refer to."""

    def __init__(self, type, fields, prepare):
        """
        Args:
            fields: of the struct that a value is: for each its kind, the bytes of a value (0: they differ), its name,
                and its own fields.
            prepare: returns a value with the 16 bytes of its number for each decimal, or None; None: it has none.
        """
        if self.kept is not None:
            raise TypeError("a packer is made once")
        self.type = type
        self.prepare = prepare
        self.kept = []
        self.fill(&self.root, ("struct", 0, "", fields))

    cdef int fill(self, _Field *field, tuple described) except -1:
        kind, width, name, children = described
        field.kind, field.width = _KINDS[kind], width
        if type(name) is not str:
            raise TypeError(f"name: got {name!r}, expected str")
        self.kept.append(name)
        field.name = <PyObject *>name
        places = {child[2]: place for place, child in enumerate(children)}
        self.kept.append(places)
        field.places = <PyObject *>places
        cdef int64_t count = len(children)
        field.children = <_Field *>PyMem_RawCalloc(count or 1, sizeof(_Field))
        field.given = <PyObject **>PyMem_RawCalloc(count or 1, sizeof(PyObject *))
        if field.children == NULL or field.given == NULL:
            raise MemoryError
        field.count = count
        for at in range(count):
            self.fill(&field.children[at], children[at])
        return 0

    def __dealloc__(self):
        _free_fields(&self.root)
        PyMem_RawFree(self.packed.data)

    cdef int pack(self, object value) noexcept:
        """Pack a dict into this packer's memory, without a call of Python. Less than 0: it wasn't packed."""
        self.packed.size = self.packed.counted = 0
        return _pack(&self.packed, &self.root, <PyObject *>value)


cdef void _free_fields(_Field *field) noexcept:
    cdef int64_t at
    for at in range(field.count):
        _free_fields(&field.children[at])
    PyMem_RawFree(field.children)
    PyMem_RawFree(field.given)


# Packing: nothing of Python runs in here, so that neither the values nor the packer's memory can change meanwhile.


cdef inline int _room(_Packed *out, Py_ssize_t more) noexcept:
    cdef Py_ssize_t wanted = out.size + more
    if wanted <= out.capacity:
        return 0
    if wanted > INT32_MAX:
        return -2
    cdef Py_ssize_t capacity = out.capacity * 2 if out.capacity * 2 > wanted else wanted + 256
    cdef char *data = <char *>PyMem_RawRealloc(out.data, capacity)
    if data == NULL:
        return -1
    out.data, out.capacity = data, capacity
    return 0


cdef inline int _put_raw(_Packed *out, const void *data, Py_ssize_t size) noexcept:
    cdef int failed = _room(out, size)
    if failed:
        return failed
    memcpy(out.data + out.size, data, size)
    out.size += size
    return 0


cdef inline int _put_text(_Packed *out, const char *data, Py_ssize_t size) noexcept:
    if size > INT32_MAX:
        return -2
    cdef int32_t length = <int32_t>size
    cdef int failed = _put_raw(out, &length, sizeof(int32_t))
    out.counted += size
    return failed or _put_raw(out, data, size)


cdef int _pack_or_null(_Packed *out, _Field *field, PyObject *value) noexcept:
    cdef char mark = value != NULL and value != Py_None
    cdef int failed = _put_raw(out, &mark, 1)
    if failed or not mark:
        return failed
    return _pack(out, field, value)


cdef int _pack(_Packed *out, _Field *field, PyObject *value) noexcept:
    if field.kind == STRUCT:
        return _pack_struct(out, field, value)
    if field.kind == LIST:
        return _pack_list(out, field, value)
    if field.kind == MAP:
        return _pack_map(out, field, value)
    if field.kind == TEXT:
        return _pack_text(out, value)
    if field.kind == BYTES:
        if not PyBytes_CheckExact(value):
            return _NOT_PLAIN
        return _put_text(out, _bytes_of(value), _size_of_bytes(value))
    out.counted += _NUMBER_BYTES
    if field.kind == DECIMAL:
        if not PyBytes_CheckExact(value) or _size_of_bytes(value) != field.width:
            return _NOT_PLAIN
        return _put_raw(out, _bytes_of(value), field.width)
    if field.kind == INTEGER:
        return _pack_integer(out, field.width, value)
    if field.kind == DATE or field.kind == MOMENT:
        return _pack_time(out, field.kind, value)
    if field.kind == BOOLEAN:
        return _pack_boolean(out, value)
    return _pack_float(out, field.kind, value)


cdef int _pack_struct(_Packed *out, _Field *field, PyObject *value) noexcept:
    cdef PyObject *name
    cdef PyObject *each
    cdef PyObject *found
    cdef Py_ssize_t position = 0
    cdef int64_t at = 0
    cdef int64_t place
    cdef int failed
    if not PyDict_CheckExact(value):
        return _NOT_PLAIN
    memset(field.given, 0, field.count * sizeof(PyObject *))
    while PyDict_Next(value, &position, &name, &each):
        if at < field.count and field.children[at].name == name:
            place = at
        else:
            if not PyUnicode_CheckExact(name):
                return _NOT_PLAIN  # comparing it might run Python code
            found = PyDict_GetItem(field.places, name)
            if found == NULL:
                return _NOT_PLAIN
            place = PyLong_AsLong(found)
        field.given[place] = each
        at += 1
    for at in range(field.count):
        failed = _pack_or_null(out, &field.children[at], field.given[at])
        if failed:
            return failed
    return 0


cdef int _pack_list(_Packed *out, _Field *field, PyObject *value) noexcept:
    cdef bint is_list = PyList_CheckExact(value)
    if not is_list and not PyTuple_CheckExact(value):
        return _NOT_PLAIN
    cdef Py_ssize_t count = PyList_GET_SIZE(value) if is_list else PyTuple_GET_SIZE(value)
    if count > INT32_MAX:
        return -2
    cdef int32_t length = <int32_t>count
    cdef int failed = _put_raw(out, &length, sizeof(int32_t))
    cdef Py_ssize_t at
    for at in range(count):
        if failed:
            break
        failed = _pack_or_null(
            out, field.children, PyList_GET_ITEM(value, at) if is_list else PyTuple_GET_ITEM(value, at)
        )
    return failed


cdef int _pack_map(_Packed *out, _Field *field, PyObject *value) noexcept:
    cdef PyObject *key
    cdef PyObject *each
    cdef Py_ssize_t position = 0
    if not PyDict_CheckExact(value):
        return _NOT_PLAIN
    if PyDict_Size(value) > INT32_MAX:
        return -2
    cdef int32_t length = <int32_t>PyDict_Size(value)
    cdef int failed = _put_raw(out, &length, sizeof(int32_t))
    while not failed and PyDict_Next(value, &position, &key, &each):
        if key == Py_None:
            return _NOT_PLAIN
        failed = _pack(out, &field.children[0], key) or _pack_or_null(out, &field.children[1], each)
    return failed


cdef int _pack_text(_Packed *out, PyObject *value) noexcept:
    cdef Py_ssize_t size = 0
    cdef const char *data
    if not PyUnicode_CheckExact(value):
        return _NOT_PLAIN
    data = PyUnicode_AsUTF8AndSize(value, &size)
    if data == NULL:  # half of a surrogate pair; whatever runs while the error is dropped, nothing is packed any more
        PyErr_Clear()
        return _NOT_PLAIN
    return _put_text(out, data, size)


cdef int _pack_integer(_Packed *out, int width, PyObject *value) noexcept:
    cdef int overflow = 0
    cdef long long number
    cdef int8_t in_8
    cdef int16_t in_16
    cdef int32_t in_32
    if not PyLong_CheckExact(<object>value):
        return _NOT_PLAIN
    number = PyLong_AsLongLongAndOverflow(value, &overflow)
    if overflow:
        return _NOT_PLAIN
    if width == 8:
        return _put_raw(out, &number, 8)
    in_8, in_16, in_32 = <int8_t>number, <int16_t>number, <int32_t>number
    if width == 4 and in_32 == number:
        return _put_raw(out, &in_32, 4)
    if width == 2 and in_16 == number:
        return _put_raw(out, &in_16, 2)
    if width == 1 and in_8 == number:
        return _put_raw(out, &in_8, 1)
    return _NOT_PLAIN


cdef int _pack_float(_Packed *out, int kind, PyObject *value) noexcept:
    cdef int overflow = 0
    cdef int64_t whole
    cdef int64_t most = _EXACT_INTEGERS if kind == DOUBLE else _EXACT_FLOATS
    cdef double number
    cdef float rounded
    if PyFloat_CheckExact(value):
        number = PyFloat_AS_DOUBLE(value)
        if kind == FLOAT and isfinite(number) and fabs(number) >= _MOST_OF_FLOATS:
            return _NOT_PLAIN
    elif PyLong_CheckExact(<object>value):
        whole = PyLong_AsLongLongAndOverflow(value, &overflow)
        if overflow or whole > most or whole < -most:
            return _NOT_PLAIN
        number = <double>whole
    else:
        return _NOT_PLAIN
    if kind == DOUBLE:
        return _put_raw(out, &number, sizeof(double))
    rounded = <float>number
    return _put_raw(out, &rounded, sizeof(float))


cdef int _pack_boolean(_Packed *out, PyObject *value) noexcept:
    cdef char truth = value == Py_True
    if not truth and value != Py_False:
        return _NOT_PLAIN
    return _put_raw(out, &truth, 1)


cdef int _pack_time(_Packed *out, int kind, PyObject *value) noexcept:
    cdef object time = <object>value
    cdef int32_t days
    cdef int64_t micros
    if kind == DATE:
        if not PyDate_CheckExact(time):
            return _NOT_PLAIN
        days = _days(PyDateTime_GET_YEAR(time), PyDateTime_GET_MONTH(time), PyDateTime_GET_DAY(time))
        return _put_raw(out, &days, sizeof(int32_t))
    if not PyDateTime_CheckExact(time):
        return _NOT_PLAIN
    cdef object zone = datetime_tzinfo(time)
    if zone is None or (zone is not _UTC and zone is not _ZONE_UTC):
        return _NOT_PLAIN
    micros = _days(PyDateTime_GET_YEAR(time), PyDateTime_GET_MONTH(time), PyDateTime_GET_DAY(time))
    micros = micros * 24 + PyDateTime_DATE_GET_HOUR(time)
    micros = micros * 60 + PyDateTime_DATE_GET_MINUTE(time)
    micros = micros * 60 + PyDateTime_DATE_GET_SECOND(time)
    micros = micros * 1_000_000 + PyDateTime_DATE_GET_MICROSECOND(time)
    return _put_raw(out, &micros, sizeof(int64_t))


cdef int32_t _days(int year, int month, int day) noexcept:
    """Days since 1970 of a date in the Gregorian calendar, from year 1 on: those of whole years that begin in March."""
    cdef int from_march = (month + 9) % 12
    cdef int years = year - (month < 3)
    return 365 * years + years // 4 - years // 100 + years // 400 + (153 * from_march + 2) // 5 + day - 1 - 719_468


# Columns of packed values ---------------------------------------------------------------------------------------------


cdef int _begin(_Column *column, _Field *field) noexcept:
    """An empty column. -1: there is no memory."""
    cdef int64_t at
    memset(column, 0, sizeof(_Column))
    column.field = field
    column.children = <_Column *>PyMem_RawCalloc(field.count or 1, sizeof(_Column))
    if column.children == NULL:
        return -1
    for at in range(field.count):
        column.children[at].field = &field.children[at]  # to be freed, even if it isn't begun
    for at in range(field.count):
        if _begin(&column.children[at], &field.children[at]):
            return -1
    return _grow(column)


cdef void _end(_Column *column) noexcept nogil:
    cdef int64_t at
    if column.children != NULL:
        for at in range(column.field.count):
            _end(&column.children[at])
    PyMem_RawFree(column.children)
    PyMem_RawFree(column.is_valid)
    PyMem_RawFree(column.data)
    PyMem_RawFree(column.ends)
    memset(column, 0, sizeof(_Column))


cdef int _grow(_Column *column) noexcept nogil:
    cdef int64_t capacity = column.capacity * 2 if column.capacity else 64
    cdef int kind = column.field.kind
    cdef void *moved = PyMem_RawRealloc(column.is_valid, capacity)
    if moved == NULL:
        return -1
    column.is_valid = <uint8_t *>moved
    if column.field.width:
        moved = PyMem_RawRealloc(column.data, capacity * column.field.width)
        if moved == NULL:
            return -1
        column.data = <char *>moved
    if kind == TEXT or kind == BYTES or kind == LIST or kind == MAP:
        moved = PyMem_RawRealloc(column.ends, (capacity + 1) * sizeof(int32_t))
        if moved == NULL:
            return -1
        column.ends = <int32_t *>moved
        if column.capacity == 0:
            column.ends[0] = 0
    column.capacity = capacity
    return 0


cdef int _add_null(_Column *column) noexcept nogil:
    cdef int64_t at
    cdef int64_t row = column.count
    cdef int failed
    if row == column.capacity and _grow(column):
        return -1
    column.is_valid[row] = 0
    column.null_count += 1
    if column.field.width:
        memset(column.data + row * column.field.width, 0, column.field.width)
    if column.ends != NULL:
        column.ends[row + 1] = column.ends[row]
    if column.field.kind == STRUCT:
        for at in range(column.field.count):
            failed = _add_null(&column.children[at])
            if failed:
                return failed
    column.count += 1
    return 0


cdef int _add(_Column *column, const char **place) noexcept nogil:
    """Add the packed value at a place, and move the place behind it."""
    cdef int kind = column.field.kind
    cdef int width = column.field.width
    cdef int64_t row = column.count
    cdef int64_t at
    cdef int failed
    if row == column.capacity and _grow(column):
        return -1
    column.is_valid[row] = 1
    if width:
        memcpy(column.data + row * width, place[0], width)
        place[0] += width
    elif kind == STRUCT:
        for at in range(column.field.count):
            failed = _add_or_null(&column.children[at], place)
            if failed:
                return failed
    else:
        failed = _add_elements(column, place) if kind == LIST or kind == MAP else _add_bytes(column, place)
        if failed:
            return failed
    column.count += 1
    return 0


cdef int _add_or_null(_Column *column, const char **place) noexcept nogil:
    cdef char mark = place[0][0]
    place[0] += 1
    return _add(column, place) if mark else _add_null(column)


cdef int _add_elements(_Column *column, const char **place) noexcept nogil:
    cdef int64_t row = column.count
    cdef int32_t length
    cdef int32_t at
    cdef int failed
    memcpy(&length, place[0], sizeof(int32_t))
    place[0] += sizeof(int32_t)
    if length > INT32_MAX - column.ends[row]:
        return -2
    for at in range(length):
        failed = 0
        if column.field.kind == MAP:
            failed = _add(&column.children[0], place)
        if not failed:
            failed = _add_or_null(&column.children[column.field.kind == MAP], place)
        if failed:
            return failed
    column.ends[row + 1] = column.ends[row] + length
    return 0


cdef int _add_bytes(_Column *column, const char **place) noexcept nogil:
    cdef int64_t row = column.count
    cdef int64_t capacity
    cdef int32_t length
    cdef char *moved
    memcpy(&length, place[0], sizeof(int32_t))
    place[0] += sizeof(int32_t)
    if length > INT32_MAX - column.ends[row]:
        return -2
    if column.size + length > column.data_capacity:
        capacity = 2 * (column.size + length) + 256
        moved = <char *>PyMem_RawRealloc(column.data, capacity)
        if moved == NULL:
            return -1
        column.data, column.data_capacity = moved, capacity
    memcpy(column.data + column.size, place[0], length)
    place[0] += length
    column.size += length
    column.ends[row + 1] = <int32_t>column.size
    return 0


cdef tuple _column_parts(_Column *column):
    """A column's number of values, validity (a byte a value; None: no nulls), offsets, data, and its children's parts.
    Each buffer is let go of by the column."""
    cdef int64_t count = column.count
    cdef Memory is_valid = None
    cdef Memory ends = None
    cdef Memory data = None
    if column.null_count:
        is_valid = _owned(<char *>column.is_valid, count)
        column.is_valid = NULL
    if column.ends != NULL:
        ends = _owned(<char *>column.ends, (count + 1) * sizeof(int32_t))
        column.ends = NULL
    if column.field.width or column.data != NULL or column.field.kind == TEXT or column.field.kind == BYTES:
        data = _owned(column.data, count * column.field.width if column.field.width else column.size)
        column.data = NULL
    children = [_column_parts(&column.children[at]) for at in range(column.field.count)]
    return count, is_valid, ends, data, children


cdef tuple _columns_of(Packer packer, _Binary *rows, int64_t count):
    """Packed values as columns; null where there is none."""
    cdef _Column root
    cdef int64_t at
    cdef int failed
    cdef const char *place
    try:
        failed = _begin(&root, &packer.root)
        with nogil:
            for at in range(count):
                if failed:
                    break
                place = rows.data + rows.ends[at]
                failed = _add(&root, &place) if rows.is_valid[at] else _add_null(&root)
        if failed:
            _raise(failed)
        return _column_parts(&root)
    finally:
        _end(&root)
