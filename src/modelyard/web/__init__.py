"""The yard in a browser: pages rendered here, kept up to date by one stream each.

One file per page, with its template in `templates/` and its module, if it has one, in `static/`.
`app.py` has the table of pages; `site.py` is what a page gets.
"""
