# Kafka's record batches of format v2: their checksum, and their records into Arrow buffers and out of them. ------------
# Source: kafka.apache.org, "Record". Included by core.pyx. The twins are in gateway/records: crc32c.py, decoding.py and
# encoding.py, whose names say "pure".

cdef extern from *:
    """
    #include <stdint.h>
    #include <string.h>
    static uint32_t sparklog_crc_tables[8][256];
    static void sparklog_crc_prepare_tables(void) {
        for (uint32_t number = 0; number < 256; number++) {
            uint32_t value = number;
            for (int bit = 0; bit < 8; bit++) {
                value = value >> 1 ^ (0x82F63B78u & (0u - (value & 1)));
            }
            sparklog_crc_tables[0][number] = value;
        }
        for (int table = 1; table < 8; table++) {
            for (int number = 0; number < 256; number++) {
                uint32_t before = sparklog_crc_tables[table - 1][number];
                sparklog_crc_tables[table][number] = sparklog_crc_tables[0][before & 255] ^ before >> 8;
            }
        }
    }
    #if defined(__x86_64__) && defined(__GNUC__)
    #define SPARKLOG_HAS_CRC_INSTRUCTION 1
    /* The instruction's answer comes after three cycles, and one can begin in each: so three parts are summed side by
       side, and then put together. A checksum is linear: that of what follows others is theirs, moved on by as many
       zeros as it has bytes, and its own. */
    #define SPARKLOG_CRC_PART 512
    static uint32_t sparklog_crc_moved_on[4][256];
    static void sparklog_crc_prepare_parts(void) {
        for (int bit = 0; bit < 32; bit++) {
            uint32_t value = 1u << bit;
            uint32_t *table = sparklog_crc_moved_on[bit / 8];
            int least = 1 << bit % 8;
            for (int number = 0; number < SPARKLOG_CRC_PART; number++) {
                value = sparklog_crc_tables[0][value & 255] ^ value >> 8;
            }
            for (int number = 0; number < least; number++) {
                table[least + number] = table[number] ^ value;
            }
        }
    }
    static inline uint32_t sparklog_crc_move_on(uint32_t value) {
        return sparklog_crc_moved_on[0][value & 255] ^ sparklog_crc_moved_on[1][value >> 8 & 255]
            ^ sparklog_crc_moved_on[2][value >> 16 & 255] ^ sparklog_crc_moved_on[3][value >> 24];
    }
    #if defined(__clang__) && __clang_major__ >= 14
    __attribute__((target("crc32")))  /* of its own since then, not a part of SSE 4.2 */
    #else
    __attribute__((target("sse4.2")))
    #endif
    static uint32_t sparklog_crc_by_instruction(uint32_t value, const uint8_t *data, int64_t size) {
        uint64_t wide = value;
        for (; size >= 3 * SPARKLOG_CRC_PART; data += 3 * SPARKLOG_CRC_PART, size -= 3 * SPARKLOG_CRC_PART) {
            uint64_t second = 0, third = 0;
            for (int at = 0; at < SPARKLOG_CRC_PART; at += 8) {
                uint64_t words[3];
                memcpy(&words[0], data + at, 8);
                memcpy(&words[1], data + SPARKLOG_CRC_PART + at, 8);
                memcpy(&words[2], data + 2 * SPARKLOG_CRC_PART + at, 8);
                wide = __builtin_ia32_crc32di(wide, words[0]);
                second = __builtin_ia32_crc32di(second, words[1]);
                third = __builtin_ia32_crc32di(third, words[2]);
            }
            wide = sparklog_crc_move_on((uint32_t)wide) ^ second;
            wide = sparklog_crc_move_on((uint32_t)wide) ^ third;
        }
        for (; size >= 8; data += 8, size -= 8) {
            uint64_t word;
            memcpy(&word, data, 8);
            wide = __builtin_ia32_crc32di(wide, word);
        }
        value = (uint32_t)wide;
        for (; size > 0; data++, size--) {
            value = __builtin_ia32_crc32qi(value, *data);
        }
        return value;
    }
    static int sparklog_has_crc_instruction(void) { return __builtin_cpu_supports("sse4.2"); }
    #endif
    static uint32_t sparklog_crc_by_tables(uint32_t value, const uint8_t *data, int64_t size) {
        const uint32_t (*table)[256] = (const uint32_t (*)[256])sparklog_crc_tables;
        for (; size >= 8; data += 8, size -= 8) {
            uint32_t low = value ^ (data[0] | data[1] << 8 | data[2] << 16 | (uint32_t)data[3] << 24);
            value = table[7][low & 255] ^ table[6][low >> 8 & 255] ^ table[5][low >> 16 & 255] ^ table[4][low >> 24]
                ^ table[3][data[4]] ^ table[2][data[5]] ^ table[1][data[6]] ^ table[0][data[7]];
        }
        for (; size > 0; data++, size--) {
            value = table[0][(value ^ *data) & 255] ^ value >> 8;
        }
        return value;
    }
    static void sparklog_crc_prepare(void) {
        sparklog_crc_prepare_tables();
    #ifdef SPARKLOG_HAS_CRC_INSTRUCTION
        sparklog_crc_prepare_parts();
    #endif
    }
    /* The checksum of bytes behind others, of which the checksum is known; 0: there are none. */
    static uint32_t sparklog_crc_more(uint32_t before, const uint8_t *data, int64_t size, int by_tables) {
    #ifdef SPARKLOG_HAS_CRC_INSTRUCTION
        if (!by_tables && sparklog_has_crc_instruction()) {
            return ~sparklog_crc_by_instruction(~before, data, size);
        }
    #endif
        return ~sparklog_crc_by_tables(~before, data, size);
    }
    static uint32_t sparklog_crc(const uint8_t *data, int64_t size, int by_tables) {
        return sparklog_crc_more(0, data, size, by_tables);
    }
    """
    void sparklog_crc_prepare()
    uint32_t sparklog_crc(const uint8_t *data, int64_t size, int by_tables) nogil
    uint32_t sparklog_crc_more(uint32_t before, const uint8_t *data, int64_t size, int by_tables) nogil

