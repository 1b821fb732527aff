"""How fast a clipped gradient and a fit are: workloads, one process per library, tables, plots."""
