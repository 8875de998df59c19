"""`stalloc.apply` and `stalloc.recompute`: a choice of `stalloc fit`, carried out on a model."""
