"""What the build writes into an installed package; absent in the source tree."""

VERSION: str
