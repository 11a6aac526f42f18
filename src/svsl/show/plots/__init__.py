"""Figures: `draw_` functions draw into given axes, `_figure` functions return a figure, `plot_` ones write files."""
