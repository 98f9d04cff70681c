"""336,776 departures from New York in 2013 through sparklog; `make demo` runs it."""
