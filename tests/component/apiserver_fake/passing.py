"""Time that passes at once, for tests at real connections whose server waits for seconds to be over."""

import asyncio


def pass_time(seconds):
    """Have the running loop find that so much time is over: what waits for that goes on in its next round."""
    loop = asyncio.get_running_loop()
    before = loop.time
    loop.time = lambda: before() + seconds
