"""How well a model does on given text."""
