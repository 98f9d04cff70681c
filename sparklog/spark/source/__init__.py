"""``format("sparklog")`` as Spark sees it: the data source, its readers and writers."""
