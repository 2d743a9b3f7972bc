"""Lines of a figure that coincide are both visible."""

from foretell.report.reproduce.traces import line


def test_later_lines_are_thinner_than_those_below_them() -> None:
    lines = [line(name, [(1.0, 1.0), (2.0, 0.9)], place) for place, name in enumerate("abc")]
    widths = [line["line"]["width"] for line in lines]
    sizes = [line["marker"]["size"] for line in lines]
    assert widths == sorted(set(widths), reverse=True)
    assert sizes == sorted(set(sizes), reverse=True)
