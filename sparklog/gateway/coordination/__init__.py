"""Groups of Kafka's clients on their coordinator: members, generations, assignments. All in memory."""
