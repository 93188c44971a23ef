"""From tidy tables to what a reader sees: intervals, tables, plots, and one look per method. Never trains, never loads torch."""
