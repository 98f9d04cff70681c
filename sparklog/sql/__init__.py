"""SQL over topics by DuckDB (extra ``sql``), on every store that sparklog runs on. Alone imports duckdb."""

from sparklog.sql.dataset import TOPIC_COLUMNS, topic_dataset
from sparklog.sql.duck import QueryResult, connect, query

__all__ = ["TOPIC_COLUMNS", "QueryResult", "connect", "query", "topic_dataset"]
