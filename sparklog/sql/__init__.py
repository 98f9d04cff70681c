"""SQL over topics by DuckDB (extra ``sql``), on every store that sparklog runs on. Alone imports duckdb."""

from typing import TYPE_CHECKING

from sparklog.lazy_imports import import_on_use

if TYPE_CHECKING:
    from sparklog.sql.dataset import TOPIC_COLUMNS, topic_dataset
    from sparklog.sql.duck import QueryResult, connect, query
else:
    __getattr__, __dir__ = import_on_use(
        __name__,
        {
            "sparklog.sql.dataset": ("TOPIC_COLUMNS", "topic_dataset"),
            "sparklog.sql.duck": ("QueryResult", "connect", "query"),
        },
    )

__all__ = ["TOPIC_COLUMNS", "QueryResult", "connect", "query", "topic_dataset"]
