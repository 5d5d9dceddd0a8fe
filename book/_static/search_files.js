// Search results show excerpts of their pages by fetch(), which browsers refuse for files. Without excerpts, search works there too.
if (location.protocol === "file:") DOCUMENTATION_OPTIONS.SHOW_SEARCH_SUMMARY = false;
