"""Documents as text, pages and figures; knows no estimate."""
