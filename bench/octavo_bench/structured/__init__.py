"""What structured output costs."""
