"""Where jobs live: the protocol, and its stores on Redis and in memory."""
