"""The mark is not in this file, so the tier of the clock would never find the test"""

from tests.planted.marks import OF_REAL_TIME


@OF_REAL_TIME
def test_of_real_time() -> None:
    pass
