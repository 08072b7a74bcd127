"""The dashboard: HTML pages for people, each with a JSON twin. A page only shows the contents of its document, and computes
nothing about a session itself."""
