"""The course: lessons that run, exercises that are checked, a laboratory to break things in."""
