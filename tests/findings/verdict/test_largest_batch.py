"""Where memory ran out."""

from example_findings import FAST, FLAT, GHOST, HERE, OOM, STANDARD, run, told
from example_results import comparison, result

TOPIC = "Largest batch"


def test_where_memory_ran_out_is_said_with_what_fitted() -> None:
    cells = [run(STANDARD, 0.1, 10), result(FLAT, failure=OOM), run(GHOST, 0.2, 20), run(FAST, 0.2, 20)]
    said = told(comparison(*cells), TOPIC)
    assert said == f"Memory ran out at {HERE} with flat, while standard, ghost and fast fitted."
    many = comparison(*(result(FLAT, failure=OOM, batch_size=batch) for batch in range(1, 6)))
    assert told(many, TOPIC).endswith("; and at 2 more places.")
