"""The paper's comparisons: as data, their runner, and the report."""
