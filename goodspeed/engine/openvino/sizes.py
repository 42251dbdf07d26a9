"""The number of rows of a pass. No OpenVINO: simulated worlds have such passes, too."""


class Size:
    """The rows of the passes, with spare ones.

    OpenVINO prepares each operation again if a pass has another number of rows than the one before. This takes 4 ms for
    SmolLM2-135M, as long as six to eight rows. So a pass keeps the larger size of the one before, until spare rows have
    taken as long since a pass needed it.
    """

    def __init__(self, change_rows: float) -> None:
        self._most = change_rows
        self._size = 0
        self._num_spare = 0

    def of(self, num_rows: int) -> int:
        """Returns how many rows the next pass computes, num_rows of which are needed."""
        self._num_spare += self._size - num_rows
        if self._num_spare > self._most or self._size <= num_rows:
            self._size, self._num_spare = num_rows, 0
        return self._size
