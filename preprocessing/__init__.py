"""
From the pixels of a page to the arrays that the models of the reader take, and from what they answer to words.

One module per step: `pages`, `boxes` and the `components` that they are made of, `crops`, `words`, `order`, `answers`.
Functions of their arguments and nothing else: no files, no models, no state.
"""
