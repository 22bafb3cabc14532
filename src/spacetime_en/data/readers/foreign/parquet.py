"""Parquet files, read by pyarrow."""

import json
import sys
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

_MOST_COLUMNS = 1000


def read(path: str, columns: str | None) -> tuple[dict[str, Any], dict[str, str]]:
    """Read the names of all columns, or the numbers, times and labels of those in `columns`.

    Labels are returned as codes and their values: numbers as an array, names as a text.
    """
    with pq.ParquetFile(path) as file:
        names = file.schema_arrow.names
        if len(names) > _MOST_COLUMNS:
            sys.exit(f"has {len(names)} columns, and {_MOST_COLUMNS} are the most")
        if columns is None:
            return {}, {"names": json.dumps(names)}
        arrays: dict[str, Any] = {}
        texts: dict[str, str] = {}
        for place, (name, kind) in enumerate(json.loads(columns).items()):
            if "." in name and name not in names:
                sys.exit(f"there is no column {name!r}")
            column = file.read([name]).column(name)
            if kind == "label":
                codes, values = _labels(name, column)
                arrays[f"column{place}"] = codes
                if pa.types.is_integer(values.type):
                    arrays[f"values{place}"] = values.to_numpy(zero_copy_only=False)
                else:
                    texts[f"column{place}"] = json.dumps([str(v) for v in values.to_pylist()])
            else:
                arrays[f"column{place}"] = _numbers(name, column)
        return arrays, texts


def _labels(name: str, column: Any) -> tuple[Any, Any]:
    if column.null_count:
        sys.exit(f"{name}: is missing in {column.null_count} rows")
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if pa.types.is_floating(column.type):
        whole = pc.all(pc.equal(column, pc.floor(column))).as_py()
        column = column.cast(pa.int64() if whole else pa.string())
    if not (
        pa.types.is_integer(column.type)
        or pa.types.is_string(column.type)
        or pa.types.is_large_string(column.type)
    ):
        sys.exit(f"{name}: expected numbers or texts, found {column.type}")
    encoded = column.combine_chunks().dictionary_encode()
    if isinstance(encoded, pa.ChunkedArray):
        encoded = encoded.combine_chunks()
    return encoded.indices.to_numpy(zero_copy_only=False), encoded.dictionary


def _numbers(name: str, column: Any) -> Any:
    kind = column.type
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        column = column.cast(pa.timestamp("ns")).cast(pa.int64())
        return column.to_numpy().astype(np.float64) / 1e9
    if not (
        pa.types.is_integer(kind)
        or pa.types.is_floating(kind)
        or pa.types.is_boolean(kind)
        or pa.types.is_decimal(kind)
    ):
        sys.exit(f"{name}: expected numbers, found {kind}")
    return column.cast(pa.float64()).to_numpy()
