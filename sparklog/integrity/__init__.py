"""Is what lies in the store what sparklog says it is? A check of a whole cluster, and mending what is safe to mend."""

from sparklog.integrity.check import check_cluster
from sparklog.integrity.findings import SEVERITIES, Code, Counts, Finding, Report, Severity, Subject
from sparklog.integrity.repair import Repaired, repair_cluster

__all__ = [
    "SEVERITIES",
    "Code",
    "Counts",
    "Finding",
    "Repaired",
    "Report",
    "Severity",
    "Subject",
    "check_cluster",
    "repair_cluster",
]
