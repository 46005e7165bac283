"""Templates: each file knows one form of loop nest, and says which groups of nodes it can compute."""
