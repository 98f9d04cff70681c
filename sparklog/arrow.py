"""Arrow and numpy for modules that rarely need them: they are imported at their first use.

Arrow takes 60 MiB of memory and a third of a second: whoever only looks at logs, as the exporter does, goes without.
"""

import sys
from typing import TYPE_CHECKING

from sparklog.lazy_imports import module_on_use

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq
else:
    pa = module_on_use("pyarrow")
    pc = module_on_use("pyarrow.compute")
    pq = module_on_use("pyarrow.parquet")

__all__ = ["is_arrow_loaded", "pa", "pc", "pq"]


def is_arrow_loaded() -> bool:
    """Has the process loaded Arrow, so that using it costs nothing more?"""
    return "pyarrow" in sys.modules
