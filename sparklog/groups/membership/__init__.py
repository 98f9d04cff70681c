"""Who is in a group and who reads what: heartbeats, generations, and what each member does to follow them."""
