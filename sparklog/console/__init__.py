"""A cluster in the browser (extra ``ui``): topics and their records, groups, transactions, SQL; the same as JSON."""

from sparklog.console.app import create_app
from sparklog.console.backend import Backend
from sparklog.console.passwords import hash_password, parse_users
from sparklog.console.server import serve
from sparklog.console.settings import ConsoleSettings
from sparklog.console.wire_formats import NamedSchema

__all__ = ["Backend", "ConsoleSettings", "NamedSchema", "create_app", "hash_password", "parse_users", "serve"]
