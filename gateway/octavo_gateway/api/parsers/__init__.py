"""From a model's text to what clients see: thoughts, words and tool calls. One file per format that models write."""
