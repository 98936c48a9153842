"""Who watches a run: progress in a terminal, summary.json, Ray metrics, what the judge used."""