sparklog_crc_prepare()


def crc32c(data, bint by_tables=False):
    """The CRC-32C of bytes: by the processor's instruction where it has one, unless ``by_tables`` says otherwise."""
    cdef _View view = _View(data)
    return sparklog_crc(<const uint8_t *>view.address, view.size, by_tables)


cdef inline int _varint(const uint8_t *data, int64_t *at, int64_t end, int64_t *number) noexcept nogil:
    """A zigzag number at ``at``, which moves behind it; 0: it doesn't end before ``end``, or takes over 64 bits."""
    cdef uint64_t value = 0
    cdef int shift = 0
    cdef uint8_t byte
    while at[0] < end:
        byte = data[at[0]]
        at[0] += 1
        if shift == 63 and byte > 1:
            return 0
        value |= <uint64_t>(byte & 127) << shift
        if byte < 128:
            number[0] = <int64_t>(value >> 1) ^ -<int64_t>(value & 1)
            return 1
        shift += 7
    return 0


cdef struct _Place:
    int64_t time
    int64_t delta
    int64_t key
    int64_t key_size
    int64_t value
    int64_t value_size
    int64_t header_count
    int64_t headers
    int64_t end


cdef int _record(const uint8_t *data, int64_t *at, int64_t end, _Place *found) noexcept nogil:
    """Where the parts of a record lie, and ``at`` behind it; 0: it isn't one."""
    cdef int64_t size
    if not _varint(data, at, end, &size) or size < 6 or size > end - at[0]:
        return 0
    found.end = at[0] + size
    at[0] += 1  # the attributes, which mean nothing yet
    if not _varint(data, at, found.end, &found.time) or not _varint(data, at, found.end, &found.delta):
        return 0
    if not _varint(data, at, found.end, &found.key_size):
        return 0
    if found.key_size < -1 or found.key_size > found.end - at[0]:
        return 0
    found.key = at[0]
    at[0] += max(0, found.key_size)
    if not _varint(data, at, found.end, &found.value_size):
        return 0
    if found.value_size < -1 or found.value_size > found.end - at[0]:
        return 0
    found.value = at[0]
    at[0] += max(0, found.value_size)
    if not _varint(data, at, found.end, &found.header_count) or found.header_count < 0:
        return 0
    found.headers = at[0]
    if found.header_count == 0 and at[0] != found.end:
        return 0
    at[0] = found.end
    return 1


