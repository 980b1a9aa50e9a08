"""`octavo top`: a server's cache and queue in a terminal."""
