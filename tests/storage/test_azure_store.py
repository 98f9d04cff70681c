import pytest

from sparklog.clock import SystemClock
from sparklog.errors import InvalidArgumentError, InvalidConfigurationError, StoreError
from sparklog.storage import ObjectStore, open_store, probe_create_only
from sparklog.storage.azure import AzureStore, azure_arrow_arguments, azure_options
from sparklog.testing.store_contract import StoreContract

KEY = {"account_key": "c2VjcmV0"}


@pytest.mark.parametrize(
    ("uri", "shown"),
    [
        (
            "abfss://files@account.dfs.core.windows.net/a/b/",
            "abfss://files@account.dfs.core.windows.net/a/b",
        ),
        ("abfss://files@account.dfs.core.windows.net", "abfss://files@account.dfs.core.windows.net"),
        ("abfs://files@account.dfs.core.windows.net/a", "abfs://files@account.dfs.core.windows.net/a"),
        ("az://files/a/b", "az://files/a/b"),
        ("abfss://files/a", "abfss://files/a"),
    ],
)
def test_uris(uri, shown):
    store = open_store(uri, KEY)
    assert isinstance(store, AzureStore)
    assert store.uri == shown
    assert "c2VjcmV0" not in repr(store)


@pytest.mark.parametrize(
    "uri",
    [
        "az://",
        "az:///path",
        "az://Upper/path",
        "abfss://files@account:very-secret@host/path",
        "abfss://files@account.example.com/path",
        "abfss://files@account.dfs.core.windows.net/a//b",
    ],
)
def test_bad_uris_are_refused_without_repeating_secrets(uri):
    with pytest.raises(InvalidArgumentError) as caught:
        open_store(uri)
    assert "very-secret" not in str(caught.value)


def test_the_account_is_the_uris_and_another_clouds_host_becomes_the_endpoint():
    options = azure_options({}, account="account", suffix="core.chinacloudapi.cn")
    assert (options.account, options.endpoint) == ("account", "https://account.blob.core.chinacloudapi.cn")
    assert azure_options({}, account="account", suffix="core.windows.net").endpoint is None
    with pytest.raises(InvalidConfigurationError, match="account_name"):
        azure_options({"account_name": "other"}, account="account", suffix="core.windows.net")


def test_an_unknown_option_is_named_and_its_value_is_not():
    with pytest.raises(InvalidConfigurationError, match="storage_options no_such_option: unknown") as caught:
        AzureStore("az://files/a", {"no_such_option": "very-secret"})
    assert "very-secret" not in str(caught.value)


def test_what_obstore_refuses_is_told_without_the_value():
    uri = "abfss://files@account.dfs.core.windows.net/a"
    for options in ({"account_key": "very-secret!"}, {"sas_token": "very secret"}):
        with pytest.raises(InvalidConfigurationError, match="storage_options: obstore says") as caught:
            AzureStore(uri, options).read("a")
        assert "secret" not in str(caught.value)


def test_options_mean_the_same_to_arrow():
    options = azure_options({"account_name": "account", "sas_token": "s"}, account=None, suffix=None)
    assert azure_arrow_arguments(options) == {"account_name": "account", "sas_token": "s"}
    with pytest.raises(InvalidConfigurationError, match="bearer_token, anon can't be handed"):
        azure_arrow_arguments(azure_options({"bearer_token": "x", "anon": True}, account="a", suffix=None))


@pytest.mark.deep
@pytest.mark.s3
class TestAzureStore(StoreContract):
    @pytest.fixture
    def store(self, azure_uri: str, azure_options: dict[str, object]) -> ObjectStore:
        return AzureStore(azure_uri, azure_options)


@pytest.mark.s3
def test_the_probe_passes_on_azurite(azure_uri, azure_options):
    store = open_store(azure_uri, azure_options)
    probe_create_only(store, clock=SystemClock())
    assert [*store.list("")] == []


@pytest.mark.s3
def test_a_container_that_is_not_there_is_no_missing_object(azure_options):
    store = AzureStore("az://no-such-container/root", azure_options)
    for call in (lambda: store.read("a"), lambda: store.create("a", b""), lambda: [*store.list("")]):
        with pytest.raises(StoreError, match="the bucket is not there") as caught:
            call()
        assert type(caught.value) is StoreError


@pytest.mark.s3
def test_a_large_blob_goes_in_blocks(azure_uri, azure_options):
    store = AzureStore(azure_uri, azure_options)
    data = bytes(range(256)) * (20 * 2**20 // 256)
    store.put("large", data)
    assert store.read("large") == data
