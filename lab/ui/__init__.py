"""The live page: a server that relays a mesh and recordings to a browser, and the page itself."""
