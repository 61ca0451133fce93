"""What is made of the same thing is made once, and anew of another."""

from inferdbg.tui.drawing.once import once


def test_the_last_result_is_kept_while_the_subject_is_the_very_same() -> None:
    made: list[tuple[list[int], int]] = []

    @once
    def double(subject: list[int], width: int) -> list[int]:
        made.append((subject, width))
        return [2 * one for one in subject]

    first, equal = [1], [1]
    assert double(first, 5) is double(first, 5)
    assert len(made) == 1
    double(first, 6)
    double(equal, 6)
    assert len(made) == 3
    assert double(first, 6) == [2]
    assert len(made) == 4
