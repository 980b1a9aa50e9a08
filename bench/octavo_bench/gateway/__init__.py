"""What the HTTP gateway costs, with a stub in place of the model."""
