"""Groups of Kafka's clients as their coordinator sees them: members, generations, assignments. All in memory."""
