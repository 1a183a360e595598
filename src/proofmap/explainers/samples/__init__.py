"""The samples of explainers: choice by an index, concatenation, data frames, and inputs clamped to a domain."""
