"""Forests of decision trees: XGBoost, LightGBM, scikit-learn, cuML"""