def decode_records(parts, last_deltas, counts, base_offsets, base_times, append_times):
    """The records of batches as Arrow's buffers: offsets, times, keys and values (validity or None, ends, data); where
    headers are: (row, number of the part, first byte, last byte, how many); the least time, and the most bytes that a
    record has, both 0 where there are none.

    None: some records aren't as the format, their count and their last offset delta say.

    Args:
        parts: the records of each batch, decompressed; less than 2 GiB together.
        append_times: for each batch the time of all its records, or None: each has its own.
    """
    cdef int64_t total = 0, size = 0, row = 0, at, before, count, key_size = 0, value_size = 0
    cdef int64_t base_offset, base_time, last_delta
    cdef int64_t key_nulls = 0, value_nulls = 0, time, least_time = 0, most_bytes = 0
    cdef bint has_append_time
    cdef int64_t append_time
    cdef _View view
    cdef _Place found
    cdef const uint8_t *data
    cdef list views = [_View(part) for part in parts], headers = []
    for number, view in enumerate(views):
        if counts[number] * 7 > view.size:  # the least that a record takes; before memory is taken for them
            return None
        total += counts[number]
        size += view.size
    if size > INT32_MAX:
        return None
    cdef Memory offsets = _new_memory(8 * total), times = _new_memory(8 * total)
    cdef Memory key_ends = _new_memory(4 * total + 4), value_ends = _new_memory(4 * total + 4)
    cdef Memory key_bits = _new_memory((total + 7) // 8), value_bits = _new_memory((total + 7) // 8)
    cdef Memory keys = _new_memory(size), values = _new_memory(size)
    memset(key_bits.address, 0, (total + 7) // 8)
    memset(value_bits.address, 0, (total + 7) // 8)
    cdef int32_t *key_end = <int32_t *>key_ends.address
    cdef int32_t *value_end = <int32_t *>value_ends.address
    key_end[0] = value_end[0] = 0
    for number, view in enumerate(views):
        data = <const uint8_t *>view.address
        count, base_offset, base_time = counts[number], base_offsets[number], base_times[number]
        last_delta, has_append_time, append_time = last_deltas[number], append_times[number] is not None, 0
        if has_append_time:
            append_time = append_times[number]
        at, before = 0, -1
        for _ in range(count):
            if not _record(data, &at, view.size, &found) or found.delta <= before or found.delta > last_delta:
                return None
            before = found.delta
            (<int64_t *>offsets.address)[row] = base_offset + found.delta
            time = append_time if has_append_time else base_time + found.time
            (<int64_t *>times.address)[row] = time
            least_time = time if row == 0 else min(least_time, time)
            most_bytes = max(most_bytes, max(0, found.key_size) + max(0, found.value_size))
            if found.key_size < 0:
                key_nulls += 1
            else:
                key_bits.address[row >> 3] |= 1 << (row & 7)
                memcpy(keys.address + key_size, data + found.key, found.key_size)
                key_size += found.key_size
            if found.value_size < 0:
                value_nulls += 1
            else:
                value_bits.address[row >> 3] |= 1 << (row & 7)
                memcpy(values.address + value_size, data + found.value, found.value_size)
                value_size += found.value_size
            key_end[row + 1], value_end[row + 1] = <int32_t>key_size, <int32_t>value_size
            if found.header_count:
                headers.append((row, number, found.headers, found.end, found.header_count))
            row += 1
        if at != view.size:
            return None
    keys.size, values.size = key_size, value_size
    return (
        offsets,
        times,
        (key_bits if key_nulls else None, key_ends, keys),
        (value_bits if value_nulls else None, value_ends, values),
        headers,
        least_time,
        most_bytes,
    )


cdef inline int _varint_size(int64_t number) noexcept nogil:
    cdef uint64_t left = (<uint64_t>number << 1) ^ <uint64_t>(number >> 63)
    cdef int size = 1
    while left > 127:
        left >>= 7
        size += 1
    return size


cdef inline char *_put_varint(char *out, int64_t number) noexcept nogil:
    cdef uint64_t left = (<uint64_t>number << 1) ^ <uint64_t>(number >> 63)
    while left > 127:
        out[0] = <char>(left & 127 | 128)
        out += 1
        left >>= 7
    out[0] = <char>left
    return out + 1


def encode_varints(numbers):
    """Numbers of 64 bits as record batches hold them: zigzag, seven bits a byte, the lowest first."""
    cdef int64_t left = len(numbers), number
    cdef Memory memory = _new_memory(left * 10)
    cdef char *out = memory.address
    for each in numbers:
        number = each
        left -= 1
        if left < 0:
            raise ValueError(f"there are more than {len(numbers)} numbers")
        out = _put_varint(out, number)
    return PyBytes_FromStringAndSize(memory.address, out - memory.address)


def decode_varints(data, int64_t at, Py_ssize_t count):
    """Numbers that :func:`encode_varints` wrote: ``count`` of them, from byte ``at`` on; and where they end.

    Raises ``ValueError``: they don't end within the data, or one takes more than 64 bits.
    """
    cdef _View view = _View(data)
    cdef int64_t begin, number
    cdef list found = []
    if at < 0 or count < 0:
        raise ValueError(f"varints: {count} from byte {at} on")
    for _ in range(count):
        begin = at
        if not _varint(<const uint8_t *>view.address, &at, view.size, &number):
            why = "it takes more than 64 bits" if at - begin == 10 else f"{view.size} bytes end within it"
            raise ValueError(f"varint at byte {begin}: {why}")
        found.append(number)
    return found, at


def encode_records(Py_ssize_t front, offsets, times, keys, values, headers):
    """Records of a batch, behind ``front`` bytes that are left for its header, as a bytearray.

    Args:
        offsets, times: int64 of each record; the first ones are the batch's.
        keys, values: validity or None, ends, data, and the first row in them.
        headers: for each record its headers as the format has them; None: nobody has any.
    """
    cdef _View offset_view = _View(offsets), time_view = _View(times)
    cdef int64_t count = offset_view.size // 8
    cdef int64_t *offset = <int64_t *>offset_view.address
    cdef int64_t *time = <int64_t *>time_view.address
    cdef int64_t first_key = keys[3], first_value = values[3]
    cdef _Ends key_ends = _Ends(keys[1], keys[2], first_key, count)
    cdef _Ends value_ends = _Ends(values[1], values[2], first_value, count)
    cdef _View key_bits = _validity(keys[0], first_key + count), value_bits = _validity(values[0], first_value + count)
    cdef Memory sizes = _new_memory(4 * count)
    cdef int32_t *size = <int32_t *>sizes.address
    cdef int64_t row, key_size, value_size, own_size, total = front
    cdef bytes own
    if time_view.size != offset_view.size or (headers is not None and len(headers) != count):
        raise ValueError(f"{count} offsets, and not as many times or headers")
    for row in range(count):
        key_size = key_ends.offsets[row + 1] - key_ends.offsets[row] if _is_set(key_bits.address, first_key + row) else -1
        value_size = -1
        if _is_set(value_bits.address, first_value + row):
            value_size = value_ends.offsets[row + 1] - value_ends.offsets[row]
        own_size = 1 + _varint_size(time[row] - time[0]) + _varint_size(offset[row] - offset[0])
        own_size += _varint_size(key_size) + max(0, key_size) + _varint_size(value_size) + max(0, value_size)
        if headers is None:
            own_size += 1
        else:
            own = headers[row]
            own_size += PyBytes_GET_SIZE(own)
        if own_size > INT32_MAX:
            raise ValueError(f"a record of {own_size} bytes: expected at most {INT32_MAX}")
        size[row] = <int32_t>own_size
        total += own_size + _varint_size(own_size)
    cdef bytearray made = PyByteArray_FromStringAndSize(NULL, total)
    cdef char *out = PyByteArray_AS_STRING(made) + front
    for row in range(count):
        out = _put_varint(out, size[row])
        out[0] = 0
        out = _put_varint(out + 1, time[row] - time[0])
        out = _put_varint(out, offset[row] - offset[0])
        if _is_set(key_bits.address, first_key + row):
            key_size = key_ends.offsets[row + 1] - key_ends.offsets[row]
            out = _put_varint(out, key_size)
            memcpy(out, key_ends.data + key_ends.offsets[row], key_size)
            out += key_size
        else:
            out = _put_varint(out, -1)
        if _is_set(value_bits.address, first_value + row):
            value_size = value_ends.offsets[row + 1] - value_ends.offsets[row]
            out = _put_varint(out, value_size)
            memcpy(out, value_ends.data + value_ends.offsets[row], value_size)
            out += value_size
        else:
            out = _put_varint(out, -1)
        if headers is None:
            out[0] = 0
            out += 1
        else:
            own = headers[row]
            memcpy(out, PyBytes_AS_STRING(own), PyBytes_GET_SIZE(own))
            out += PyBytes_GET_SIZE(own)
    return made


# Produce requests that ask for nothing special. Source: Kafka ``ProduceRequest.json``, versions 3 to 11; the twin is the
# codec of gateway/wire with ``batch_headers`` of gateway/records, which also tells what is wrong with a request.

cdef inline uint64_t _number_at(const uint8_t *data, int size) noexcept nogil:
    """A big-endian number."""
    cdef uint64_t value = 0
    cdef int place
    for place in range(size):
        value = value << 8 | data[place]
    return value


cdef inline int _unsigned(const uint8_t *data, int64_t *at, int64_t end, int64_t *number) noexcept nogil:
    """An unsigned varint of 32 bits; 0: it isn't one."""
    cdef uint64_t value = 0
    cdef int shift = 0
    cdef uint8_t byte
    while at[0] < end and shift <= 28:
        byte = data[at[0]]
        at[0] += 1
        value |= <uint64_t>(byte & 127) << shift
        if byte < 128:
            number[0] = <int64_t>value
            return value <= 0xFFFFFFFFu
        shift += 7
    return 0


cdef inline int _length(const uint8_t *data, int64_t *at, int64_t end, bint is_compact, int size, int64_t *number) noexcept nogil:
    """The length in front of a string (``size`` 2), or of bytes or an array (4), -1 for null; 0: the message ends."""
    if is_compact:
        if not _unsigned(data, at, end, number):
            return 0
        number[0] -= 1
        return 1
    if end - at[0] < size:
        return 0
    number[0] = <int16_t>_number_at(data + at[0], 2) if size == 2 else <int32_t>_number_at(data + at[0], 4)
    at[0] += size
    return 1


cdef inline int _no_tags(const uint8_t *data, int64_t *at, int64_t end, bint is_flexible) noexcept nogil:
    """Pass over tagged fields, of which there are to be none."""
    cdef int64_t count = 0
    return not is_flexible or (_unsigned(data, at, end, &count) and count == 0)


cdef tuple _only_batch(const uint8_t *data, int64_t begin, int64_t end, int64_t partition):
    """The batch of a partition; None: there isn't exactly one, or it is a special one, or a wrong one."""
    cdef const uint8_t *batch = data + begin
    cdef int64_t count, last_delta, producer_id
    cdef int attributes, epoch
    cdef int32_t sequence
    if end - begin < 61 or <int64_t>_number_at(batch + 8, 4) != end - begin - 12 or batch[16] != 2:
        return None
    attributes = <int>_number_at(batch + 21, 2)
    last_delta, count = <int32_t>_number_at(batch + 23, 4), <int32_t>_number_at(batch + 57, 4)
    producer_id, epoch = <int64_t>_number_at(batch + 43, 8), <int16_t>_number_at(batch + 51, 2)
    sequence = <int32_t>_number_at(batch + 53, 4)
    if attributes & 48 or attributes & 7 > 4 or count < 1 or last_delta < count - 1:
        return None
    if producer_id >= 0 and (epoch < 0 or sequence < 0 or count != last_delta + 1):
        return None
    if sparklog_crc(batch + 21, end - begin - 21, 0) != <uint32_t>_number_at(batch + 17, 4):
        return None
    return (
        partition,
        begin,
        end,
        attributes & 7,
        last_delta,
        count,
        <int64_t>_number_at(batch + 27, 8),
        <int64_t>_number_at(batch + 35, 8) if attributes & 8 else None,
        producer_id,
        epoch,
        sequence,
    )


def produce_request(frame):
    """An ordinary Produce request: version, correlation id, acks, and topics of (name, partitions), each of (partition,
    first byte and last of its only record batch in the frame, codec, last offset delta, count, first timestamp, time of
    appending or None, producer's id, epoch, base sequence).

    None: it is another request, isn't well-formed, is transactional, has a partition whose records aren't one batch
    with the right checksum, or has tagged fields.

    Args:
        frame: bytes behind the length.
    """
    cdef _View view = _View(frame)
    cdef const uint8_t *data = <const uint8_t *>view.address
    cdef int64_t at = 10, end = view.size, size = 0, count = 0, partition_count = 0, partition
    cdef int version, acks
    cdef bint is_flexible
    cdef list topics = [], partitions
    cdef tuple batch
    cdef str name
    if end < 10 or _number_at(data, 2) != 0:
        return None
    version = <int>_number_at(data + 2, 2)
    if version < 3 or version > 11:
        return None
    is_flexible = version >= 9
    at = 8
    if not _length(data, &at, end, False, 2, &size) or size < -1 or size > end - at:  # the client's id
        return None
    while size > 0:  # which must be text: the definition tells whether what isn't ASCII is
        if data[at] > 127:
            return None
        at += 1
        size -= 1
    if not _no_tags(data, &at, end, is_flexible):
        return None
    if not _length(data, &at, end, is_flexible, 2, &size) or size != -1 or end - at < 6:  # the transactional id
        return None
    acks = <int16_t>_number_at(data + at, 2)
    at += 6
    if not _length(data, &at, end, is_flexible, 4, &count) or count < 1:
        return None
    for _ in range(count):
        if not _length(data, &at, end, is_flexible, 2, &size) or size < 1 or size > end - at:
            return None
        try:
            name = data[at : at + size].decode("utf-8")
        except UnicodeDecodeError:
            return None
        at += size
        partitions = []
        if not _length(data, &at, end, is_flexible, 4, &partition_count) or partition_count < 1:
            return None
        for _ in range(partition_count):
            if end - at < 4:
                return None
            partition = <int32_t>_number_at(data + at, 4)
            at += 4
            if not _length(data, &at, end, is_flexible, 4, &size) or size > end - at:
                return None
            batch = _only_batch(data, at, at + size, partition) if size > 0 else None
            if batch is None:
                return None
            at += size
            partitions.append(batch)
            if not _no_tags(data, &at, end, is_flexible):
                return None
        if not _no_tags(data, &at, end, is_flexible):
            return None
        topics.append((name, partitions))
    if not _no_tags(data, &at, end, is_flexible):
        return None
    return version, <int32_t>_number_at(data + 4, 4), acks, topics


def sent_batch(batch, int64_t base_offset):
    """A record batch that was sent, as readers get it once its first record has an offset: a copy of its bytes as a
    bytearray; None: that might not be what encoding its records would make.

    So it isn't compressed, has the times of its producer, and records without headers and gaps, whose numbers take as
    few bytes as they can: what one client can read, all can. Its checksum, which spans none of what is changed, is right
    already.
    """
    cdef _View view = _View(batch)
    cdef const uint8_t *data = <const uint8_t *>view.address
    cdef int64_t end = view.size, at = 61, begin, least, base_time, latest = INT64_MIN, count, row
    cdef _Place found
    if end < 61 or data[16] != 2 or <int64_t>_number_at(data + 8, 4) != end - 12 or _number_at(data + 21, 2) != 0:
        return None
    count, base_time = <int32_t>_number_at(data + 57, 4), <int64_t>_number_at(data + 27, 8)
    if count < 1 or <int32_t>_number_at(data + 23, 4) != count - 1:
        return None
    for row in range(count):
        begin = at
        if not _record(data, &at, end, &found) or found.delta != row or found.header_count or (row == 0 and found.time):
            return None
        least = 2 + _varint_size(found.time) + _varint_size(row)  # with a byte of attributes, and that of no headers
        least += _varint_size(found.key_size) + max(0, found.key_size)
        least += _varint_size(found.value_size) + max(0, found.value_size)
        if at - begin != least + _varint_size(least) or data[at - least] != 0:
            return None
        latest = max(latest, base_time + found.time)
    if at != end or latest != <int64_t>_number_at(data + 35, 8):
        return None
    cdef bytearray made = PyByteArray_FromStringAndSize(<const char *>data, end)
    cdef uint8_t *out = <uint8_t *>PyByteArray_AS_STRING(made)
    for row in range(8):
        out[row] = <uint8_t>(<uint64_t>base_offset >> (56 - 8 * row) & 255)
    memset(out + 12, 0, 4)  # the epoch of the partition's leader, which is in no checksum either
    return made
