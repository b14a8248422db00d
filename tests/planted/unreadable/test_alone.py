"""Has tests of the tier alone, as pytest.mark.alone would say"""

raise AssertionError("somebody has read it")
