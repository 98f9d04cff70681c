from hashlib import md5

import pytest

from sparklog.errors import StoreOutcomeUnknownError
from sparklog.storage._written_etags import WrittenEtags

DATA = b"an entry"
SUM = md5(DATA).hexdigest()
OTHER_SUM = md5(b"something else").hexdigest()


@pytest.mark.parametrize("etag", [SUM, f'"{SUM}"', f'"{SUM.upper()}"', f'W/"{SUM}"'])
def test_the_md5_sum_of_the_bytes_proves_that_they_were_written(etag):
    assert WrittenEtags().prove(etag, DATA, is_create=True)


@pytest.mark.parametrize("etag", [None, "", f'"{OTHER_SUM}"', '"5f-1"', '"0x8DC1"', f'"{SUM}-2"'])
def test_any_other_etag_proves_nothing_by_itself(etag):
    assert not WrittenEtags().prove(etag, DATA, is_create=True)


def test_of_a_large_object_the_form_of_an_md5_sum_counts_unless_it_is_created():
    large = bytes(2**20)
    assert WrittenEtags().prove(SUM, large, is_create=False)
    assert not WrittenEtags().prove(SUM, large, is_create=True)
    assert not WrittenEtags().prove('"5f-1"', large, is_create=False)


def test_a_form_that_was_read_back_counts_from_then_on():
    etags = WrittenEtags()
    etags.confirm("create s3://bucket/a", '"0x8DC2A1"', is_there=True)
    assert etags.prove('"0x8DFFFF"', DATA, is_create=True)
    assert not etags.prove('"0x8D"', DATA, is_create=True)
    assert not etags.prove(f'"{OTHER_SUM}"', DATA, is_create=True)


def test_a_form_whose_object_was_not_there_is_not_learned():
    etags = WrittenEtags()
    with pytest.raises(StoreOutcomeUnknownError, match=r"create s3://bucket/a: .* isn't the store's .ETag \"5f-1\"."):
        etags.confirm("create s3://bucket/a", '"5f-1"', is_there=False)
    assert not etags.prove('"5f-1"', DATA, is_create=True)
