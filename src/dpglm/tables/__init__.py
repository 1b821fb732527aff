"""From a user's table to numbers: schema, columns, cells, targets, files."""
