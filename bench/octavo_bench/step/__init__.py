"""Where the time of one engine step goes, phase by phase."""
