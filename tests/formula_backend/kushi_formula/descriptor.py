"""What Kushi knows about formulas before one is loaded"""

from runners.backends import Descriptor

DESCRIPTOR = Descriptor(
    name="formula",
    loads="kushi_formula.backend:FormulaBackend",
    kinds=(("formula_text", "model.formula"),),
    install="kushi-formula",
)
