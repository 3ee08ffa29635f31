"""What the benches share: servers, meters, receipts, and what is reckoned from them."""
