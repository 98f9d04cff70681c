"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs, ListConfigResources: settings of topics. Brokers have none
here."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from sparklog.admin.values import ConfigEntry, config_entries
from sparklog.config import TOPIC_SETTINGS, TopicConfig, setting_names
from sparklog.config.settings import to_text
from sparklog.errors import SparklogError
from sparklog.gateway.backend import Backend, Request, node_id_of
from sparklog.gateway.distinct import distinct
from sparklog.gateway.error_codes import ErrorCode, code_of
from sparklog.log.topic import alter_topic

__all__ = ["alter_configs", "config_of", "describe_configs", "incremental_alter_configs", "list_config_resources"]

_TOPIC, _BROKER, _BROKER_LOGGER, _CLIENT_METRICS, _GROUP = 2, 4, 8, 16, 32
"""Kinds of ``ConfigResource``. Source: Kafka ``ConfigResource.Type``."""
_DYNAMIC_TOPIC_CONFIG, _DEFAULT_CONFIG = 1, 5
"""Source: Kafka ``DescribeConfigsResponse.ConfigSource``."""
_TYPES = {bool: 1, str: 2, int: 5, float: 6}
"""Source: Kafka ``DescribeConfigsResponse.ConfigType``: boolean, string, long, double; every whole number is a long."""
_INT_TYPE, _LIST_TYPE = 3, 7
_SET, _DELETE, _APPEND, _SUBTRACT = range(4)
"""Source: Kafka ``AlterConfigOp.OpType``."""
_LISTS = frozenset({"cleanup.policy"})
"""The settings that may be appended to."""

_Change = Callable[[TopicConfig], Mapping[str, str | None]]


class _RefusedError(ValueError):
    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code


async def describe_configs(backend: Backend, request: Request) -> dict[str, Any]:
    """The settings of topics."""
    body = request.body
    shared: dict[tuple[str, ConfigEntry], dict[str, Any]] = {}

    def setting(name: str, entry: ConfigEntry) -> dict[str, Any]:
        """A setting of a topic, made once for all topics that have it so."""
        key = name, entry
        if key not in shared:
            shared[key] = config_of(name, entry, has_synonyms=body.get("include_synonyms", False))
        return shared[key]

    def describe(wanted: Mapping[str, Any]) -> dict[str, Any]:
        resource: dict[str, Any] = {"resource_type": wanted["resource_type"], "resource_name": wanted["resource_name"]}
        if wanted["resource_type"] == _BROKER:
            return {**resource, "configs": []}
        if wanted["resource_type"] == _GROUP:
            return {**resource, "configs": _of_groups(backend, wanted["configuration_keys"])}
        if wanted["resource_type"] != _TOPIC:
            message = f"resources of type {wanted['resource_type']} have no settings here"
            return {**resource, "error_code": ErrorCode.INVALID_REQUEST, "error_message": message, "configs": []}
        names = wanted["configuration_keys"]
        try:
            entries = config_entries(backend.describe(wanted["resource_name"]).config)
        except SparklogError as error:
            return {**resource, "error_code": code_of(error), "error_message": str(error), "configs": []}
        asked = None if names is None else frozenset(names)
        configs = [setting(name, entry) for name, entry in entries.items() if asked is None or name in asked]
        return {**resource, "configs": configs}

    resources = distinct(body["resources"], "resource_type", "resource_name", "configuration_keys")
    return {"results": await backend.run(lambda: [describe(asked) for asked in resources])}


def _of_groups(backend: Backend, names: list[str] | None) -> list[dict[str, Any]]:
    """The settings of every group of the protocol ``consumer``, which are the gateway's. Source: KIP-1014."""
    settings = backend.settings
    values = {
        "consumer.heartbeat.interval.ms": settings.group_consumer_heartbeat_interval_ms,
        "consumer.session.timeout.ms": settings.group_consumer_session_timeout_ms,
    }
    return [
        {
            "name": name,
            "value": str(value),
            "read_only": True,
            "config_source": _DEFAULT_CONFIG,
            "is_sensitive": False,
            "synonyms": [],
            "config_type": _INT_TYPE,
            "documentation": None,
        }
        for name, value in values.items()
        if names is None or name in names
    ]


def config_of(name: str, entry: ConfigEntry, *, has_synonyms: bool = False) -> dict[str, Any]:
    """A setting, as DescribeConfigs and CreateTopics answer it."""
    value, source = to_text(entry.value), _DEFAULT_CONFIG if entry.is_default else _DYNAMIC_TOPIC_CONFIG
    synonyms = []
    if has_synonyms:  # the values that would be in force if those before them were not
        synonyms = [{"name": name, "value": to_text(entry.default), "source": _DEFAULT_CONFIG}]
        if not entry.is_default:
            synonyms.insert(0, {"name": name, "value": value, "source": source})
    return {
        "name": name,
        "value": value,
        "read_only": False,
        "config_source": source,
        "is_sensitive": False,
        "synonyms": synonyms,
        "config_type": _LIST_TYPE if name in _LISTS else _TYPES[type(entry.default)],
        "documentation": None,
    }


async def alter_configs(backend: Backend, request: Request) -> dict[str, Any]:
    """Replace the settings of each topic: one that isn't named gets its default. Deprecated by Kafka."""

    def change_of(resource: dict[str, Any]) -> _Change:
        wanted = setting_names({setting["name"]: setting["value"] for setting in resource["configs"]})
        return partial(_replacement, wanted)

    return await _altered(backend, request, change_of)


