"""Money: what a finding wastes, priced by a dated book, and totals that count nothing twice."""
