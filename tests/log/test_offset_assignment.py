"""The rule that assigns offsets to new files: dense, in the files' order, by partition."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.log.offset_assignment import assign_offsets
from tests.log.test_append_plan import a_file, a_head


def refused(file):
    return LookupError(file.path)


@pytest.mark.slow
@given(
    st.lists(st.integers(0, 2**40), min_size=1, max_size=4),
    st.lists(st.tuples(st.integers(0, 3), st.integers(1, 5)), max_size=8),
)
def test_each_partition_goes_on_at_its_end_in_the_order_of_the_files(ends, wanted):
    files = [a_file(partition % len(ends), count, path=str(n)) for n, (partition, count) in enumerate(wanted)]
    head = a_head(ends)
    assigned = assign_offsets(head, files, no_partition=refused)
    for partition, end in enumerate(ends):
        for file, base in zip(files, assigned.base_offsets, strict=True):
            if file.partition == partition:
                assert base == end
                end += file.record_count
        assert assigned.head.log_end_offsets[partition] == end
    assert [add.path for add in assigned.adds] == [file.path for file in files]
    assert [add.partition_values["base_offset"] for add in assigned.adds] == [str(b) for b in assigned.base_offsets]
    assert assigned.head.live_file_count == head.live_file_count + len(files)
    assert (assigned.head.delta_version, assigned.head.log_start_offsets) == (
        head.delta_version,
        head.log_start_offsets,
    )


@pytest.mark.parametrize("partition", [-1, 2])
def test_a_file_of_a_partition_that_is_not_there_is_refused(partition):
    with pytest.raises(LookupError, match="stray"):
        assign_offsets(a_head([0, 0]), [a_file(0), a_file(partition, path="stray")], no_partition=refused)
