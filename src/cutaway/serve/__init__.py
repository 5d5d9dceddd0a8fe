"""The HTTP server: the JSON API and the explorer page. Only the command line imports this package."""
