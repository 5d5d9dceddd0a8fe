"""What a search is asked for, and what it finds: shared by every engine. No torch here."""
