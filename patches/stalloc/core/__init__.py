"""What both wings need: settings, log, libraries, files of a run. Imports nothing else of the package."""
