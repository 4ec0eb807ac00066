from dpprof.vocabulary.order import listed_first


def test_what_a_table_lists_comes_first_and_nothing_is_left_out() -> None:
    found = listed_first(["x", "b", "y", "a", "x"], ["a", "b", "c"])
    assert found == ["a", "b", "x", "y"]
