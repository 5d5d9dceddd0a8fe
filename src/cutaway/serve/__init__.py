"""HTTP over what the rest of the package can do. Nothing imports it but the command line."""
