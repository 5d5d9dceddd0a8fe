"""HTTP over what the rest of the house can do. Nothing imports it but the command line."""