def _replacement(wanted: Mapping[str, str | None], known: TopicConfig) -> Mapping[str, str | None]:
    """The changes after which no other setting than those ``wanted`` is set; those of a newer sparklog stay."""
    return {**dict.fromkeys(known.explicit.keys() & TOPIC_SETTINGS.keys()), **wanted}


async def incremental_alter_configs(backend: Backend, request: Request) -> dict[str, Any]:
    """Set, delete, append to or subtract from settings of each topic; what isn't named stays as it is."""

    def change_of(resource: dict[str, Any]) -> _Change:
        for change in resource["configs"]:
            operation = change["config_operation"]
            if operation not in (_SET, _DELETE, _APPEND, _SUBTRACT):
                raise _RefusedError(
                    ErrorCode.INVALID_REQUEST, f"{change['name']}: operation {operation}: expected 0 to 3"
                )
            if operation in (_APPEND, _SUBTRACT) and change["name"] not in _LISTS:
                message = f"{change['name']} is no list: it can be set or deleted"
                raise _RefusedError(ErrorCode.INVALID_CONFIG, message)
        return partial(_changes, resource["configs"])

    return await _altered(backend, request, change_of)


def _changes(configs: list[dict[str, Any]], known: TopicConfig) -> Mapping[str, str | None]:
    """The changes that IncrementalAlterConfigs asks for, of a topic's settings as they are."""
    changes: dict[str, str | None] = {}
    for change in configs:
        name, value, operation = change["name"], change["value"], change["config_operation"]
        if operation == _DELETE and not _is_there(name, known):
            continue  # of any name, as at a broker: mirrors take away all that is at its default at their source
        if operation in (_APPEND, _SUBTRACT):
            parts = [part for part in to_text(known[name]).split(",") if part]
            items = [part.strip() for part in value.split(",")]
            if operation == _APPEND:
                parts += [part for part in items if part not in parts]
            else:
                parts = [part for part in parts if part not in items]
            value = ",".join(parts)
        changes[name] = None if operation == _DELETE else value
    return changes


def _is_there(name: str, known: TopicConfig) -> bool:
    (bare,) = setting_names({name: None})
    return bare in TOPIC_SETTINGS or bare in known.explicit


async def _altered(
    backend: Backend, request: Request, change_of: Callable[[dict[str, Any]], _Change]
) -> dict[str, Any]:
    """Change each topic's settings in one commit, whatever becomes of the others."""
    body = request.body
    times = Counter((asked["resource_type"], asked["resource_name"]) for asked in body["resources"])

    def alter(resource: dict[str, Any]) -> dict[str, Any]:
        kind, name = resource["resource_type"], resource["resource_name"]
        answer: dict[str, Any] = {"resource_type": kind, "resource_name": name}
        try:
            if times[kind, name] > 1:
                raise _RefusedError(ErrorCode.INVALID_REQUEST, f"{name} is there {times[kind, name]} times")
            _check(resource)
            _alter(backend, request, name, change_of(resource))
        except _RefusedError as error:
            return {**answer, "error_code": error.code, "error_message": str(error)}
        except SparklogError as error:
            return {**answer, "error_code": code_of(error), "error_message": str(error)}
        return {**answer, "error_code": ErrorCode.NONE, "error_message": None}

    return {"responses": await backend.run(lambda: [alter(asked) for asked in body["resources"]])}


def _check(resource: dict[str, Any]) -> None:
    """Raise ``_RefusedError`` for what is no topic, or names a setting twice, or gives it no value. Source of the last
    two: Kafka ``ConfigAdminManager.preprocess``."""
    kind = resource["resource_type"]
    if kind != _TOPIC:
        message = f"resources of type {kind} have no settings here: expected {_TOPIC}, a topic"
        raise _RefusedError(ErrorCode.INVALID_REQUEST, message)
    names = Counter(setting["name"] for setting in resource["configs"])
    twice = sorted(name for name, count in names.items() if count > 1)
    if twice:
        raise _RefusedError(ErrorCode.INVALID_REQUEST, f"given more than once: {', '.join(twice)}")
    null = sorted(
        setting["name"]
        for setting in resource["configs"]
        if setting["value"] is None and setting.get("config_operation", _SET) != _DELETE
    )
    if null:
        raise _RefusedError(ErrorCode.INVALID_REQUEST, f"without a value: {', '.join(null)}")


def _alter(backend: Backend, request: Request, name: str, change: _Change) -> None:
    if request.body["validate_only"]:
        known = backend.describe(name).config
        known.with_changes(change(known))
        return
    alter_topic(backend.cluster.topic_log(name), name, change, timeout_ms=backend.bound_ms(request))


async def list_config_resources(backend: Backend, request: Request) -> dict[str, Any]:
    """The names of what may have settings: topics that the client may see, and this gateway. Nothing is set of groups,
    of clients' metrics, nor of loggers. Source: KIP-1142."""
    every = (_TOPIC, _BROKER, _BROKER_LOGGER, _CLIENT_METRICS, _GROUP)
    wanted = request.body.get("resource_types", [_CLIENT_METRICS]) or every
    if not set(wanted) <= {*every}:
        return {"error_code": ErrorCode.UNSUPPORTED_VERSION, "config_resources": []}
    rules, node_id = request.rules, str(node_id_of(*backend.address(request)))
    resources = [(_BROKER, node_id)] if _BROKER in wanted else []
    if _TOPIC in wanted:
        names = await backend.run_look(backend.admin.list_topics)
        resources += [(_TOPIC, name) for name in names if rules is None or rules.may_see(name)]
    return {"config_resources": [{"resource_type": kind, "resource_name": name} for kind, name in resources]}
