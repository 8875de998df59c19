"""Reports of a traced run: HTML, Markdown and JSON, from what `stalloc-planner report` aggregates.

`collect` asks the planner, `figures` derives what every form shows, `page` and `markdown` render.
"""
