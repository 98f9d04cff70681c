"""Order, payment, mail: each once, whatever fails."""
