"""What all else stands on: settings, log, library, ranks, patching. Imports nothing else of the package."""
