"""A consumer's settings as its group membership needs them."""

from __future__ import annotations

import socket

from sparklog.config import ConsumerConfig
from sparklog.errors import InvalidArgumentError, InvalidConfigurationError
from sparklog.groups.assignors import ASSIGNORS, Assignor, assignor_of
from sparklog.groups.membership.membership import MemberSettings
from sparklog.paths import encode_id

__all__ = ["member_settings"]

_DEFAULT_STRATEGY = ("range", "cooperative-sticky")
"""Source: Kafka ``ConsumerConfig.PARTITION_ASSIGNMENT_STRATEGY_CONFIG``."""


def member_settings(config: ConsumerConfig, group_id: str) -> MemberSettings:
    """The settings of a member. Raises ``InvalidConfigurationError``."""
    strategy = config.partition_assignment_strategy
    try:
        encode_id(group_id)
        assignors = _assignors(_DEFAULT_STRATEGY if strategy is None else strategy)
    except InvalidArgumentError as error:
        raise InvalidConfigurationError(f"group_id={group_id!r}: {error}") from None
    except ValueError as error:
        raise InvalidConfigurationError(f"partition_assignment_strategy={strategy!r}: {error}") from None
    return MemberSettings(
        group_id=group_id,
        instance_id=config.group_instance_id,
        client_id=config.client_id or "",
        host=socket.gethostname(),
        session_timeout_ms=config.session_timeout_ms,
        heartbeat_interval_ms=config.heartbeat_interval_ms,
        max_poll_interval_ms=config.max_poll_interval_ms,
        metadata_max_age_ms=config.metadata_max_age_ms,
        assignors={assignor.name: assignor for assignor in assignors},
        # Who names an eager assignor wants its callbacks; who names none gets what Kafka's newest protocol does.
        is_eager=strategy is not None and not all(assignor.is_cooperative for assignor in assignors),
        reads_from_start=config.auto_offset_reset.kind == "earliest",
    )


def _assignors(strategy: object) -> list[Assignor]:
    if isinstance(strategy, str):
        strategy = [name.strip() for name in strategy.split(",")]
    if not isinstance(strategy, list | tuple):
        strategy = [strategy]
    if not strategy:
        raise ValueError(f"expected one of {', '.join(ASSIGNORS)}, or a list")
    return [assignor_of(assignor) for assignor in strategy]
