"""Go's text/template, read as Go 1.19 reads it, and written as Jinja that renders the same bytes."""
