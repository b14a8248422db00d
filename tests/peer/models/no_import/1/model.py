import a_module_that_there_is_not  # noqa: F401 - it is not there to be used
