"""The samples of explanations: choice by an index, concatenation, and data frames."""
