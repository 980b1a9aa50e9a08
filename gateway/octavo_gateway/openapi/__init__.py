"""The description of the API: an OpenAPI 3.1 document made from the structs that decode requests, and a page of it."""
