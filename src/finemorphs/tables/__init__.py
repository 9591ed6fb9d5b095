"""Tables in files: read by pieces, prepared for a model by a recipe, written whole.

CSV, TSV and other delimited text, compressed or not, and Parquet (``finemorphs[parquet]``).
"""

from __future__ import annotations

from finemorphs.tables.read import read_chunks, read_table
from finemorphs.tables.recipe import Recipe
from finemorphs.tables.table import Cells, Column, Numbers, Table
from finemorphs.tables.write import Writer

__all__ = ["Cells", "Column", "Numbers", "Recipe", "Table", "Writer", "read_chunks", "read_table"]
