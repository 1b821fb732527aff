"""Estimators made of others: pipelines, searches, transformers."""
