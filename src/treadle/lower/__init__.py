"""From IR to StableHLO: `stablehlo.lower_module` walks a module with the builder that the ops' `hlo` rules use."""
