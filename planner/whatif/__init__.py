"""What the dashboard shows beside the report: charts with their tables, legal values, sweeps, comparisons. Plain data out."""
