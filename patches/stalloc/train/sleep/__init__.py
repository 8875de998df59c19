"""Sleep and wake: `api` what a program calls, `figures` what it gets, `server` and `client` the socket for others."""
