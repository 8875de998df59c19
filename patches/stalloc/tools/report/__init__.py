"""Reports of a traced run: HTML, Markdown and JSON, from what `stalloc-planner serve` aggregates.

`collect` queries the planner, `figures` derives what every form shows, `page` and `markdown` render.
"""
