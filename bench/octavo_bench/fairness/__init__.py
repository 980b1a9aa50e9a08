"""What tenants get of a server that they share: equal parts, and a light one is not held up by a flood."""
