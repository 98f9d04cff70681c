"""SQL over topics by Spark: views, and the expressions in them."""
